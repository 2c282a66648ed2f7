"""The journal: one row an effect, in the transaction of the effect. Replay writes by id and decides nothing."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import apsw
import msgspec

from memory_svc.domain.change import Effect, Write
from memory_svc.domain.memory import TYPES, Kind, Ref, Row
from memory_svc.storage.interface import WATCH_SECONDS_MAX, JournalRow
from memory_svc.storage.sqlite.connection import Readers, Writer
from memory_svc.storage.sqlite.rows import TABLES, write_row

COLUMNS = "sequence, write, instant, principal, operation, agent, project, kind, id, erasure, row"
WATCHED_ROWS_MAX = 256


def next_write(connection: apsw.Connection) -> int:
    """A number for the next write, larger than that of any write before."""
    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'journal'").fetchone()
    return int(found[0]) + 1 if found else 1


def append(connection: apsw.Connection, write: Write, number: int, effect: Effect, owner: Row) -> int:
    """Write an effect down; the sequence it got. An erasure blanks every earlier row of the same kind and id."""
    if effect.row is None:
        connection.execute("UPDATE journal SET row = NULL WHERE kind = ? AND id = ?", (effect.kind, effect.id))
    connection.execute(
        f"INSERT INTO journal ({COLUMNS}) VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            number,
            write.now,
            write.principal,
            write.operation,
            owner.agent,
            owner.project,
            effect.kind,
            effect.id,
            int(effect.row is None),
            None if effect.row is None else msgspec.json.encode(effect.row).decode(),
        ),
    )
    return connection.last_insert_rowid()


def latest(connection: apsw.Connection) -> int:
    """The last sequence given, 0 before the first."""
    return next_write(connection) - 1


def journal_row(columns: Sequence[Any]) -> JournalRow:
    """A journal row from its COLUMNS."""
    sequence, write, instant, principal, operation, agent, project, name, id, erasure, text = columns
    kind = Kind(name)
    return JournalRow(
        sequence=sequence,
        write=write,
        instant=instant,
        principal=principal,
        operation=operation,
        agent=agent,
        project=project,
        ref=Ref(kind, id),
        effect=None if text is None else Effect(kind, id, msgspec.json.decode(text, type=TYPES[kind])),
        erasure=bool(erasure),
    )


def verify(connection: apsw.Connection) -> list[str]:
    """Where the last effect of a row and the row differ, and rows that no effect made."""
    wrong: list[str] = []
    last: dict[Ref, JournalRow] = {}
    for columns in connection.execute(f"SELECT {COLUMNS} FROM journal ORDER BY sequence"):
        found = journal_row(columns)
        last[found.ref] = found
    for kind, table in TABLES.items():
        rows: dict[int, Row] = {row.id: row for row in table.select(connection, "1", ())}
        for ref, entry in last.items():
            if ref.kind is kind and rows.pop(ref.id, None) != (entry.effect.row if entry.effect else None):
                wrong.append(f"{ref} is not as the journal's sequence {entry.sequence} has it")
        wrong += [f"{Ref(kind, id)} is in no effect of the journal" for id in rows]
    return wrong


class Journal:
    """The feed of effects."""

    def __init__(self, readers: Readers, writer: Writer) -> None:
        self._readers = readers
        self._writer = writer
        self._watchers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    async def after(self, sequence: int, limit: int) -> list[JournalRow]:
        """The effects after that sequence, oldest first."""
        statement = f"SELECT {COLUMNS} FROM journal WHERE sequence > ? ORDER BY sequence LIMIT ?"
        return await self._readers.run(
            lambda connection: [journal_row(row) for row in connection.execute(statement, (sequence, limit))]
        )

    async def latest(self) -> int:
        """The last sequence given, 0 before the first."""
        return await self._readers.run(latest)

    async def watch(self, after: int) -> AsyncGenerator[list[JournalRow], None]:
        """The effects after that sequence, oldest first, as they are written. Looks a row up by its key: no scan."""
        woken = asyncio.Event()
        watcher = (asyncio.get_running_loop(), woken)
        self._watchers.add(watcher)
        try:
            while True:
                woken.clear()
                rows = await self.after(after, WATCHED_ROWS_MAX)
                if rows:
                    after = rows[-1].sequence
                    yield rows
                else:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(WATCH_SECONDS_MAX):
                            await woken.wait()
        finally:
            self._watchers.discard(watcher)

    def wake(self) -> None:
        """Have those who watch look at once: this process has written."""
        for loop, woken in tuple(self._watchers):
            with contextlib.suppress(RuntimeError):  # the loop ended with its watcher
                loop.call_soon_threadsafe(woken.set)

    async def replay(self, rows: Sequence[JournalRow]) -> None:
        """Write these effects by id. Decides nothing; twice the same is once."""
        await self._writer.run(lambda connection: _replay_all(connection, rows))
        self.wake()


def _replay_all(connection: apsw.Connection, rows: Sequence[JournalRow]) -> None:
    for row in rows:
        _replay(connection, row)


def _replay(connection: apsw.Connection, row: JournalRow) -> None:
    """An effect that the journal holds already has happened, and later ones may stand on it."""
    if connection.execute("SELECT 1 FROM journal WHERE sequence = ?", (row.sequence,)).fetchone():
        return
    ref = row.ref
    if row.erasure:
        connection.execute("UPDATE journal SET row = NULL WHERE kind = ? AND id = ?", (ref.kind, ref.id))
    if row.erasure or row.effect:
        write_row(connection, Effect(ref.kind, ref.id, row.effect.row if row.effect else None))
    _raise_counter(connection, TABLES[ref.kind].name, ref.id)
    text = msgspec.json.encode(row.effect.row).decode() if row.effect else None
    connection.execute(
        f"INSERT INTO journal ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*msgspec.structs.astuple(row)[:7], ref.kind, ref.id, int(row.erasure), text),
    )


def _raise_counter(connection: apsw.Connection, table: str, id: int) -> None:
    """An id of a blanked row is never given again."""
    connection.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", (id, table))
    if not connection.changes():
        connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, id))
