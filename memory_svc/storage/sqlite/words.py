"""The word index, read: terms in fields and windows ranked by BM25 (k1 and b in bm25.py), phrases, pieces of words.

A term stands under the code of its corpus (an agent's rows of one kind), so that a query reads no other agent's rows,
and how many rows hold a word is counted in the corpus alone. A window's counts are those of a row and its neighbours.
"""

from collections.abc import Sequence
from typing import NamedTuple

import apsw
import numpy as np
from numpy.typing import NDArray

from memory_svc.domain.memory import Kind
from memory_svc.domain.scope import Scope
from memory_svc.domain.terms import term
from memory_svc.domain.text import is_single_character
from memory_svc.storage.sqlite import bm25
from memory_svc.storage.sqlite.bm25 import Floats, Integers, Postings
from memory_svc.storage.sqlite.connection import numbers
from memory_svc.storage.sqlite.scope import where
from memory_svc.storage.sqlite.windows import Cells

TABLES = {Kind.MEMORY: "memories", Kind.EPISODE: "episodes"}
# Each place of a term: its document, and the first letter of its field.
PLACES = "SELECT group_concat(doc), group_concat(substr(col, 1, 1), '') FROM postings WHERE term"
LAST = "\U0010ffff"
NOBODY = -1
WORDS_MAX = 64
LARGE_ROWS = 200_000
READ_ROWS_MAX = 40_000
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
    """What is searched: the codes of its terms, its rows, and the terms they and their windows hold on average."""

    kind: Kind
    codes: tuple[int, ...]
    rows: int
    terms_mean: float
    window_mean: float


class Asked(NamedTuple):
    """Words to look for, and how many rows to give by fields and by windows.

    also: documents of the scope that other arms have found; those that hold a word, or stand beside one, come too.
    """

    words: Sequence[str]
    depth: int
    also: Sequence[int] = ()


class Row(NamedTuple):
    """A row of the word arm.

    field, window: scores over the best of the scope. held: bit n = it holds the nth word. speaker: whether a word names
    the one who speaks.
    """

    document: int
    field: float
    window: float
    held: int
    speaker: bool


class Found(NamedTuple):
    """Rows, best field scores and best window scores together, by document; and what the words tell.

    words: those looked for; of several with one stem the first. frequencies: how many rows of the corpus hold each.
    rows_count: how many rows there are.
    """

    rows: tuple[Row, ...] = ()
    words: tuple[str, ...] = ()
    frequencies: tuple[int, ...] = ()
    rows_count: int = 0


def ranked(
    connection: apsw.Connection, scope: Scope, kind: Kind, asked: Sequence[str], depth: int
) -> list[tuple[int, float]]:
    """(document, score over the best score) of the best rows of a kind in the scope, by fields; ties by document."""
    corpus = corpus_of(connection, scope, kind)
    if corpus is None:
        return []
    arm = Arm(connection, corpus, asked)
    top = best_in_scope(connection, scope, kind, (arm.ids, arm.fields), depth)
    scores = _scaled(arm.fields, top)[top]
    return list(zip((arm.ids[top] << 4 | kind.code).tolist(), scores.tolist(), strict=True))


def windowed(connection: apsw.Connection, scope: Scope, kind: Kind, asked: Asked) -> Found:
    """The best rows of a kind in the scope by their fields, and by their windows."""
    corpus = corpus_of(connection, scope, kind)
    if corpus is None:
        return Found()
    arm = Arm(connection, corpus, asked.words)
    ids, windows = arm.windows()
    own = bm25.places_in(ids, arm.ids)
    fields, held = np.zeros(len(ids)), np.zeros(len(ids), np.uint64)
    speaker = np.zeros(len(ids), np.bool_)
    fields[own], held[own], speaker[own] = arm.fields, arm.held(), arm.speaker()
    tops = [best_in_scope(connection, scope, kind, (ids, scores), asked.depth) for scores in (fields, windows)]
    also = [document >> 4 for document in asked.also if document & 15 == kind.code]
    known = np.flatnonzero(np.isin(ids, np.array(also))) if also else NO_PLACES
    chosen = bm25.distinct(np.concatenate([*tops, known]))
    scaled = [_scaled(scores, top) for scores, top in zip((fields, windows), tops, strict=True)]
    rows = zip(*(column[chosen].tolist() for column in (ids << 4 | kind.code, *scaled, held, speaker)), strict=True)
    return Found(tuple(map(Row._make, rows)), arm.words, tuple(arm.frequencies.tolist()), corpus.rows)


def frequencies(
    connection: apsw.Connection, scope: Scope, kind: Kind, asked: Sequence[str]
) -> tuple[tuple[int, ...], int]:
    """How many rows of the scope's agent hold each of these words, and how many rows there are."""
    corpus = corpus_of(connection, scope, kind)
    if corpus is None:
        return (0,) * len(asked), 0
    arm = Arm(connection, corpus, asked)
    counts = dict(zip(map(term, arm.words), arm.frequencies.tolist(), strict=True))
    return tuple(counts.get(term(word), 0) for word in asked), corpus.rows


def corpus_of(connection: apsw.Connection, scope: Scope, kind: Kind) -> Corpus | None:
    """What a query in the scope searches; None where there is nothing."""
    if kind is Kind.EPISODE and not scope.shows_episodes():
        return None
    statement = "SELECT code, rows, terms, windows FROM corpora WHERE kind = ?"
    if scope.agent is None:
        found = list(connection.execute(f"{statement} ORDER BY code", (kind.code,)))
    else:
        found = list(connection.execute(f"{statement} AND agent = ?", (kind.code, scope.agent)))
    rows = sum(each[1] for each in found)
    if not rows:
        return None
    terms_mean, window_mean = (sum(each[column] for each in found) / rows for column in (2, 3))
    return Corpus(kind, tuple(each[0] for each in found), rows, terms_mean, window_mean)


def best_in_scope(
    connection: apsw.Connection, scope: Scope, kind: Kind, scored: tuple[Integers, Floats], depth: int
) -> Integers:
    """The places of the best of these rows that lie in the scope, best first. The agent is in the terms already."""
    ids, scores = scored
    if scope == Scope(agent=scope.agent):
        return bm25.best(scores, depth)
    size = depth
    while True:
        top = bm25.best(scores, size)
        kept = top[np.isin(ids[top], ids_in_scope(connection, scope, kind, ids[top]))]
        if len(kept) >= depth or len(top) < size:
            return kept[:depth]
        size *= 4


def quoted(code: int, word: str) -> str:
    """An FTS5 query for a word of a corpus, as a quoted string: nothing in it is an operator."""
    text = f"{code}:{term(word)}".replace('"', '""')
    return f'"{text}"' + (" *" if is_single_character(word) else "")


def ids_in_scope(connection: apsw.Connection, scope: Scope, kind: Kind, ids: Integers) -> list[int]:
    """Those of these ids of a kind that lie in the scope."""
    table = TABLES[kind]
    condition, values = where(scope, table, has_source=kind is Kind.MEMORY)
    statement = (
        f"SELECT {table}.id FROM json_each(?) AS asked CROSS JOIN {table} ON {table}.id = asked.value WHERE {condition}"
    )
    return [id for (id,) in connection.execute(statement, (numbers(ids.tolist()), *values))]


def read_places(connection: apsw.Connection, terms: Sequence[str], *, heads: bool = False) -> tuple[Integers, Letters]:
    """The document of every place of these terms, those of one document side by side, and the first letters of fields.

    heads: every term that begins with one of these.
    """
    condition, ends = ("BETWEEN ? AND ?", (LAST,)) if heads else ("= ?", ())
    read = [next(connection.execute(f"{PLACES} {condition}", (each, *(each + end for end in ends)))) for each in terms]
    documents = np.fromstring(",".join(documents for documents, _ in read if documents), np.int64, sep=",")
    letters = np.frombuffer("".join(letters for _, letters in read if letters).encode(), np.uint8)
    if not heads:
        return documents, letters
    order = np.argsort(documents, kind="stable")
    return documents[order], letters[order]


class Arm:
    """The postings of a query's words in a corpus, and the scores that follow from them."""

    def __init__(self, connection: apsw.Connection, corpus: Corpus, asked: Sequence[str]) -> None:
        self._corpus = corpus
        self._cells = Cells(connection, corpus.kind)
        first = {term(word): word for word in reversed(asked)}
        self.words = tuple(first[each] for each in dict.fromkeys(map(term, asked)))[:WORDS_MAX]
        self._postings, self.frequencies = _postings(connection, corpus, self.words)
        self.ids = bm25.distinct(self._postings.ids)
        self._places = bm25.places_in(self.ids, self._postings.ids)
        self._own = self._cells.of(self.ids)
        lengths = self._own["terms"].astype(np.int64)
        weights = bm25.idf(self.frequencies, corpus.rows)
        self.fields = bm25.field_scores(self._postings, self._places, lengths, corpus.terms_mean, weights)

    def held(self) -> NDArray[np.uint64]:
        """Of each row which words it holds: bit n for the nth."""
        bits = np.zeros(len(self.ids), np.uint64)
        for at, inside in enumerate(self._postings.slices(len(self.words))):
            bits[self._places[inside]] |= np.uint64(1 << at)
        return bits

    def speaker(self) -> NDArray[np.bool_]:
        """Of each row whether one of the words names who speaks."""
        return np.bincount(self._places, self._postings.speakers, len(self.ids)) > 0.0

    def windows(self) -> tuple[Integers, Floats]:
        """The rows that hold a word or stand beside one that does, in order, and the scores of their windows."""
        beside = [
            np.where(away != 0, self.ids + away, NOBODY)
            for away in (self._own[side].astype(np.int64) for side in ("before", "after"))
        ]
        near = np.concatenate([self.ids, *beside])
        ids = bm25.distinct(near[near != NOBODY])
        norms = bm25.window_norms(self._cells.of(ids)["window"].astype(np.int64), self._corpus.window_mean)
        places = np.stack([_places_or_end(ids, each) for each in (self.ids, *beside)])[:, self._places]
        return ids, bm25.window_scores(self._postings, places, norms, len(self.words), self._corpus.rows)


def _postings(connection: apsw.Connection, corpus: Corpus, asked: Sequence[str]) -> tuple[Postings, Integers]:
    """The postings of these words, and how many rows hold each.

    In a large corpus the rarest words are read and find the rows; the others only add to the rows so found.
    """
    read = [NOT_READ] * len(asked)
    counts = _counts(connection, corpus, asked)
    finders = _finders(counts, len(asked))
    for at in finders:
        terms = [f"{code}:{term(asked[at])}" for code in corpus.codes]
        read[at] = read_places(connection, terms, heads=is_single_character(asked[at]))
    for at in set(range(len(asked))) - set(finders):
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
    if corpus.rows < LARGE_ROWS or len(corpus.codes) > 1:
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
    statement = "SELECT group_concat(rowid) FROM words WHERE words MATCH ?"
    found = next(connection.execute(statement, (f"({either}) AND {quoted(code, word)}",)))[0]
    return np.fromstring(found or "", np.int64, sep=",")


def _scaled(scores: Floats, top: Integers) -> Floats:
    return scores / scores[top[0]] if len(top) else scores


def _places_or_end(universe: Integers, ids: Integers) -> Integers:
    """Where each row stands in the universe; nobody stands behind its end."""
    there = ids != NOBODY
    found = np.full(len(ids), len(universe))
    found[there] = bm25.places_in(universe, ids[there])
    return found
