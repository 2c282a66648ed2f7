"""The canary over a real engine: what it stores is seen by nobody, and a dead arm is told."""

import datetime as dt
import math
from pathlib import Path

import apsw
import msgspec
import pytest

from memory_svc import app
from memory_svc.domain.canary import CONTENTS, NOT_FOUND, PROBES, SORTS
from memory_svc.domain.scope import CANARY_AGENT, Scope
from memory_svc.domain.text import words
from memory_svc.services.canary import Canary, examined, inside
from memory_svc.settings import Settings
from memory_svc.storage.interface import Storage
from tests.conftest import House

BY_WORDS = [sort for sort in SORTS if sort != "meaning"]


@pytest.fixture
def house(house: House) -> House:
    """With a model that knows what the questions by meaning mean."""
    house.server.words = words
    house.server.alike = {probe.query: probe.content for probe in PROBES if probe.sort == "meaning"}
    return house


def rank(house: House, sort: str) -> float | None:
    """What the gauge says."""
    return house.metrics.registry.get_sample_value("memory_canary_rank", {"probe": sort})


async def test_every_arm_finds_its_rows_and_they_are_stored_once(house: House) -> None:
    ask = inside(house.catalogue.runtime)
    for _ in range(2):
        found = await examined(ask)
        assert (found.is_well, found.worst) == (True, dict.fromkeys(SORTS, 1))
    assert len(await house.storage.memories.page(Scope(agent=CANARY_AGENT), 100)) == len(CONTENTS)
    assert await house.storage.journal.latest() == len(CONTENTS)


@pytest.mark.parametrize(
    "more",
    [{"recall_mode": "rrf"}, {"recall_mode": "rsf"}, {"recall_mode": "cascade"}, {"confidence": True, "autocut": True}],
    ids=str,
)
async def test_every_order_is_well(house: House, storage: Storage, settings: Settings, more: dict[str, object]) -> None:
    other = House(storage, msgspec.structs.replace(settings, preview_chars=5, **more))
    other.server.words, other.server.alike = house.server.words, house.server.alike
    found = await examined(inside(other.catalogue.runtime))
    assert found.is_well, found
    await other.embedder.close()


async def test_nobody_sees_its_rows_who_does_not_name_it(house: House) -> None:
    await house.call("store", agent_id="a", content="gulls are birds")
    await examined(inside(house.catalogue.runtime))
    assert [row["agent_id"] for row in (await house.call("list_memories"))["memories"]] == ["a"]
    answer = await house.call("recall", agent_id="a", query="nested gull", deep=True)
    assert [row["content"] for row in answer["messages"]] == ["gulls are birds"]
    assert (await house.call("list_memories", agent_id=CANARY_AGENT))["count"] == len(CONTENTS)
    assert (await house.call("delete_agent_data", agent_id=CANARY_AGENT))["deleted_memories"] == len(CONTENTS)


async def test_a_word_arm_that_is_dead_is_told_of_every_script_though_vectors_find_the_rows(
    house: House, tmp_path: Path
) -> None:
    ask = inside(house.catalogue.runtime)
    assert (await examined(ask)).is_well
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
    connection.close()
    found = await examined(ask)
    assert found.worst == {"meaning": 1, **dict.fromkeys(BY_WORDS, NOT_FOUND)}
    assert not found.is_well


async def test_a_vector_arm_that_is_dead_is_told(house: House) -> None:
    ask = inside(house.catalogue.runtime)
    await examined(ask)
    house.server.fault = "refuse"
    found = await examined(ask)
    assert found.worst == {"meaning": NOT_FOUND, **dict.fromkeys(BY_WORDS, 1)}
    assert found.degraded.startswith("degraded: ")


async def test_without_an_embedding_server_words_are_tested_alone(plain_house: House) -> None:
    found = await examined(inside(plain_house.catalogue.runtime))
    assert (found.is_well, found.worst, found.skipped) == (True, dict.fromkeys(BY_WORDS, 1), ["meaning"])


async def test_it_is_a_step_of_the_worker_only_where_that_is_set(tmp_path: Path) -> None:
    for seconds, is_there in ((0.0, False), (60.0, True)):
        settings = Settings(data_dir=str(tmp_path / str(seconds)), embedding_url="", canary_seconds=seconds)
        Path(settings.data_dir).mkdir()
        async with app.assembled(settings) as parts:
            await parts.worker.run_once()
            assert ("canary" in parts.worker.steps) is is_there
            assert bool(await parts.storage.memories.page(Scope(agent=CANARY_AGENT), 1)) is is_there
            assert await parts.storage.memories.page(Scope(), 1) == []


async def test_as_a_step_it_notes_the_ranks_when_its_time_has_come_and_counts_among_nobodys_calls(
    house: House, settings: Settings
) -> None:
    set_so = msgspec.structs.replace(settings, canary_seconds=60.0)
    canary = Canary(msgspec.structs.replace(house.catalogue.runtime, settings=set_so))
    assert math.isnan(house.gauge("memory_canary_age_seconds"))
    assert await canary.step() is False
    assert [rank(house, sort) for sort in SORTS] == [1] * len(SORTS)
    assert house.gauge("memory_canary_age_seconds") < 60
    house.server.fault = "refuse"
    await canary.step()
    assert rank(house, "meaning") == 1
    house.clock.now += dt.timedelta(seconds=61)
    await canary.step()
    assert rank(house, "meaning") == NOT_FOUND
    assert house.gauge("memory_fallback_recalls_total") == 0
    assert house.embedder.advisory("owner").runbook != house.embedder.advisory("owner").runbook
