"""One story for each operation, told over every wire: the answers are the same."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from memory_svc.services import OPERATIONS
from memory_svc.settings import Settings
from memory_svc.storage.interface import Storage
from tests.conftest import House
from tests.support.wires import WIRES, Call, connected

WAITING = {"text": "done", "words": "done", "vector": "waiting"}
PARAMS = [pytest.param(wire, marks=[pytest.mark.e2e] if wire.startswith("stdio") else []) for wire in WIRES]


@pytest.fixture(params=PARAMS)
async def call(
    request: pytest.FixtureRequest, storage: Storage, settings: Settings, tmp_path: Path
) -> AsyncIterator[Call]:
    """Call an operation over a wire, of a server without embeddings."""
    house = House(storage, msgspec.structs.replace(settings, embedding_url="", zone="Asia/Tokyo"))
    async with connected(request.param, house.catalogue, house.catalogue.runtime.settings, tmp_path / "own") as called:
        yield called
    await house.embedder.close()


def failed(answer: dict[str, Any], code: str, text: str) -> None:
    """The answer is that failure, in the one body."""
    assert (answer["ok"], answer["code"], answer["retry"]) == (False, code, False)
    assert text in answer["error"]
    assert answer["request_id"]


async def test_story_of_store(call: Call) -> None:
    stored = await call("store", agent_id="a", message={"id": "m1", "content": "one", "timestamp": "2026-01-01T09:00"})
    assert stored == {
        "ok": True,
        "result": "stored",
        "id": 1,
        "embedded": False,
        "receipt": WAITING,
        "timestamp": "2026-01-01T00:00:00+00:00",
    }
    skipped = await call("store", agent_id="a", content="one", colour="red")
    assert skipped == {
        "ok": True,
        "result": "skipped",
        "reason": "duplicate content",
        "id": 1,
        "ignored_arguments": ["colour"],
    }
    assert (await call("store", agent_id="a", content=" "))["result"] == "rejected"
    for asked in ({"content": "brief"}, {"message": {"content": "brief too"}}):
        asked.get("message", asked)["expires_at"] = "2099-01-01T09:00"
        assert (await call("store", agent_id="a", **asked))["expires_at"] == "2099-01-01T00:00:00+00:00"
    assert (
        "is not later than now" in (await call("store", agent_id="a", content="x", expires_at="2020-01-01"))["reason"]
    )
    failed(await call("store", agent_id=5, content="x"), "invalid", "agent_id:")
    failed(await call("store", agent_id="a", content="nul\0"), "invalid", "content: holds a NUL character")


async def test_story_of_update_memory(call: Call) -> None:
    await call("store", agent_id="a", content="one")
    assert await call("update_memory", memory_id=1, content="two") == {"ok": True, "updated_id": 1, "receipt": WAITING}
    assert (await call("update_memory", memory_id=1.0, content="three"))["updated_id"] == 1
    for expires_at, read in (("2099-01-01T09:00", "2099-01-01T00:00:00+00:00"), ("", "")):
        assert (await call("update_memory", memory_id=1, expires_at=expires_at))["expires_at"] == read
        assert (await call("list_memories"))["memories"][0].get("expires_at", "") == read
    failed(await call("update_memory", memory_id=1, expires_at="2020-01-01"), "invalid", "is not later than now")
    failed(await call("update_memory", memory_id=1), "invalid", "content: is required")
    failed(await call("update_memory", memory_id=2, content="x"), "not_found", "Memory 2 not found")
    failed(await call("update_memory", memory_id="1", content="x"), "invalid", "memory_id:")


async def test_story_of_delete_memory(call: Call) -> None:
    await call("store", agent_id="a", content="one", lock=True)
    failed(await call("delete_memory", memory_id=1), "conflict", "locked")
    await call("store", agent_id="a", content="two")
    assert await call("delete_memory", memory_id=2, agent_id="a") == {"ok": True, "deleted_id": 2}


async def test_story_of_recall(call: Call) -> None:
    for content in ("apples are red", "会議は金曜日", "half \U0001f600 emoji"):
        await call("store", agent_id="a", content=content)
    for query, best in (("apples", "mem:1"), ("会議", "mem:2"), ("\U0001f600", "mem:3")):
        answer = await call("recall", agent_id="a", query=query)
        assert answer["messages"][-1]["ref"] == best
        assert answer["advisory"]["severity"] == "hint"
    assert [row["ref"] for row in (await call("recall", agent_id="a", query=""))["messages"]] == [
        "mem:1",
        "mem:2",
        "mem:3",
    ]
    failed(await call("recall", agent_id="a", query="x", limit=101), "invalid", "limit:")
    await call("store", agent_id="a", message={"content": "apples were green", "timestamp": "2020-01-01T08:00"})
    new_year = {"after": "2020-01-01", "before": "2020-01-01", "confidence": "sure"}
    answer = await call("recall", agent_id="a", query="apples", time_cue=new_year, as_of="2099-03-01")
    assert [row["ref"] for row in answer["messages"]] == ["mem:4"]
    assert answer["time_cue"] == {
        "confidence": "sure",
        "after": "2019-12-31T15:00:00+00:00",
        "before": "2020-01-01T15:00:00+00:00",
    }
    assert answer["as_of"] == "2099-03-01T14:59:59.999999+00:00"
    for cue in ({"ago": "long_ago", "confidence": "sure"}, {"ago": {"unit": "long_ago"}, "confidence": "sure"}):
        answer = await call("recall", agent_id="a", query="apples", time_cue=cue)
        assert [row["ref"] for row in answer["messages"]] == ["mem:4"]
    failed(await call("recall", agent_id="a", query="x", time_cue={"confidence": "sure"}), "invalid", "time_cue: give")
    failed(await call("recall", agent_id="a", query="x", as_of="then"), "invalid", "as_of: 'then' is no")
    failed(
        await call("recall", agent_id="a", query="x", include=["memories", "dreams"]),
        "invalid",
        "include[1]: is none of episodes, memories; give one of them",
    )
    await call("store", agent_id="a", content="filler " * 200 + "pears are green")
    row = (await call("recall", agent_id="a", query="pears"))["messages"][-1]
    assert (row["content_len"], row["excerpt_basis"]) == (1415, "lexical")
    assert row["excerpt"].endswith("filler pears are green")
    answer = await call("recall", agent_id="a", query="pears apples", max_tokens=60)
    assert (len(answer["messages"]), answer["rows_left_out"]) == (1, 2)
    failed(await call("recall", agent_id="a", query="x", max_tokens=-1), "invalid", "max_tokens:")
    await call("store", agent_id="a", content="apples of the shop", tags=["Shop"], metadata={"kind": "price"})
    for filters in ({"tags": ["shop"]}, {"metadata": {"kind": "price"}}):
        answer = await call("recall", agent_id="a", query="apples", full_content=True, **filters)
        assert [row["tags"] for row in answer["messages"]] == [["Shop"]]
        assert answer["channels"]["episodes"] == "skipped: tags and metadata hide episodes"
    failed(await call("recall", agent_id="a", query="x", tags=[""]), "invalid", "tags[0]: is empty")
    failed(await call("recall", agent_id="a", query="x", metadata={"a": []}), "invalid", "metadata.a: is no text")


async def test_story_of_get_contents(call: Call) -> None:
    await call("store", agent_id="a", content="x" * 600)
    answer = await call("get_contents", agent_id="a", refs=["mem:1", "mem:9"])
    assert (len(answer["items"][0]["content"]), answer["missing"], answer["count"]) == (600, ["mem:9"], 1)
    refs = [{"ref": "mem:1", "span": [590.0, 700]}, {"ref": "mem:1", "block": 0}, {"ref": "mem:1", "block": 1}]
    answer = await call("get_contents", agent_id="a", refs=[*refs, "mem:1"])
    assert [len(item["content"]) for item in answer["items"]] == [10, 600, 600]
    first, second = (item["range"] for item in answer["items"][:2])
    assert first == {"span": [590, 600], "content_len": 600, "revision": first["revision"]}
    assert second == {"span": [0, 600], "content_len": 600, "revision": first["revision"], "block": [0, 0], "of": 1}
    assert answer["unresolved"] == [{"ref": "mem:1", "reason": "block_out_of_range"}]
    failed(await call("get_contents", agent_id="a", refs=[{"span": [0, 1]}]), "invalid", "refs[0].ref: is required")


async def test_story_of_list_memories(call: Call) -> None:
    await call("store", agent_id="a", project_id="P", content="one")
    assert (await call("list_memories"))["count"] == 1
    assert await call("list_memories", project_id="") == {"memories": [], "count": 0}
    await call("store", agent_id="a", content="two", tags=["Red"], metadata={"n": 1})
    for filters in ({"tags": ["RED"]}, {"metadata": {"n": 1.0}}, {"tags": ["red"], "metadata": {"n": 1}}):
        assert [row["tags"] for row in (await call("list_memories", **filters))["memories"]] == [["Red"]]
    assert (await call("list_memories", tags=["red", "blue"]))["count"] == 0


async def test_story_of_archive_episode(call: Call) -> None:
    answer = await call("archive_episode", agent_id="a", summary="done", resolved=True)
    assert answer == {"ok": True, "episode_id": 1, "receipt": WAITING}
    refused = await call("archive_episode", agent_id="a", summary=" ")
    failed(refused, "invalid", "summary is required")
    assert refused["episode_id"] is None


async def test_story_of_list_episodes(call: Call) -> None:
    await call("archive_episode", agent_id="a", summary="done", history=[{"timestamp": "2026-01-01T09:00"}])
    row = (await call("list_episodes", agent_id="a"))["episodes"][0]
    assert (row["summary"], row["start_time"], row["end_time"]) == ("done", *["2026-01-01T00:00:00+00:00"] * 2)


async def test_story_of_update_profile(call: Call) -> None:
    assert await call("update_profile", agent_id="a", profile="likes tea") == {"ok": True, "profiles_updated": 1}


async def test_story_of_get_profile(call: Call) -> None:
    await call("update_profile", agent_id="a", profile="likes tea")
    assert await call("get_profile", agent_id="a") == {"profile": "likes tea"}


async def test_story_of_lock_memory(call: Call) -> None:
    await call("store", agent_id="a", content="one")
    assert await call("lock_memory", memory_id=1) == {"ok": True, "locked_id": 1}
    failed(await call("lock_memory", memory_id=9), "not_found", "Memory 9 not found")


async def test_story_of_unlock_memory(call: Call) -> None:
    await call("store", agent_id="a", content="one", lock=True)
    assert await call("unlock_memory", memory_id=1) == {"ok": True, "unlocked_id": 1}


async def test_story_of_delete_episode(call: Call) -> None:
    await call("archive_episode", agent_id="a", summary="done")
    assert await call("delete_episode", episode_id=1) == {"ok": True, "deleted_id": 1}
    failed(await call("delete_episode", episode_id=1), "not_found", "Episode 1 not found")


async def test_story_of_delete_agent_data(call: Call) -> None:
    await call("store", agent_id="a", content="one")
    assert (await call("delete_agent_data", agent_id="a"))["deleted_memories"] == 1
    failed(await call("delete_agent_data", agent_id=""), "invalid", "agent_id is required")


async def test_story_of_recall_with_context(call: Call) -> None:
    await call("store", agent_id="a", message={"content": "apples", "timestamp": "2026-01-01T00:00:00Z"})
    said = [{"role": "user", "content": "hello", "timestamp": "2026-01-02T00:00:00Z"}]
    answer = await call("recall_with_context", agent_id="a", query="apples", external_context=said)
    assert [row["content"] for row in answer["messages"]] == ["apples", "hello"]
    cue = {"after": "2026-01-02", "confidence": "sure"}
    answer = await call("recall_with_context", agent_id="a", query="apples", external_context=said, time_cue=cue)
    assert [row["content"] for row in answer["messages"]] == ["hello"]
    assert answer["time_cue"]["after"] == "2026-01-01T15:00:00+00:00"
    answer = await call("recall_with_context", agent_id="a", query="apples", external_context=said, tags=["red"])
    assert [row["content"] for row in answer["messages"]] == ["hello"]


async def test_story_of_reconstruct(call: Call) -> None:
    jon = {"type": "User", "id": "jon", "name": "Jon"}
    for minute, content in enumerate(("where is the harbour?", "the harbour is in Kiel", "Thanks")):
        message = {"content": content, "timestamp": f"2026-01-01T09:0{minute}", "source": jon}
        await call("store", agent_id="a", message=message)
    message = {
        "content": "the harbour moved to 北海",
        "metadata": {"supersedes": "mem:2"},
        "timestamp": "2026-02-01T09:00",
    }
    await call("store", agent_id="a", message=message)
    answer = await call("reconstruct", agent_id="a", query="where is the harbour", mode="lite")
    current = next(item for item in answer["items"] if item["head_ref"] == "mem:4")
    assert current == {
        "content": "the harbour moved to 北海",
        "head_ref": "mem:4",
        "as_of": "2026-02-01",
        "claims": [
            {
                "ref": "mem:2",
                "as_of": "2026-01-01T00:01:00+00:00",
                "why": "relation:supersedes",
                "hops": 0,
                "roles": [{"ref": "mem:4", "role": "supersedes"}],
            }
        ],
        "excerpts": [
            {"ref": "mem:2", "content": "the harbour is in Kiel", "speaker": "Jon", "as_of": "2026-01-01"},
        ],
    }
    assert (answer["mode"], answer["cap"], answer["channels"]["words"]) == ("lite", 3000, "ran")
    full = await call("reconstruct", agent_id="a", query="harbour", budget=20, max_hops=2)
    assert full["bounds"] == {"top_k": 100, "max_hops": 0, "max_evidence": 100, "reached": ["budget"]}
    assert full["budget_policy"]["reason"] == "raised_to_one_excerpt"
    assert [claim["why"] for claim in full["items"][0]["claims"]] == ["seed"]
    assert (await call("reconstruct", agent_id="a", query="", mode="pro", count=1))["status"] == "no_query"
    failed(
        await call("reconstruct", agent_id="a", query="x", mode="pro", lite=True), "invalid", "lite, mode: contradict"
    )
    failed(await call("reconstruct", agent_id="a", query="x", budget=0), "invalid", "budget:")


async def test_story_of_calibrate_threshold(call: Call) -> None:
    refused = await call("calibrate_threshold", agent_id="a")
    assert (refused["ok"], refused["code"], refused["retry"]) == (False, "unavailable", True)
    failed(await call("calibrate_threshold", agent_id="a", method="guess"), "invalid", "method: is none of percentile,")
    failed(await call("calibrate_threshold", agent_id="a", sample_size=5), "invalid", "sample_size:")


async def test_story_of_set_recall_precision(call: Call) -> None:
    answer = await call("set_recall_precision", agent_id="a", precision="strict")
    error = "The gate is not calibrated without vectors: no embedding server is set"
    assert answer == {
        "ok": True,
        "agent_id": "a",
        "precision": "strict",
        "beta": 2.0,
        "cleared": False,
        "fused_gate": None,
        "calibrate": {"ok": False, "scope": "per_agent", "new_threshold": None, "error": error},
    }
    assert (await call("set_recall_precision", agent_id="a", beta=3))["precision"] == "custom"
    assert (await call("set_recall_precision", agent_id="a"))["cleared"] is True
    failed(await call("set_recall_precision", agent_id="a", precision="sure"), "invalid", "precision:")


async def test_story_of_get_recall_precision(call: Call) -> None:
    await call("set_recall_precision", agent_id="a", precision="lenient")
    assert await call("get_recall_precision", agent_id="a") == {
        "ok": True,
        "agent_id": "a",
        "precision": "lenient",
        "beta": 0.5,
        "overridden": True,
        "global_precision": "balanced",
        "global_beta": 1.0,
    }
    assert (await call("get_recall_precision", agent_id="b"))["overridden"] is False


async def test_story_of_get_queue_status(call: Call) -> None:
    assert (await call("get_queue_status"))["enabled"] is False


async def test_story_of_find_tools(call: Call) -> None:
    assert (await call("find_tools", query="delete an agent"))["tools"][0]["name"] == "delete_agent_data"


async def test_what_is_no_operation_is_not_found(call: Call) -> None:
    failed(await call("forget_everything"), "not_found", "forget_everything")


def test_every_operation_has_a_story() -> None:
    told = {name.removeprefix("test_story_of_") for name in globals() if name.startswith("test_story_of_")}
    assert told == {operation.name for operation in OPERATIONS}
