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
# A place of a term comes as its document and the first letter of its field, one number of three digits, side by side.
PLACES = "SELECT group_concat(doc || unicode(col)) FROM postings WHERE term"
LETTERS = 1000
LAST = "\U0010ffff"
NOBODY = -1
NO_PLACES = np.zeros(0, np.int64)


def _by_letter(**values: float) -> Floats:
    table = np.zeros(ord("z"))
    for letter, value in values.items():
        table[ord(letter)] = value
    return table


# How much a place counts by its field (speaker, date, text, extras), and whether it counts in a window.
WEIGHTS = _by_letter(s=1.0, d=0.5, t=2.0, e=1.0)
BODIES = _by_letter(t=1.0, e=1.0)


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
    """A row of the word arm. field, window: scores over the best of the scope. held: bit n = it holds the nth word."""

    document: int
    field: float
    window: float
    held: int


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
    top = best_in_scope(connection, scope, kind, (arm.documents, arm.fields), depth)
    best = arm.fields[top[0]] if len(top) else 1.0
    return list(zip(arm.documents[top].tolist(), (arm.fields[top] / best).tolist(), strict=True))


def windowed(connection: apsw.Connection, scope: Scope, kind: Kind, asked: Asked) -> Found:
    """The best rows of a kind in the scope by their fields, and by their windows."""
    corpus = corpus_of(connection, scope, kind)
    if corpus is None:
        return Found()
    arm = Arm(connection, corpus, asked.words)
    documents, windows = arm.windows()
    own = bm25.places_in(documents, arm.documents)
    fields = np.zeros(len(documents))
    fields[own] = arm.fields
    held = np.zeros(len(documents), np.uint64)
    held[own] = arm.held()
    tops = [best_in_scope(connection, scope, kind, (documents, scores), asked.depth) for scores in (fields, windows)]
    known = np.flatnonzero(np.isin(documents, np.array(asked.also))) if asked.also else NO_PLACES
    chosen = bm25.distinct(np.concatenate([*tops, known]))
    columns = [documents, *(_scaled(scores, top) for scores, top in zip((fields, windows), tops, strict=True)), held]
    rows = zip(*(column[chosen].tolist() for column in columns), strict=True)
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
    return tuple(counts[term(word)] for word in asked), corpus.rows


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
    """The places of the best documents that lie in the scope, best first. The agent is in the terms already."""
    documents, scores = scored
    if scope == Scope(agent=scope.agent):
        return bm25.best(scores, depth)
    size = depth
    while True:
        top = bm25.best(scores, size)
        seen = ids_in_scope(connection, scope, kind, documents[top] >> 4)
        kept = top[np.isin(documents[top] >> 4, seen)]
        if len(kept) >= depth or len(top) < size:
            return kept[:depth]
        size *= 4


def ids_in_scope(connection: apsw.Connection, scope: Scope, kind: Kind, ids: Integers) -> list[int]:
    """Those of these ids of a kind that lie in the scope."""
    table = TABLES[kind]
    condition, values = where(scope, table, has_source=kind is Kind.MEMORY)
    statement = (
        f"SELECT {table}.id FROM json_each(?) AS asked CROSS JOIN {table} ON {table}.id = asked.value WHERE {condition}"
    )
    return [id for (id,) in connection.execute(statement, (numbers(ids.tolist()), *values))]


def read_places(connection: apsw.Connection, terms: Sequence[str], *, heads: bool = False) -> Integers:
    """Every place of these terms, in order: a document times a thousand plus the first letter of the field.

    heads: every term that begins with one of these.
    """
    condition, values = (
        ("BETWEEN ? AND ?", lambda each: (each, each + LAST)) if heads else ("= ?", lambda each: (each,))
    )
    read = [next(connection.execute(f"{PLACES} {condition}", values(each)))[0] for each in terms]
    found = np.fromstring(",".join(filter(None, read)), np.int64, sep=",")
    return np.sort(found) if heads else found


class Arm:
    """The postings of a query's words in a corpus, and the scores that follow from them."""

    def __init__(self, connection: apsw.Connection, corpus: Corpus, asked: Sequence[str]) -> None:
        self._corpus = corpus
        self._cells = Cells(connection, corpus.kind)
        by_term = {term(word): word for word in reversed(asked)}
        self.words = tuple(word for word in dict.fromkeys(asked) if by_term[term(word)] == word)
        self._postings = _postings(connection, corpus, self.words)
        self.frequencies = self._postings.frequencies(len(self.words))
        self._weights = bm25.idf(self.frequencies, corpus.rows)
        self.documents = bm25.distinct(self._postings.documents)
        self._places = bm25.places_in(self.documents, self._postings.documents)
        self._own = self._cells.of(self.documents >> 4)
        lengths = self._own["terms"].astype(np.int64)
        self.fields = bm25.field_scores(self._postings, self._places, lengths, corpus.terms_mean, self._weights)

    def held(self) -> NDArray[np.uint64]:
        """Of each document which words it holds: bit n for the nth."""
        bits = np.zeros(len(self.documents), np.uint64)
        for at, inside in enumerate(self._postings.slices(len(self.words))):
            bits[self._places[inside]] |= np.uint64(1 << at)
        return bits

    def windows(self) -> tuple[Integers, Floats]:
        """The documents that hold a word or stand beside one that does, in order, and the scores of their windows."""
        beside = [
            np.where(away != 0, self.documents + (away << 4), NOBODY)
            for away in (self._own[side].astype(np.int64) for side in ("before", "after"))
        ]
        near = np.concatenate([self.documents, *beside])
        documents = bm25.distinct(near[near != NOBODY])
        lengths = self._cells.of(documents >> 4)["window"].astype(np.int64)
        norms = bm25.window_norms(lengths, self._corpus.window_mean)
        places = np.stack([_places_or_end(documents, each) for each in (self.documents, *beside)])
        return documents, bm25.window_scores(
            self._postings, places[:, self._places], norms, len(self.words), self._corpus.rows
        )


def _postings(connection: apsw.Connection, corpus: Corpus, asked: Sequence[str]) -> Postings:
    read = []
    for word in asked:
        terms = [f"{code}:{term(word)}" for code in corpus.codes]
        read.append(read_places(connection, terms, heads=is_single_character(word)))
    documents, letters = np.divmod(np.concatenate([np.zeros(0, np.int64), *read]), LETTERS)
    places = np.repeat(np.arange(len(read)), [len(each) for each in read])
    counted = WEIGHTS[letters] > 0.0
    if not counted.all():
        documents, letters, places = documents[counted], letters[counted], places[counted]
    return bm25.gathered(places, documents, WEIGHTS[letters], BODIES[letters])


def _scaled(scores: Floats, top: Integers) -> Floats:
    return scores / scores[top[0]] if len(top) else scores


def _places_or_end(universe: Integers, documents: Integers) -> Integers:
    """Where each document stands in the universe; nobody stands behind its end."""
    there = documents != NOBODY
    found = np.full(len(documents), len(universe))
    found[there] = bm25.places_in(universe, documents[there])
    return found
