"""Every retriever in one snapshot."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import apsw

from memory_svc.domain.memory import Kind, Ref, Row
from memory_svc.domain.scope import Scope
from memory_svc.storage.interface import Candidates, Query
from memory_svc.storage.sqlite import episodes, memories, words
from memory_svc.storage.sqlite.connection import Readers, numbers
from memory_svc.storage.sqlite.vectors import Resident

T = TypeVar("T")
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
        near = self._resident.nearest(connection, scope, query.vector, query.depth) if query.vector else ()
        memory_words, episode_words = (
            words.ranked(connection, scope, kind, query.words, query.depth) if query.words else ()
            for kind in (Kind.MEMORY, Kind.EPISODE)
        )
        return Candidates(near, memory_words, episode_words, lambda refs: rows(connection, refs))


def rows(connection: apsw.Connection, refs: Sequence[Ref]) -> dict[Ref, Row]:
    """Those of these rows that there are."""
    found: dict[Ref, Row] = {}
    for kind, (statement, record) in READ.items():
        ids = [ref.id for ref in refs if ref.kind is kind]
        for row in connection.execute(statement, (numbers(ids),)) if ids else ():
            found[Ref(kind, row[0])] = record(row)
    return found
