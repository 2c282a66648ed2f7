"""How often memories were recalled: noted, written later, gone with the memory. And what else is of the past."""

import asyncio
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from memory_svc.domain.change import Forget, PutEpisode, PutMemory, PutProfile
from memory_svc.domain.memory import Kind, Memory, Profile, Ref
from memory_svc.domain.scope import Scope
from memory_svc.errors import Unavailable
from memory_svc.storage.interface import Past, Query, Storage, TimesRecalled
from memory_svc.storage.sqlite.engine import SqliteStorage
from tests.support.corpus import NOW, episode, memory, put, vector, write

EARLY, LATE = "2026-03-01T10:00:00+00:00", "2026-03-02T10:00:00+00:00"
A = Scope(agent="a")


async def past(storage: Storage, scope: Scope = A) -> dict[str, object]:
    """What the past says of the rows that hold `fact`."""

    def read(found: Past, documents: list[int]) -> dict[str, object]:
        counts, last = found.recalled()
        return {
            "boundary": found.boundary(),
            "span": found.span_hours(),
            "said": dict(zip(documents, found.said().tolist(), strict=True)),
            "resolved": dict(zip(documents, found.resolved().tolist(), strict=True)),
            "counts": dict(zip(documents, counts.tolist(), strict=True)),
            "last": dict(zip(documents, last.tolist(), strict=True)),
        }

    query = Query(("fact",), None, 100)
    return await storage.search.candidates(
        scope, query, lambda found: read(found.past, found.evidence.documents.tolist())
    )


def hour(instant: str) -> float:
    """Hours since 1970."""
    return float(np.datetime64(instant.removesuffix("+00:00"), "s").astype(int)) / 3600


def said_at(text: str, instant: str, agent: str = "a") -> Memory:
    """A memory of that time."""
    return msgspec.structs.replace(memory(text, agent=agent), timestamp=instant)


async def test_a_recall_is_counted_at_once_and_written_when_flushed(storage: Storage) -> None:
    await storage.apply(put("fact"))
    for instant in (LATE, EARLY):
        storage.recalls.note([1, 1], instant)
    assert await storage.recalls.of(A, [1, 2]) == {1: TimesRecalled(4, LATE)}
    assert await storage.recalls.flush() == 1
    storage.recalls.note([1], EARLY)
    assert await storage.recalls.of(A, [1]) == {1: TimesRecalled(5, LATE)}
    assert await storage.recalls.flush() == 1
    assert await storage.recalls.flush() == 0
    assert await storage.recalls.of(A, [1]) == {1: TimesRecalled(5, LATE)}


async def test_what_was_noted_is_there_after_a_restart_and_two_processes_add_up(tmp_path: Path) -> None:
    one, two = (SqliteStorage(tmp_path / "memory.db") for _ in range(2))
    await one.apply(put("fact"))
    one.recalls.note([1], EARLY)
    two.recalls.note([1], LATE)
    await one.close()
    await two.close()
    again = SqliteStorage(tmp_path / "memory.db")
    assert await again.recalls.of(A, [1]) == {1: TimesRecalled(2, LATE)}
    await again.close()


async def test_counts_are_of_the_scope_and_go_with_the_memory(storage: Storage) -> None:
    await storage.apply(put("fact"))
    await storage.apply(put("fact", agent="b"))
    storage.recalls.note([1, 2], EARLY)
    await storage.recalls.flush()
    assert set(await storage.recalls.of(A, [1, 2])) == {1}
    storage.recalls.note([1], LATE)
    await storage.apply(write(Forget(Ref(Kind.MEMORY, 1), agent="a")))
    await storage.recalls.flush()
    assert set(await storage.recalls.of(Scope(), [1, 2])) == {2}
    assert await storage.upkeep.verify() == []


async def test_only_so_many_memories_are_noted_between_two_flushes(storage: Storage) -> None:
    await storage.apply(put("fact"))
    storage.recalls.note([1, *range(10, 30_000)], EARLY)
    storage.recalls.note([1], LATE)
    assert await storage.recalls.of(A, [1]) == {1: TimesRecalled(2, LATE)}
    assert await storage.recalls.flush() == 20_000


async def test_what_cannot_be_written_stays_noted(tmp_path: Path) -> None:
    storage = SqliteStorage(tmp_path / "memory.db")
    await storage.apply(put("fact"))
    storage.recalls.note([1], EARLY)
    (tmp_path / "memory.db").rename(tmp_path / "elsewhere.db")
    with pytest.raises(Unavailable):
        await storage.recalls.flush()
    storage.recalls.note([1], LATE)
    (tmp_path / "elsewhere.db").rename(tmp_path / "memory.db")
    await storage.recalls.flush()
    assert await storage.recalls.of(A, [1]) == {1: TimesRecalled(2, LATE)}
    await storage.close()


async def test_a_flush_that_is_given_up_counts_nothing_twice(tmp_path: Path) -> None:
    storage = SqliteStorage(tmp_path / "memory.db")
    await storage.apply(write(*(PutMemory(memory(f"fact {number}")) for number in range(1, 1201))))
    storage.recalls.note(range(1, 1201), EARLY)
    flush = asyncio.create_task(storage.recalls.flush())
    await asyncio.sleep(0)
    flush.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flush
    await storage.close()
    again = SqliteStorage(tmp_path / "memory.db")
    counted = await again.recalls.of(A, range(1, 1201))
    assert {each.count for each in counted.values()} == {1}
    assert len(counted) == 1200
    await again.close()


async def test_the_past_of_candidates_is_told_by_their_documents(storage: Storage) -> None:
    await storage.apply(put("fact one"))
    await storage.apply(write(PutEpisode(episode("fact two", start_time=EARLY, resolved=True))))
    storage.recalls.note([1], LATE)
    told = await past(storage)
    one, two = Ref(Kind.MEMORY, 1).document, Ref(Kind.EPISODE, 1).document
    assert told["said"] == {one: hour(NOW), two: hour(EARLY)}
    assert told["resolved"] == {one: False, two: True}
    assert told["counts"] == {one: 1, two: 0}
    assert (told["last"][one], math.isnan(told["last"][two])) == (hour(LATE), True)


async def test_the_boundary_is_when_the_newest_episode_of_the_scope_ended(storage: Storage) -> None:
    await storage.apply(put("fact"))
    assert math.isnan((await past(storage))["boundary"])
    await storage.apply(write(PutEpisode(episode("ended", start_time=EARLY, end_time=LATE))))
    await storage.apply(write(PutEpisode(episode("no end", start_time=EARLY))))
    await storage.apply(write(PutEpisode(episode("no times"))))
    await storage.apply(write(PutEpisode(episode("another's", agent="b", end_time="2027-01-01T00:00:00+00:00"))))
    await storage.apply(write(PutEpisode(episode("elsewhere", project="p", end_time="2026-06-01T00:00:00+00:00"))))
    assert (await past(storage, Scope(agent="a", project="")))["boundary"] == hour(LATE)
    assert (await past(storage))["boundary"] == hour("2026-06-01T00:00:00+00:00")


async def test_an_episode_that_is_stored_later_but_ended_earlier_moves_no_boundary(storage: Storage) -> None:
    await storage.apply(write(PutEpisode(episode("the last", start_time=EARLY, end_time=LATE))))
    before = (await past(storage))["boundary"]
    imported = episode("long ago", start_time="2020-01-01T00:00:00+00:00", end_time="2020-01-02T00:00:00+00:00")
    await storage.apply(write(PutEpisode(imported)))
    assert (await past(storage))["boundary"] == before == hour(LATE)


async def test_the_span_reaches_from_the_oldest_memory_of_the_scope_to_the_newest(storage: Storage) -> None:
    assert (await past(storage))["span"] == 0.0
    for number, instant in enumerate((LATE, EARLY)):
        await storage.apply(write(PutMemory(said_at(f"fact {number}", instant))))
    await storage.apply(write(PutMemory(said_at("fact", "2020-01-01T00:00:00+00:00", agent="b"))))
    assert (await past(storage))["span"] == 24.0


async def test_vectors_are_looked_through_among_the_rows_stored_last_where_that_is_asked_for(storage: Storage) -> None:
    texts = [f"fact {number}" for number in range(6)]
    for number, text in enumerate(texts):
        stored = memory(text, agent="b" if number == 5 else "a")
        await storage.apply(write(PutMemory(stored)), {0: vector(text)})

    async def found(newest: int) -> list[int]:
        query = Query((), vector(texts[0]), 100, newest_rows=newest)
        return await storage.search.candidates(
            A, query, lambda found: sorted(Ref.of_document(document).id for document, _ in found.vectors)
        )

    assert await found(0) == await found(5) == await found(99) == [1, 2, 3, 4, 5]
    assert await found(2) == [4, 5]


async def test_profiles_stand_beside_a_scope_that_has_enough_rows(storage: Storage) -> None:
    for content, fields in (("of all", {}), ("of p", {"project": "p"}), ("of a user", {"user": "u"})):
        profile = Profile(agent="a", content=content, updated_at=NOW, **fields)
        await storage.apply(write(PutProfile(profile)))
    await storage.apply(put("fact"))
    await storage.apply(write(PutEpisode(episode("talk"))))

    async def beside(scope: Scope, rows_min: int, limit: int = 3) -> list[str]:
        return [profile.content for profile in await storage.profiles.beside(scope, limit, rows_min)]

    assert await beside(A, 2) == ["of p", "of all"]
    assert await beside(A, 2, limit=1) == ["of p"]
    assert await beside(Scope(agent="a", project=""), 0) == ["of all"]
    assert await beside(A, 3) == await beside(Scope(agent="b"), 0) == []
    assert await beside(Scope(agent="a", known_by="2026-02-01T00:00:00+00:00"), 0) == []
