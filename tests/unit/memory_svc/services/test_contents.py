"""Reading rows whole, listing them, episodes and profiles."""

import pytest

from memory_svc.errors import Invalid, NotFound
from tests.conftest import House


async def test_rows_are_given_whole_in_the_order_asked_for(house: House) -> None:
    await house.call("store", agent_id="a", message={"id": "m1", "content": "first " * 200})
    await house.call("store", agent_id="b", content="of another")
    await house.call("archive_episode", agent_id="a", summary="ep", resolved=True)
    refs = ["ep:1", "mem:1", "mem:2", "mem:99", "foo", "mem:", "mem:-1", "MEM:1", "mem:1.0", "mem:" + "9" * 30, "mem:1"]
    answer = await house.call("get_contents", agent_id="a", refs=refs)
    assert [item["ref"] for item in answer["items"]] == ["ep:1", "mem:1", "mem:1"]
    assert answer["items"][0]["content"] == "[Episode] ep"
    assert answer["items"][0]["resolved"] is True
    assert answer["items"][1]["content"] == ("first " * 200).strip()
    assert answer["items"][1]["id"] == "m1"
    assert answer["missing"] == ["mem:2", "mem:99", "foo", "mem:", "mem:-1", "MEM:1", "mem:1.0", "mem:" + "9" * 30]
    assert answer["count"] == 3


async def test_what_does_not_fit_the_budget_is_deferred_and_the_first_always_fits(house: House) -> None:
    for number in range(4):
        await house.call("store", agent_id="a", content=f"{number} " + "x" * 15_990)
    answer = await house.call("get_contents", agent_id="a", refs=["mem:1", "mem:2", "mem:3", "mem:77"])
    assert (answer["count"], answer["deferred"], answer["budget_chars"]) == (2, ["mem:3", "mem:77"], 40_000)
    assert answer["missing"] == []


@pytest.mark.parametrize("refs", [[], ["mem:1"] * 21, "mem:1", [1]])
async def test_refs_that_cannot_be_read_are_refused_by_name(house: House, refs: object) -> None:
    with pytest.raises(Invalid, match="refs"):
        await house.call("get_contents", agent_id="a", refs=refs)


async def test_memories_are_listed_newest_first_with_the_fields_of_the_contract(house: House) -> None:
    for agent, content in (("a", "one"), ("b", "two"), ("a", "three")):
        await house.call("store", agent_id=agent, message={"content": content})
    answer = await house.call("list_memories")
    assert [row["content"] for row in answer["memories"]] == ["three", "two", "one"]
    assert list(answer["memories"][0]) == [
        "id", "agent_id", "project_id", "content", "source", "timestamp", "created_at", "locked", "channel",
    ]  # fmt: skip
    assert (await house.call("list_memories", agent_id="a", limit=1))["count"] == 1
    for limit in (0, -1):
        assert await house.call("list_memories", limit=limit) == {"memories": [], "count": 0}


async def test_a_list_is_cut_to_its_cap_and_its_budget(house: House) -> None:
    for number in range(70):
        await house.call("store", agent_id="a", content=f"{number} " + "x" * 15_990)
    answer = await house.call("list_memories", limit=501)
    assert answer["budget_chars"] == 1_000_000
    assert len(answer["memories"][0]["content"]) > 15_000
    last = answer["memories"][-1]
    assert (len(last["content"]), last["content_truncated"], last["ref"]) == (500, True, "mem:1")
    assert last["content_len"] > 15_000


async def test_episodes_are_listed_with_null_for_times_that_are_not_known(house: House) -> None:
    await house.call("archive_episode", agent_id="a", summary="s", keywords=" k [Memory from x]", project_id="P")
    answer = await house.call("list_episodes", agent_id="a")
    row = answer["episodes"][0]
    assert {name: row[name] for name in row if name != "created_at"} == {
        "id": 1,
        "agent_id": "a",
        "project_id": "P",
        "summary": "s",
        "keywords": "k",
        "start_time": None,
        "end_time": None,
    }
    assert (await house.call("list_episodes", agent_id="a", project_id=""))["count"] == 0


async def test_the_same_summary_twice_is_two_episodes(house: House) -> None:
    ids = [(await house.call("archive_episode", agent_id="a", summary="s"))["episode_id"] for _ in range(2)]
    assert ids == [1, 2]


@pytest.mark.parametrize("summary", ["", "  ", "[Memory from x]"])
async def test_an_episode_needs_a_summary_and_its_failure_keeps_the_shape(house: House, summary: str) -> None:
    with pytest.raises(Invalid, match="summary is required") as refused:
        await house.call("archive_episode", agent_id="a", summary=summary)
    assert refused.value.details == {"episode_id": None}


async def test_a_summary_over_the_limit_is_cut_and_told(house: House) -> None:
    answer = await house.call("archive_episode", agent_id="a", summary="s", keywords="k" * 16_001)
    assert answer["truncated"] is True


async def test_a_profile_is_replaced_whole(house: House) -> None:
    assert await house.call("get_profile", agent_id="a") == {"profile": ""}
    for text in ("likes tea", "  likes [Memory from x] coffee "):
        assert await house.call("update_profile", agent_id="a", profile=text) == {"ok": True, "profiles_updated": 1}
    assert await house.call("get_profile", agent_id="a") == {"profile": "likes coffee"}
    assert await house.call("get_profile", agent_id="b") == {"profile": ""}
    long = await house.call("update_profile", agent_id="a", profile="x" * 2001)
    assert long == {"ok": True, "profiles_updated": 1, "truncated": True}


async def test_an_empty_profile_changes_nothing_and_says_why(house: House) -> None:
    await house.call("update_profile", agent_id="a", profile="likes tea")
    for text, reason in (
        ("", "empty profile"),
        ("  ", "empty after sanitization"),
        ("[Memory from x]", "empty after sanitization"),
    ):
        answer = await house.call("update_profile", agent_id="a", profile=text)
        assert answer == {"ok": False, "profiles_updated": 0, "reason": reason}
    assert await house.call("get_profile", agent_id="a") == {"profile": "likes tea"}


async def test_a_list_of_episodes_is_cut_to_its_budget(house: House) -> None:
    for number in range(27):
        await house.call("archive_episode", agent_id="a", summary=f"{number} " + "s" * 15_990, keywords="k" * 15_990)
    answer = await house.call("list_episodes")
    assert answer["budget_chars"] == 800_000
    first, last = answer["episodes"][0], answer["episodes"][-1]
    assert len(first["summary"]) > 15_000
    assert "ref" not in first
    assert (len(last["summary"]), len(last["keywords"]), last["ref"]) == (500, 500, "ep:1")
    assert last["summary_truncated"] is last["keywords_truncated"] is True
    assert min(last["summary_len"], last["keywords_len"]) > 15_000


async def test_messages_without_a_readable_time_do_not_count_for_the_span(house: House) -> None:
    history = [{"timestamp": "zzz"}, {"timestamp": "2026-01-02T00:00:00Z"}, {"timestamp": ""}, {}, {"timestamp": None}]
    await house.call("archive_episode", agent_id="a", summary="s", history=history)
    row = (await house.call("list_episodes"))["episodes"][0]
    assert row["start_time"] == row["end_time"] == "2026-01-02T00:00:00+00:00"


async def test_pages_follow_one_another_without_a_gap_or_a_row_twice(house: House) -> None:
    for number in range(25):
        await house.call("store", agent_id="a", content=f"fact {number}")
        await house.call("archive_episode", agent_id="a", summary=f"episode {number}")
    for name, key in (("list_memories", "memories"), ("list_episodes", "episodes")):
        whole = [row["id"] for row in (await house.call(name))[key]]
        seen: list[int] = []
        cursor = ""
        for page in range(3):
            answer = await house.call(name, limit=10, cursor=cursor)
            seen += [row["id"] for row in answer[key]]
            cursor = answer.get("next_cursor", "")
            if page == 0:
                await house.call("store", agent_id="a", content=f"a later fact {name}")
        assert (seen, cursor) == (whole, "")


@pytest.mark.parametrize("cursor", ["x", "AAAA", "W10=", "é", "eyJhIjoxfQ=="])
async def test_a_cursor_that_no_list_gave_is_refused(house: House, cursor: str) -> None:
    with pytest.raises(Invalid, match="^cursor: "):
        await house.call("list_memories", cursor=cursor)


async def test_an_episode_is_deleted_for_good(house: House) -> None:
    await house.call("archive_episode", agent_id="a", summary="xyzzy")
    with pytest.raises(NotFound, match="Episode 1 not found"):
        await house.call("delete_episode", episode_id=1, agent_id="b")
    assert await house.call("delete_episode", episode_id=1, agent_id="a") == {"ok": True, "deleted_id": 1}
    assert (await house.call("recall", agent_id="a", query="xyzzy"))["messages"] == []


async def test_the_queue_tells_how_many_rows_wait(house: House) -> None:
    house.server.fault = "refuse"
    await house.call("store", agent_id="a", content="one")
    status = await house.call("get_queue_status")
    assert (status["enabled"], status["pending"]) == (True, 1)


@pytest.mark.parametrize(
    ("query", "found"),
    [("lock a memory", "lock_memory"), ("erase an agent", "delete_agent_data"), ("profile", "get_profile")],
)
async def test_tools_are_found_by_what_they_do(house: House, query: str, found: str) -> None:
    answer = await house.call("find_tools", query=query)
    assert found in [tool["name"] for tool in answer["tools"]]
    assert all(tool["input_schema"]["type"] == "object" for tool in answer["tools"])
    assert (await house.call("find_tools", limit=100))["count"] == len(house.catalogue.operations)
    assert (await house.call("find_tools", query="zzzz"))["tools"] == []


LONG = "".join(f"Sentence number {number} of the text. " for number in range(60)).strip()


async def test_parts_of_rows_are_given_in_the_order_asked_for(house: House) -> None:
    await house.call("store", agent_id="a", content=LONG, tags=["red"])
    await house.call("archive_episode", agent_id="a", summary="It went well.", resolved=True)
    refs = [{"ref": "mem:1", "span": [9, 17]}, "mem:1", {"ref": "ep:1", "span": [3, 99]}, {"ref": "mem:1", "block": 1}]
    answer = await house.call("get_contents", agent_id="a", refs=[*refs, {"ref": "mem:1"}])
    assert [item["ref"] for item in answer["items"]] == ["mem:1", "mem:1", "ep:1", "mem:1", "mem:1"]
    first, whole, episode, block, same = answer["items"]
    assert (first["content"], first["range"]["span"], first["tags"]) == ("number 0", (9, 17), ["red"])
    assert whole == same
    assert (whole["content"], "range" in whole) == (LONG, False)
    assert (episode["content"], episode["range"]["span"], episode["resolved"]) == ("went well.", (3, 13), True)
    span = block["range"]["span"]
    assert block["content"] == LONG[slice(*span)]
    assert (block["range"]["block"], block["range"]["of"], block["range"]["content_len"]) == ((1, 1), 3, len(LONG))
    assert (answer["count"], answer["missing"], "unresolved" in answer) == (5, [], False)


async def test_a_part_that_cannot_be_given_exactly_is_unresolved_and_never_widened(house: House) -> None:
    await house.call("store", agent_id="a", content=LONG)
    await house.call("store", agent_id="b", content=LONG)
    asked = {
        "invalid_range": {"span": [5, 5]},
        "span_out_of_range": {"span": [9_000, 9_001]},
        "block_out_of_range": {"block": [0, 3]},
        "no_current_nodes": {"node": 0},
        "stale_revision": {"span": [0, 5], "revision": "0123456789abcdef"},
    }
    refs = [{"ref": "mem:1", **part} for part in asked.values()]
    answer = await house.call("get_contents", agent_id="a", refs=[*refs, {"ref": "mem:2", "span": [0, 5]}, "mem:1"])
    assert answer["unresolved"] == [{"ref": "mem:1", "reason": reason} for reason in asked]
    assert (answer["missing"], answer["count"]) == (["mem:2"], 1)


async def test_a_revision_holds_as_long_as_the_text_does(house: House) -> None:
    await house.call("store", agent_id="a", content=LONG)
    part = {"ref": "mem:1", "span": [0, 8]}
    revision = (await house.call("get_contents", agent_id="a", refs=[part]))["items"][0]["range"]["revision"]
    await house.call("lock_memory", memory_id=1)
    asked = [{**part, "revision": revision}]
    assert (await house.call("get_contents", agent_id="a", refs=asked))["items"][0]["content"] == "Sentence"
    await house.call("unlock_memory", memory_id=1)
    await house.call("update_memory", memory_id=1, content="Another text.")
    assert (await house.call("get_contents", agent_id="a", refs=asked))["unresolved"][0]["reason"] == "stale_revision"


async def test_only_the_part_counts_for_the_budget_and_what_is_deferred_is_named_as_it_was_asked_for(
    house: House,
) -> None:
    for number in range(3):
        await house.call("store", agent_id="a", content=f"{number} " + "x" * 15_990)
    parts = [{"ref": f"mem:{id}", "span": [0, 100]} for id in (1, 2, 3)]
    assert "deferred" not in await house.call("get_contents", agent_id="a", refs=[*parts, "mem:1"])
    answer = await house.call("get_contents", agent_id="a", refs=["mem:1", "mem:2", {"ref": "mem:3", "block": [0, 19]}])
    assert (answer["count"], answer["deferred"]) == (2, [{"ref": "mem:3", "block": [0, 19]}])


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ({"span": [0, 5]}, r"^refs\[0\]\.ref: is required"),
        ({"ref": "mem:1", "spam": [0, 5]}, r"^refs\[0\]: .*spam"),
        ({"ref": "mem:1", "span": "0-5"}, r"^refs\[0\]\.span: "),
        ({"ref": "mem:1", "block": "2"}, r"^refs\[0\]\.block: "),
    ],
)
async def test_a_part_that_cannot_be_read_is_refused_by_its_place(
    house: House, part: dict[str, object], problem: str
) -> None:
    with pytest.raises(Invalid, match=problem):
        await house.call("get_contents", agent_id="a", refs=[part])
