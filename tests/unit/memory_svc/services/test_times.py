"""Recall within a time: what was said in it, and what the store held by then, wherever the host stands."""

import datetime as dt
import time
from collections.abc import Iterator
from typing import Any

import pytest

from memory_svc.domain.memory import zone_of
from memory_svc.errors import Invalid
from memory_svc.services.operation import Call
from tests.conftest import House

HOSTS = ["Asia/Tokyo", "UTC", "America/Los_Angeles"]
YESTERDAY = {"ago": {"unit": "days", "value": 1}, "confidence": "sure"}


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The host's own zone, which must not matter."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def tokyo() -> Call:
    """A call from Tokyo that begins now."""
    return Call(zone=zone_of("Asia/Tokyo"))


async def store(house: House, content: str, timestamp: str, call: Call | None = None) -> None:
    """Store something that agent a said then."""
    answer = await house.call(
        "store", call or tokyo(), agent_id="a", message={"content": content, "timestamp": timestamp}
    )
    assert answer["result"] == "stored"


async def recall(house: House, query: str, call: Call | None = None, **arguments: Any) -> list[str]:
    """What is found, best first."""
    answer = await house.call("recall", call or tokyo(), agent_id="a", query=query, **arguments)
    return [row["content"] for row in reversed(answer["messages"])]


@pytest.mark.parametrize("query", ["what did we do", "", '"did we do"', "harbour"])
async def test_the_five_rows_of_yesterday_are_found_among_300(house: House, query: str) -> None:
    house.clock.now = dt.datetime.fromisoformat("2026-03-01T12:00:00+00:00")
    for number in range(295):
        await store(house, f"what did we do in the harbour, what did we do {number}", f"2026-01-{number % 28 + 1:02}")
    for number in range(5):
        await store(house, f"then did we do {number} sums, far from any harbour", f"2026-02-28T1{number}:00")
    found = await recall(house, query, time_cue=YESTERDAY, limit=10)
    assert sorted(found) == [f"then did we do {number} sums, far from any harbour" for number in range(5)]


@pytest.mark.parametrize("stamp", ["", "2026-03-01T08:30:00+09:00", "2026-02-28T23:30:00Z", "2026-03-01T08:30:00"])
async def test_half_past_eight_in_tokyo_is_today_there(house: House, host: str, stamp: str) -> None:
    house.clock.now = dt.datetime.fromisoformat("2026-03-01T08:30:00+09:00")
    await store(house, "the harbour opened", stamp)
    house.clock.now = dt.datetime.fromisoformat("2026-03-01T22:00:00+09:00")
    today = {"after": "2026-03-01", "before": "2026-03-01", "confidence": "sure"}
    ago = {"ago": {"unit": "days", "value": 0}, "confidence": "sure"}
    for cue in (today, ago):
        assert await recall(house, "harbour", time_cue=cue) == ["the harbour opened"]
        assert await recall(house, "harbour", Call(), time_cue=cue) == []
    assert await recall(house, "harbour", time_cue=YESTERDAY) == []


async def test_a_time_is_echoed_in_utc_as_it_was_read_and_only_where_one_was_given(house: House, host: str) -> None:
    cue = {"after": "2026-03-01T08:30", "before": "2026-03-01", "confidence": "likely"}
    answer = await house.call("recall", tokyo(), agent_id="a", query="x", time_cue=cue, as_of="2026-03-01T08:30")
    assert answer["time_cue"] == {
        "confidence": "likely",
        "after": "2026-02-28T23:30:00+00:00",
        "before": "2026-03-01T15:00:00+00:00",
    }
    assert answer["as_of"] == "2026-02-28T23:30:00+00:00"
    open_ended = {"before": "2026-03-01", "confidence": "sure"}
    answer = await house.call("recall", tokyo(), agent_id="a", query="", time_cue=open_ended)
    assert answer["time_cue"] == {"confidence": "sure", "before": "2026-03-01T15:00:00+00:00"}
    assert not {"time_cue", "as_of"} & set(await house.call("recall", agent_id="a", query="x", time_cue=None))


async def test_as_of_is_when_it_was_stored_and_not_when_it_was_said(house: House) -> None:
    house.clock.now = dt.datetime.fromisoformat("2026-03-01T00:00:00+00:00")
    await store(house, "harbour, told early", "2026-02-01")
    house.clock.now = dt.datetime.fromisoformat("2026-03-05T00:00:00+00:00")
    await store(house, "harbour, told late of an earlier day", "2026-01-01")
    assert await recall(house, "harbour", as_of="2026-03-04") == ["harbour, told early"]
    assert await recall(house, "", as_of="2026-03-04") == ["harbour, told early"]
    assert len(await recall(house, "harbour", as_of="2026-03-05")) == 2
    assert await recall(house, "harbour", as_of="2026-02-01") == []


async def test_a_store_is_as_of_an_instant_what_that_instant_wrote(house: House) -> None:
    await store(house, "harbour", "2026-01-01")
    (row,) = (await house.call("list_memories", agent_id="a"))["memories"]
    stored = dt.datetime.fromisoformat(row["created_at"])
    assert await recall(house, "harbour", as_of=stored.isoformat()) == ["harbour"]
    assert await recall(house, "harbour", as_of=(stored - dt.timedelta(microseconds=1)).isoformat()) == []


@pytest.mark.parametrize("confidence", ["likely", "vague"])
async def test_a_cue_that_is_not_sure_lifts_and_hides_nothing(plain_house: House, confidence: str) -> None:
    for day in ("01", "02"):
        await store(plain_house, f"the harbour opened, day {day}", f"2026-02-{day}T12:00")
    for day in ("01", "02"):
        cue = {"after": f"2026-02-{day}", "before": f"2026-02-{day}", "confidence": confidence}
        found = await recall(plain_house, "harbour opened", time_cue=cue)
        assert len(found) == 2
        assert found[0] == f"the harbour opened, day {day}"


async def test_an_episode_is_from_when_it_began_or_else_from_when_it_was_stored(house: House) -> None:
    house.clock.now = dt.datetime.fromisoformat("2026-03-01T00:00:00+00:00")
    history = [{"timestamp": "2026-01-05T09:00"}]
    await house.call("archive_episode", tokyo(), agent_id="a", summary="harbour, with a history", history=history)
    await house.call("archive_episode", tokyo(), agent_id="a", summary="harbour, without one")
    january = {"after": "2026-01-01", "before": "2026-01-31", "confidence": "sure"}
    march = {"after": "2026-03-01", "confidence": "sure"}
    for cue, expected in ((january, "with a history"), (march, "without one")):
        (found,) = await recall(house, "harbour", time_cue=cue)
        assert expected in found


async def test_recall_with_context_takes_the_same_times_and_keeps_what_was_said(house: House) -> None:
    await store(house, "the harbour opened", "2026-02-01")
    await store(house, "the harbour closed", "2026-02-10")
    answer = await house.call(
        "recall_with_context",
        tokyo(),
        agent_id="a",
        query="harbour",
        external_context=[{"role": "user", "content": "and the harbour?", "timestamp": "2026-02-20"}],
        time_cue={"before": "2026-02-05", "confidence": "sure"},
        as_of="2026-03-01",
    )
    assert [row["content"] for row in answer["messages"]] == ["the harbour opened", "and the harbour?"]
    assert answer["time_cue"]["before"] == "2026-02-05T15:00:00+00:00"
    assert answer["as_of"] == "2026-03-01T14:59:59.999999+00:00"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"time_cue": {"after": "2026-03-01"}}, "time_cue.confidence: is required"),
        ({"time_cue": {"after": "2026-03-01", "confidence": "certain"}}, "time_cue.confidence:"),
        ({"time_cue": {"ago": {"unit": "days", "value": -1}, "confidence": "sure"}}, "time_cue.ago.value:"),
        ({"time_cue": {"befor": "2026-03-01", "confidence": "sure"}}, "time_cue: "),
        ({"time_cue": "yesterday"}, "time_cue: "),
        ({"time_cue": {"confidence": "sure"}}, "time_cue: give after"),
        ({"as_of": "yesterday"}, "as_of: 'yesterday' is no ISO-8601 date"),
    ],
)
async def test_a_bad_time_is_refused_by_name(house: House, arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(Invalid) as caught:
        await house.call("recall", agent_id="a", query="x", **arguments)
    assert str(caught.value).startswith(told)
