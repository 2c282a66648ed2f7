"""Each old schema becomes the newest, every row is kept and found, a copy is left; a newer one is refused."""

import logging
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import msgspec
import pytest

from memory_svc.domain.memory import Kind, Ref
from memory_svc.domain.scope import Scope
from memory_svc.errors import Unavailable
from memory_svc.storage.interface import Query
from memory_svc.storage.migrate import migrations
from memory_svc.storage.sqlite import indexing, schema
from memory_svc.storage.sqlite.engine import SqliteStorage
from tests.contract.test_windows import same_as_from_nothing
from tests.support.corpus import NOW, candidates, episode, memory, put, vector

NEWEST = migrations("sqlite")[-1][0]
OLD_TEXTS = ("the harbour is deep", "ships are loading", "京都の会議", "bug-183 is fixed")
MEMORY = (
    "INSERT INTO memories (agent, project, channel, msg_id, digest, content, source, source_id, timestamp, metadata,"
    " created_at, locked, revision) VALUES ('a', '', '', '', ?, ?, '{}', '', ?, ?, ?, 0, 1)"
)


def filler(number: int) -> str:
    """A text of many words of its own."""
    return f"filler {number} " + " ".join(f"w{number}x{at}" for at in range(20))


def old_database(path: Path, version: int, rows: int = 1) -> None:
    """A database as the program of that schema left it, with four texts and an episode, and as many rows more."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL")
    for number, statements in migrations("sqlite")[:version]:
        connection.execute(statements)
        connection.execute(f"PRAGMA user_version = {number}")
    with connection:
        for at, text in enumerate((*OLD_TEXTS, *map(filler, range(rows)))):
            instant = f"2026-03-01T00:{at % 60:02}:00+00:00"
            connection.execute(MEMORY, (text.encode()[:16] + bytes([at % 256]), text, instant, '{"session": "s"}', NOW))
            values = (connection.last_insert_rowid() << 4, at, vector(text).values)
            connection.execute(
                "INSERT INTO vectors (document, number, revision, fingerprint, vector) VALUES (?, ?, 1, 'f1', ?)",
                values,
            )
        connection.execute(
            "INSERT INTO episodes (agent, project, channel, summary, keywords, start_time, end_time, created_at,"
            " resolved, revision) VALUES ('a', '', '', 'a talk', 'harbour', '', '', ?, 0, 1)",
            (NOW,),
        )
        if version > 1:
            _index(connection)
    connection.close()


def _index(connection: apsw.Connection) -> None:
    rows = "SELECT id, content, timestamp FROM memories ORDER BY id"
    for id, content, instant in connection.execute(rows).fetchall():
        row = memory(content, id=id, metadata={"session": "s"})
        connection.execute("UPDATE memories SET talk = 'session s' WHERE id = ?", (id,))
        indexing.put(connection, msgspec.structs.replace(row, timestamp=instant))
    indexing.put(connection, episode("a talk", id=1, keywords="harbour"))


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [number for number, _ in migrations("sqlite")] == list(range(1, NEWEST + 1))


def test_a_migrated_database_is_left_as_it_is(tmp_path: Path) -> None:
    for _ in range(2):
        SqliteStorage(tmp_path / "memory.db").upkeep.close()
        connection = apsw.Connection(str(tmp_path / "memory.db"))
        assert connection.execute("PRAGMA user_version").fetchall() == [(NEWEST,)]
        connection.close()
    assert [path.name for path in tmp_path.glob("*schema*")] == []


@pytest.mark.parametrize("version", range(1, NEWEST))
async def test_an_old_database_keeps_its_rows_and_finds_them(tmp_path: Path, version: int) -> None:
    old_database(tmp_path / "memory.db", version, rows=700)
    engine = SqliteStorage(tmp_path / "memory.db")
    assert len(await engine.memories.page(Scope(), 1000)) == len(OLD_TEXTS) + 700
    for query, ref in (("ship", 2), ("京都", 3), ("bug-183", 4)):
        found = await candidates(engine, Scope(agent="a"), Query((query,), vector(OLD_TEXTS[ref - 1]), 5))
        assert found.words[0].ref == found.vectors[0].ref == Ref(Kind.MEMORY, ref)
    found = await candidates(engine, Scope(agent="a"), Query(("harbour",), None, 5))
    assert [str(hit.ref) for hit in (*found.words, *found.episodes)] == ["mem:1", "ep:1"]
    await engine.close()


async def test_an_old_database_gets_the_index_it_would_have_had(tmp_path: Path) -> None:
    old_database(tmp_path / "memory.db", 1)
    engine = SqliteStorage(tmp_path / "memory.db")
    await same_as_from_nothing(engine, tmp_path / "memory.db")
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    assert connection.execute("SELECT DISTINCT talk FROM memories").fetchall() == [("session s",)]
    connection.close()
    await engine.close()


def test_before_it_is_changed_a_proved_copy_is_made_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old_database(tmp_path / "memory.db", 1)
    with caplog.at_level(logging.WARNING):
        SqliteStorage(tmp_path / "memory.db").upkeep.close()
    copy = tmp_path / "memory.db.schema-1"
    assert str(copy) in str([vars(record).get("fields") for record in caplog.records])
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    connection = apsw.Connection(str(copy))
    assert connection.execute("PRAGMA user_version").fetchall() == [(1,)]
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("SELECT count(*) FROM memories").fetchall() == [(len(OLD_TEXTS) + 1,)]
    assert connection.execute("SELECT rowid FROM words WHERE words MATCH 'harbour'").fetchall() == []
    connection.close()


async def test_the_copy_can_be_put_back(tmp_path: Path) -> None:
    old_database(tmp_path / "memory.db", 1)
    await SqliteStorage(tmp_path / "memory.db").close()
    shutil.copy(tmp_path / "memory.db.schema-1", tmp_path / "memory.db")
    engine = SqliteStorage(tmp_path / "memory.db")
    assert len(await engine.memories.page(Scope(), 10)) == len(OLD_TEXTS) + 1
    await engine.close()


def test_without_room_the_start_says_where_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_database(tmp_path / "memory.db", 1)
    before = (tmp_path / "memory.db").read_bytes()
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=100_000))
    with pytest.raises(Unavailable, match=r"memory\.db .*bytes and .*100,000 free"):
        SqliteStorage(tmp_path / "memory.db")
    assert (tmp_path / "memory.db").read_bytes() == before
    assert not list(tmp_path.glob("*schema*"))


@pytest.mark.parametrize("error", [apsw.FullError("database or disk is full"), RuntimeError("a fault of our own")])
async def test_a_change_that_fails_half_way_leaves_the_old_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    old_database(tmp_path / "memory.db", 1)
    failing = iter([None, None, error])

    def put(*_: object) -> None:
        if problem := next(failing):
            raise problem

    monkeypatch.setattr(schema.indexing, "put", put)
    with pytest.raises(
        (Unavailable, RuntimeError), match=r"disk is full; [0-9,]+ bytes are free in|a fault of our own"
    ):
        SqliteStorage(tmp_path / "memory.db")
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    assert connection.execute("PRAGMA user_version").fetchall() == [(1,)]
    assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'corpora'").fetchall() == [(0,)]
    connection.close()
    monkeypatch.undo()
    engine = SqliteStorage(tmp_path / "memory.db")
    assert len(await engine.memories.page(Scope(), 10)) == len(OLD_TEXTS) + 1
    await engine.close()


def test_a_disk_that_fills_up_half_way_stops_the_start_and_changes_nothing(tmp_path: Path) -> None:
    """The process may make no file larger than the copy, so that the log of the change does not fit."""
    old_database(tmp_path / "memory.db", 1, rows=3_000)
    start = (
        "import resource, sys, pathlib; resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)\n"
        "from memory_svc.storage.sqlite.engine import SqliteStorage; SqliteStorage(pathlib.Path(sys.argv[1]))"
    )
    path, limit = str(tmp_path / "memory.db"), str((tmp_path / "memory.db").stat().st_size + 50_000)
    ended = subprocess.run([sys.executable, "-c", start, path, limit], check=False, capture_output=True, text=True)
    assert f"{path} cannot be brought to the newest schema" in ended.stderr
    connection = apsw.Connection(path)
    assert connection.execute("PRAGMA user_version").fetchall() == [(1,)]
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("SELECT count(*) FROM memories").fetchall() == [(len(OLD_TEXTS) + 3_000,)]
    connection.close()


def test_a_newer_schema_is_refused_with_the_remedy(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    with pytest.raises(Unavailable, match="install the newer version"):
        SqliteStorage(tmp_path / "memory.db")


@pytest.mark.parametrize(("version", "_"), [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)])
def test_processes_that_start_at_once_migrate_once(tmp_path: Path, version: int, _: int) -> None:
    if version:
        old_database(tmp_path / "memory.db", version)
    failed: list[Exception] = []

    def start() -> None:
        try:
            engine = SqliteStorage(tmp_path / "memory.db")
            engine.upkeep.close()
        except Unavailable as problem:
            failed.append(problem)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


async def test_replayed_rows_of_an_old_journal_are_indexed(tmp_path: Path) -> None:
    source, target = (SqliteStorage(tmp_path / name) for name in ("one.db", "two.db"))
    await source.apply(put("the harbour"))
    await target.journal.replay(await source.journal.after(0, 10))
    found = await candidates(target, Scope(agent="a"), Query(("harbours",), None, 5))
    assert [str(hit.ref) for hit in found.words] == ["mem:1"]
    await source.close()
    await target.close()
