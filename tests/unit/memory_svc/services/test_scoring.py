"""Confidence, counts, boundary, autocut, profile rows and the window of the vectors: what each changes, on and off."""

import datetime as dt
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from memory_svc.domain.scope import Scope
from memory_svc.settings import Settings
from memory_svc.storage.interface import Storage, TimesRecalled
from tests.conftest import House

Made = Callable[..., House]
SCOPE = Scope(agent="a")
THINGS = ("windmill", "harbour", "orchard", "library", "tannery", "foundry", "granary", "brewery", "chapel", "bridge")
OFF_TOPIC = "enzymes digest lactose quickly sugar"
LATE = "2026-02-28T12:00:00Z"


@pytest.fixture
async def made(storage: Storage, settings: Settings) -> AsyncIterator[Made]:
    """The services under some settings, over one store."""
    houses: list[House] = []

    def make(**changed: Any) -> House:
        houses.append(House(storage, msgspec.structs.replace(settings, **changed)))
        return houses[-1]

    yield make
    for each in houses:
        await each.embedder.close()


async def stored(house: House, *contents: str, **fields: str) -> None:
    """Store these for agent a, of one time."""
    for content in contents:
        await house.call("store", agent_id="a", **{"content": content, "timestamp": LATE} | fields)


async def asked(house: House, query: str = "harbour", **arguments: Any) -> dict[str, Any]:
    """The answer to a query."""
    return await house.call("recall", **{"agent_id": "a", "query": query} | arguments)


async def found(house: House, query: str = "harbour", **arguments: Any) -> list[str]:
    """The contents of the answer, best first."""
    return [row["content"] for row in reversed((await asked(house, query, **arguments))["messages"])]


async def counts(house: House, *ids: int) -> dict[int, int]:
    """How often these memories were recalled."""
    return {id: each.count for id, each in (await house.storage.recalls.of(SCOPE, ids)).items()}


async def test_rows_carry_no_confidence_unless_it_is_set(made: Made) -> None:
    await stored(made(), "the harbour")
    assert "confidence" not in (await asked(made()))["messages"][0]


async def test_confidence_is_told_in_each_row_and_orders_the_answer(made: Made) -> None:
    house = made(confidence=True)
    await stored(house, "harbour", timestamp="2025-01-01T00:00:00Z")
    await stored(house, "the harbour of ships", timestamp="2026-02-28T23:00:00Z")
    answer = await asked(house, trace=True)
    assert [row["ref"] for row in answer["messages"]] == ["mem:1", "mem:2"]
    scores = [row["confidence"]["score"] for row in answer["messages"]]
    assert scores == sorted(scores)
    old, new = (row["confidence"] for row in answer["messages"])
    assert (old["age_hours"], new["age_hours"]) == (424 * 24.0, 1.0)
    assert (old["cosine"], old["score"]) == (pytest.approx(1.0), pytest.approx(0.737, abs=1e-3))
    assert "resolved" not in old
    assert answer["messages"][-1]["match_reason"]["signal"] == answer["trace"]["mode"] == "confidence"
    first = answer["trace"]["rows"][0]
    assert (first["confidence"], first["age_hours"], first["recall_count"]) == (new["score"], pytest.approx(1), 0)
    assert first["decay"] > answer["trace"]["rows"][1]["decay"]


async def test_asked_deeply_neither_age_nor_resolution_counts(made: Made) -> None:
    house = made(confidence=True)
    await stored(house, "harbour", timestamp="2020-01-01T00:00:00Z")
    await house.call("archive_episode", agent_id="a", summary="harbour", resolved=True)
    for deep, score, of_episode in ((False, 0.5477, 0.3), (True, 1.0, 1.0)):
        rows = {row["ref"]: row["confidence"] for row in (await asked(house, deep=deep))["messages"]}
        assert rows["mem:1"]["score"] == pytest.approx(score, abs=1e-3)
        assert rows["ep:1"]["score"] == pytest.approx(of_episode, abs=1e-3)
        assert rows["ep:1"]["resolved"] is True


async def test_without_vectors_confidence_goes_by_what_a_row_holds_of_the_query(made: Made) -> None:
    house = made(confidence=True, embedding_url="")
    await stored(house, "the deep harbour", "ships in the harbour")
    answer = await asked(house, "deep harbour")
    assert answer["messages"][-1]["content"] == "the deep harbour"
    assert "cosine" not in answer["messages"][-1]["confidence"]
    assert answer["messages"][-1]["confidence"]["score"] > answer["messages"][0]["confidence"]["score"]


async def calibrated(house: House) -> None:
    """Enough memories of one matter, and the gate calibrated by them."""
    await stored(house, *(f"the {thing} near town {at % 9} was painted green" for at, thing in enumerate(THINGS * 4)))
    await stored(house, "closed bug-183 on monday")
    await house.call("calibrate_threshold", agent_id="a")


async def test_what_passes_the_gate_by_its_letters_alone_is_told_where_rows_go_by_confidence(made: Made) -> None:
    house = made(confidence=True)
    await calibrated(house)
    query = f"{OFF_TOPIC} bug-183"
    answer = await asked(house, query, trace=True)
    assert answer["trace"]["gate"] == "exact"
    assert answer["gate_fallback"] is True
    assert "gate_fallback" not in await asked(house, "closed bug-183 on monday")
    assert "gate_fallback" not in await asked(made(), query)
    assert "gate_fallback" not in await asked(house, query, deep=True)


async def test_recalls_are_counted_off_the_path_and_survive_a_restart(made: Made) -> None:
    house = made()
    await stored(house, "the harbour", "apples")
    await asked(house, limit=1)
    await asked(house, limit=1)
    assert await counts(house, 1, 2) == {1: 2}
    assert await house.worker.recalls() is False
    assert (await house.storage.recalls.of(SCOPE, [1]))[1] == TimesRecalled(2, house.clock.now.isoformat())
    journal = await house.storage.journal.after(0, 100)
    assert [row.operation for row in journal] == ["store", "store"]


async def test_only_what_was_asked_for_and_found_is_counted(made: Made) -> None:
    house = made()
    await stored(house, "the harbour", "apples")
    await asked(house, "")
    await asked(house, deep=True)
    await asked(made(recall_counts=False))
    await house.call("archive_episode", agent_id="a", summary="harbour")
    await asked(house, limit=1)
    assert await counts(house, 1, 2) == {}


async def test_what_is_left_out_for_its_size_is_not_counted(made: Made) -> None:
    house = made()
    await stored(house, "harbour", "the harbour of ships")
    answer = await asked(house, max_tokens=40)
    assert answer["rows_left_out"] == 1
    assert await counts(house, 1, 2) == {1: 1}


async def test_counts_change_no_order_unless_that_is_set(made: Made) -> None:
    texts = ["harbour one", "harbour two", "harbour three"]
    house = made()
    await stored(house, *texts, timestamp="2020-01-01T00:00:00Z")
    before = await found(house)
    for _ in range(5):
        await asked(house, texts[2], limit=1)
    assert await found(house) == before
    assert (await found(made(confidence=True)))[0] == texts[2]


async def test_what_was_recalled_a_moment_ago_stands_back_where_that_is_set(made: Made) -> None:
    house = made(recent_recall=True)
    await stored(house, "harbour one", "harbour two", "apples")
    (first,) = await found(house, limit=1)
    (second,) = await found(house, limit=1)
    assert {first, second} == {"harbour one", "harbour two"}
    row = (await asked(house, limit=1, trace=True))["trace"]["rows"][0]
    assert row["recent"] == 0.7
    house.clock.now += dt.timedelta(minutes=6)
    assert await found(house, limit=1) == [first]


async def bounded(house: House) -> None:
    """Memories before the end of an episode and one after it."""
    await stored(house, "harbour", timestamp="2026-01-01T00:00:00Z")
    await stored(house, "the harbour of other ships", timestamp="2026-02-20T00:00:00Z")
    history = [{"timestamp": "2026-02-01T00:00:00Z"}, {"timestamp": "2026-02-10T00:00:00Z"}]
    await house.call("archive_episode", agent_id="a", summary="pears", history=history)


async def test_memories_from_before_the_newest_episode_count_less_where_that_is_set(made: Made) -> None:
    await bounded(made())
    old, new = "harbour", "the harbour of other ships"
    assert (await found(made()))[0] == old
    house = made(episode_boundary=True, episode_boundary_floor=0.1)
    assert (await found(house))[0] == new
    rows = {row["ref"]: row for row in (await asked(house, trace=True))["trace"]["rows"]}
    assert (rows["mem:1"]["boundary"], rows["mem:2"]["boundary"], rows["ep:1"]["boundary"]) == (0.1, 1.0, 1.0)
    asked_about = (await asked(house, limit=1, trace=True, trace_refs=["mem:1"]))["trace"]["rows"][-1]
    assert (asked_about["outcome"], asked_about["boundary"]) == ("left out: beyond the limit", 0.1)


async def test_what_is_quoted_is_found_first_however_old_it_is(made: Made) -> None:
    house = made(episode_boundary=True, episode_boundary_floor=0.0)
    await bounded(house)
    await stored(house, "deep blue harbour", timestamp="2020-01-01T00:00:00Z")
    assert (await found(house, '"deep blue harbour"'))[0] == "deep blue harbour"


async def test_an_imported_episode_of_long_ago_moves_no_row(made: Made) -> None:
    house = made(episode_boundary=True)
    await bounded(house)
    before = await asked(house, trace=True)
    history = [{"timestamp": "2019-01-01T00:00:00Z"}, {"timestamp": "2019-01-02T00:00:00Z"}]
    await house.call("archive_episode", agent_id="a", summary="plums", history=history)
    after = await asked(house, trace=True, trace_refs=["mem:1"])
    assert [row["boundary"] for row in after["trace"]["rows"][:2]] == [
        row["boundary"] for row in before["trace"]["rows"][:2]
    ]


async def test_no_boundary_silences_an_answer(made: Made) -> None:
    house = made(episode_boundary=True, episode_boundary_floor=0.0)
    await calibrated(house)
    await house.call("archive_episode", agent_id="a", summary="pears")
    assert await found(house, "harbour near town")


async def test_an_answer_ends_at_its_largest_gap_where_that_is_set(made: Made) -> None:
    near, far = ["the harbour", "harbour of ships"], ["apples and pears", "plums and pears"]
    await stored(made(), *near, *far)
    assert set(await found(made(confidence=True))) == {*near, *far}
    house = made(confidence=True, autocut=True)
    assert set(await found(house)) == set(near)
    rows = (await asked(house, trace=True))["trace"]["rows"]
    assert [row["outcome"] for row in rows] == ["shown"] * 2 + ["left out: behind the largest gap"] * 2


@pytest.mark.parametrize("mode", ["weighted", "rrf", "rsf"])
async def test_no_answer_is_cut_by_gaps_of_scores_that_are_no_likeness(made: Made, mode: str) -> None:
    house = made(autocut=True, recall_mode=mode)
    await stored(house, "the harbour", "harbour of ships", "apples and pears", "plums and pears")
    assert len(await found(house)) == 4


async def test_a_cascade_of_what_the_vectors_found_is_cut_by_its_cosines(made: Made) -> None:
    house = made(autocut=True, recall_mode="cascade")
    await stored(house, "the harbour", "harbour of ships", "apples and pears", "plums and pears")
    assert set(await found(house)) == {"the harbour", "harbour of ships"}


async def profiled(house: House, rows: int) -> None:
    """A profile, and so many memories."""
    await house.call("update_profile", agent_id="a", profile="likes ships")
    await stored(house, *(f"harbour {at}" for at in range(rows)))


async def test_a_profile_stands_behind_the_rows_of_a_store_of_fifty_where_there_is_room(made: Made) -> None:
    house = made()
    await profiled(house, 49)
    assert not any("ref" not in row for row in (await asked(house, limit=100))["messages"])
    await house.call("archive_episode", agent_id="a", summary="harbour")
    rows = (await asked(house, limit=100))["messages"]
    assert rows[0] == {"content": "[Profile] likes ships", "source": {"System": "profile"}}
    assert len(rows) == 51
    assert all("ref" in row for row in (await asked(house, limit=50))["messages"])
    assert (await asked(house, "", limit=100))["messages"][0] == rows[0]


async def test_a_profile_can_be_switched_off_or_asked_for_sooner(made: Made) -> None:
    await profiled(made(), 2)
    assert (await found(made(profile_scope_rows_min=0)))[-1] == "[Profile] likes ships"
    assert len(await found(made(profile_scope_rows_min=0, profile_rows_max=0))) == 2
    assert len(await found(made())) == 2


async def test_no_profile_breaks_a_silence_or_a_filter(made: Made) -> None:
    house = made(profile_scope_rows_min=0)
    await house.call("update_profile", agent_id="a", profile="likes ships")
    assert await found(house) == []
    await calibrated(house)
    answer = await asked(house, OFF_TOPIC, limit=100)
    assert (answer["messages"], answer["gate"]["status"]) == ([], "nothing_clears")
    for filters in (
        {"source_id": "u"},
        {"as_of": "2026-02-01"},
        {"time_cue": {"after": "2026-02-01", "confidence": "sure"}},
        {"exclude_contents": ["[Profile] likes ships"]},
    ):
        assert not any(content.startswith("[Profile]") for content in await found(house, limit=100, **filters))
    assert (await found(house, limit=100))[-1] == "[Profile] likes ships"
    assert (await found(house, limit=100, as_of="2027-01-01"))[-1] == "[Profile] likes ships"


async def test_a_profile_is_given_whole_or_not_at_all_within_a_budget(made: Made) -> None:
    house = made(profile_scope_rows_min=0, preview_chars=20)
    text = "likes ships " * 20
    await house.call("update_profile", agent_id="a", profile=text)
    await stored(house, "harbour", "the harbour is long and deep and wide and blue")
    answers = [await found(house, max_tokens=tokens) for tokens in range(20, 400, 10)]
    assert all(len(before) <= len(after) for before, after in pairwise(answers))
    assert answers[0][-1] == "harbour"
    assert answers[-1][-1] == "[Profile] " + text.strip()
    assert {content for answer in answers for content in answer if "Profile" in content} == {answers[-1][-1]}


async def test_a_profile_stands_first_beside_a_conversation(made: Made) -> None:
    house = made(profile_scope_rows_min=0)
    await profiled(house, 2)
    said = [{"role": "user", "content": "where do ships lie?", "timestamp": "2026-01-01T00:00:00Z"}]
    answer = await house.call("recall_with_context", agent_id="a", query="harbour", external_context=said)
    assert [row["content"] for row in answer["messages"]][:2] == ["[Profile] likes ships", "where do ships lie?"]


async def test_vectors_are_looked_through_in_a_window_only_where_one_is_set(made: Made) -> None:
    await stored(made(), "harbour", "apples", "pears")
    assert (await asked(made(), "harbours"))["channels"]["vectors"] == "ran"
    answer = await asked(made(vector_newest_rows=2), "harbour", trace=True)
    assert answer["channels"]["vectors"] == "ran: in the 2 rows stored last"
    assert "advisory" not in answer
    arms = {row["ref"]: row["arms"] for row in answer["trace"]["rows"]}
    assert "vectors" not in arms["mem:1"]
    assert "words" in arms["mem:1"]
    assert {"vectors"} <= set(arms["mem:2"]) & set(arms["mem:3"])
