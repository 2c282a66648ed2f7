"""Expiry: a memory whose time is over stands in nobody's way, and is erased for good."""

from pathlib import Path

import apsw
import pytest

from memory_svc.domain.change import ChangeMemory, Expire, Forget, PutMemory, SetLock
from memory_svc.domain.memory import Kind, Ref
from memory_svc.domain.scope import Scope
from memory_svc.errors import Conflict, NotFound
from memory_svc.storage.interface import Query, Storage
from memory_svc.storage.sqlite.engine import SqliteStorage
from memory_svc.storage.sqlite.scope import ANY_OVER, settled
from tests.support.corpus import NOW, candidates, memory, put, vector, write

OVER, LATER = "2026-02-28T23:59:59.999999+00:00", "2026-03-02T00:00:00+00:00"
PRESENT = Scope(agent="a", now=NOW)


async def listed(storage: Storage, scope: Scope = PRESENT) -> list[int]:
    """The ids of the memories of a list, oldest first."""
    return sorted(row.id for row in await storage.memories.page(scope, 99))


@pytest.mark.parametrize("expires_at", [OVER, NOW])
async def test_what_is_over_is_stored_anew_and_its_old_row_is_erased(storage: Storage, expires_at: str) -> None:
    await storage.apply(put("one", msg_id="m", locked=True, expires_at=expires_at))
    stored = (await storage.apply(put("one", msg_id="m"))).outcomes[0]
    assert (stored.result, str(stored.ref)) == ("stored", "mem:2")
    assert await listed(storage, Scope()) == [2]
    assert [row.erasure for row in await storage.journal.after(0, 9)] == [False, True, False]
    assert [row.effect and row.effect.row.id for row in await storage.journal.after(0, 9)] == [None, None, 2]
    assert await storage.upkeep.verify() == []


async def test_what_is_not_over_yet_is_a_duplicate(storage: Storage) -> None:
    await storage.apply(put("one", expires_at=LATER))
    assert (await storage.apply(put("one"))).outcomes[0].result == "skipped"


async def test_an_edit_takes_the_place_of_a_text_that_is_over(storage: Storage) -> None:
    await storage.apply(put("one", expires_at=OVER))
    await storage.apply(put("two"))
    await storage.apply(write(ChangeMemory(2, "one")))
    assert [row.content for row in await storage.memories.page(Scope(), 9)] == ["one"]
    assert await storage.upkeep.verify() == []


@pytest.mark.parametrize("change", [ChangeMemory(1, "x"), SetLock(1, True), Forget(Ref(Kind.MEMORY, 1))])
async def test_a_change_of_what_is_over_finds_nothing(
    storage: Storage, change: ChangeMemory | SetLock | Forget
) -> None:
    await storage.apply(put("one", expires_at=OVER))
    with pytest.raises(NotFound, match="Memory 1 not found"):
        await storage.apply(write(change))


async def test_an_expiry_is_changed_and_removed_with_the_text_as_it_is(storage: Storage) -> None:
    await storage.apply(put("one", expires_at=LATER), {0: vector("one")})
    for expires_at, revision in (("", 2), ("", 2), (LATER, 3)):
        outcome = (await storage.apply(write(ChangeMemory(1, None, expires_at=expires_at)))).outcomes[0]
        assert outcome.revision == revision
        row = (await storage.memories.get(PRESENT, [1]))[1]
        assert (row.content, row.expires_at, row.revision) == ("one", expires_at, revision)
    found = await candidates(storage, PRESENT, Query((), vector("one"), 5))
    assert [str(hit.ref) for hit in found.vectors] == ["mem:1"]
    found = await candidates(storage, Scope(agent="a", now=LATER), Query(("one",), vector("one"), 5))
    assert (found.vectors, found.words) == ([], [])


async def test_a_locked_memory_keeps_its_expiry(storage: Storage) -> None:
    await storage.apply(put("one", expires_at=LATER, locked=True))
    with pytest.raises(Conflict, match="locked"):
        await storage.apply(write(ChangeMemory(1, None, expires_at="")))


async def test_what_is_over_is_named_for_erasure_the_longest_over_first(storage: Storage) -> None:
    for content, expires_at in (("one", NOW), ("two", OVER), ("three", LATER), ("four", ""), ("five", OVER)):
        await storage.apply(put(content, expires_at=expires_at))
    assert await storage.upkeep.expired(NOW, 9) == [2, 5, 1]
    assert await storage.upkeep.expired(NOW, 2) == [2, 5]
    outcomes = (await storage.apply(write(*map(Expire, (2, 5, 3, 4, 77))))).outcomes
    assert [outcome.result for outcome in outcomes] == ["gone", "gone", "skipped", "skipped", "skipped"]
    assert await listed(storage, Scope()) == [1, 3, 4]
    assert await listed(storage) == [3, 4]
    assert await storage.upkeep.verify() == []


async def test_no_byte_is_left_of_a_locked_memory_that_is_over(storage: Storage, tmp_path: Path) -> None:
    await storage.apply(put("xyzzyplugh", locked=True, expires_at=OVER))
    await storage.apply(write(Expire(1)))
    while await storage.upkeep.erase_step():
        pass
    assert not await storage.upkeep.erasing()
    assert b"xyzzyplugh" not in (tmp_path / "memory.db").read_bytes()


async def test_a_replayed_journal_carries_the_expiry(storage: Storage, tmp_path: Path) -> None:
    await storage.apply(put("one", expires_at=OVER))
    await storage.apply(put("one", expires_at=LATER))
    copy = SqliteStorage(tmp_path / "copy.db")
    await copy.journal.replay(await storage.journal.after(0, 9))
    assert [row.expires_at for row in await copy.memories.page(Scope(), 9)] == [LATER]
    assert await copy.upkeep.verify() == []
    await copy.close()


async def test_an_arm_asks_nothing_of_its_rows_while_no_memory_is_over(storage: Storage, tmp_path: Path) -> None:
    await storage.apply(write(*(PutMemory(memory(f"needle {at}", expires_at=LATER)) for at in range(5))))
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    assert settled(connection, PRESENT) == Scope(agent="a")
    assert settled(connection, Scope(agent="a", now=LATER)) == Scope(agent="a", now=LATER)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {ANY_OVER}", (NOW,)).fetchall()
    assert "USING COVERING INDEX memories_by_expiry" in str(plan)
    connection.close()
