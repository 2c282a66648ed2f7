"""Announcements: who is told what, when the journal is watched, and what a slow listener costs."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from memory_svc.domain.access.principal import OWNER, Permission, Principal
from memory_svc.domain.change import ChangeMemory, Forget
from memory_svc.domain.memory import Kind, Ref
from memory_svc.domain.scope import CANARY_AGENT
from memory_svc.errors import Overloaded, Unavailable
from memory_svc.storage.interface import JournalRow, Storage
from memory_svc.transports import announcements, news
from memory_svc.transports.announcements import Announcements, Changes, changes_in
from memory_svc.transports.news import News
from tests.support.corpus import put, write


async def settle(condition: Any) -> None:
    """Wait, with a bound, until the condition holds."""
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come")


async def rows_of(storage: Storage) -> list[JournalRow]:
    """Effects of three writes: one row made, changed and erased, and one that stays."""
    await storage.apply(put("one"))
    await storage.apply(write(ChangeMemory(1, "two")))
    await storage.apply(put("other"))
    await storage.apply(write(Forget(Ref(Kind.MEMORY, 1))))
    return await storage.journal.after(0, 10)


async def test_a_row_written_often_is_told_once_and_coming_or_going_changes_the_list(storage: Storage) -> None:
    rows = await rows_of(storage)
    assert changes_in(rows, OWNER) == Changes(("memory://a/mem:1", "memory://a/mem:2"), listed=True)
    await storage.apply(write(ChangeMemory(2, "again")))
    changed = (await storage.journal.after(0, 10))[-1]
    assert changes_in([changed], OWNER) == Changes(("memory://a/mem:2",), listed=False)


async def test_who_may_not_read_is_told_nothing(storage: Storage) -> None:
    rows = await rows_of(storage)
    stranger = Principal("stranger", Permission.NONE)
    assert changes_in(rows, stranger) == Changes((), listed=False)
    told: list[Changes] = []
    made = Announcements(storage)
    made.subscribe(stranger, told.append)
    made.tell(rows)
    assert told == []


async def test_the_rows_of_the_canary_are_announced_to_nobody(storage: Storage) -> None:
    await storage.apply(put("one", agent=CANARY_AGENT))
    assert changes_in(await storage.journal.after(0, 10), OWNER) == Changes((), listed=False)


async def test_the_journal_is_watched_only_while_somebody_listens(storage: Storage) -> None:
    made = Announcements(storage)
    told: list[Changes] = []
    unsubscribe = made.subscribe(OWNER, told.append)
    await storage.apply(put("before"))
    async with made.attended(), made.attended():
        await storage.apply(put("one"))
        await settle(lambda: told)
    await storage.apply(put("after"))
    await asyncio.sleep(0.05)
    async with made.attended():
        await storage.apply(put("two"))
        await settle(lambda: len(told) == 2)
        unsubscribe()
        unsubscribe()
        await storage.apply(put("three"))
        await asyncio.sleep(0.1)
    assert [change.uris for change in told] == [("memory://a/mem:2",), ("memory://a/mem:4",)]


class Faltering:
    """A journal that fails now and then."""

    def __init__(self, storage: Storage) -> None:
        self._journal = storage.journal
        self.fails = 1

    @property
    def journal(self) -> Any:
        """Itself."""
        return self

    async def latest(self) -> int:
        """As the real one."""
        return await self._journal.latest()

    async def watch(self, after: int) -> AsyncGenerator[list[JournalRow], None]:
        """Fail first, then as the real one."""
        if self.fails:
            self.fails -= 1
            raise Unavailable("the disk sleeps")
        async with contextlib.aclosing(self._journal.watch(after)) as batches:
            async for rows in batches:
                yield rows


async def test_after_a_failure_of_the_journal_nothing_is_left_out(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcements, "RETRY_SECONDS", 0.05)
    faltering: Any = Faltering(storage)
    made = Announcements(faltering)
    told: list[Changes] = []
    made.subscribe(OWNER, told.append)
    async with made.attended():
        await storage.apply(put("one"))
        await settle(lambda: told)
    assert told[0].uris == ("memory://a/mem:1",)


class Client:
    """A client that takes a message only when it is let."""

    def __init__(self) -> None:
        self.may_read = asyncio.Event()
        self.told: list[str] = []

    async def send_resource_updated(self, uri: str) -> None:
        """Take it, some time."""
        await self.may_read.wait()
        self.told.append(uri)

    async def send_resource_list_changed(self) -> None:
        """Take it, some time."""
        await self.may_read.wait()
        self.told.append("list")


async def test_a_client_that_does_not_read_holds_up_no_write_and_is_told_each_once(storage: Storage) -> None:
    made, client = Announcements(storage), Client()
    own = News(OWNER, made)
    own.name("memory://a/mem:1")
    task = asyncio.create_task(own.tell())
    await own.begin(client)
    await storage.apply(put("one"))
    for number in range(100):
        await storage.apply(write(ChangeMemory(1, f"text {number}")))
    await asyncio.sleep(0.3)
    assert client.told == []
    client.may_read.set()
    await settle(lambda: len(client.told) == 3)
    assert client.told == ["memory://a/mem:1", "list", "memory://a/mem:1"]
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_connection_names_a_bounded_number_of_resources(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(news, "SUBSCRIPTIONS_MAX", 2)
    own = News(OWNER, Announcements(storage))
    own.name("memory://a/mem:1")
    own.name("memory://a/mem:2")
    own.name("memory://a/mem:2")
    with pytest.raises(Overloaded, match="unsubscribe"):
        own.name("memory://a/mem:3")
    own.drop("memory://a/mem:1")
    own.name("memory://a/mem:3")
