"""Every retriever in one snapshot."""

from collections.abc import Iterable

import apsw

from memory_svc.domain.memory import Kind, Ref, Row
from memory_svc.domain.scope import Scope
from memory_svc.storage.interface import Candidates, Hit, Query
from memory_svc.storage.sqlite import episodes, memories, words
from memory_svc.storage.sqlite.connection import Readers
from memory_svc.storage.sqlite.vectors import Resident


class Search:
    """Every retriever, in one snapshot."""

    def __init__(self, readers: Readers, resident: Resident) -> None:
        self._readers = readers
        self._resident = resident

    async def candidates(self, scope: Scope, query: Query) -> Candidates:
        """Each arm's best rows within the scope; the scope acts before the ranking."""
        return await self._readers.run(lambda connection: self._candidates(connection, scope, query))

    def _candidates(self, connection: apsw.Connection, scope: Scope, query: Query) -> Candidates:
        near = self._resident.nearest(connection, scope, query.vector, query.depth) if query.vector else ()
        memory_words, episode_words = (
            words.ranked(connection, scope, kind, query.words, query.depth) if query.words else ()
            for kind in (Kind.MEMORY, Kind.EPISODE)
        )
        arms = [_hits(found) for found in (near, memory_words, episode_words)]
        refs = {hit.ref for arm in arms for hit in arm}
        return Candidates(vectors=arms[0], words=arms[1], episodes=arms[2], rows=_rows(connection, refs))


def _hits(found: Iterable[tuple[int, float]]) -> tuple[Hit, ...]:
    return tuple(Hit(Ref.of_document(document), score) for document, score in found)


def _rows(connection: apsw.Connection, refs: set[Ref]) -> dict[Ref, Row]:
    rows: dict[Ref, Row] = {}
    for kind, select in ((Kind.MEMORY, memories.select), (Kind.EPISODE, episodes.select)):
        ids = sorted(ref.id for ref in refs if ref.kind is kind)
        for row in select(connection, f"id IN ({', '.join('?' * len(ids))})", ids):
            rows[Ref(kind, row.id)] = row
    return rows
