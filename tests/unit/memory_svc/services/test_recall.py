"""What recall answers, with and without vectors."""

from typing import get_args

import msgspec
import pytest

from memory_svc.domain.recall.fusion import Mode
from memory_svc.errors import Invalid
from memory_svc.services.operation import Call
from memory_svc.settings import Settings
from memory_svc.storage.interface import Storage
from tests.conftest import House

FACTS = ("the deploy runs on friday", "apples grow on trees", "the database is called harbour")


async def stored(house: House, *contents: str, **axes: str) -> None:
    """Store these for agent a."""
    for content in contents:
        answer = await house.call("store", agent_id="a", message={"content": content}, **axes)
        assert answer["result"] == "stored"


def contents(answer: dict) -> list[str]:
    """The contents of an answer, best first."""
    return [row["content"] for row in reversed(answer["messages"])]


async def test_the_last_message_is_the_best_match(house: House) -> None:
    await stored(house, *FACTS)
    answer = await house.call("recall", agent_id="a", query="what is the database called", trace=True)
    assert answer["messages"][-1]["content"] == FACTS[2]
    scores = [row["match_reason"]["score"] for row in answer["messages"]]
    assert scores == sorted(scores)


async def test_a_row_has_the_fields_of_the_contract(house: House) -> None:
    await house.call(
        "store",
        agent_id="a",
        message={"id": "m1", "content": "apples", "source": {"type": "User", "id": "u"}, "timestamp": "2026-01-01"},
    )
    row = (await house.call("recall", agent_id="a", query="apples", trace=True))["messages"][-1]
    reason = row.pop("match_reason")
    assert row == {
        "content": "apples",
        "ref": "mem:1",
        "source": {"type": "User", "id": "u"},
        "timestamp": "2026-01-01T00:00:00+00:00",
        "id": "m1",
    }
    assert reason == {
        "signal": "weighted",
        "score": 0.75,
        "cosine": pytest.approx(1.0),
        "arms": ["vectors", "words", "windows"],
    }


async def test_a_row_found_by_words_alone_says_so(plain_house: House) -> None:
    await stored(plain_house, *FACTS)
    row = (await plain_house.call("recall", agent_id="a", query="apples", trace=True))["messages"][-1]
    assert row["match_reason"] == {"signal": "weighted", "score": 0.75, "arms": ["words", "windows"]}


async def test_an_episode_is_marked_and_carries_its_beginning(house: House) -> None:
    await house.call(
        "archive_episode",
        agent_id="a",
        summary="We chose harbour as the database",
        keywords="postgres",
        history=[{"timestamp": "2026-01-02T00:00:00Z"}, {"timestamp": "2026-01-01T09:00:00+09:00"}, {"timestamp": 5}],
    )
    row = (await house.call("recall", agent_id="a", query="postgres", trace=True))["messages"][-1]
    assert row["content"] == "[Episode] We chose harbour as the database"
    assert (row["ref"], row["source"]) == ("ep:1", {"System": "episode"})
    assert row["timestamp"] == "2026-01-01T00:00:00+00:00"
    assert "episodes" in row["match_reason"]["arms"]


async def test_a_long_content_is_a_pure_prefix_and_tells_its_length(house: House) -> None:
    await stored(house, "whole " * 83 + "ab", "long " * 100 + "x")
    answer = await house.call("recall", agent_id="a", query="whole long")
    rows = {row["ref"]: row for row in answer["messages"]}
    assert len(rows["mem:1"]["content"]) == 500
    assert "content_truncated" not in rows["mem:1"]
    assert rows["mem:2"]["content"] == ("long " * 100 + "x")[:500]
    assert (rows["mem:2"]["content_len"], rows["mem:2"]["content_truncated"]) == (501, True)
    full = await house.call("recall", agent_id="a", query="long", full_content=True)
    assert full["messages"][-1]["content"] == "long " * 100 + "x"


async def test_whole_contents_stop_at_the_budget_from_the_worst_row(house: House) -> None:
    await stored(house, *(f"needle {number} " + "x" * 15_900 for number in range(14)))
    answer = await house.call("recall", agent_id="a", query="needle", full_content=True, limit=14)
    assert answer["full_content_budget_chars"] == 200_000
    lengths = [len(row["content"]) for row in answer["messages"]]
    assert lengths[-1] > 15_000
    assert lengths[0] == 500
    assert sum(lengths) <= 200_000


async def test_an_empty_query_says_so_and_gives_the_newest_last(house: House) -> None:
    await stored(house, "one", "two", "three")
    for query in ("", "   ", "*", "^", "()"):
        answer = await house.call("recall", agent_id="a", query=query, limit=2)
        assert answer["status"] == "no_query"
        assert [row["content"] for row in answer["messages"]] == ["two", "three"]
        assert "match_reason" not in answer["messages"][0]


async def test_a_limit_cuts_the_answer_and_not_the_search(house: House) -> None:
    await stored(house, *FACTS)
    everything = contents(await house.call("recall", agent_id="a", query="the deploy database", limit=100))
    for limit in (0, 1, 2):
        some = contents(await house.call("recall", agent_id="a", query="the deploy database", limit=limit))
        assert some == everything[:limit]


@pytest.mark.parametrize("limit", [-1, 101, "5", 5.5, True])
async def test_a_limit_that_makes_no_sense_is_refused_by_name(house: House, limit: object) -> None:
    with pytest.raises(Invalid, match="^limit: "):
        await house.call("recall", agent_id="a", query="x", limit=limit)


async def test_a_query_that_is_left_out_is_refused_by_name(house: House) -> None:
    with pytest.raises(Invalid, match="^query: is required"):
        await house.call("recall", agent_id="a")


async def test_another_agents_memory_is_never_a_candidate(house: House) -> None:
    await stored(house, *FACTS)
    assert (await house.call("recall", agent_id="b", query="deploy friday"))["messages"] == []


async def test_a_project_sees_itself_and_what_is_shared(house: House) -> None:
    await stored(house, "fact shared")
    await stored(house, "fact of X", project_id="X")
    await stored(house, "fact of Y", project_id="Y")

    async def seen(**axes: str) -> set[str]:
        return set(contents(await house.call("recall", agent_id="a", query="fact", **axes)))

    assert await seen() == {"fact shared", "fact of X", "fact of Y"}
    assert await seen(project_id="X") == {"fact shared", "fact of X"}
    assert await seen(project_id="") == {"fact shared"}
    assert await seen(project_id="Z") == {"fact shared"}


async def test_a_channel_sees_itself_and_what_is_shared(house: House) -> None:
    await stored(house, "fact shared")
    await stored(house, "fact of c", channel="c")
    await stored(house, "fact of d", channel="d")
    answer = await house.call("recall", agent_id="a", query="fact", channel="c")
    assert set(contents(answer)) == {"fact shared", "fact of c"}


async def test_a_source_is_a_literal_prefix_and_hides_episodes_unless_a_channel_is_named(house: House) -> None:
    for number, source in enumerate(("discord:12", "discord:99", "slack:1", "discord%")):
        await house.call("store", agent_id="a", message={"content": f"fact {number}", "source": {"id": source}})
    await house.call("archive_episode", agent_id="a", summary="fact of an episode")

    async def seen(**axes: str) -> set[str]:
        return set(contents(await house.call("recall", agent_id="a", query="fact", **axes)))

    assert await seen(source_id="discord:") == {"fact 0", "fact 1"}
    assert await seen(source_id="discord:1") == {"fact 0"}
    assert await seen(source_id="discord%") == {"fact 3"}
    assert await seen(source_id="slack", channel="c") == {"fact 2", "[Episode] fact of an episode"}


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("query", ["The harbour opens at six.", "harbour", '"opens at six"', "arbou", ""])
async def test_what_is_not_included_is_no_candidate(
    storage: Storage, settings: Settings, mode: Mode, query: str
) -> None:
    house = House(storage, msgspec.structs.replace(settings, recall_mode=mode, gate=False))
    await house.call("store", agent_id="a", content="The harbour opens at six.")
    await house.call("archive_episode", agent_id="a", summary="The harbour opens at six, they said.")
    for include, ref, left_out in ((["memories"], "mem:1", "episodes"), (["episodes"], "ep:1", "words")):
        answer = await house.call("recall", agent_id="a", query=query, include=include)
        assert [row["ref"] for row in answer["messages"]] == [ref]
        if query:
            assert answer["channels"][left_out].startswith("skipped: include leaves")
    both = await house.call("recall", agent_id="a", query="harbour", include=["memories", "episodes"])
    assert {row["ref"] for row in both["messages"]} == {"mem:1", "ep:1"}
    await house.embedder.close()


async def test_a_kind_that_there_is_not_is_refused_by_name(house: House) -> None:
    with pytest.raises(Invalid, match="include"):
        await house.call("recall", agent_id="a", query="harbour", include=["dreams"])


async def test_scope_acts_before_the_ranking(house: House) -> None:
    await stored(house, *(f"needle in the haystack number {number}" for number in range(150)))
    await stored(house, "needle", project_id="P")
    await house.call("store", agent_id="b", content="a needle too")
    answer = await house.call("recall", agent_id="b", query="needle haystack number")
    assert contents(answer) == ["a needle too"]


async def test_contents_that_the_caller_has_are_not_given_again(house: House) -> None:
    long = "kestrel nest box plan number one and more"
    await stored(house, long, "kestrel")
    excluded = await house.call("recall", agent_id="a", query="kestrel", exclude_contents=[f"  {long[:32].upper()}"])
    assert contents(excluded) == ["kestrel"]
    short = await house.call("recall", agent_id="a", query="kestrel", exclude_contents=["kestre", "KESTREL ", ""])
    assert contents(short) == [long]
    longer = await house.call("recall", agent_id="a", query="kestrel", exclude_contents=[long + " than that"])
    assert contents(longer) == ["kestrel"]


async def test_the_same_query_gives_the_same_rows(house: House) -> None:
    await stored(house, *(f"fact about item {number % 7} kind {number % 3} {number}" for number in range(60)))
    first = await house.call("recall", agent_id="a", query="fact about item kind", limit=50)
    for _ in range(3):
        assert await house.call("recall", agent_id="a", query="fact about item kind", limit=50) == first


@pytest.mark.parametrize("fault", ["refuse", "hang", "status", "garbage", "zero", "nan", "count", "dimension"])
async def test_without_vectors_recall_answers_from_full_text_and_says_why(house: House, fault: str) -> None:
    await stored(house, *FACTS)
    assert house.gauge("memory_embedding_degraded") == 0
    house.server.fault = fault
    answer = await house.call("recall", agent_id="a", query="apples")
    assert contents(answer)[0] == FACTS[1]
    assert answer["advisory"]["degraded"] is True
    assert answer["advisory"]["severity"] == "fault"
    assert answer["advisory"]["evidence"]
    assert "Tell the user" in answer["advisory"]["runbook"]
    assert house.gauge("memory_embedding_degraded") == 1
    reminder = await house.call("recall", agent_id="a", query="apples")
    assert len(reminder["advisory"]["runbook"]) < 100
    assert reminder["channels"]["vectors"].startswith("degraded: ")
    house.server.fault = ""
    await house.worker.run_once()
    assert "advisory" not in await house.call("recall", agent_id="a", query="apples")
    assert house.gauge("memory_embedding_degraded") == 0


async def test_a_caller_in_a_hurry_gets_what_full_text_finds_while_the_server_hangs(house: House) -> None:
    await stored(house, *FACTS)
    house.server.fault = "hang"
    answer = await house.call("recall", Call(seconds_max=0.5), agent_id="a", query="apples")
    assert contents(answer)[0] == FACTS[1]
    assert answer["channels"]["vectors"] == f"degraded: {answer['advisory']['evidence']}"


async def test_without_an_embedding_server_the_advice_is_a_hint(plain_house: House) -> None:
    await stored(plain_house, *FACTS)
    answer = await plain_house.call("recall", agent_id="a", query="apples")
    assert answer["advisory"]["severity"] == "hint"
    assert answer["channels"]["vectors"] == "skipped: no embedding server is set"
    assert plain_house.gauge("memory_embedding_degraded") == 1


async def test_what_is_stored_without_vectors_gets_them_later(house: House) -> None:
    house.server.fault = "refuse"
    answer = await house.call("store", agent_id="a", content="pears are green")
    assert (answer["result"], answer["embedded"]) == ("stored", False)
    for later in (
        await house.call("update_memory", memory_id=1, content="pears are ripe"),
        await house.call("archive_episode", agent_id="a", summary="a talk of pears"),
    ):
        assert later["receipt"] == {"text": "done", "words": "done", "vector": "waiting"}
    assert (await house.call("recall", agent_id="a", query="pears"))["channels"]["waiting"] > 0
    await house.worker.run_once()
    assert house.gauge("memory_rows_waiting_for_vectors") == 2
    house.server.fault = ""
    await house.worker.run_once()
    assert house.gauge("memory_rows_waiting_for_vectors") == 0
    assert house.gauge("memory_embedding_degraded") == 0
    rows = (await house.call("recall", agent_id="a", query="pears are ripe", trace=True))["messages"]
    assert all("vectors" in row["match_reason"]["arms"] for row in rows)


async def test_vectors_of_another_model_are_never_compared_and_are_made_anew(house: House) -> None:
    await stored(house, *FACTS)
    house.server.fingerprint = "1:other"
    row = (await house.call("recall", agent_id="a", query="apples", trace=True))["messages"][-1]
    assert row["match_reason"]["arms"] == ["words", "windows"]
    await house.worker.run_once()
    row = (await house.call("recall", agent_id="a", query="apples", trace=True))["messages"][-1]
    assert row["match_reason"]["arms"] == ["vectors", "words", "windows"]


async def test_a_row_of_which_no_vector_can_be_made_holds_back_no_other(house: House) -> None:
    house.server.fault = "refuse"
    await stored(house, "poison", *FACTS)
    house.server.fault, house.server.unreadable = "", "poison"
    await house.worker.run_once()
    assert await house.storage.derived.waiting_count("1:fake") == 0
    house.server.unreadable = "\0"
    answer = await house.call("recall", agent_id="a", query="poison", trace=True)
    assert [row["ref"] for row in answer["messages"] if "cosine" not in row["match_reason"]] == ["mem:1"]
    assert len(answer["messages"]) == 4


async def test_every_recall_says_which_arms_ran(house: House) -> None:
    await stored(house, *FACTS)
    answer = await house.call("recall", agent_id="a", query="apples")
    assert answer["channels"] == {"vectors": "ran", "words": "ran", "episodes": "ran"}
    answer = await house.call("recall", agent_id="a", query="apples", source_id="x")
    assert answer["channels"]["episodes"] == "skipped: source_id hides episodes"
    answer = await house.call("recall", agent_id="a", query="")
    assert answer["channels"]["words"] == "skipped: no query"


async def test_only_so_much_of_a_query_is_looked_for_and_that_is_told(house: House) -> None:
    await stored(house, *FACTS)
    answer = await house.call("recall", agent_id="a", query="apples " + "x" * 30_000)
    assert answer["query_truncated"] == 20_000
    assert contents(answer)[0] == FACTS[1]


async def test_a_new_vector_is_made_for_every_row_when_all_are_forgotten(house: House) -> None:
    await stored(house, *FACTS)
    assert await house.storage.derived.forget_vectors() == 3
    answer = await house.call("recall", agent_id="a", query="apples", trace=True)
    assert answer["messages"][-1]["match_reason"]["arms"] == ["words", "windows"]
    await house.worker.run_once()
    answer = await house.call("recall", agent_id="a", query="apples", trace=True)
    assert answer["messages"][-1]["match_reason"]["arms"] == ["vectors", "words", "windows"]


async def test_a_conversation_and_what_is_remembered_come_in_one_order_of_time(house: House) -> None:
    for day, content in ((1, "apple pie one"), (3, "apple tart two"), (5, "apple cider three")):
        message = {"content": content, "timestamp": f"2026-01-0{day}T00:00:00Z"}
        await house.call("store", agent_id="a", message=message)
    said = [
        {"role": "user", "name": "Ann", "user_id": "u1", "content": "hello", "timestamp": "2026-01-02T09:00:00+09:00"},
        {"role": "assistant", "content": "apple tart two", "timestamp": "2026-01-04T00:00:00Z"},
        {"role": "system", "content": "apple pie one", "timestamp": "2026-01-06T00:00:00Z"},
        {"role": "user", "content": "no time"},
        {"role": "tool", "content": "zzz"},
        {"content": "no role"},
        {"role": "user", "content": " "},
    ]
    answer = await house.call("recall_with_context", agent_id="a", query="apple", external_context=said)
    assert [row["content"] for row in answer["messages"]] == ["no time", "hello", "apple tart two", "apple cider three"]
    hello, tart = answer["messages"][1:3]
    assert hello == {
        "content": "hello",
        "source": {"type": "User", "id": "discord:u1", "name": "Ann"},
        "timestamp": "2026-01-02T09:00:00+09:00",
        "context_type": "conversation",
    }
    assert tart["source"] == {"type": "Agent", "id": "self"}
    assert answer["context_filter_only"]["roles"] == ["(unset)", "system", "tool"]
    none = await house.call("recall_with_context", agent_id="a", query="apple", limit=0, external_context=said[:1])
    assert [row["content"] for row in none["messages"]] == ["hello"]
    plain = await house.call("recall_with_context", agent_id="a", query="apple")
    assert [row["ref"] for row in plain["messages"]] == ["mem:1", "mem:2", "mem:3"]


async def test_the_server_is_told_which_texts_are_queries(house: House) -> None:
    await stored(house, "one fact")
    await house.call("recall", agent_id="a", query="which fact")
    assert house.server.asked == [("document", ["one fact"]), ("query", ["which fact"])]


async def test_a_trace_tells_why_each_row_stands_where_it_does(house: House) -> None:
    await stored(house, *FACTS)
    await house.call("store", agent_id="a", content="the harbour is named too", source={"name": "database"})
    answer = await house.call("recall", agent_id="a", query="what is the database called", limit=2, trace=True)
    trace = answer["trace"]
    assert (trace["mode"], trace["candidates"]) == ("weighted", 4)
    assert set(trace["words"]) == {"database", "called"}
    assert trace["words"]["called"] > trace["words"]["database"] > 0
    first, second = trace["rows"]
    assert [row["ref"] for row in trace["rows"]] == [row["ref"] for row in reversed(answer["messages"])]
    assert (first["ref"], first["outcome"], first["rank"], first["coverage"]) == ("mem:3", "shown", 1, 1.0)
    assert first["arms"]["words"] == {"rank": 1, "score": 1.0}
    assert (first["words"], first["window"], first["score"] > 0.75) == (1.0, 1.0, True)
    assert (second["ref"], second["speaker_named"]) == ("mem:4", True)


async def test_a_trace_tells_why_a_row_is_not_there(house: House) -> None:
    await stored(house, *FACTS)
    await house.call("store", agent_id="b", content="the database of another")
    asked = {"agent_id": "a", "query": "what is the database called", "limit": 1, "trace": True}
    refs = ["mem:1", "mem:3", "mem:4", "mem:99", "ep:1", "nonsense"]
    trace = (await house.call("recall", **asked, trace_refs=refs, exclude_contents=[FACTS[2]]))["trace"]
    outcomes = {row["ref"]: row["outcome"] for row in trace["rows"]}
    assert list(outcomes.values()).count("shown") == 1
    assert outcomes["mem:3"] == "left out: you have it"
    for ref in ("mem:4", "mem:99", "ep:1"):
        assert outcomes[ref] == "left out: there is no such row in this scope"
    assert "nonsense" not in outcomes
    beyond = (await house.call("recall", **asked, trace_refs=["mem:2"]))["trace"]["rows"][-1]
    assert (beyond["ref"], beyond["outcome"], beyond["rank"] > 1) == ("mem:2", "left out: beyond the limit", True)


async def test_a_row_that_no_arm_has_among_its_first_is_told_from_one_that_is_not_there(plain_house: House) -> None:
    await plain_house.call("store", agent_id="a", content="apples", timestamp="2026-01-01T00:00:00Z")
    await plain_house.call("store", agent_id="a", content="pears", timestamp="2026-02-01T00:00:00Z")
    asked = {"agent_id": "a", "query": "apples", "trace": True, "trace_refs": ["mem:2"]}
    rows = (await plain_house.call("recall", **asked))["trace"]["rows"]
    assert rows[1] == {"ref": "mem:2", "outcome": "left out: in the scope, but no arm has it among its first rows"}


async def test_in_a_script_without_blanks_a_word_held_whole_stands_before_its_pairs_apart(plain_house: House) -> None:
    await stored(plain_house, "国際、際連、連合", "国際連合の会議の話をした", "the deploy runs on friday")
    answer = await plain_house.call("recall", agent_id="a", query="国際連合", trace=True)
    whole, apart = answer["trace"]["rows"]
    assert (whole["ref"], apart["ref"]) == ("mem:2", "mem:1")
    assert apart["words"] > whole["words"]
    assert whole["characters"] > apart["characters"] > 0


async def test_between_blanks_no_characters_are_compared(plain_house: House) -> None:
    await stored(plain_house, *FACTS)
    (row,) = (await plain_house.call("recall", agent_id="a", query="apples", trace=True))["trace"]["rows"]
    assert "characters" not in row


async def test_nothing_is_traced_unasked(house: House) -> None:
    await stored(house, *FACTS)
    assert "trace" not in await house.call("recall", agent_id="a", query="apples")
