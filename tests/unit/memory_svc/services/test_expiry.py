"""Memories that are to be forgotten at an instant: what is taken, what is seen, what is erased."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest

from memory_svc.errors import Invalid, NotFound
from memory_svc.services.operation import Call
from tests.conftest import House

SOON, LATER = "2026-03-01T01:00:00+00:00", "2026-03-02T00:00:00+00:00"
HOUR = dt.timedelta(hours=1)


@pytest.mark.parametrize("form", ["flat", "message"])
async def test_an_expiry_is_kept_in_utc_and_told(house: House, form: str) -> None:
    fact = {"content": "one", "expires_at": "2026-03-01T10:00"}
    call = Call(zone=ZoneInfo("Asia/Tokyo"))
    asked = fact if form == "flat" else {"message": fact}
    answer = await house.call("store", call, agent_id="a", **asked)
    assert (answer["result"], answer["expires_at"]) == ("stored", SOON)
    assert (await house.call("list_memories"))["memories"][0]["expires_at"] == SOON
    assert (await house.call("get_contents", agent_id="a", refs=["mem:1"]))["items"][0]["expires_at"] == SOON
    assert (await house.call("recall", agent_id="a", query="one"))["messages"][0]["expires_at"] == SOON


@pytest.mark.parametrize(
    ("expires_at", "reason"),
    [
        ("2026-03-01T00:00:00Z", "expires_at: 2026-03-01T00:00:00+00:00 is not later than now"),
        ("2026-03-01T08:59:00+09:00", "expires_at: 2026-02-28T23:59:00+00:00 is not later than now"),
        ("soon", "expires_at: 'soon' is no ISO-8601 instant"),
    ],
)
async def test_an_expiry_that_cannot_be_is_refused_and_nothing_is_stored(
    house: House, expires_at: str, reason: str
) -> None:
    for asked in (
        {"content": "one", "expires_at": expires_at},
        {"message": {"content": "one", "expires_at": expires_at}},
    ):
        answer = await house.call("store", agent_id="a", **asked)
        assert (answer["ok"], answer["result"]) == (False, "rejected")
        assert answer["reason"].startswith(reason)
    await house.call("store", agent_id="a", content="two")
    with pytest.raises(Invalid, match=f"^{reason.replace('+', '.')}"):
        await house.call("update_memory", memory_id=1, content="three", expires_at=expires_at)
    assert [row["content"] for row in (await house.call("list_memories"))["memories"]] == ["two"]


async def test_both_forms_at_once_are_rejected(house: House) -> None:
    answer = await house.call("store", agent_id="a", message={"content": "one"}, expires_at=SOON)
    assert "not both" in answer["reason"]


async def test_an_expiry_is_set_changed_and_removed_without_sending_the_text_again(house: House) -> None:
    await house.call("store", agent_id="a", content="one")
    for expires_at in (SOON, LATER, ""):
        answer = await house.call("update_memory", memory_id=1, expires_at=expires_at)
        assert answer["expires_at"] == expires_at
        assert answer["receipt"]["vector"] == "done"
        row = (await house.call("list_memories"))["memories"][0]
        assert (row["content"], row.get("expires_at", "")) == ("one", expires_at)
    await house.call("update_memory", memory_id=1, expires_at=SOON)
    assert "expires_at" not in await house.call("update_memory", memory_id=1, content="two")
    assert (await house.call("list_memories"))["memories"][0]["expires_at"] == SOON
    with pytest.raises(Invalid, match="content: is required; give the new text, or expires_at"):
        await house.call("update_memory", memory_id=1)


async def test_a_duplicate_is_told_with_the_expiry_of_what_is_held(house: House) -> None:
    await house.call("store", agent_id="a", content="one", expires_at=SOON)
    answer = await house.call("store", agent_id="a", content="one", expires_at=LATER)
    assert (answer["result"], answer["expires_at"]) == ("skipped", SOON)
    assert (await house.call("store", agent_id="a", content="two", expires_at=LATER))["result"] == "stored"
    await house.call("store", agent_id="a", content="three")
    assert "expires_at" not in await house.call("store", agent_id="a", content="three", expires_at=LATER)


async def test_a_memory_whose_time_is_over_is_nowhere_to_be_seen(house: House) -> None:
    house.server.fault = ""
    await house.call("store", agent_id="a", content='the "green" haystack needle', lock=True, expires_at=SOON)
    await house.call("store", agent_id="a", content="another thing")
    await house.call("update_profile", agent_id="a", profile="likes tea")
    house.clock.now += HOUR
    for query in ("needle", "eedl", '"green"', "the green haystack needle", ""):
        answer = await house.call("recall", agent_id="a", query=query, deep=True, trace=True, trace_refs=["mem:1"])
        assert all(row["ref"] == "mem:2" for row in answer["messages"])
        for row in answer.get("trace", {"rows": []})["rows"]:
            assert row["ref"] != "mem:1" or row["outcome"] == "left out: there is no such row in this scope"
    said = await house.call("recall_with_context", agent_id="a", query="needle", deep=True)
    assert [row["ref"] for row in said["messages"]] == ["mem:2"]
    assert (await house.call("get_contents", agent_id="a", refs=["mem:1"]))["missing"] == ["mem:1"]
    assert [row["id"] for row in (await house.call("list_memories"))["memories"]] == [2]
    for name in ("update_memory", "lock_memory", "unlock_memory", "delete_memory"):
        with pytest.raises(NotFound, match="Memory 1 not found"):
            await house.call(name, memory_id=1, **({"content": "x"} if name == "update_memory" else {}))
    assert (await house.call("get_profile", agent_id="a"))["profile"] == "likes tea"


async def test_a_fact_like_one_whose_time_is_over_is_stored_anew_and_not_called_similar_to_it(house: House) -> None:
    await house.call("store", agent_id="a", content="the harbour is deep", id="m", expires_at=SOON)
    await house.call("store", agent_id="a", content="the harbour is deep indeed", expires_at=SOON)
    house.clock.now += HOUR
    answer = await house.call("store", agent_id="a", content="the harbour is deep", id="m")
    assert (answer["result"], answer["id"]) == ("stored", 3)
    assert "similar" not in answer


async def test_the_worker_erases_what_is_over_locked_or_not_and_nothing_else(house: House) -> None:
    for number in range(70):
        await house.call("store", agent_id="a", content=f"fact {number}", lock=number % 2 == 0, expires_at=SOON)
    await house.call("store", agent_id="a", content="to stay")
    await house.worker.expire()
    assert (await house.storage.upkeep.sizes()).rows["memory"] == 71
    house.clock.now += HOUR
    while await house.worker.expire():
        pass
    assert (await house.storage.upkeep.sizes()).rows["memory"] == 1
    assert house.gauge("memory_expired_total") == 70
    held = [row for row in await house.storage.journal.after(0, 999) if row.effect]
    assert [row.effect.row.content for row in held if row.effect] == ["to stay"]
    assert await house.storage.upkeep.verify() == []


async def test_a_step_of_the_worker_is_bounded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory_svc.services.worker.BATCH_ROWS", 2)
    monkeypatch.setattr("memory_svc.services.worker.BATCHES", 2)
    for number in range(5):
        await house.call("store", agent_id="a", content=f"fact {number}", expires_at=SOON)
    house.clock.now += HOUR
    assert await house.worker.expire()
    assert (await house.storage.upkeep.sizes()).rows["memory"] == 1
    assert not await house.worker.expire()
    assert (await house.storage.upkeep.sizes()).rows["memory"] == 0
