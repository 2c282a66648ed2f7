"""Tags and metadata: what is kept, what is shown, and that a filter answers what a look at every row would."""

import random
from typing import Any, get_args

import msgspec
import pytest

from memory_svc.domain.recall.fusion import Mode
from memory_svc.errors import Invalid
from memory_svc.settings import Settings
from memory_svc.storage.interface import Storage
from tests.conftest import House

TAGS = ("red", "green", "blue")
PLACES = ("attic", "cellar", 3, True, None)
ROWS_COUNT, FILTERS_COUNT = 60, 25


@pytest.mark.parametrize("form", ["flat", "message"])
async def test_tags_are_kept_and_shown_where_rows_are_whole(house: House, form: str) -> None:
    fact: dict[str, Any] = {"content": "one", "tags": [" Red ", "two words", "RED"]}
    await house.call("store", agent_id="a", **(fact if form == "flat" else {"message": fact}))
    kept = ["Red", "two words"]
    assert (await house.call("list_memories"))["memories"][0]["tags"] == kept
    assert (await house.call("get_contents", agent_id="a", refs=["mem:1"]))["items"][0]["tags"] == kept
    for query in ("one", ""):
        assert "tags" not in (await house.call("recall", agent_id="a", query=query))["messages"][0]
        whole = await house.call("recall", agent_id="a", query=query, full_content=True)
        assert whole["messages"][0]["tags"] == kept


async def test_rows_without_tags_say_nothing_of_them(house: House) -> None:
    await house.call("store", agent_id="a", content="one", tags=[])
    assert "tags" not in (await house.call("list_memories"))["memories"][0]
    assert "tags" not in (await house.call("get_contents", agent_id="a", refs=["mem:1"]))["items"][0]


@pytest.mark.parametrize("tags", [[""], ["x" * 101], [str(number) for number in range(33)]])
async def test_tags_that_cannot_be_kept_are_rejected_and_as_a_filter_refused(house: House, tags: list[str]) -> None:
    for asked in ({"content": "one", "tags": tags}, {"message": {"content": "one", "tags": tags}}):
        answer = await house.call("store", agent_id="a", **asked)
        assert (answer["result"], answer["reason"][:4]) == ("rejected", "tags")
    assert (await house.call("list_memories"))["count"] == 0
    for name, arguments in (("recall", {"agent_id": "a", "query": "one"}), ("list_memories", {})):
        with pytest.raises(Invalid, match="^tags"):
            await house.call(name, tags=tags, **arguments)


async def test_a_filter_that_cannot_be_read_is_refused_by_name(house: House) -> None:
    for metadata, problem in (
        ({"a": [1]}, r"^metadata\.a: is no text"),
        ({"a": {}}, r"^metadata\.a"),
        ([], "^metadata"),
    ):
        for name in ("recall", "recall_with_context"):
            with pytest.raises(Invalid, match=problem):
                await house.call(name, agent_id="a", query="one", metadata=metadata)
        with pytest.raises(Invalid, match=problem):
            await house.call("list_memories", metadata=metadata)
    with pytest.raises(Invalid, match=r"^tags"):
        await house.call("recall", agent_id="a", query="one", tags="red")


async def test_a_filter_hides_episodes_and_says_so(house: House) -> None:
    await house.call("archive_episode", agent_id="a", summary="needle", channel="c")
    await house.call("store", agent_id="a", content="needle", tags=["red"], metadata={"a": 1})
    for filters in ({"tags": ["RED"]}, {"metadata": {"a": 1.0}}, {"tags": ["red"], "channel": "c"}):
        answer = await house.call("recall", agent_id="a", query="needle", **filters)
        assert [row["ref"] for row in answer["messages"]] == ["mem:1"]
        assert answer["channels"]["episodes"] == "skipped: tags and metadata hide episodes"
    assert len((await house.call("recall", agent_id="a", query="needle"))["messages"]) == 2


async def test_what_a_filter_leaves_out_is_traced_as_not_in_the_scope(house: House) -> None:
    await house.call("store", agent_id="a", content="needle", tags=["red"])
    await house.call("store", agent_id="a", content="needle too")
    answer = await house.call("recall", agent_id="a", query="needle", tags=["red"], trace=True, trace_refs=["mem:2"])
    assert answer["trace"]["rows"][-1]["outcome"] == "left out: there is no such row in this scope"


async def test_pages_of_a_filtered_list_follow_one_another(house: House) -> None:
    for number in range(30):
        await house.call("store", agent_id="a", content=f"fact {number}", tags=["even"] if number % 2 == 0 else [])
    seen: list[int] = []
    cursor = ""
    for _ in range(2):
        answer = await house.call("list_memories", tags=["even"], limit=8, cursor=cursor)
        seen += [row["id"] for row in answer["memories"]]
        cursor = answer.get("next_cursor", "")
    assert (seen, cursor) == (list(range(29, 0, -2)), "")


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("embedding_url", ["http://127.0.0.1:1", ""])
async def test_a_filter_finds_what_a_look_at_every_row_finds(
    storage: Storage, settings: Settings, mode: Mode, embedding_url: str
) -> None:
    house = House(storage, msgspec.structs.replace(settings, recall_mode=mode, embedding_url=embedding_url))
    dice = random.Random(5)
    rows: dict[str, dict[str, Any]] = {}
    for number in range(ROWS_COUNT):
        row = {"tags": dice.sample(TAGS, dice.randrange(4)), "metadata": {}}
        if dice.random() < 0.8:
            row["metadata"] = {"place": dice.choice(PLACES), "number": number % 4}
        answer = await house.call("store", agent_id="a", content=f"needle in haystack {number}", **row)
        rows[f"mem:{answer['id']}"] = row
    for at in range(FILTERS_COUNT):
        tags = dice.sample(TAGS, dice.randrange(3))
        metadata = dict(dice.sample((("place", dice.choice(PLACES)), ("number", dice.randrange(4))), dice.randrange(3)))
        expected = {ref for ref, row in rows.items() if holds(row, tags, metadata)}
        for query in ("needle", "aystac", '"needle in"', ""):
            asked = {"query": query, "tags": tags, "metadata": metadata, "limit": 100, "deep": True}
            name = "recall" if at % 2 else "recall_with_context"
            answer = await house.call(name, agent_id="a", **asked)
            assert {message["ref"] for message in answer["messages"]} == expected, (mode, asked)
        listed = await house.call("list_memories", tags=tags, metadata=metadata)
        assert {f"mem:{row['id']}" for row in listed["memories"]} == expected
    await house.embedder.close()


def holds(row: dict[str, Any], tags: list[str], metadata: dict[str, Any]) -> bool:
    """Whether every tag and every value is the row's."""
    held = row["metadata"]
    return set(tags) <= set(row["tags"]) and all(
        key in held and held[key] == value and isinstance(held[key], bool) is isinstance(value, bool)
        for key, value in metadata.items()
    )


async def test_no_profile_stands_behind_the_rows_of_a_filter(storage: Storage, settings: Settings) -> None:
    house = House(storage, msgspec.structs.replace(settings, profile_scope_rows_min=0))
    await house.call("update_profile", agent_id="a", profile="likes tea")
    await house.call("store", agent_id="a", content="needle", tags=["red"])
    for filters, count in (({}, 2), ({"tags": ["red"]}, 1)):
        assert len((await house.call("recall", agent_id="a", query="needle", **filters))["messages"]) == count
    await house.embedder.close()
