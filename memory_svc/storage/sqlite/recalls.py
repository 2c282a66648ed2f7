"""How often memories were recalled and when last: noted in memory, written in batches, never in a caller's way."""

import threading
from collections.abc import Sequence
from functools import partial

import apsw

from memory_svc.domain.scope import Scope
from memory_svc.errors import Problem
from memory_svc.storage.interface import TimesRecalled
from memory_svc.storage.sqlite.connection import Readers, Writer, numbers
from memory_svc.storage.sqlite.scope import where

NOTED_ROWS_MAX = 20_000
BATCH_ROWS = 1000
ADD = (
    "INSERT INTO recalls (id, count, last) SELECT id, ?, ? FROM memories WHERE id = ?"
    " ON CONFLICT (id) DO UPDATE SET count = count + excluded.count, last = max(last, excluded.last)"
)
KNOWN = "SELECT recalls.id, count, last FROM json_each(?) AS asked CROSS JOIN recalls ON recalls.id = asked.value"


def remove(connection: apsw.Connection, id: int) -> None:
    """Forget how often a memory was recalled."""
    connection.execute("DELETE FROM recalls WHERE id = ?", (id,))


class Recalls:
    """Recall counts: those on disk, and those noted since."""

    def __init__(self, readers: Readers, writer: Writer) -> None:
        self._readers = readers
        self._writer = writer
        self._lock = threading.Lock()
        self._noted: dict[int, TimesRecalled] = {}

    def note(self, ids: Sequence[int], instant: str) -> None:
        """Count each of these memories once more. At most 20,000 memories are noted between two flushes."""
        with self._lock:
            for id in ids:
                if id in self._noted or len(self._noted) < NOTED_ROWS_MAX:
                    self._noted[id] = _added(self._noted.get(id), TimesRecalled(1, instant))

    async def flush(self) -> int:
        """Write what was noted; of how many memories. What cannot be written stays noted."""
        with self._lock:
            taken, self._noted = list(self._noted.items()), {}
        begun = 0
        try:
            while begun < len(taken):
                batch = taken[begun : begun + BATCH_ROWS]
                # What the writer was given is done even if nobody waits for it any more.
                begun += len(batch)
                try:
                    await self._writer.run(partial(_add, batch))
                except Problem:
                    begun -= len(batch)
                    raise
        finally:
            with self._lock:
                for id, each in taken[begun:]:
                    self._noted[id] = _added(self._noted.get(id), each)
        return len(taken)

    async def of(self, scope: Scope, ids: Sequence[int]) -> dict[int, TimesRecalled]:
        """Those of these memories in the scope that were recalled, with what is noted since."""
        condition, values = where(scope, "memories", has_source=True)

        def read(connection: apsw.Connection) -> dict[int, TimesRecalled]:
            statement = f"SELECT id FROM memories WHERE {condition} AND id IN (SELECT value FROM json_each(?))"
            there = [row[0] for row in connection.execute(statement, [*values, numbers(ids)])]
            return self.known(connection, there)

        return await self._readers.run(read)

    def known(self, connection: apsw.Connection, ids: Sequence[int]) -> dict[int, TimesRecalled]:
        """Those of these memories that were recalled, as the connection's snapshot has it and as noted since."""
        found = {id: TimesRecalled(count, last) for id, count, last in connection.execute(KNOWN, (numbers(ids),))}
        with self._lock:
            noted = {id: self._noted[id] for id in ids if id in self._noted}
        return found | {id: _added(found.get(id), each) for id, each in noted.items()}


def _add(batch: Sequence[tuple[int, TimesRecalled]], connection: apsw.Connection) -> None:
    connection.executemany(ADD, [(each.count, each.last, id) for id, each in batch])


def _added(before: TimesRecalled | None, more: TimesRecalled) -> TimesRecalled:
    if before is None:
        return more
    return TimesRecalled(before.count + more.count, max(before.last, more.last))
