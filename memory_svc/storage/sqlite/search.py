"""Every retriever in one snapshot."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apsw

from memory_svc.domain.memory import KINDS, Kind, Ref, Row
from memory_svc.domain.scope import Scope
from memory_svc.storage.interface import Candidates, Hit, Query
from memory_svc.storage.sqlite import episodes, memories, words
from memory_svc.storage.sqlite.connection import Readers, numbers
from memory_svc.storage.sqlite.vectors import Resident

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

    async def candidates(self, scope: Scope, query: Query) -> Candidates:
        """Each arm's best rows within the scope; the scope acts before the ranking."""
        return await self._readers.run(lambda connection: self._candidates(connection, scope, query))

    def _candidates(self, connection: apsw.Connection, scope: Scope, query: Query) -> Candidates:
        near = self._resident.nearest(connection, scope, query.vector, query.depth) if query.vector else ()
        memory_words, episode_words = (
            words.ranked(connection, scope, kind, query.words, query.depth) if query.words else ()
            for kind in (Kind.MEMORY, Kind.EPISODE)
        )
        documents = {document for found in (near, memory_words, episode_words) for document, _ in found}
        return Candidates(
            vectors=_hits(near),
            words=_hits(memory_words),
            episodes=_hits(episode_words),
            rows=_Rows(connection, documents),
        )


class _Rows(Mapping[Ref, Row]):
    """Rows read in one snapshot, each made into a record when it is looked at: most candidates are never shown."""

    def __init__(self, connection: apsw.Connection, documents: Iterable[int]) -> None:
        self._read: dict[int, tuple[Any, ...]] = {}
        for kind, (statement, _) in READ.items():
            ids = sorted(document >> 4 for document in documents if KINDS[document & 15] is kind)
            for row in connection.execute(statement, (numbers(ids),)) if ids else ():
                self._read[row[0] << 4 | kind.code] = row

    def __getitem__(self, ref: Ref) -> Row:
        return READ[ref.kind][1](self._read[ref.document])

    def __iter__(self) -> Iterator[Ref]:
        return map(Ref.of_document, self._read)

    def __len__(self) -> int:
        return len(self._read)


def _hits(found: Iterable[tuple[int, float]]) -> tuple[Hit, ...]:
    return tuple(Hit(Ref.of_document(document), score) for document, score in found)
