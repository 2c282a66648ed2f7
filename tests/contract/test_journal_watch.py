"""Watching the journal: what is written comes at once, what other processes write soon, in order and once each."""

import asyncio
import contextlib
import time
from pathlib import Path

import pytest

from memory_svc.domain.change import Forget
from memory_svc.domain.memory import Kind, Ref
from memory_svc.storage.interface import WATCH_SECONDS_MAX, JournalRow, Storage
from memory_svc.storage.sqlite.engine import SqliteStorage
from tests.support.corpus import put, write

BOUND = 10


async def sequences(storage: Storage, after: int, count: int) -> list[int]:
    """The first so many sequences that a watch gives."""
    found: list[int] = []
    async with asyncio.timeout(BOUND), contextlib.aclosing(storage.journal.watch(after)) as batches:
        async for rows in batches:
            found += [row.sequence for row in rows]
            if len(found) >= count:
                break
    return found


async def test_what_was_written_before_comes_first_and_then_what_is_written(storage: Storage) -> None:
    await storage.apply(put("one"))
    watched = asyncio.create_task(sequences(storage, 0, 3))
    await asyncio.sleep(0.05)
    await storage.apply(put("two"))
    await storage.apply(write(Forget(Ref(Kind.MEMORY, 1))))
    assert await watched == [1, 2, 3]


async def test_nothing_before_the_start_is_given(storage: Storage) -> None:
    for text in ("one", "two", "three"):
        await storage.apply(put(text))
    assert await sequences(storage, 2, 1) == [3]


async def test_a_row_is_given_as_the_journal_has_it(storage: Storage) -> None:
    await storage.apply(put("one"))
    async with asyncio.timeout(BOUND), contextlib.aclosing(storage.journal.watch(0)) as batches:
        rows = await anext(batches)
    assert rows == await storage.journal.after(0, 10)


async def test_a_write_of_this_process_is_seen_at_once(storage: Storage) -> None:
    batches = storage.journal.watch(0)
    waits: list[float] = []
    async with asyncio.timeout(BOUND), contextlib.aclosing(batches):
        for number in range(20):
            watched = asyncio.ensure_future(anext(batches))
            await asyncio.sleep(0.01)
            begin = time.perf_counter()
            await storage.apply(put(f"fact {number}"))
            await watched
            waits.append(time.perf_counter() - begin)
    assert sorted(waits)[10] < WATCH_SECONDS_MAX / 2


async def test_a_write_of_another_process_is_seen_soon(tmp_path: Path) -> None:
    one, other = (SqliteStorage(tmp_path / "memory.db") for _ in range(2))
    watched = asyncio.create_task(sequences(one, 0, 1))
    await asyncio.sleep(0.05)
    begin = time.perf_counter()
    await other.apply(put("one"))
    assert await watched == [1]
    assert time.perf_counter() - begin < WATCH_SECONDS_MAX + 2
    await one.close()
    await other.close()


async def test_many_watch_at_once_and_each_is_given_everything_in_order(storage: Storage) -> None:
    watchers = [asyncio.create_task(sequences(storage, 0, 200)) for _ in range(5)]
    await asyncio.sleep(0.05)
    await asyncio.gather(*(storage.apply(put(f"fact {number}")) for number in range(200)))
    for watcher in watchers:
        assert await watcher == list(range(1, 201))


async def test_a_watcher_that_does_not_read_holds_up_no_write_and_misses_nothing(storage: Storage) -> None:
    batches = storage.journal.watch(0)
    sizes: list[int] = []
    async with contextlib.aclosing(batches):
        await storage.apply(put("first"))
        rows: list[JournalRow] = await anext(batches)
        for number in range(700):
            await storage.apply(put(f"fact {number}"))
        async with asyncio.timeout(BOUND):
            while rows[-1].sequence < 701:
                rows = await anext(batches)
                sizes.append(len(rows))
    assert sum(sizes) == 700
    assert max(sizes) < 700


async def test_a_watch_can_be_given_up_while_it_waits(storage: Storage) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3), contextlib.aclosing(storage.journal.watch(0)) as batches:
            await anext(batches)
    await storage.apply(put("one"))
