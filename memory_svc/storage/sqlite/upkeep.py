"""Checkpoints and the erasure of what was deleted, in bounded steps off the request path."""

import contextlib
from pathlib import Path

import apsw

from memory_svc.storage.interface import Copied, Sizes
from memory_svc.storage.sqlite import indexing, journal
from memory_svc.storage.sqlite.backup import copy
from memory_svc.storage.sqlite.connection import Readers, Writer, engine_errors, open_connection
from memory_svc.storage.sqlite.rows import TABLES
from memory_svc.storage.sqlite.scrub import Scrubber

MERGE_PAGES = 500
INDEXES = ("words", "pieces")
MERGES = ("begin", "merge", "begin pieces", "merge pieces")  # a stage of beginning and one of going on for each index
SCRUB_PAGES = 2000
CHECKPOINT_BUSY_MILLISECONDS = 50


class Upkeep:
    """What keeps the files sound and small."""

    def __init__(self, path: Path, readers: Readers, writer: Writer) -> None:
        self._path = path
        self._readers = readers
        self._writer = writer
        self._connection = open_connection(path)
        # A truncating checkpoint keeps writers out while it waits for readers: better to try again later.
        self._connection.set_busy_timeout(CHECKPOINT_BUSY_MILLISECONDS)
        self._scrubber = Scrubber(path)

    async def checkpoint(self) -> int:
        """Move the write-ahead log into the database; how many bytes of log are left."""
        return await self._readers.aside(lambda: self._checkpoint("PASSIVE"))

    async def erase_step(self) -> bool:
        """One bounded step towards leaving no byte of what was erased; whether the next one may follow at once.

        Deleted words stay in the full-text index until its segments are merged, deleted pages in the log until it is
        truncated, which waits for those who still read them, and moved cells in the unused part of a page.
        """
        stage = await self._readers.run(_erasure_stage)
        if not stage:
            return False
        if stage in MERGES:
            await self._writer.run(_merge_step)
            return True
        # Nobody writes while the log is emptied and the pages are wiped.
        return await self._writer.run_alone(lambda: self._scrub_step(int(stage)))

    async def erasing(self) -> bool:
        """Whether bytes of what was erased may still be in the files."""
        return bool(await self._readers.run(_erasure_stage))

    async def expired(self, now: str, limit: int) -> list[int]:
        """The memories whose time is over at that instant, the longest over first."""
        statement = "SELECT id FROM memories WHERE expires_at <> '' AND expires_at <= ? ORDER BY expires_at, id LIMIT ?"
        return await self._readers.run(lambda connection: [id for (id,) in connection.execute(statement, (now, limit))])

    async def forget_keys(self, before: str) -> int:
        """Forget the idempotency keys used before an instant (ISO-8601 in UTC); how many."""
        if not await self._readers.run(lambda connection: _old_keys(connection, before)):
            return 0
        return await self._writer.run(lambda connection: _forget_keys(connection, before))

    async def sizes(self) -> Sizes:
        """How much there is."""
        return await self._readers.run(self._sizes)

    async def verify(self) -> list[str]:
        """Where the journal and the rows disagree, in words; [] = nowhere."""
        return await self._readers.run(journal.verify)

    async def backup(self, path: str) -> Copied:
        """Write a proved copy of one moment to that file while others go on; a file of that name is replaced."""
        return await self._readers.aside(lambda: self._backup(Path(path)))

    def close(self) -> None:
        """Truncate the log, close."""
        self._checkpoint("TRUNCATE")
        self._connection.close()
        self._scrubber.close()

    def _backup(self, target: Path) -> Copied:
        with contextlib.closing(open_connection(self._path)) as connection:
            return copy(connection, target)

    def _sizes(self, connection: apsw.Connection) -> Sizes:
        rows = {
            kind.value: int(next(connection.execute(f"SELECT count(*) FROM {table.name}"))[0])
            for kind, table in TABLES.items()
        }
        return Sizes(rows, self._path.stat().st_size, self._log_bytes(), journal.latest(connection))

    def _log_bytes(self) -> int:
        log = self._path.with_name(self._path.name + "-wal")
        return log.stat().st_size if log.exists() else 0

    def _scrub_step(self, first: int) -> bool:
        """Wipe some pages from page `first` on; whether there are more, False also while a reader keeps the log."""
        with engine_errors():
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                if self._log_bytes():
                    return False
                following = self._scrubber.scrub(first, SCRUB_PAGES)
                # This write also makes every connection forget the pages it holds in memory.
                _note_scrubbed(self._connection, following)
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
        return following is not None or bool(_erasure_stage(self._connection))

    def _checkpoint(self, mode: str) -> int:
        with engine_errors():
            next(self._connection.execute(f"PRAGMA wal_checkpoint({mode})"))
        return self._log_bytes()


def _old_keys(connection: apsw.Connection, before: str) -> bool:
    return connection.execute("SELECT 1 FROM keys WHERE instant < ? LIMIT 1", (before,)).fetchone() is not None


def _forget_keys(connection: apsw.Connection, before: str) -> int:
    connection.execute("DELETE FROM keys WHERE instant < ?", (before,))
    return connection.changes()


def _erasure_stage(connection: apsw.Connection) -> str:
    found = connection.execute("SELECT value FROM state WHERE name = 'erasure'").fetchone()
    return str(found[0]) if found else ""


def _merge_step(connection: apsw.Connection) -> None:
    """Forget some long words that no row holds, then merge some pages of one full-text index after the other.

    A negative count first makes all segments of an index one run of merges.
    """
    stage = _erasure_stage(connection)
    if stage == "begin" and indexing.sweep(connection):
        return
    at = MERGES.index(stage)
    begins = at % 2 == 0
    before = connection.total_changes()
    pages = -MERGE_PAGES if begins else MERGE_PAGES
    index = INDEXES[at // 2]
    connection.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('merge', ?)", (pages,))
    worked = connection.total_changes() - before >= 2
    if begins or not worked:
        following = (*MERGES, "1")[at + 1]
        connection.execute("UPDATE state SET value = ? WHERE name = 'erasure'", (following,))


def _note_scrubbed(connection: apsw.Connection, following: int | None) -> None:
    """Go on with the next page; after the last one begin again where more was erased meanwhile, else be done."""
    if following is not None:
        connection.execute("UPDATE state SET value = ? WHERE name = 'erasure'", (str(following),))
        return
    again = connection.execute("DELETE FROM state WHERE name = 'erased meanwhile' RETURNING value").fetchone()
    if again:
        connection.execute("UPDATE state SET value = 'begin' WHERE name = 'erasure'")
    else:
        connection.execute("DELETE FROM state WHERE name = 'erasure'")
