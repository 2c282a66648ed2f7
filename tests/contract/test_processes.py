"""Several engines on one file, and the files themselves."""

import asyncio
import stat
import sys
from pathlib import Path

import anyio
import apsw
import pytest

from memory_svc.domain.scope import Scope
from memory_svc.errors import Unavailable
from memory_svc.storage.interface import Query
from memory_svc.storage.sqlite.connection import open_connection, refuse_read_only
from memory_svc.storage.sqlite.engine import SqliteStorage
from memory_svc.storage.sqlite.turn import turn
from tests.support.corpus import candidates, put, vector


async def test_two_engines_on_one_file_see_each_others_writes_at_once(tmp_path: Path) -> None:
    one, two = (SqliteStorage(tmp_path / "memory.db") for _ in range(2))
    for number in range(20):
        writer, reader = (one, two) if number % 2 else (two, one)
        await writer.apply(put(f"fact {number}"), {0: vector(f"v{number}")})
        found = await candidates(reader, Scope(), Query((str(number),), vector(f"v{number}"), 1))
        assert found.vectors[0].ref == found.words[0].ref
    await one.close()
    await two.close()


async def test_two_engines_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    one, two = (SqliteStorage(tmp_path / "memory.db") for _ in range(2))
    await asyncio.gather(
        *(engine.apply(put(f"{name} {number}")) for name, engine in (("x", one), ("y", two)) for number in range(100))
    )
    assert len(await one.memories.page(Scope(), 1000)) == 200
    assert await two.upkeep.verify() == []
    await one.close()
    await two.close()


async def test_the_files_are_private_and_the_log_is_gone_after_a_close(tmp_path: Path) -> None:
    engine = SqliteStorage(tmp_path / "data" / "memory.db")
    await engine.apply(put("one"))
    if sys.platform != "win32":
        for file in (tmp_path / "data").iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name
    await engine.close()
    assert not (tmp_path / "data" / "memory.db-wal").exists()


async def test_a_checkpoint_moves_the_log_into_the_database(tmp_path: Path) -> None:
    engine = SqliteStorage(tmp_path / "memory.db")
    for number in range(50):
        await engine.apply(put(f"fact {number}"))
    await engine.upkeep.checkpoint()
    copy = tmp_path / "copy.db"
    copy.write_bytes((tmp_path / "memory.db").read_bytes())
    assert next(apsw.Connection(str(copy)).execute("SELECT count(*) FROM memories"))[0] == 50
    await engine.close()


async def test_a_write_is_synced_to_the_disk_and_pages_are_wiped(tmp_path: Path) -> None:
    connection = open_connection(tmp_path / "memory.db")
    values = {
        name: next(connection.execute(f"PRAGMA {name}"))[0]
        for name in ("journal_mode", "synchronous", "secure_delete", "wal_autocheckpoint")
    }
    assert values == {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1, "wal_autocheckpoint": 0}
    connection.close()


def test_a_file_that_is_no_database_stops_the_start_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "memory.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(Unavailable, match="database"):
        SqliteStorage(tmp_path / "memory.db")


def test_a_folder_that_cannot_be_written_stops_the_start_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where a folder should be")
    with pytest.raises(Unavailable, match=r"data"):
        SqliteStorage(tmp_path / "data" / "memory.db")


async def test_a_database_that_was_removed_takes_no_writes_and_is_not_ready(tmp_path: Path) -> None:
    engine = SqliteStorage(tmp_path / "memory.db")
    await engine.apply(put("one"))
    await engine.ping()
    (tmp_path / "memory.db").rename(tmp_path / "elsewhere.db")
    for call in (engine.apply(put("two")), engine.ping()):
        with pytest.raises(Unavailable, match="removed or replaced"):
            await call
    (tmp_path / "elsewhere.db").rename(tmp_path / "memory.db")
    await engine.apply(put("two"))
    await engine.close()


async def test_a_process_that_holds_the_turn_too_long_is_told_and_then_writes_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory_svc.storage.sqlite.connection.TURN_SECONDS_MAX", 0.3)
    engine = SqliteStorage(tmp_path / "memory.db")
    with turn(tmp_path / "memory.db", 1):
        with pytest.raises(Unavailable, match="Another process has held memory.db"):
            await engine.apply(put("one"))
        assert await engine.memories.page(Scope(), 10) == []
    for number in range(5):
        await engine.apply(put(f"after {number}"))
    await engine.close()


async def test_a_damaged_table_is_not_ready(tmp_path: Path) -> None:
    engine = SqliteStorage(tmp_path / "memory.db")
    await engine.apply(put("one"))
    await engine.close()
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    roots = connection.execute("SELECT rootpage FROM sqlite_schema WHERE tbl_name = 'memories'").fetchall()
    connection.close()
    content = bytearray((tmp_path / "memory.db").read_bytes())
    for (root,) in roots:
        content[(root - 1) * 4096 : root * 4096] = b"\xff" * 4096
    (tmp_path / "memory.db").write_bytes(content)
    damaged = SqliteStorage(tmp_path / "memory.db")
    with pytest.raises(Unavailable):
        await damaged.ping()
    await damaged.close()


async def test_a_stranger_that_opens_and_closes_the_file_takes_no_lock_away(tmp_path: Path) -> None:
    """A process that closes a file drops all POSIX locks it holds on it, so it is never opened beside SQLite."""
    engine = SqliteStorage(tmp_path / "memory.db")
    await engine.apply(put("one"))
    stranger = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
        " c.execute('SELECT count(*) FROM memories').fetchall(); c.close()"
    )
    path = str(tmp_path / "memory.db")
    await anyio.run_process([sys.executable, "-c", stranger, path])
    assert (tmp_path / "memory.db-wal").exists()
    await engine.apply(put("two"))
    other = SqliteStorage(tmp_path / "memory.db")
    assert len(await other.memories.page(Scope(), 10)) == 2
    await other.close()
    await engine.close()


def test_a_database_that_can_only_be_read_is_refused_with_its_path(tmp_path: Path) -> None:
    open_connection(tmp_path / "memory.db").close()
    reading = apsw.Connection(str(tmp_path / "memory.db"), flags=apsw.SQLITE_OPEN_READONLY)
    with pytest.raises(Unavailable, match=r"Cannot write .*memory\.db"):
        refuse_read_only(reading, tmp_path / "memory.db")
