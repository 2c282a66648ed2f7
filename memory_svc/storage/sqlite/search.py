"""Every retriever in one snapshot, and what speaks for each row that one of them has found."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import apsw
import numpy as np

from memory_svc.domain.blocks import Span
from memory_svc.domain.memory import Kind, Ref, Row
from memory_svc.domain.recall.fusion import Evidence, Flags, Held, Hits, coverage
from memory_svc.domain.scope import Scope
from memory_svc.domain.terms import term
from memory_svc.storage.interface import Candidates, Query
from memory_svc.storage.sqlite import bm25, calibrations, episodes, memories, phrases, words
from memory_svc.storage.sqlite.bm25 import Floats, Integers
from memory_svc.storage.sqlite.connection import Readers, numbers
from memory_svc.storage.sqlite.derived import spans_of
from memory_svc.storage.sqlite.past import INSTANTS, Past
from memory_svc.storage.sqlite.recalls import Recalls
from memory_svc.storage.sqlite.scope import settled
from memory_svc.storage.sqlite.vectors import Resident
from memory_svc.storage.sqlite.windows import Cells
from memory_svc.storage.sqlite.words import Asked, Found

T = TypeVar("T")
SEARCHED = (Kind.MEMORY, Kind.EPISODE)
PIECE_ROWS_MAX = 10
# How rows of a kind are read by their ids, given as a JSON array, and made into records.
READ: Mapping[Kind, tuple[str, Callable[[Sequence[Any]], Row]]] = {
    Kind.MEMORY: (
        f"SELECT {memories.COLUMNS} FROM json_each(?) AS asked CROSS JOIN memories ON memories.id = asked.value",
        memories.memory_of,
    ),
    Kind.EPISODE: (
        f"SELECT {episodes.COLUMNS} FROM json_each(?) AS asked CROSS JOIN episodes ON episodes.id = asked.value",
        episodes.episode_of,
    ),
}


class Best(Sequence[tuple[int, float]]):
    """The hits of the best rows of an arm, ranked when somebody asks: a sum of the evidence asks for none."""

    def __init__(self, found: Found, scores: Floats, depth: int) -> None:
        self._found, self._scores, self._depth = found, scores, depth

    def __len__(self) -> int:
        return len(self._hits)

    def __getitem__(self, place: Any) -> Any:
        return self._hits[place]

    @functools.cached_property
    def _hits(self) -> list[tuple[int, float]]:
        top = bm25.best(self._scores, self._depth)
        return list(zip(self._found.documents[top].tolist(), self._scores[top].tolist(), strict=True))


class Search:
    """Every retriever, in one snapshot."""

    def __init__(self, readers: Readers, resident: Resident, recalls: Recalls) -> None:
        self._readers = readers
        self._resident = resident
        self._recalls = recalls

    async def candidates(self, scope: Scope, query: Query, read: Callable[[Candidates], T]) -> T:
        """What `read` makes of each arm's best rows within the scope; the scope acts before the ranking.

        `read` is called inside the snapshot, in a thread of the engine.
        """
        return await self._readers.run(lambda connection: read(self._candidates(connection, scope, query)))

    def _candidates(self, connection: apsw.Connection, scope: Scope, query: Query) -> Candidates:
        scope = settled(connection, scope)
        near = self._near(connection, scope, query)
        quoted = _quoted(connection, scope, query)
        also = [document for hits in (near, quoted) for document, _ in hits]
        memory_words, episode_words = (_words(connection, scope, kind, query, also) for kind in SEARCHED)
        tells = _tells(memory_words if memory_words.rows_count else episode_words)
        pieces = _pieces(connection, scope, query, memory_words)
        verbatim = [document for hits in (pieces, quoted) for document, _ in hits]
        documents = bm25.distinct(
            np.concatenate([np.array([*also, *verbatim], np.int64), memory_words.documents, episode_words.documents])
        )
        columns = _word_columns(documents, (memory_words, _beside(memory_words, episode_words, tells)))
        named = _named(columns["held"], tells, query.names)
        evidence = Evidence(
            documents=documents,
            cosines=self._cosines(connection, query, documents, near),
            **columns,
            pieces=_column(documents, pieces),
            dated=_dated(connection, documents, query.times),
            named=named,
            quoted=_column(documents, quoted) == 1.0 if query.phrases else named & query.names_alone,
        )
        return Candidates(
            vectors=near,
            words=Best(memory_words, memory_words.fields, query.depth),
            windows=Best(memory_words, memory_words.windows, query.depth),
            pieces=pieces,
            phrases=quoted,
            episodes=Best(episode_words, episode_words.fields, query.depth),
            evidence=evidence,
            tells=tells,
            threshold=calibrations.threshold(connection, scope.agent, query.vector),
            past=Past(connection, scope, documents, self._recalls),
            rows=_reading(connection),
            spans=lambda refs: self._spans(connection, query, refs),
            beside=lambda refs: neighbours(connection, refs),
        )

    def _spans(self, connection: apsw.Connection, query: Query, refs: Sequence[Ref]) -> dict[Ref, Span]:
        if query.vector is None:
            return {}
        nearest = self._resident.nearest_blocks(connection, query.vector, [ref.document for ref in refs])
        return {Ref.of_document(document): spans_of(connection, document)[at] for document, at in nearest.items() if at}

    def _near(self, connection: apsw.Connection, scope: Scope, query: Query) -> Hits:
        if query.vector is None:
            return []
        return self._resident.nearest(connection, scope, query.vector, query.depth, newest=query.newest_rows)

    def _cosines(self, connection: apsw.Connection, query: Query, documents: Integers, near: Hits) -> Floats:
        """Of each row, NaN where it has no vector."""
        cosines = _column(documents, near, np.nan)
        others = np.isnan(cosines)
        if query.vector and others.any():
            cosines[others] = self._resident.cosines(connection, query.vector, documents[others])
        return cosines


def rows(connection: apsw.Connection, refs: Sequence[Ref]) -> dict[Ref, Row]:
    """Those of these rows that there are."""
    found: dict[Ref, Row] = {}
    for kind, (statement, record) in READ.items():
        ids = [ref.id for ref in refs if ref.kind is kind]
        for row in connection.execute(statement, (numbers(ids),)) if ids else ():
            found[Ref(kind, row[0])] = record(row)
    return found


def _reading(connection: apsw.Connection) -> Callable[[Sequence[Ref]], dict[Ref, Row]]:
    """Like `rows` in one snapshot; each row is read once."""
    known: dict[Ref, Row | None] = {}

    def read(refs: Sequence[Ref]) -> dict[Ref, Row]:
        if missing := [ref for ref in refs if ref not in known]:
            known.update(dict.fromkeys(missing))
            known.update(rows(connection, missing))
        return {ref: row for ref in refs if (row := known[ref])}

    return read


def neighbours(connection: apsw.Connection, refs: Sequence[Ref]) -> dict[Ref, tuple[Ref, ...]]:
    """Of each of these memories the rows before and after it in its talk; nothing of what is none."""
    ids = sorted({ref.id for ref in refs if ref.kind is Kind.MEMORY})
    cells = Cells(connection, Kind.MEMORY).of(np.array(ids, np.int64)) if ids else ()
    return {
        Ref(Kind.MEMORY, id): tuple(
            Ref(Kind.MEMORY, id + int(cell[side])) for side in ("before", "after") if cell[side]
        )
        for id, cell in zip(ids, cells, strict=True)
    }


def _words(connection: apsw.Connection, scope: Scope, kind: Kind, query: Query, also: Sequence[int]) -> Found:
    return words.windowed(connection, scope, kind, Asked(query.words, query.depth, also)) if query.words else Found()


def _pieces(connection: apsw.Connection, scope: Scope, query: Query, found: Found) -> Hits:
    """Rows that hold pieces inside longer words. A word that many rows hold by itself needs no longer ones."""
    common = {term(word) for word, count in zip(found.words, found.frequencies, strict=True) if count > PIECE_ROWS_MAX}
    asked = [piece for piece in query.pieces if term(piece) not in common]
    hits = [
        hit
        for kind in (SEARCHED if asked else ())
        for hit in phrases.substrings(connection, scope, kind, asked, query.depth)
    ]
    return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[: query.depth]


def _quoted(connection: apsw.Connection, scope: Scope, query: Query) -> Hits:
    """The rows that hold quoted phrases; a row's score is the share of the phrases that it holds."""
    counts: dict[int, int] = {}
    for phrase in query.phrases:
        for kind in SEARCHED:
            for document in phrases.phrased(connection, scope, kind, phrase, query.depth):
                counts[document] = counts.get(document, 0) + 1
    shares = {document: count / len(query.phrases) for document, count in counts.items()}
    return sorted(shares.items(), key=lambda hit: (-hit[1], -hit[0]))[: query.depth]


def _beside(memories_found: Found, found: Found, tells: Mapping[str, float]) -> Found:
    """Episodes on the scale of memories: the best episode may hold far less of the query than the best memory."""
    if not len(found.documents) or not len(memories_found.documents):
        return found
    best, of_memories = (
        float(coverage(each.held, list(tells.values()))[each.fields.argmax()]) for each in (found, memories_found)
    )
    share = min(best / of_memories, 1.0) if of_memories else 1.0
    return found._replace(fields=found.fields * share, windows=found.windows * share)


def _word_columns(documents: Integers, found: Iterable[Found]) -> dict[str, Any]:
    columns = {
        "fields": np.zeros(len(documents)),
        "windows": np.zeros(len(documents)),
        "held": np.zeros(len(documents), np.uint64),
        "speaker": np.zeros(len(documents), np.bool_),
    }
    for each in found:
        at = np.searchsorted(documents, each.documents)
        for name, column in columns.items():
            column[at] = getattr(each, name)
    return columns


def _named(held: Held, tells: Mapping[str, float], names: Sequence[str]) -> Flags:
    """Which of these rows hold all of the names."""
    wanted = {term(name) for name in names}
    bits = np.uint64(sum(1 << place for place, word in enumerate(tells) if term(word) in wanted))
    return np.equal(held & bits, bits) if bits else np.zeros(len(held), np.bool_)


def _column(documents: Integers, hits: Hits, else_: float = 0.0) -> Floats:
    column = np.full(len(documents), else_)
    if hits:
        found, scores = zip(*hits, strict=True)
        column[documents.searchsorted(found)] = scores
    return column


def _dated(connection: apsw.Connection, documents: Integers, times: Sequence[tuple[str, str]]) -> Flags:
    """Which of these rows lie in one of the stretches of time."""
    if not times:
        return np.zeros(len(documents), np.bool_)
    found: list[int] = []
    for kind, statement in INSTANTS.items():
        ids = numbers((documents[documents & 15 == kind.code] >> 4).tolist())
        for id, instant in connection.execute(statement, (ids,)):
            if any(start <= instant < end for start, end in times):
                found.append(Ref(kind, id).document)
    return np.isin(documents, found)


def _tells(found: Found) -> dict[str, float]:
    tells = bm25.idf(np.array(found.frequencies, np.int64), found.rows_count)
    return dict(zip(found.words, tells.tolist(), strict=True))
