"""Postings: the places of terms in a corpus, read from FTS5.

A term stands under the code of its corpus (an agent's rows of one kind), so that a query reads no other agent's rows,
and how many rows hold a word is counted in the corpus alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import apsw
import numpy as np
from numpy.typing import NDArray

from memory_svc.domain.memory import Kind
from memory_svc.domain.scope import CANARY_AGENT, Scope
from memory_svc.domain.terms import term
from memory_svc.domain.text import is_single_character
from memory_svc.storage.sqlite import bm25
from memory_svc.storage.sqlite.bm25 import Floats, Integers, Postings

# Each place of a term: its document, and the first letter of its field.
PLACES = "SELECT group_concat(doc), group_concat(substr(col, 1, 1), '') FROM postings WHERE term"
LAST = "\U0010ffff"
LARGE_ROWS = 200_000
READ_ROWS_MAX = 40_000
FINDERS_MAX = 8
Letters = NDArray[np.uint8]
NO_PLACES = np.zeros(0, np.int64)
NOT_READ = (NO_PLACES, np.zeros(0, np.uint8))


def _by_letter(**values: float) -> Floats:
    table = np.zeros(ord("z"))
    for letter, value in values.items():
        table[ord(letter)] = value
    return table


# How much a place counts by its field (speaker, date, text, extras), and whether it counts in a window.
WEIGHTS = _by_letter(s=1.0, d=0.5, t=2.0, e=1.0)
BODIES = _by_letter(t=1.0, e=1.0)
SPEAKERS = _by_letter(s=1.0)


class Corpus(NamedTuple):
    """What is searched: the codes of its terms, its rows, and the terms they and their windows hold on average.

    is_narrow: only rows of some time, or some tags or metadata, count; those with the rarest words may all be others.
    """

    kind: Kind
    codes: tuple[int, ...]
    rows: int
    terms_mean: float
    window_mean: float
    is_narrow: bool = False


def corpus_of(connection: apsw.Connection, scope: Scope, kind: Kind) -> Corpus | None:
    """What a query in the scope searches; None where there is nothing."""
    if not scope.shows(kind):
        return None
    statement = "SELECT code, rows, terms, windows FROM corpora WHERE kind = ?"
    if scope.agent is None:
        found = list(connection.execute(f"{statement} AND agent <> ? ORDER BY code", (kind.code, CANARY_AGENT)))
    else:
        found = list(connection.execute(f"{statement} AND agent = ?", (kind.code, scope.agent)))
    rows = sum(each[1] for each in found)
    if not rows:
        return None
    terms_mean, window_mean = (sum(each[column] for each in found) / rows for column in (2, 3))
    return Corpus(
        kind, tuple(each[0] for each in found), rows, terms_mean, window_mean, scope.is_timed or scope.is_filtered
    )


def quoted(code: int, word: str) -> str:
    """An FTS5 query for a word of a corpus, as a quoted string: nothing in it is an operator."""
    text = f"{code}:{term(word)}".replace('"', '""')
    return f'"{text}"' + (" *" if is_single_character(word) else "")


def read_places(connection: apsw.Connection, terms: Sequence[str], *, heads: bool = False) -> tuple[Integers, Letters]:
    """The document of every place of these terms, those of one document side by side, and the first letters of fields.

    heads: every term that begins with one of these.
    """
    condition, ends = ("BETWEEN ? AND ?", (LAST,)) if heads else ("= ?", ())
    read = [next(connection.execute(f"{PLACES} {condition}", (each, *(each + end for end in ends)))) for each in terms]
    letters = np.frombuffer("".join(letters for _, letters in read if letters).encode(), np.uint8)
    documents = _numbers(",".join(documents for documents, _ in read if documents), len(letters))
    if not heads:
        return documents, letters
    order = np.argsort(documents, kind="stable")
    return documents[order], letters[order]


def _numbers(joined: str | None, count: int) -> Integers:
    """So many numbers between commas.

    Told how many, numpy takes memory for them once; else it grows it bit by bit, which leaves the heap in pieces.
    """
    return np.fromstring(joined, np.int64, count, sep=",") if joined else NO_PLACES


def read_postings(connection: apsw.Connection, corpus: Corpus, asked: Sequence[str]) -> tuple[Postings, Integers]:
    """The postings of these words, and how many rows hold each.

    In a large corpus the rarest words are read and find the rows; the others only add to the rows so found, and where
    many words find rows already they add nothing.
    """
    read = [NOT_READ] * len(asked)
    counts = _counts(connection, corpus, asked)
    finders = _finders(counts, len(asked))
    for at in finders:
        terms = [f"{code}:{term(asked[at])}" for code in corpus.codes]
        read[at] = read_places(connection, terms, heads=is_single_character(asked[at]))
    for at in set(range(len(asked))) - set(finders) if len(finders) <= FINDERS_MAX else ():
        found = _held_beside(connection, corpus, [asked[each] for each in finders], asked[at])
        read[at] = found, np.full(len(found), ord("t"), np.uint8)
    ids = np.concatenate([NO_PLACES, *(documents for documents, _ in read)]) >> 4
    letters = np.concatenate([NO_PLACES, *(letters for _, letters in read)])
    places = np.repeat(np.arange(len(read)), [len(letters) for _, letters in read])
    counted = WEIGHTS[letters] > 0.0
    if not counted.all():
        ids, letters, places = ids[counted], letters[counted], places[counted]
    postings = bm25.gathered(places, ids, WEIGHTS[letters], BODIES[letters], SPEAKERS[letters])
    frequencies = postings.frequencies(len(asked))
    return postings, frequencies if not counts else np.maximum(frequencies, np.array(counts))


def _counts(connection: apsw.Connection, corpus: Corpus, asked: Sequence[str]) -> list[int]:
    """In how many rows each word stands; [] where reading them costs no more than to count."""
    if corpus.rows < LARGE_ROWS or len(corpus.codes) > 1 or corpus.is_narrow:
        return []
    statement = "SELECT count(*) FROM words WHERE words MATCH ?"
    return [next(connection.execute(statement, (quoted(corpus.codes[0], word),)))[0] for word in asked]


def _finders(counts: Sequence[int], asked_count: int) -> list[int]:
    """Which words are read: the rarest ones, until they stand in more rows than are to be read."""
    if not counts:
        return list(range(asked_count))
    finders: list[int] = []
    total = 0
    for at in sorted(range(asked_count), key=lambda each: (counts[each], each)):
        total += counts[at]
        if total > READ_ROWS_MAX and any(counts[each] for each in finders):
            break
        finders.append(at)
    return finders


def _held_beside(connection: apsw.Connection, corpus: Corpus, finders: Sequence[str], word: str) -> Integers:
    """The documents that hold the word and one of the finders."""
    code = corpus.codes[0]
    either = " OR ".join(quoted(code, finder) for finder in finders)
    statement = "SELECT group_concat(rowid), count(*) FROM words WHERE words MATCH ?"
    return _numbers(*next(connection.execute(statement, (f"({either}) AND {quoted(code, word)}",))))
