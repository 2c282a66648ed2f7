"""What a store tells of memories that say nearly the same."""

from typing import Any

import msgspec
import pytest

from memory_svc.errors import Unavailable
from memory_svc.services.memory import similar
from memory_svc.services.operation import Call
from memory_svc.settings import Settings
from memory_svc.storage.interface import Storage
from tests.conftest import House

FACT = "the harbour database runs every night on the third machine of the old rack in the cellar"
NEARLY = FACT + " now"
OTHER = "apples grow on trees"


async def stored(house: House, content: str, call: Call | None = None, /, **axes: str) -> dict[str, Any]:
    """The receipt of storing this for agent a."""
    return await house.call("store", call, **({"agent_id": "a", "message": {"content": content}} | axes))


async def test_a_store_names_the_memories_that_say_nearly_the_same_nearest_first(house: House) -> None:
    for content in (OTHER, FACT, FACT + " still now"):
        await stored(house, content)
    answer = await stored(house, NEARLY)
    assert [row["ref"] for row in answer["similar"]] == ["mem:3", "mem:2"]
    first, second = answer["similar"]
    assert 1 >= first["cosine"] >= second["cosine"] >= 0.9
    assert second["content"] == FACT


async def test_at_most_three_are_named_and_by_their_beginnings(house: House) -> None:
    for number in range(6):
        await stored(house, f"{FACT} and {FACT} {number}")
    answer = await stored(house, f"{FACT} and {FACT}")
    assert len(answer["similar"]) == 3
    assert all(row["content"] == f"{FACT} and {FACT}"[:120] for row in answer["similar"])


async def test_where_none_does_nothing_is_told(house: House) -> None:
    await stored(house, OTHER)
    assert "similar" not in await stored(house, FACT)
    assert "similar" not in await stored(house, FACT)


async def test_an_episode_is_not_named(house: House) -> None:
    await house.call("archive_episode", agent_id="a", summary=FACT, history=[])
    assert "similar" not in await stored(house, FACT)


@pytest.mark.parametrize(
    ("held", "asked", "is_named"),
    [
        ({}, {"agent_id": "b"}, False),
        ({"project_id": "P"}, {}, False),
        ({"project_id": "P"}, {"project_id": "Q"}, False),
        ({"project_id": "P"}, {"project_id": "P"}, True),
        ({}, {"project_id": "P"}, True),
        ({"channel": "c"}, {}, False),
        ({"channel": "c"}, {"channel": "d"}, False),
        ({"channel": "c"}, {"channel": "c"}, True),
        ({}, {"channel": "c"}, True),
    ],
)
async def test_only_what_the_bucket_sees_is_named(
    house: House, held: dict[str, str], asked: dict[str, str], is_named: bool
) -> None:
    await stored(house, FACT, **held)
    assert ("similar" in await stored(house, NEARLY, **asked)) is is_named


async def test_it_can_be_switched_off_and_made_stricter(storage: Storage, settings: Settings) -> None:
    for least in (0.0, 0.999):
        house = House(storage, msgspec.structs.replace(settings, similar_min=least))
        await stored(house, FACT, agent_id=str(least))
        assert "similar" not in await stored(house, NEARLY, agent_id=str(least))
        await house.embedder.close()


async def test_without_a_vector_nothing_is_told(house: House) -> None:
    await stored(house, FACT)
    house.server.fault = "refuse"
    assert "similar" not in await stored(house, NEARLY)


async def test_a_search_that_fails_or_is_late_does_not_fail_the_store(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: object) -> None:
        raise Unavailable("no")

    await stored(house, FACT)
    monkeypatch.setattr(similar, "SECONDS_MAX", 0.0)
    late = await stored(house, NEARLY)
    monkeypatch.setattr(house.storage.search, "candidates", failing)
    failed = await stored(house, NEARLY + " again")
    for answer in (late, failed):
        assert (answer["result"], answer["embedded"], "similar" in answer) == ("stored", True, False)


async def test_a_repeated_key_tells_it_anew(house: House) -> None:
    await stored(house, FACT)
    key = Call(idempotency_key="k")
    first = await stored(house, NEARLY, key)
    assert await stored(house, NEARLY, key) == first
    assert first["similar"]
