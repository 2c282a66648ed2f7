"""Writes: all or nothing, in order, and what they answer."""

import asyncio

import pytest

from memory_svc.domain.change import ChangeMemory, Forget, PutEpisode, PutMemory, PutProfile
from memory_svc.domain.memory import Kind, Profile, Ref
from memory_svc.domain.scope import Scope
from memory_svc.errors import Conflict, NotFound, Problem
from memory_svc.storage.interface import Storage
from tests.support.corpus import NOW, episode, memory, put, write


async def test_a_write_of_several_changes_happens_whole(storage: Storage) -> None:
    applied = await storage.apply(write(PutMemory(memory("one")), PutEpisode(episode("two"))))
    assert [str(outcome.ref) for outcome in applied.outcomes] == ["mem:1", "ep:1"]
    assert applied.sequence == 2


async def test_a_write_with_one_refused_change_leaves_nothing(storage: Storage) -> None:
    await storage.apply(put("held", locked=True))
    with pytest.raises(Conflict):
        await storage.apply(write(PutMemory(memory("new")), Forget(Ref(Kind.MEMORY, 1))))
    assert [row.content for row in await storage.memories.page(Scope(), 10)] == ["held"]
    assert await storage.journal.latest() == 1
    assert await storage.upkeep.verify() == []


async def test_a_refused_write_does_not_hold_back_those_beside_it(storage: Storage) -> None:
    await storage.apply(put("held", locked=True))
    refused = write(Forget(Ref(Kind.MEMORY, 1)))
    broken = write(ChangeMemory(1 << 70, "x"))
    writes = [put(f"fact {number}") if number % 3 else (refused, broken)[number % 2] for number in range(60)]
    answers = await asyncio.gather(*(storage.apply(each) for each in writes), return_exceptions=True)
    for number, answer in enumerate(answers):
        assert isinstance(answer, Problem) is (number % 3 == 0)
    assert len(await storage.memories.page(Scope(), 100)) == 41
    assert await storage.upkeep.verify() == []


async def test_a_caller_that_gives_up_does_not_undo_its_write(storage: Storage) -> None:
    task = asyncio.create_task(storage.apply(put("kept")))
    await asyncio.sleep(0)
    task.cancel()
    await storage.apply(put("after"))
    assert {row.content for row in await storage.memories.page(Scope(), 10)} == {"kept", "after"}


async def test_ids_are_never_used_again(storage: Storage) -> None:
    for number in range(3):
        applied = await storage.apply(put("same text"))
        assert applied.outcomes[0].ref.id == number + 1
        await storage.apply(write(Forget(applied.outcomes[0].ref)))


async def test_a_change_of_a_stale_revision_is_refused(storage: Storage) -> None:
    await storage.apply(put("one"))
    await storage.apply(write(ChangeMemory(1, "two", expected_revision=1)))
    with pytest.raises(Conflict, match="read it again"):
        await storage.apply(write(ChangeMemory(1, "three", expected_revision=1)))


async def test_what_changes_nothing_leaves_no_trace_in_the_journal(storage: Storage) -> None:
    await storage.apply(put("one"))
    for repeated in (put("one"), write(ChangeMemory(1, "one"))):
        await storage.apply(repeated)
    assert await storage.journal.latest() == 1


async def test_one_profile_is_kept_for_each_agent_user_and_project(storage: Storage) -> None:
    for content in ("old", "new"):
        await storage.apply(write(PutProfile(Profile(agent="a", content=content, updated_at=NOW))))
    await storage.apply(write(PutProfile(Profile(agent="a", user="u", content="of u", updated_at=NOW))))
    found = await storage.profiles.of(Scope(agent="a"))
    assert {(row.user, row.content, row.revision) for row in found} == {("", "new", 2), ("u", "of u", 1)}


async def test_a_repeated_key_repeats_its_outcome_and_another_request_is_refused(storage: Storage) -> None:
    first = await storage.apply(write(PutEpisode(episode("s")), key="k", digest=b"1"))
    assert await storage.apply(write(PutEpisode(episode("s")), key="k", digest=b"1")) == first
    with pytest.raises(Conflict, match="idempotency key"):
        await storage.apply(write(PutEpisode(episode("t")), key="k", digest=b"2"))
    assert len(await storage.episodes.page(Scope(), 10)) == 1


async def test_a_key_of_a_refused_write_may_be_used_again(storage: Storage) -> None:
    with pytest.raises(NotFound):
        await storage.apply(write(Forget(Ref(Kind.MEMORY, 1)), key="k", digest=b"1"))
    await storage.apply(write(PutEpisode(episode("s")), key="k", digest=b"2"))


async def test_a_row_of_another_agent_is_not_there(storage: Storage) -> None:
    await storage.apply(put("one", agent="b"))
    for change in (Forget(Ref(Kind.MEMORY, 1), "a"), ChangeMemory(1, "x", "a")):
        with pytest.raises(NotFound):
            await storage.apply(write(change))
    assert await storage.memories.get(Scope(agent="a"), [1]) == {}
    assert len(await storage.memories.get(Scope(agent="b"), [1, 2])) == 1
