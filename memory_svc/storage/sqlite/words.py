"""The word arm: rows ranked by BM25 (k1 and b in bm25.py) over their fields, and over their windows.

The counts of a window are those of a row and its neighbours.
"""

from collections.abc import Sequence
from typing import NamedTuple

import apsw
import numpy as np
from numpy.typing import NDArray

from memory_svc.domain.memory import Kind
from memory_svc.domain.scope import Scope
from memory_svc.domain.terms import term
from memory_svc.domain.text import is_unspaced
from memory_svc.storage.sqlite import bm25
from memory_svc.storage.sqlite.bm25 import Floats, Integers
from memory_svc.storage.sqlite.connection import numbers
from memory_svc.storage.sqlite.postings import Corpus, corpus_of, read_postings
from memory_svc.storage.sqlite.scope import Narrowed, where
from memory_svc.storage.sqlite.windows import Cells

TABLES = {Kind.MEMORY: "memories", Kind.EPISODE: "episodes"}
NOBODY = -1
WORDS_MAX = 64
NO_PLACES = np.zeros(0, np.int64)
NO_SCORES = np.zeros(0)


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
    """Rows as columns (see `Row`), best field scores and best window scores together, by document; what the words tell.

    words: those looked for; of several with one stem the first. frequencies: how many rows of the corpus hold each.
    rows_count: how many rows there are.
    """

    documents: Integers = NO_PLACES
    fields: Floats = NO_SCORES
    windows: Floats = NO_SCORES
    held: NDArray[np.uint64] = np.zeros(0, np.uint64)
    speaker: NDArray[np.bool_] = np.zeros(0, np.bool_)
    words: tuple[str, ...] = ()
    frequencies: tuple[int, ...] = ()
    rows_count: int = 0

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows one by one."""
        columns = (self.documents, self.fields, self.windows, self.held, self.speaker)
        return tuple(map(Row._make, zip(*(column.tolist() for column in columns), strict=True)))


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
    also = np.array(asked.also, np.int64)
    also = also[also & 15 == kind.code] >> 4
    chosen = bm25.distinct(np.concatenate([*tops, bm25.places_found(ids, also)]))
    return Found(
        documents=ids[chosen] << 4 | kind.code,
        fields=_scaled(fields, tops[0])[chosen],
        windows=_scaled(windows, tops[1])[chosen],
        held=held[chosen],
        speaker=speaker[chosen],
        words=arm.words,
        frequencies=tuple(arm.frequencies.tolist()),
        rows_count=corpus.rows,
    )


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


def best_in_scope(
    connection: apsw.Connection, scope: Scope, kind: Kind, scored: tuple[Integers, Floats], depth: int
) -> Integers:
    """The places of the best of these rows that lie in the scope, best first. The agent is in the terms already."""
    ids, scores = scored
    if scope.is_whole:
        return bm25.best(scores, depth)
    if isinstance(scope, Narrowed):
        return bm25.best(np.where(np.isin(ids, scope.ids), scores, 0.0), depth)
    size = depth
    while True:
        top = bm25.best(scores, size)
        kept = top[np.isin(ids[top], ids_in_scope(connection, scope, kind, ids[top]))]
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


class Arm:
    """The postings of a query's words in a corpus, and the scores that follow from them."""

    def __init__(self, connection: apsw.Connection, corpus: Corpus, asked: Sequence[str]) -> None:
        self._corpus = corpus
        self._cells = Cells(connection, corpus.kind)
        first = {term(word): word for word in reversed(asked)}
        self.words = tuple(first[each] for each in dict.fromkeys(map(term, asked)))[:WORDS_MAX]
        self._postings, self.frequencies = read_postings(connection, corpus, self.words)
        self.ids = bm25.distinct(self._postings.ids)
        self._places = bm25.places_in(self.ids, self._postings.ids)
        self._own = self._cells.of(self.ids)
        lengths = self._own["terms"].astype(np.int64)
        self._pairs = [is_unspaced(word) for word in self.words]
        counted = zip(self.frequencies.tolist(), self._pairs, strict=True)
        weights = np.array([bm25.weight(count, corpus.rows, is_pair) for count, is_pair in counted])
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
            if away.any()
        ]
        ids, cells, places = self.ids, self._own, self._places[np.newaxis]
        if beside:
            near = np.concatenate([self.ids, *beside])
            ids = bm25.distinct(near[near != NOBODY])
            cells = self._cells.of(ids)
            places = np.stack([_places_or_end(ids, each) for each in (self.ids, *beside)])[:, self._places]
        norms = bm25.window_norms(cells["window"].astype(np.int64), self._corpus.window_mean)
        return ids, bm25.window_scores(self._postings, places, norms, self._pairs, self._corpus.rows)


def _scaled(scores: Floats, top: Integers) -> Floats:
    return scores / scores[top[0]] if len(top) else scores


def _places_or_end(universe: Integers, ids: Integers) -> Integers:
    """Where each row stands in the universe; nobody stands behind its end."""
    there = ids != NOBODY
    found = np.full(len(ids), len(universe))
    found[there] = bm25.places_in(universe, ids[there])
    return found
