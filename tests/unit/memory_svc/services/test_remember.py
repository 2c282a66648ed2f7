"""What storing, changing and forgetting answer."""

import anyio
import msgspec
import pytest

from memory_svc.domain.access.principal import Permission, Principal
from memory_svc.domain.memory import zone_of
from memory_svc.errors import Conflict, Denied, Invalid, NotFound, Overloaded, Unavailable
from memory_svc.services.operation import Call
from memory_svc.settings import Settings
from memory_svc.storage.interface import Storage
from tests.conftest import House


async def test_a_stored_fact_answers_its_id_and_that_it_is_embedded(house: House) -> None:
    answer = await house.call("store", agent_id="a", message={"content": "The sky is blue."})
    assert answer == {
        "ok": True,
        "result": "stored",
        "id": 1,
        "embedded": True,
        "receipt": {"text": "done", "words": "done", "vector": "done"},
    }


async def test_the_flat_form_stores_the_same_and_takes_the_agent_as_its_source(house: House) -> None:
    await house.call("store", agent_id="a", content="The sky is blue.")
    listed = await house.call("list_memories", agent_id="a")
    assert listed["memories"][0]["source"] == {"type": "Agent", "id": "a", "name": ""}


async def test_both_forms_at_once_are_rejected(house: House) -> None:
    answer = await house.call("store", agent_id="a", content="x", message={"content": "x"})
    assert answer["result"] == "rejected"
    assert "not both" in answer["reason"]


@pytest.mark.parametrize(
    ("second", "result"),
    [
        ({"project_id": "P"}, "skipped"),
        ({"channel": "c"}, "skipped"),
        ({"agent_id": "b"}, "stored"),
        ({"message": {"content": " delta\n"}}, "skipped"),
        ({"message": {"content": "DELTA"}}, "stored"),
        ({"message": {"content": "del  ta"}}, "stored"),
    ],
)
async def test_a_text_that_the_bucket_sees_is_skipped(house: House, second: dict, result: str) -> None:
    first = {"agent_id": "a", "message": {"content": "delta"}}
    await house.call("store", **first)
    answer = await house.call("store", **(first | second))
    assert answer["result"] == result
    if result == "skipped":
        assert answer == {"ok": True, "result": "skipped", "reason": "duplicate content", "id": 1}


@pytest.mark.parametrize("axis", ["project_id", "channel"])
async def test_a_text_of_one_project_or_channel_may_be_stored_in_another_and_in_the_shared_one(
    house: House, axis: str
) -> None:
    for value in ("P", "Q", ""):
        answer = await house.call("store", agent_id="a", content="delta", **{axis: value})
        assert answer["result"] == "stored"


async def test_a_msg_id_already_seen_is_skipped_before_the_text_is_looked_at(house: House) -> None:
    await house.call("store", agent_id="a", message={"id": "m1", "content": "one"})
    await house.call("store", agent_id="a", message={"content": "two"})
    answer = await house.call("store", agent_id="a", project_id="P", message={"id": "m1", "content": "two"})
    assert answer == {"ok": True, "result": "skipped", "reason": "duplicate msg_id", "id": 1}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({}, "empty content"),
        ({"content": ""}, "empty content"),
        ({"content": " \n\t\u3000"}, "empty after sanitization"),
        ({"content": "[Memory from 2024-01-01]"}, "empty after sanitization"),
        ({"content": "x", "metadata": {"k": "v" * 7992}}, "metadata too large (8001 chars, max 8000)"),
        ({"content": "x", "metadata": {"k": "é" * 2000}}, "metadata too large (12009 chars, max 8000)"),
        ({"content": "x", "source": {"n": "n" * 9000}}, "source too large (9009 chars, max 8000)"),
    ],
)
async def test_what_cannot_be_stored_is_rejected_with_its_reason(house: House, message: dict, reason: str) -> None:
    answer = await house.call("store", agent_id="a", message=message)
    assert answer == {"ok": False, "result": "rejected", "reason": reason}
    assert (await house.call("list_memories"))["count"] == 0


async def test_a_content_over_the_limit_is_cut_and_told(house: House) -> None:
    answer = await house.call("store", agent_id="a", content="y" * 16001)
    assert answer["truncated"] is True
    again = await house.call("store", agent_id="a", content="y" * 17000)
    assert again["result"] == "skipped"


async def test_annotations_of_earlier_recalls_are_taken_out(house: House) -> None:
    await house.call("store", agent_id="a", content="[Memory from 2024]  hello [Memory from x] there [memory from y]")
    assert (await house.call("list_memories"))["memories"][0]["content"] == "hello there [memory from y]"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("assistant", {"type": "Agent", "id": "", "name": ""}),
        ("claude-code", "claude-code"),
        ({"type": " AI ", "x": 1}, {"type": "Agent", "x": 1}),
        ({"type": "session", "id": "s"}, {"type": "System", "id": "s"}),
        ({"type": "bot"}, {"type": "bot"}),
        ({"User": "u9"}, {"type": "User", "id": "u9", "name": "u9"}),
        ({"System": "ep"}, {"type": "System", "id": "ep", "name": ""}),
        ({"Agent": {"id": "a", "name": "A"}}, {"type": "Agent", "id": "a", "name": "A"}),
        ({"User": 5}, {"User": 5}),
        (None, {}),
    ],
)
async def test_a_source_is_folded_to_the_known_types(house: House, given: object, kept: object) -> None:
    await house.call("store", agent_id="a", message={"content": "x", "source": given})
    assert (await house.call("list_memories"))["memories"][0]["source"] == kept


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2026-02-01T09:00:00+09:00", "2026-02-01T00:00:00+00:00"),
        ("2026-02-01T00:00:00Z", "2026-02-01T00:00:00+00:00"),
        ("2026-02-01", "2026-02-01T00:00:00+00:00"),
    ],
)
async def test_instants_are_kept_in_utc(house: House, given: str, kept: str) -> None:
    await house.call("store", agent_id="a", message={"content": "x", "timestamp": given})
    assert (await house.call("list_memories"))["memories"][0]["timestamp"] == kept


async def test_an_instant_without_a_zone_is_read_in_the_callers_and_told(house: House) -> None:
    call = Call(zone=zone_of("Asia/Tokyo"))
    answer = await house.call("store", call, agent_id="a", message={"content": "x", "timestamp": "2026-02-01T09:00:00"})
    assert answer["timestamp"] == "2026-02-01T00:00:00+00:00"


async def test_a_text_that_is_no_instant_is_rejected_with_an_example(house: House) -> None:
    answer = await house.call("store", agent_id="a", message={"content": "x", "timestamp": "garbage"})
    assert answer["result"] == "rejected"
    assert "2026-03-01T09:30:00+09:00" in answer["reason"]


async def test_an_instant_far_ahead_is_stored_and_told(house: House) -> None:
    answer = await house.call("store", agent_id="a", message={"content": "x", "timestamp": "2099-01-01T00:00:00Z"})
    assert answer["result"] == "stored"
    assert answer["timestamp_ahead_of_clock"]["allowance_seconds"] == 300


async def test_a_store_that_names_no_agent_is_rejected_with_the_remedy(house: House) -> None:
    answer = await house.call("store", content="x")
    assert answer["result"] == "rejected"
    assert "agent_id is required" in answer["reason"]


async def test_a_store_that_names_no_agent_goes_to_the_default_one_and_says_so(
    storage: Storage, settings: Settings
) -> None:
    house = House(storage, msgspec.structs.replace(settings, default_agent="mine"))
    answer = await house.call("store", content="x")
    assert answer["resolved_agent_id"] == "mine"
    await house.embedder.close()


async def test_a_caller_who_may_only_read_stores_nothing(house: House) -> None:
    reader = Call(principal=Principal(name="me", permission=Permission.READ))
    with pytest.raises(Denied) as refused:
        await house.call("store", reader, agent_id="a", content="x")
    assert (refused.value.text, refused.value.details) == ("permission_denied", {"tool": "store", "required": "write"})
    assert await house.call("list_memories", reader) == {"memories": [], "count": 0}


async def test_the_empty_agent_is_a_bucket_of_its_own(house: House) -> None:
    await house.call("store", agent_id="", content="x")
    assert (await house.call("list_memories", agent_id="a"))["count"] == 0
    assert (await house.call("list_memories", agent_id=""))["count"] == 1


async def test_a_locked_memory_is_neither_edited_nor_deleted(house: House) -> None:
    assert (await house.call("store", agent_id="a", content="x", lock=True))["locked"] is True
    with pytest.raises(Conflict, match="locked and cannot be edited"):
        await house.call("update_memory", memory_id=1, content="y")
    with pytest.raises(Conflict, match="locked and cannot be deleted"):
        await house.call("delete_memory", memory_id=1)


async def test_storing_a_held_text_locked_locks_the_one_that_is_held(house: House) -> None:
    await house.call("store", agent_id="a", content="x")
    answer = await house.call("store", agent_id="a", content="x", lock=True)
    assert (answer["result"], answer["locked"]) == ("skipped", True)
    assert (await house.call("list_memories"))["memories"][0]["locked"] is True
    assert await house.storage.derived.waiting("1:fake", 10) == []


async def test_an_updated_memory_has_the_new_text_and_vector_and_keeps_the_rest(house: House) -> None:
    await house.call("store", agent_id="a", message={"id": "m1", "content": "red apples", "metadata": {"k": 1}})
    updated = await house.call("update_memory", memory_id=1, content="  green pears ")
    assert (updated["updated_id"], updated["receipt"]["vector"]) == (1, "done")
    found = await house.call("recall", agent_id="a", query="green pears", trace=True)
    assert found["messages"][-1]["content"] == "green pears"
    assert found["messages"][-1]["id"] == "m1"
    assert found["messages"][-1]["match_reason"]["cosine"] == pytest.approx(1.0)
    words = await house.call("recall", agent_id="a", query="apples", trace=True)
    assert "words" not in words["messages"][-1]["match_reason"]["arms"]


async def test_a_lock_is_set_and_lifted_as_often_as_one_likes(house: House) -> None:
    await house.call("store", agent_id="a", content="x")
    for _ in range(2):
        assert await house.call("lock_memory", memory_id=1, agent_id="a") == {"ok": True, "locked_id": 1}
    with pytest.raises(Conflict):
        await house.call("delete_memory", memory_id=1)
    for _ in range(2):
        assert await house.call("unlock_memory", memory_id=1) == {"ok": True, "unlocked_id": 1}
    assert await house.storage.derived.waiting("1:fake", 10) == []
    assert await house.call("delete_memory", memory_id=1) == {"ok": True, "deleted_id": 1}
    for name in ("lock_memory", "unlock_memory"):
        with pytest.raises(NotFound):
            await house.call(name, memory_id=1)


async def test_everything_of_an_agent_is_erased_and_nothing_else(house: House) -> None:
    for agent in ("a", "b"):
        await house.call("store", agent_id=agent, content="apples", lock=True)
        await house.call("store", agent_id=agent, content="pears")
        await house.call("archive_episode", agent_id=agent, summary="apples and pears")
        await house.call("update_profile", agent_id=agent, profile="likes apples")
    gone = await house.call("delete_agent_data", agent_id="a")
    assert gone == {
        "ok": True,
        "agent_id": "a",
        "deleted_memories": 2,
        "deleted_profiles": 1,
        "deleted_episodes": 1,
        "deleted_pending_tasks": 0,
    }
    assert (await house.call("delete_agent_data", agent_id="a"))["deleted_memories"] == 0
    assert (await house.call("recall", agent_id="a", query="apples"))["messages"] == []
    assert await house.call("get_profile", agent_id="a") == {"profile": ""}
    assert len((await house.call("recall", agent_id="b", query="apples"))["messages"]) == 3
    assert await house.storage.upkeep.verify() == []
    for row in await house.storage.journal.after(0, 100):
        assert (row.effect is None) is (row.agent == "a")
    with pytest.raises(Invalid, match="agent_id is required"):
        await house.call("delete_agent_data", agent_id="")


async def test_arguments_that_are_nested_too_deep_are_refused_by_name(house: House) -> None:
    deep: dict = {}
    for _ in range(40):
        deep = {"k": deep}
    with pytest.raises(Invalid, match="^metadata: is nested deeper"):
        await house.call("store", agent_id="a", content="x", metadata=deep)


async def test_a_call_that_takes_too_long_is_given_up_and_says_so(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> None:
        await anyio.sleep(3600)

    monkeypatch.setattr(house.storage.profiles, "of", never)
    with pytest.raises(Unavailable, match="get_profile took longer than 0.1 s and was given up; give it more time"):
        await house.call("get_profile", Call(seconds_max=0.1), agent_id="a")
    monkeypatch.setattr(house.storage, "apply", never)
    with pytest.raises(Unavailable, match="store took longer than 0.1 s .* may yet be done: repeat it with the same"):
        await house.call("store", Call(seconds_max=0.1), agent_id="a", content="x")


async def test_the_operations_of_one_call_share_its_time(house: House) -> None:
    call = Call(seconds_max=0.1)
    await anyio.sleep(0.11)
    with pytest.raises(Unavailable, match="get_profile took longer than 0.1 s"):
        await house.call("get_profile", call, agent_id="a")


async def test_a_caller_that_asks_too_much_is_told_to_wait_and_others_are_not(
    storage: Storage, settings: Settings
) -> None:
    house = House(storage, msgspec.structs.replace(settings, calls_per_second_max=5))
    ann, bob = (Call(principal=Principal(name=name)) for name in ("ann", "bob"))
    for _ in range(10):
        await house.call("get_queue_status", ann)
    with pytest.raises(Overloaded) as refused:
        await house.call("get_queue_status", ann)
    assert refused.value.retry_after_seconds
    assert await house.call("get_queue_status", bob)
    await house.embedder.close()


async def test_an_update_onto_a_text_that_another_memory_of_the_bucket_holds_is_refused(house: House) -> None:
    for content in ("one", "two"):
        await house.call("store", agent_id="a", content=content)
    await house.call("store", agent_id="a", project_id="P", content="three")
    with pytest.raises(Conflict, match="memory 1 in the same agent, project and channel"):
        await house.call("update_memory", memory_id=2, content="one")
    assert (await house.call("update_memory", memory_id=2, content="two"))["ok"]
    assert (await house.call("update_memory", memory_id=2, content="three"))["ok"]


@pytest.mark.parametrize("name", ["update_memory", "delete_memory"])
async def test_a_memory_of_another_agent_looks_like_one_that_is_not_there(house: House, name: str) -> None:
    await house.call("store", agent_id="b", content="x")
    more = {"content": "y"} if name == "update_memory" else {}
    with pytest.raises(NotFound, match="Memory 1 not found"):
        await house.call(name, memory_id=1, agent_id="a", **more)
    with pytest.raises(NotFound, match="Memory 99 not found"):
        await house.call(name, memory_id=99, **more)


@pytest.mark.parametrize("memory_id", [0, -1, 2**63, 10**30])
async def test_a_number_that_no_memory_can_have_is_not_found(house: House, memory_id: int) -> None:
    with pytest.raises((NotFound, Invalid)):
        await house.call("delete_memory", memory_id=memory_id)


async def test_an_update_to_nothing_is_refused(house: House) -> None:
    await house.call("store", agent_id="a", content="x")
    for content in ("", "  ", "[Memory from x]"):
        with pytest.raises(Invalid, match="Content cannot be empty"):
            await house.call("update_memory", memory_id=1, content=content)


async def test_a_deleted_memory_is_gone_from_every_answer_and_its_msg_id_is_free(house: House) -> None:
    await house.call("store", agent_id="a", message={"id": "m1", "content": "the secret word is xyzzy"})
    assert await house.call("delete_memory", memory_id=1, agent_id="a") == {"ok": True, "deleted_id": 1}
    assert (await house.call("recall", agent_id="a", query="secret word xyzzy"))["messages"] == []
    assert (await house.call("get_contents", agent_id="a", refs=["mem:1"]))["missing"] == ["mem:1"]
    assert (await house.call("store", agent_id="a", message={"id": "m1", "content": "new"}))["id"] == 2


async def test_a_repeated_idempotency_key_stores_once_and_answers_the_same(house: House) -> None:
    call = Call(idempotency_key="k1")
    first = await house.call("archive_episode", call, agent_id="a", summary="done")
    again = await house.call("archive_episode", call, agent_id="a", summary="done")
    assert first == again
    with pytest.raises(Conflict, match="idempotency key"):
        await house.call("archive_episode", call, agent_id="a", summary="something else")


async def test_a_receipt_tells_what_is_so_now_whoever_wrote_the_vector(house: House) -> None:
    house.server.fault = "refuse"
    call = Call(idempotency_key="k1")
    first = await house.call("store", call, agent_id="a", content="x")
    assert (first["embedded"], first["receipt"]["vector"]) == (False, "waiting")
    house.server.fault = ""
    again = await house.call("store", call, agent_id="a", content="x")
    assert (again["embedded"], again["receipt"]["vector"]) == (False, "waiting")
    await house.worker.run_once()
    house.server.fault = "refuse"
    again = await house.call("store", call, agent_id="a", content="x")
    assert (again["embedded"], again["receipt"]["vector"]) == (True, "done")
    same = await house.call("update_memory", memory_id=1, content="x")
    assert same["receipt"]["vector"] == "done"


async def test_unknown_arguments_are_ignored_and_told(house: House) -> None:
    answer = await house.call("store", agent_id="a", content="x", colour="red", session_key="s")
    assert answer["ignored_arguments"] == ["colour", "session_key"]


async def test_the_auto_project_without_an_operating_context_is_taken_literally_and_told(house: House) -> None:
    answer = await house.call("store", agent_id="a", content="x", project_id="@auto")
    assert answer["resolved_project_id"] == "@auto"


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({"agent_id": "a", "content": "nul\0inside"}, "content"),
        ({"agent_id": "a", "content": "half \ud83d emoji"}, "content"),
        ({"agent_id": "a", "message": {"content": "nul\0inside"}}, "message.content"),
        ({"agent_id": "a", "content": "x", "metadata": {"k": ["\0"]}}, "metadata.k[0]"),
        ({"agent_id": "a", "content": "x", "odd \ud800 name": 1}, "arguments (a name)"),
        ({"agent_id": "a", "content": "x", "metadata": {"k": float("nan")}}, "metadata.k"),
        ({"agent_id": "a", "content": 5}, "content"),
        ({"agent_id": "a", "message": {"content": 5}}, "message.content"),
    ],
)
async def test_what_is_not_text_is_refused_naming_its_place(house: House, arguments: dict, place: str) -> None:
    with pytest.raises(Invalid) as refused:
        await house.call("store", **arguments)
    assert refused.value.text.startswith(f"{place}:")
