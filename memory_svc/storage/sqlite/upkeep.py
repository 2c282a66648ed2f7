"""Checkpoints and the erasure of what was deleted, in bounded steps off the request path."""

from pathlib import Path

import apsw

from memory_svc.storage.sqlite import journal
from memory_svc.storage.sqlite.connection import Readers, Writer, engine_errors, open_connection

MERGE_PAGES = 500


class Upkeep:
    """What keeps the files sound and small."""

    def __init__(self, path: Path, readers: Readers, writer: Writer) -> None:
        self._path = path
        self._readers = readers
        self._writer = writer
        self._connection = open_connection(path)

    async def checkpoint(self) -> int:
        """Move the write-ahead log into the database; how many bytes of log are left."""
        return await self._readers.aside(lambda: self._checkpoint("PASSIVE"))

    async def erase_step(self) -> int:
        """One bounded step towards leaving no byte of what was erased; 0 = clean, 1 = there is more to do.

        Deleted words stay in the full-text index until its segments are merged, and deleted pages in the log until it
        is truncated.
        """
        stage = await self._readers.run(_erasure_stage)
        if stage == "":
            return 0
        if stage != "truncate":
            await self._writer.run(_merge_step)
            return 1
        left = await self._readers.aside(lambda: self._checkpoint("TRUNCATE"))
        if left == 0:
            await self._writer.run(_erasure_done)
        return int(left > 0)

    async def verify(self) -> list[str]:
        """Where the journal and the rows disagree, in words; [] = nowhere."""
        return await self._readers.run(journal.verify)

    def close(self) -> None:
        """Truncate the log, close."""
        self._checkpoint("TRUNCATE")
        self._connection.close()

    def _checkpoint(self, mode: str) -> int:
        with engine_errors():
            next(self._connection.execute(f"PRAGMA wal_checkpoint({mode})"))
        log = self._path.with_name(self._path.name + "-wal")
        return log.stat().st_size if log.exists() else 0


def _erasure_stage(connection: apsw.Connection) -> str:
    found = connection.execute("SELECT value FROM state WHERE name = 'erasure'").fetchone()
    return str(found[0]) if found else ""


def _merge_step(connection: apsw.Connection) -> None:
    """Merge some pages of the word index. A negative count first makes all segments one run of merges."""
    begins = _erasure_stage(connection) == "begin"
    before = connection.total_changes()
    pages = -MERGE_PAGES if begins else MERGE_PAGES
    connection.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (pages,))
    worked = connection.total_changes() - before >= 2
    connection.execute(
        "UPDATE state SET value = ? WHERE name = 'erasure'", ("merge" if worked or begins else "truncate",)
    )


def _erasure_done(connection: apsw.Connection) -> None:
    connection.execute("DELETE FROM state WHERE name = 'erasure' AND value = 'truncate'")
