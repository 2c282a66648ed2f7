"""The gate at work: silence where nothing fits, calibrated in the background, the same in whatever order rows came."""

import asyncio
import datetime as dt
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_svc.domain.change import PutPrecision
from memory_svc.domain.memory import Precision
from memory_svc.errors import Conflict, Invalid, Unavailable
from memory_svc.settings import Settings
from memory_svc.storage.sqlite.engine import SqliteStorage
from tests.conftest import House
from tests.support.corpus import write

SUBJECTS = ("harbour", "orchard", "kitchen", "railway", "library", "workshop", "garden", "market")
DEEDS = ("opens before sunrise", "needs another key", "was painted green", "lost two windows", "hired five people")
TEXTS = [f"the {subject} near town {place} {deed}" for place, subject in enumerate(SUBJECTS) for deed in DEEDS]
OFF_TOPIC = "enzymes lactose digest quickly sugar near"
ON_TOPIC = "who painted the orchard green"


async def filled(house: House, texts: list[str] = TEXTS, agent: str = "a") -> None:
    """Store these and let the worker do what is due."""
    for text in texts:
        await house.call("store", agent_id=agent, content=text)
    await house.worker.run_once()


async def asked(house: House, query: str, **more: object) -> dict:
    """The answer to a query."""
    return await house.call("recall", agent_id="a", query=query, **more)


def judged(house: House, outcome: str) -> float | None:
    """How many recalls had that outcome."""
    return house.metrics.registry.get_sample_value("memory_recall_gate_total", {"outcome": outcome})


async def test_what_nothing_speaks_to_is_answered_with_nothing_and_why(house: House) -> None:
    await filled(house)
    answer = await asked(house, OFF_TOPIC)
    assert answer["messages"] == []
    assert answer["gate"]["status"] == "nothing_clears"
    assert answer["gate"]["best"] < answer["gate"]["threshold"]
    found = await asked(house, ON_TOPIC)
    assert found["messages"][-1]["content"] == "the orchard near town 1 was painted green"
    assert "gate" not in found
    assert (judged(house, "nothing_clears"), judged(house, "passed")) == (1, 1)


async def test_deep_and_a_gate_that_is_off_admit_everything(house: House) -> None:
    await filled(house)
    assert len((await asked(house, OFF_TOPIC, deep=True))["messages"]) == 10
    open_house = House(house.storage, msgspec.structs.replace(house.worker._settings, gate=False))
    assert len((await asked(open_house, OFF_TOPIC))["messages"]) == 10
    assert judged(open_house, "off") == judged(house, "deep") == 1
    assert await open_house.worker.calibrate() is False
    await open_house.embedder.close()


async def test_without_vectors_words_alone_are_never_held_back(house: House) -> None:
    await filled(house)
    house.server.fault = "refuse"
    assert (await asked(house, "enzymes of the harbour"))["messages"]
    assert judged(house, "no_vectors") == 1


async def test_identifiers_and_quoted_phrases_pass(house: House) -> None:
    await filled(house, [*TEXTS, "closed bug-183 on monday", "see ERR_TIMEOUT_EXCEEDED in the log"])
    for query, outcome in (
        ("enzymes lactose digest quickly sugar bug-183", "exact"),
        ("ERR_TIMEOUT", "exact"),
        ('enzymes lactose quickly digest "closed bug"', "exact"),
        ("enzymes lactose digest quickly sugar xyz-184", "nothing_clears"),
    ):
        before = judged(house, outcome) or 0
        answer = await asked(house, query)
        assert judged(house, outcome) == before + 1, query
        assert bool(answer["messages"]) == (outcome == "exact")


async def test_a_trace_tells_what_the_gate_decided(house: House) -> None:
    await filled(house)
    trace = (await asked(house, OFF_TOPIC, trace=True, trace_refs=["mem:1"]))["trace"]
    assert trace["gate"] == "nothing_clears"
    assert trace["rows"][0]["outcome"] in {
        "left out: nothing clears the gate",
        "left out: in the scope, but no arm has it among its first rows",
    }


async def test_an_agent_with_few_memories_is_not_gated(house: House) -> None:
    await filled(house, TEXTS[:29])
    assert (await asked(house, OFF_TOPIC))["messages"]
    assert judged(house, "not_calibrated") == 1
    with pytest.raises(Conflict, match="this agent has 29"):
        await house.call("calibrate_threshold", agent_id="a")
    await filled(house, TEXTS[29:30])
    assert (await asked(house, OFF_TOPIC))["messages"] == []
    await house.call("delete_memory", memory_id=1)
    assert (await asked(house, OFF_TOPIC))["messages"]


async def test_episodes_are_gated_as_memories_are_alone_and_beside_them(house: House) -> None:
    for text in TEXTS[:20]:
        await house.call("archive_episode", agent_id="a", summary=text)
    await house.worker.run_once()
    assert (await asked(house, OFF_TOPIC))["messages"]
    await filled(house, TEXTS[20:])
    assert (await asked(house, OFF_TOPIC))["messages"] == []
    mixed = (await house.call("get_recall_precision", agent_id="a"))["threshold"]
    for text in TEXTS:
        await house.call("archive_episode", agent_id="b", summary=text)
    await filled(house, [], "b")
    assert (await house.call("get_recall_precision", agent_id="b"))["threshold"] == mixed
    answer = await house.call("recall", agent_id="b", query=ON_TOPIC)
    assert answer["messages"][-1]["content"] == "[Episode] the orchard near town 1 was painted green"
    assert (await house.call("recall", agent_id="b", query=OFF_TOPIC))["messages"] == []
    assert (await house.call("calibrate_threshold", agent_id="b", sample_size=35))["sampled_embeddings"] == 35
    await house.call("delete_agent_data", agent_id="b")
    assert "threshold" not in await house.call("get_recall_precision", agent_id="b")


async def test_growth_is_followed_at_once_and_small_changes_once_they_rest(house: House) -> None:
    await filled(house, TEXTS[:38])
    counted = house.metrics.registry.get_sample_value
    assert counted("memory_calibrations_total") == 1
    await filled(house, TEXTS[38:39])
    await house.worker.run_once()
    assert counted("memory_calibrations_total") == 1
    house.clock.now += dt.timedelta(seconds=61)
    await house.worker.run_once()
    assert counted("memory_calibrations_total") == 2
    house.clock.now += dt.timedelta(seconds=61)
    await house.worker.run_once()
    assert counted("memory_calibrations_total") == 2
    await filled(house, [f"{text} again" for text in TEXTS[:4]])
    assert counted("memory_calibrations_total") == 3


async def test_a_model_change_is_followed_once_its_vectors_are_made(house: House) -> None:
    await filled(house)
    house.server.fingerprint = "1:new"
    assert (await asked(house, OFF_TOPIC))["messages"]
    await house.worker.run_once()
    assert (await asked(house, OFF_TOPIC))["messages"] == []


async def test_many_agents_are_calibrated_a_few_at_a_time(house: House) -> None:
    for agent in "bcdef":
        for text in TEXTS[:30]:
            await house.call("store", agent_id=agent, content=text)
    assert await house.worker.calibrate() is True
    assert await house.worker.calibrate() is False
    assert len({(await house.call("get_recall_precision", agent_id=agent))["threshold"] for agent in "bcdef"}) == 1


async def test_precision_moves_the_threshold_at_once_and_is_kept(house: House, settings: Settings) -> None:
    await filled(house)
    thresholds = [
        (await house.call("set_recall_precision", agent_id="a", precision=level))["calibrate"]["new_threshold"]
        for level in ("lenient", "balanced", "strict")
    ]
    assert thresholds == sorted(set(thresholds))
    again = House(house.storage, settings)
    await again.worker.run_once()
    told = await again.call("get_recall_precision", agent_id="a")
    assert (told["precision"], told["overridden"], told["threshold"]) == ("strict", True, thresholds[-1])
    cleared = await house.call("set_recall_precision", agent_id="a")
    assert (cleared["precision"], cleared["cleared"]) == ("balanced", True)
    assert cleared["calibrate"]["new_threshold"] == thresholds[1]
    await again.embedder.close()


async def test_a_precision_chosen_while_the_model_is_away_is_followed_later(house: House) -> None:
    await filled(house)
    before = (await house.call("get_recall_precision", agent_id="a"))["threshold"]
    house.server.fault = "refuse"
    answer = await house.call("set_recall_precision", agent_id="a", precision="strict")
    assert (answer["calibrate"]["ok"], "vectors" in answer["calibrate"]["error"]) == (False, True)
    with pytest.raises(Unavailable):
        await house.call("calibrate_threshold", agent_id="a")
    house.server.fault = ""
    await house.worker.run_once()
    assert (await house.call("get_recall_precision", agent_id="a"))["threshold"] > before


async def test_a_calibration_tells_what_it_measured_and_its_choice_stays(house: House) -> None:
    await filled(house)
    by_default = await house.call("calibrate_threshold", agent_id="a")
    assert (by_default["method"], by_default["z_factor"], by_default["percentile"]) == ("zscore", 0.7, 0.95)
    assert (by_default["sampled_embeddings"], by_default["num_pairs"]) == (40, 40 * 39)
    assert by_default["old_threshold"] == by_default["new_threshold"]
    assert by_default["embedding_model"] == "1:fake"
    assert by_default["null_admit_rate"] < by_default["pos_admit_rate"]
    chosen = await house.call("calibrate_threshold", agent_id="a", method="percentile", percentile=90, sample_size=35)
    assert (chosen["method"], chosen["percentile"], chosen["sampled_embeddings"]) == ("percentile", 0.9, 35)
    assert (await house.call("set_recall_precision", agent_id="a", beta=1))["calibrate"]["new_threshold"] == (
        chosen["new_threshold"]
    )
    assert (await house.call("calibrate_threshold", agent_id="a", method="separation"))["method"] == "separation"
    with pytest.raises(Invalid, match="^sample_size: "):
        await house.call("calibrate_threshold", agent_id="a", sample_size=29)


async def test_with_an_agent_its_choice_and_calibration_are_erased(house: House) -> None:
    await filled(house)
    await house.call("set_recall_precision", agent_id="a", precision="strict")
    await house.call("delete_agent_data", agent_id="a")
    told = await house.call("get_recall_precision", agent_id="a")
    assert (told["overridden"], "threshold" in told) == (False, False)
    assert all(row.effect is None for row in await house.storage.journal.after(0, 1000))
    assert await house.storage.upkeep.verify() == []


async def test_a_choice_that_changes_nothing_leaves_no_effect(house: House) -> None:
    for precision, sequence in (
        (Precision(agent="a"), 0),
        (Precision(agent="a", beta=2.0), 1),
        (Precision(agent="a", beta=2.0), 1),
        (Precision(agent="a", beta=1.0), 2),
        (Precision(agent="a"), 3),
    ):
        await house.storage.apply(write(PutPrecision(precision)))
        assert await house.storage.journal.latest() == sequence
    assert await house.storage.calibrations.precision("a") is None


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.permutations(TEXTS), st.integers(30, 39))
def test_the_same_memories_give_the_same_threshold_in_whatever_order_they_came(texts: list[str], first: int) -> None:
    async def told(texts: list[str], first: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            storage = SqliteStorage(Path(folder) / "memory.db")
            house = House(storage, Settings(data_dir=folder, gate_sample_rows=35))
            await filled(house, [*texts[:first], "passing by"])
            await house.call("delete_memory", memory_id=first + 1)
            await filled(house, texts[first:])
            house.clock.now += dt.timedelta(seconds=61)
            await house.worker.run_once()
            found = await house.call("get_recall_precision", agent_id="a")
            await house.embedder.close()
            await storage.close()
            return float(found["threshold"])

    assert asyncio.run(told(texts, first)) == asyncio.run(told(TEXTS, 40))
