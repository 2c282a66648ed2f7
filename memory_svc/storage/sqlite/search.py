"""Every retriever in one snapshot, and what speaks for each row that one of them has found."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import apsw
import numpy as np

from memory_svc.domain.memory import KINDS, Kind, Ref, Row
from memory_svc.domain.recall.fusion import Evidence, Hits
from memory_svc.domain.scope import Scope
from memory_svc.storage.interface import Candidates, Query
from memory_svc.storage.sqlite import bm25, episodes, memories, phrases, words
from memory_svc.storage.sqlite.connection import Readers, numbers
from memory_svc.storage.sqlite.vectors import Resident
from memory_svc.storage.sqlite.words import Asked, Found

T = TypeVar("T")
SEARCHED = (Kind.MEMORY, Kind.EPISODE)
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


INSTANTS: Mapping[Kind, str] = {
    Kind.MEMORY: (
        "SELECT memories.id, timestamp FROM json_each(?) AS asked CROSS JOIN memories ON memories.id = asked.value"
    ),
    Kind.EPISODE: (
        "SELECT episodes.id, coalesce(nullif(start_time, ''), created_at) FROM json_each(?) AS asked"
        " CROSS JOIN episodes ON episodes.id = asked.value"
    ),
}


class Search:
    """Every retriever, in one snapshot."""

    def __init__(self, readers: Readers, resident: Resident) -> None:
        self._readers = readers
        self._resident = resident

    async def candidates(self, scope: Scope, query: Query, read: Callable[[Candidates], T]) -> T:
        """What `read` makes of each arm's best rows within the scope; the scope acts before the ranking.

        `read` is called inside the snapshot, in a thread of the engine.
        """
        return await self._readers.run(lambda connection: read(self._candidates(connection, scope, query)))

    def _candidates(self, connection: apsw.Connection, scope: Scope, query: Query) -> Candidates:
        near = self._resident.nearest(connection, scope, query.vector, query.depth) if query.vector else []
        pieces = _pieces(connection, scope, query)
        quoted = _quoted(connection, scope, query)
        also = [document for hits in (near, pieces, quoted) for document, _ in hits]
        found = {kind: _words(connection, scope, kind, query, also) for kind in SEARCHED}
        documents = {*also, *(row.document for each in found.values() for row in each.rows)}
        cosines = dict(near)
        if query.vector:
            cosines |= self._resident.cosines(connection, query.vector, sorted(documents - cosines.keys()))
        dated = _dated(connection, documents, query.times) if query.times else set()
        memory_words, episode_words = found[Kind.MEMORY], found[Kind.EPISODE]
        return Candidates(
            vectors=near,
            words=_best(memory_words, "field", query.depth),
            windows=_best(memory_words, "window", query.depth),
            pieces=pieces,
            phrases=quoted,
            episodes=_best(episode_words, "field", query.depth),
            evidence=_evidence(sorted(documents), cosines, tuple(found.values()), pieces, quoted, dated),
            tells=_tells(memory_words if memory_words.rows_count else episode_words),
            rows=lambda refs: rows(connection, refs),
        )


def rows(connection: apsw.Connection, refs: Sequence[Ref]) -> dict[Ref, Row]:
    """Those of these rows that there are."""
    found: dict[Ref, Row] = {}
    for kind, (statement, record) in READ.items():
        ids = [ref.id for ref in refs if ref.kind is kind]
        for row in connection.execute(statement, (numbers(ids),)) if ids else ():
            found[Ref(kind, row[0])] = record(row)
    return found


def _words(connection: apsw.Connection, scope: Scope, kind: Kind, query: Query, also: Iterable[int]) -> Found:
    if not query.words:
        return Found()
    of_kind = [document for document in also if KINDS[document & 15] is kind]
    return words.windowed(connection, scope, kind, Asked(query.words, query.depth, of_kind))


def _pieces(connection: apsw.Connection, scope: Scope, query: Query) -> Hits:
    found = [
        hit
        for kind in (SEARCHED if query.pieces else ())
        for hit in phrases.substrings(connection, scope, kind, query.pieces, query.depth)
    ]
    return sorted(found, key=lambda hit: (-hit[1], hit[0]))[: query.depth]


def _quoted(connection: apsw.Connection, scope: Scope, query: Query) -> Hits:
    """The rows that hold quoted phrases; a row's score is the share of the phrases that it holds."""
    counts: dict[int, int] = {}
    for phrase in query.phrases:
        for kind in SEARCHED:
            for document in phrases.phrased(connection, scope, kind, phrase, query.depth):
                counts[document] = counts.get(document, 0) + 1
    shares = {document: count / len(query.phrases) for document, count in counts.items()}
    return sorted(shares.items(), key=lambda hit: (-hit[1], -hit[0]))[: query.depth]


def _best(found: Found, score: str, depth: int) -> Hits:
    at = words.Row._fields.index(score)
    hits = [(row.document, row[at]) for row in found.rows if row[at] > 0.0]
    return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:depth]


def _dated(connection: apsw.Connection, documents: Iterable[int], times: Sequence[tuple[str, str]]) -> set[int]:
    """Those of these rows that lie in one of the stretches of time."""
    found: set[int] = set()
    for kind, statement in INSTANTS.items():
        ids = [document >> 4 for document in documents if KINDS[document & 15] is kind]
        for id, instant in connection.execute(statement, (numbers(ids),)) if ids else ():
            if any(start <= instant < end for start, end in times):
                found.add(Ref(kind, id).document)
    return found


def _evidence(  # noqa: PLR0913, PLR0917 - one argument an arm
    documents: Sequence[int],
    cosines: Mapping[int, float],
    found: Sequence[Found],
    pieces_found: Hits,
    phrases_found: Hits,
    dated: set[int],
) -> Evidence:
    universe = np.array(documents, np.int64)
    fields, windows, pieces, quoted = np.zeros((4, len(documents)))
    held = np.zeros(len(documents), np.uint64)
    speaker = np.zeros(len(documents), np.bool_)
    for each in found:
        if each.rows:
            places, *columns = zip(*each.rows, strict=True)
            at = np.searchsorted(universe, places)
            fields[at], windows[at], held[at], speaker[at] = columns
    for column, hits in zip((pieces, quoted), (pieces_found, phrases_found), strict=True):
        if hits:
            places, scores = zip(*hits, strict=True)
            column[np.searchsorted(universe, places)] = scores
    return Evidence(
        documents=universe,
        cosines=np.array([cosines.get(document, np.nan) for document in documents]),
        fields=fields,
        windows=windows,
        pieces=pieces,
        speaker=speaker,
        dated=np.isin(universe, list(dated)),
        quoted=quoted == 1.0,
        held=held,
    )


def _tells(found: Found) -> dict[str, float]:
    tells = bm25.idf(np.array(found.frequencies, np.int64), found.rows_count)
    return dict(zip(found.words, tells.tolist(), strict=True))
