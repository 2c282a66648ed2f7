"""One host has a database open at a time: hosts that are not this one, over one file."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from memory_svc.domain.scope import Scope
from memory_svc.errors import Unavailable
from memory_svc.storage.sqlite.engine import SqliteStorage
from memory_svc.storage.sqlite.host import Tenant
from memory_svc.storage.sqlite.lease import Held, Watch
from tests.support.corpus import put

# Those that are halted may be silent for a moment only, those that live for longer than a busy machine halts them.
SOON = 0.6
HERE = Tenant("boot-a", "host-a", 4.0)
HALTED = Tenant("boot-a", "host-a", SOON)
THERE = Tenant("boot-b", "host-b", 4.0)


def leases(path: Path) -> list[str]:
    """The hosts that have it open, as the database has them."""
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        return [str(name) for (name,) in connection.execute("SELECT name FROM leases ORDER BY name")]


@contextlib.contextmanager
def frozen(engine: SqliteStorage) -> Iterator[None]:
    """A process that lives and does not get to beat, as one whose machine sleeps."""
    lease = engine._lease
    lease._stopping.set()
    lease._thread.join()
    yield
    lease._stopping.clear()
    lease._thread = threading.Thread(target=lease._beat_on, daemon=True)
    lease._thread.start()


async def test_another_host_is_refused_while_this_one_lives(tmp_path: Path) -> None:
    engine = SqliteStorage(tmp_path / "memory.db", HERE)
    await engine.apply(put("one"))
    with pytest.raises(
        Unavailable, match=r"memory\.db is open on another host, host-a, which is alive.*MEMORY_DATA_DIR"
    ):
        SqliteStorage(tmp_path / "memory.db", THERE)
    await engine.apply(put("two"))
    await engine.ping()
    assert leases(tmp_path / "memory.db") == ["host-a"]
    await engine.close()


async def test_processes_of_one_host_share_the_database(tmp_path: Path) -> None:
    one, two = (SqliteStorage(tmp_path / "memory.db", HERE) for _ in range(2))
    await one.close()
    with pytest.raises(Unavailable, match="host-a, which is alive"):
        SqliteStorage(tmp_path / "memory.db", THERE)
    await two.apply(put("still here"))
    await two.close()


async def test_a_clean_stop_hands_the_database_over_at_once(tmp_path: Path) -> None:
    await SqliteStorage(tmp_path / "memory.db", Tenant("boot-a", "host-a", 3600)).close()
    assert leases(tmp_path / "memory.db") == []
    engine = SqliteStorage(tmp_path / "memory.db", THERE)
    await engine.apply(put("moved"))
    await engine.close()


async def test_a_host_that_is_silent_for_too_long_loses_the_database_and_both_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lost = SqliteStorage(tmp_path / "memory.db", HALTED)
    await lost.apply(put("one"))
    with frozen(lost), caplog.at_level(logging.WARNING):
        begin = time.monotonic()
        taken = await asyncio.to_thread(SqliteStorage, tmp_path / "memory.db", THERE)
        assert time.monotonic() - begin >= SOON
        await taken.apply(put("two"))
    told = [record.message for record in caplog.records]
    assert "the database was open on another host; waiting whether that one is alive" in told
    assert "took the database over from a host that is silent" in told
    with pytest.raises(Unavailable, match=r"taken over by another host, host-b.*nothing is written"):
        await lost.apply(put("three"))
    for work in (lost.derived.forget_vectors(), lost._writer.run_alone(lambda: None)):
        with pytest.raises(Unavailable, match="host-b"):
            await work
    await until_not_ready(lost)
    assert [row.content for row in await lost.memories.page(Scope(), 10)] == ["two", "one"]
    await taken.apply(put("five"))
    await lost.close()
    assert leases(tmp_path / "memory.db") == ["host-b"]
    await taken.close()


async def test_who_lost_the_database_has_it_again_when_the_other_stops(tmp_path: Path) -> None:
    lost = SqliteStorage(tmp_path / "memory.db", HALTED)
    with frozen(lost):
        taken = await asyncio.to_thread(SqliteStorage, tmp_path / "memory.db", THERE)
    await until_not_ready(lost)
    await taken.apply(put("meanwhile"))
    await taken.close()
    await until(lambda: lost._lease._taken is None)
    await lost.ping()
    await lost.apply(put("again"))
    assert [row.content for row in await lost.memories.page(Scope(), 10)] == ["again", "meanwhile"]
    await lost.close()


async def test_of_two_hosts_that_wait_for_a_silent_one_one_gets_the_database(tmp_path: Path) -> None:
    gone = SqliteStorage(tmp_path / "memory.db", HALTED)
    with frozen(gone):
        starting = [
            asyncio.to_thread(SqliteStorage, tmp_path / "memory.db", Tenant(f"boot-{name}", f"host-{name}", 4.0))
            for name in "bc"
        ]
        came = await asyncio.gather(*starting, return_exceptions=True)
    engines = [one for one in came if isinstance(one, SqliteStorage)]
    (refused,) = (one for one in came if one not in engines)
    assert isinstance(refused, Unavailable)
    assert "is open on another host" in refused.text
    await engines[0].apply(put("won"))
    await engines[0].close()
    await gone.close()


async def test_a_process_killed_on_this_host_holds_up_nobody_here_and_is_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed = SqliteStorage(tmp_path / "memory.db", HALTED)
    with frozen(killed), caplog.at_level(logging.WARNING):
        engine = SqliteStorage(tmp_path / "memory.db", HERE)
        assert caplog.records == []
        await until(lambda: leases(tmp_path / "memory.db") == ["host-a"])
    await engine.close()
    await killed.close()


async def test_a_refused_host_changes_nothing_not_even_an_older_schema(tmp_path: Path) -> None:
    engine = SqliteStorage(tmp_path / "memory.db", HERE)
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    version = next(connection.execute("PRAGMA user_version"))[0]
    connection.execute(f"PRAGMA user_version = {version - 1}")
    with pytest.raises(Unavailable, match="another host"):
        SqliteStorage(tmp_path / "memory.db", THERE)
    assert next(connection.execute("PRAGMA user_version"))[0] == version - 1
    assert not list(tmp_path.glob("*schema*"))
    connection.close()
    await engine.close()


def test_a_beat_that_grows_is_never_silent_whatever_its_own_clock_says() -> None:
    watch = Watch()
    for beat in range(10):
        watch.look([Held("p", "h", "n", beat, 20.0)], now=beat * 19.0)
        assert not watch.is_silent(Held("p", "h", "n", beat, 20.0), now=beat * 19.0)


def test_a_beat_that_stands_still_for_as_long_as_its_row_allows_is_silent() -> None:
    watch = Watch()
    slow, fast = Held("p", "h", "n", 7, 60.0), Held("q", "h", "n", 7, 20.0)
    watch.look([slow, fast], now=0.0)
    watch.look([slow, fast], now=20.0)
    assert [watch.is_silent(row, 20.0) for row in (slow, fast)] == [False, True]
    watch.look([beaten(fast)], now=21.0)
    assert not watch.is_silent(fast, 21.0)


def beaten(row: Held) -> Held:
    """The row after its next beat."""
    return Held(row.process, row.host, row.name, row.beat + 1, row.seconds)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - nobody tells when it does
            await asyncio.sleep(0.05)


async def until_not_ready(engine: SqliteStorage) -> None:
    """Wait until the process has noticed who has the database."""
    await until(lambda: engine._lease._taken is not None)
    with pytest.raises(Unavailable, match="host-b"):
        await engine.ping()
