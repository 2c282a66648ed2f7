"""The SQLite engine: one file, one writer, a few readers."""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

from memory_svc.domain.change import Applied, Write
from memory_svc.domain.memory import Vector
from memory_svc.errors import Problem, Unavailable
from memory_svc.storage.sqlite.apply import apply
from memory_svc.storage.sqlite.calibrations import Calibrations
from memory_svc.storage.sqlite.connection import (
    TURN_SECONDS_MAX,
    Readers,
    Writer,
)
from memory_svc.storage.sqlite.derived import Derived
from memory_svc.storage.sqlite.episodes import Episodes, Profiles
from memory_svc.storage.sqlite.host import Tenant, tenant
from memory_svc.storage.sqlite.journal import Journal
from memory_svc.storage.sqlite.lease import Lease
from memory_svc.storage.sqlite.memories import Memories
from memory_svc.storage.sqlite.recalls import Recalls
from memory_svc.storage.sqlite.schema import bring_up
from memory_svc.storage.sqlite.search import Search
from memory_svc.storage.sqlite.upkeep import Upkeep
from memory_svc.storage.sqlite.vectors import Resident

READERS = 4
WRITE_SECONDS_MAX = 30.0


class SqliteStorage:
    """Storage in one SQLite file. Several processes of one host may open it at once."""

    def __init__(self, path: Path, by: Tenant | None = None) -> None:
        """Open the file, making it and its schema when absent. by: who opens it; left out, this host.

        Raises Unavailable when it cannot be opened, is not a database, or has a newer schema; when another host has it
        open; and when it has an older schema and there is no room to copy or to change it.
        """
        self._lease = Lease(path, by or tenant(), TURN_SECONDS_MAX)
        self._lease.take(lambda: bring_up(path))
        self._readers = Readers(path, READERS)
        self._writer = Writer(path, self._lease.guard)
        self.memories = Memories(self._readers)
        self.episodes = Episodes(self._readers)
        self.profiles = Profiles(self._readers)
        self.recalls = Recalls(self._readers, self._writer)
        self.search = Search(self._readers, Resident(), self.recalls)
        self.journal = Journal(self._readers, self._writer)
        self.derived = Derived(self._readers, self._writer)
        self.calibrations = Calibrations(self._readers, self._writer)
        self.upkeep = Upkeep(path, self._readers, self._writer)

    async def apply(self, write: Write, vectors: Mapping[int, Vector] | None = None) -> Applied:
        """Do all of a write, or none of it, and answer when it is on disk.

        Raises what `decide` raises; Overloaded when too many writes wait; Unavailable when the disk does not take it.
        """
        try:
            async with asyncio.timeout(WRITE_SECONDS_MAX):
                applied = await self._writer.run(lambda connection: apply(connection, write, vectors or {}))
                self.journal.wake()
                return applied
        except TimeoutError as error:
            raise Unavailable(
                f"The write still waits after {WRITE_SECONDS_MAX:.0f} s, so another process holds the database;"
                " it may yet be done: repeat it with the same idempotency key, or look before you repeat it"
            ) from error

    async def ping(self) -> None:
        """Raise Unavailable unless the engine answers."""
        self._lease.check()
        await self._readers.ping()

    async def close(self) -> None:
        """Finish what waits, checkpoint, let go of the files."""
        with contextlib.suppress(Problem):  # a disk that takes no counts keeps no file open
            await self.recalls.flush()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._writer.close()
        self._readers.close()
        self.upkeep.close()
        self._lease.release()
