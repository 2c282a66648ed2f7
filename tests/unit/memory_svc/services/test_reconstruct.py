"""Evidence for an answer: what is quoted, what stands together, what is marked, and that budgets only ever add."""

import datetime as dt
from collections.abc import Sequence
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
import quicktok
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.domain.memory import Kind, Memory, Ref
from memory_svc.domain.recall.budget import tokens_of
from memory_svc.domain.recall.excerpt import Asked
from memory_svc.domain.recall.reconstruct import current_first, declared_roles, packed, steps
from memory_svc.domain.scope import Scope
from memory_svc.domain.text import query_words
from memory_svc.errors import Invalid
from memory_svc.services.memory.bounds import FRAME_TOKENS, FULL_FRAME_TOKENS, LITE, PRO, Mode, Wanted
from memory_svc.services.memory.evidence import Evidence, Item, Quoting
from memory_svc.services.operation import Call
from tests.conftest import House
from tests.support.corpus import memory

Answer = dict[str, Any]
JON = {"type": "User", "id": "jon", "name": "Jon"}
FILLER = "Nothing of note was said. " * 40
PARTS = st.sampled_from(["word ", "harbour ", 'said "yes"\n', "会議", "天気。", "x" * 90 + " ", "8 May 2023"])
contents = st.lists(PARTS, min_size=1, max_size=60).map("".join)


def cl100k(answer: Any) -> int:
    """The cl100k tokens of an answer as it is sent."""
    return len(quicktok.get_encoding("cl100k_base").encode_ordinary(msgspec.json.encode(answer).decode()))


def refs(answer: Answer) -> list[list[str]]:
    """The refs of each item, its head first."""
    return [[item["head_ref"], *(each["ref"] for each in item.get("excerpts", ()))] for item in answer["items"]]


def quotes(items: Sequence[Answer]) -> dict[str, str]:
    """Every quote by its ref."""
    found = {item["head_ref"]: item["content"] for item in items}
    return found | {each["ref"]: each["content"] for item in items for each in item.get("excerpts", ())}


async def ask(house: House, query: str = "where is the harbour", **arguments: Any) -> Answer:
    """The evidence for a question to agent a."""
    return await house.call("reconstruct", agent_id="a", query=query, **arguments)


async def said(house: House, *lines: str, day: str = "2026-03-02", **fields: Any) -> None:
    """Store a talk of agent a, a minute a line."""
    for minute, line in enumerate(lines):
        message = {"content": line, "timestamp": f"{day}T09:{minute:02}:00Z", "source": JON, **fields}
        await house.call("store", agent_id="a", message=message)


@pytest.fixture
async def noted(plain_house: House) -> House:
    """A house in which forty notes on the harbour stand alone."""
    for number in range(40):
        await plain_house.call("store", agent_id="a", content=f"harbour note {number}: " + "so it was written. " * 9)
    return plain_house


async def test_each_quote_has_its_ref_and_tells_day_and_speaker_where_the_text_does_not(plain_house: House) -> None:
    await said(plain_house, "The harbour is closed.")
    await said(plain_house, "Jon (3 March 2026): the harbour is open again.", day="2026-03-03")
    answer = await ask(plain_house, mode="lite")
    assert sorted(answer["items"], key=lambda item: str(item["head_ref"])) == [
        {"content": "The harbour is closed.", "head_ref": "mem:1", "speaker": "Jon", "as_of": "2026-03-02"},
        {"content": "Jon (3 March 2026): the harbour is open again.", "head_ref": "mem:2"},
    ]
    assert (answer["mode"], answer["cap"], answer["returned_count"]) == ("lite", 3000, 2)
    assert answer["channels"]["words"] == "ran"
    assert answer["advisory"]["severity"] == "hint"
    assert "shortfall_reason" not in answer


async def test_the_day_is_that_of_the_callers_zone(plain_house: House) -> None:
    call = Call(zone=ZoneInfo("Asia/Tokyo"))
    message = {"content": "the harbour", "timestamp": "2026-03-02T20:00:00Z"}
    await plain_house.call("store", agent_id="a", message=message)
    answer = await plain_house.call("reconstruct", call, agent_id="a", query="harbour", mode="lite")
    assert answer["items"][0]["as_of"] == "2026-03-03"


async def test_neighbours_of_one_talk_are_one_item_in_the_order_of_time(plain_house: House) -> None:
    await said(plain_house, "Where is the harbour, Jon?", "In Kiel.", "And the harbour master?", "Nothing to say here.")
    await said(plain_house, "A harbour elsewhere.", day="2026-04-01")
    answer = await ask(plain_house, "Kiel harbour", mode="lite")
    together = next(each for each in refs(answer) if "mem:2" in each)
    assert len(together) >= 2
    assert [item["head_ref"] for item in answer["items"]].count("mem:5") == 1
    assert together[1:] == sorted(together[1:])
    assert all("as_of" not in each for item in answer["items"] for each in item.get("excerpts", ()))


async def test_what_is_superseded_stands_below_what_supersedes_it_and_is_marked(plain_house: House) -> None:
    await said(plain_house, "The harbour opens in June.", day="2026-01-01")
    await said(plain_house, "The opening moved to July.", day="2026-02-01", metadata={"supersedes": "mem:1"})
    await said(plain_house, "The opening is in May after all.", day="2026-02-03", metadata={"supersedes": ["mem:2"]})
    answer = await ask(plain_house, "when is the harbour opening", mode="lite")
    assert refs(answer) == [["mem:3", "mem:1", "mem:2"]]
    claims = answer["items"][0]["claims"]
    assert [(claim["ref"], claim["why"], claim["roles"]) for claim in claims] == [
        ("mem:1", "relation:supersedes", [{"ref": "mem:2", "role": "supersedes"}]),
        ("mem:2", "relation:supersedes", [{"ref": "mem:3", "role": "supersedes"}]),
    ]
    assert claims[0]["as_of"] == "2026-01-01T09:00:00+00:00"


async def test_a_long_text_is_quoted_where_the_words_of_the_query_are(plain_house: House) -> None:
    text = FILLER + "The harbour is the database. " + FILLER
    await plain_house.call("store", agent_id="a", content=text)
    for mode, chars in (("lite", 400), ("pro", 800)):
        (item,) = (await ask(plain_house, mode=mode))["items"]
        assert "The harbour is the database." in item["content"]
        assert chars - 100 < len(item["content"]) <= chars
        assert item["content_len"] == len(text.strip())
    (item,) = (await ask(plain_house))["items"]
    ((start, end),) = item["ranges"]
    whole = (await plain_house.call("get_contents", agent_id="a", refs=["mem:1"]))["items"][0]["content"]
    assert whole[start:end] == item["content"]


async def test_without_a_mode_every_limit_and_where_each_quote_comes_from_is_told(plain_house: House) -> None:
    await said(plain_house, "The harbour is closed.", "Which harbour?")
    answer = await ask(plain_house, max_hops=3)
    (item,) = answer["items"]
    assert {(claim["why"], claim["hops"]) for claim in item["claims"]} == {("seed", 0), ("neighbour", 0)}
    assert item["ranges"] == [[0, len(item["content"])]]
    assert answer["count_policy"] == {"source": "server_default", "clamped": False, "reason": "count_omitted"}
    assert answer["budget_policy"] == {"source": "server_default", "clamped": False, "reason": "budget_omitted"}
    assert answer["bounds"] == {"top_k": 100, "max_hops": 0, "max_evidence": 100}
    assert answer["effective_budget"] == answer["used_budget"] == sum(map(len, quotes(answer["items"]).values()))
    assert answer["reconstruction"]["candidate_count"] == 2
    assert answer["reconstruction"]["cluster_count"] == answer["reconstruction"]["selected_count"] == 1
    assert answer["cap"] == 5000
    assert not {"mode", "requested_count", "requested_budget"} & set(answer)


async def test_a_bound_on_hops_is_answered_also_where_the_answer_is_dense(plain_house: House) -> None:
    await said(plain_house, "The harbour is closed.")
    assert (await ask(plain_house, mode="lite", max_hops=2))["bounds"]["max_hops"] == 0
    assert "bounds" not in await ask(plain_house, mode="lite")


async def test_larger_budgets_only_ever_add(noted: House) -> None:
    for name, values in (("max_tokens", (1, 200, 400, 900, 1800, 9000)), ("budget", (1, 300, 900, 2700, 90_000))):
        for mode in ("lite", "pro", None):
            before: Answer = {"items": []}
            for value in values:
                answer = await ask(noted, **{name: value}, **({"mode": mode} if mode else {}))
                assert refs(answer)[: len(before["items"])] == refs(before)
                assert quotes(before["items"]).items() <= quotes(answer["items"]).items()
                assert answer["items"]
                before = answer


@pytest.mark.parametrize("mode", ["lite", "pro"])
async def test_an_answer_keeps_to_its_tokens(noted: House, mode: str) -> None:
    usual = {"lite": 1000, "pro": 3000}[mode]
    answer = await ask(noted, mode=mode)
    assert usual * 0.8 < cl100k({**answer, "advisory": None}) <= usual
    assert answer["used_tokens"] == pytest.approx(cl100k(answer) - cl100k(answer["advisory"]), rel=0.1)
    short = await ask(noted, mode=mode, max_tokens=500)
    assert short["used_tokens"] <= 500
    assert "budget_policy" not in short
    above = await ask(noted, mode=mode, max_tokens=10**6)
    assert cl100k(above) <= answer["cap"]
    assert above["budget_policy"] == {"source": "caller", "clamped": True, "reason": "lowered_to_the_cap"}


async def test_the_cap_holds_in_every_script(plain_house: House) -> None:
    for number in range(60):
        for text in ("会議の予定は金曜日までに決める。", "😀🎉🚀✨", "Dziś ustaliliśmy nowy termin. ", "שלום לכולם "):
            await plain_house.call("store", agent_id="a", content=f"harbour {number} " + text * 9)
    for mode, cap in (("lite", 3000), ("pro", 5000)):
        assert cl100k(await ask(plain_house, mode=mode, budget=10**6)) <= cap


async def test_a_budget_of_characters_is_kept_but_for_the_best_quote(noted: House) -> None:
    answer = await ask(noted, budget=1000)
    assert answer["used_budget"] <= answer["requested_budget"] == answer["effective_budget"] == 1000
    assert answer["budget_policy"]["reason"] == "budget_requested"
    assert answer["bounds"]["reached"] == ["budget"]
    least = await ask(noted, budget=1)
    assert least["returned_count"] == 1
    assert least["budget_policy"] == {"source": "caller", "clamped": True, "reason": "raised_to_one_excerpt"}
    assert least["effective_budget"] == least["used_budget"] == len(least["items"][0]["content"])
    most = await ask(noted, budget=10**6)
    assert most["budget_policy"]["reason"] == "bounded_by_the_cap"
    assert most["effective_budget"] == most["used_budget"]


async def test_items_and_rows_can_be_limited_and_a_shortfall_says_why(noted: House) -> None:
    answer = await ask(noted, count=3)
    assert (answer["requested_count"], answer["effective_count"], answer["returned_count"]) == (3, 3, 3)
    assert answer["count_policy"]["reason"] == "count_requested"
    assert "shortfall_reason" not in answer
    assert (await ask(noted, mode="lite", max_evidence=2))["returned_count"] == 2
    few = await ask(noted, top_k=4)
    assert (few["returned_count"], few["bounds"]["reached"]) == (4, ["top_k"])
    assert (await ask(noted, count=5, top_k=2))["count_policy"]["reason"] == "lowered_to_top_k"
    reasons = {
        "budget_exhausted": {"count": 30, "max_tokens": 400},
        "max_evidence": {"count": 5, "max_evidence": 2},
        "exhausted_candidates": {"count": 60, "budget": 10**6, "top_k": 80, "source_id": "nobody"},
        "count_zero": {"count": 0},
    }
    for reason, limits in reasons.items():
        assert (await ask(noted, mode="lite", **limits))["shortfall_reason"] == reason
    assert (await ask(noted, "nobody said this", mode="lite"))["shortfall_reason"] == "exhausted_candidates"


async def test_the_gate_silences_it_as_it_does_recall_unless_asked_deep(house: House) -> None:
    for number in range(40):
        await house.call("store", agent_id="a", content=f"the harbour of town {number} is closed to ships in winter")
    await house.call("calibrate_threshold", agent_id="a")
    recalled = await house.call("recall", agent_id="a", query="quantum chromodynamics lattice")
    answer = await ask(house, "quantum chromodynamics lattice", mode="lite")
    assert (recalled["messages"], answer["items"]) == ([], [])
    assert answer["gate"] == recalled["gate"]
    assert answer["shortfall_reason"] == "nothing_clears"
    assert answer["channels"]["vectors"] == "ran"
    assert (await ask(house, "quantum chromodynamics lattice", mode="lite", deep=True))["items"]


async def test_items_stand_in_the_order_of_recall_best_first(noted: House) -> None:
    recalled = await noted.call("recall", agent_id="a", query="harbour note 7", limit=10)
    answer = await ask(noted, "harbour note 7", mode="pro")
    assert [item["head_ref"] for item in answer["items"]][:10] == [row["ref"] for row in recalled["messages"][::-1]]


async def test_an_empty_query_answers_the_newest_first(noted: House) -> None:
    answer = await ask(noted, "", mode="lite", count=2)
    assert (refs(answer), answer["status"]) == ([["mem:40"], ["mem:39"]], "no_query")
    assert "advisory" not in answer


async def test_filters_and_times_hold_as_in_recall(plain_house: House) -> None:
    await said(plain_house, "The harbour is closed.", day="2026-01-01")
    await said(plain_house, "The harbour is open.", day="2026-02-01")
    await plain_house.call("store", agent_id="a", project_id="P", channel="c", content="The harbour of P.")
    await plain_house.call("archive_episode", agent_id="a", summary="We chose the harbour.")
    cue = {"after": "2026-02-01", "before": "2026-02-01", "confidence": "sure"}
    answer = await ask(plain_house, mode="lite", time_cue=cue)
    assert refs(answer) == [["mem:2"]]
    assert answer["time_cue"]["after"] == "2026-02-01T00:00:00+00:00"
    assert refs(await ask(plain_house, mode="lite", as_of="2020-01-01")) == []
    assert refs(await ask(plain_house, mode="lite", source_id="jo"))[0][0] in {"mem:1", "mem:2"}
    found = quotes((await ask(plain_house, mode="lite", project_id="P"))["items"])
    assert found["mem:3"] == "The harbour of P."
    assert found["ep:1"] == "[Episode] We chose the harbour."
    assert "mem:3" not in quotes((await ask(plain_house, mode="lite", project_id="Q"))["items"])
    assert not (await plain_house.call("reconstruct", agent_id="b", query="harbour"))["items"]


async def test_what_is_quoted_counts_as_recalled(noted: House) -> None:
    answer = await ask(noted, "harbour note 7", mode="lite", count=2)
    ids = sorted(int(ref[4:]) for item in refs(answer) for ref in item)
    known = await noted.storage.recalls.of(Scope(agent="a"), range(1, 41))
    assert {id: times.count for id, times in known.items()} == dict.fromkeys(ids, 1)
    await ask(noted, "harbour note 7", mode="lite", deep=True)
    assert (await noted.storage.recalls.of(Scope(agent="a"), ids))[ids[0]].count == 1


async def test_a_trace_tells_in_full_why_the_rows_are_there(noted: House) -> None:
    answer = await ask(noted, mode="lite", count=2, trace=True)
    assert [row["ref"] for row in answer["trace"]["rows"]] == [each for item in refs(answer) for each in item]
    assert {row["outcome"] for row in answer["trace"]["rows"]} == {"shown"}
    assert "claims" in answer["items"][0]


async def test_a_frame_costs_no_more_than_is_kept_for_it(noted: House) -> None:
    cue = {"after": "2020-01-01", "before": "2099-02-01", "confidence": "likely"}
    for limits, most in (({"mode": "pro"}, FRAME_TOKENS), ({"count": 100, "budget": 10**6}, FULL_FRAME_TOKENS)):
        answer = await ask(noted, time_cue=cue if "count" in limits else None, **limits)
        assert cl100k({**answer, "items": [], "advisory": None}) <= most


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"lite": True, "mode": "pro"}, "lite, mode: contradict"),
        ({"mode": "max"}, "mode:"),
        ({"budget": 0}, "budget:"),
        ({"count": -1}, "count:"),
        ({"top_k": 101}, "top_k:"),
        ({"max_evidence": 0}, "max_evidence:"),
        ({"max_hops": 6}, "max_hops:"),
        ({"max_tokens": -1}, "max_tokens:"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_name(plain_house: House, arguments: Answer, text: str) -> None:
    with pytest.raises(Invalid, match=f"^{text}"):
        await ask(plain_house, **arguments)


async def test_the_old_spelling_of_lite_is_the_mode(noted: House) -> None:
    await ask(noted, lite=True)
    assert await ask(noted, lite=True) == await ask(noted, mode="lite") == await ask(noted, mode="lite", lite=True)


rows = st.lists(
    st.builds(
        lambda content, minute, supersedes: (content, minute, supersedes),
        contents,
        st.integers(0, 59),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=8,
)


@given(rows, st.booleans(), st.integers(1, 1200), st.integers(0, 600), st.none() | st.integers(1, 900))
def test_whatever_is_stored_a_larger_budget_removes_nothing_and_the_limit_is_kept(
    found: list[tuple[str, int, int]], is_full: bool, tokens: int, more: int, chars: int | None
) -> None:
    stored: dict[Ref, Memory] = {}
    for id, (content, minute, supersedes) in enumerate(found, start=1):
        told = {"supersedes": f"mem:{supersedes}"} if supersedes else {}
        made = memory(content, source=JON, metadata=told)
        stored[Ref(Kind.MEMORY, id)] = msgspec.structs.replace(made, timestamp=f"2026-03-01T00:{minute:02}:00+00:00")
    roles = declared_roles(stored)
    beside = {ref: [Ref(Kind.MEMORY, ref.id - 1), Ref(Kind.MEMORY, ref.id + 1)] for ref in stored}
    sequence = steps(current_first(list(stored), roles), beside, roles)
    asked = Asked(dict.fromkeys(query_words("harbour 会議"), 1.0))
    evidence = Evidence(stored, roles, Quoting(100, dt.UTC, is_full, asked))

    def given_for(tokens: int, chars: int | None) -> list[Item]:
        wanted = Wanted(
            mode=Mode(tokens, 10**6, 100), is_full=is_full, tokens=tokens, chars=chars, count=None, top_k=100, rows=100
        )
        fit = packed(sequence, wanted.limits, evidence.size)
        items = [evidence.item(each) for each in fit.items]
        cost = sum(tokens_of(msgspec.json.encode(item).decode()) for item in items)
        assert cost == fit.tokens
        assert fit.is_raised or cost <= max(wanted.limits.tokens, 0)
        return items

    smaller = msgspec.to_builtins(given_for(tokens, chars))
    larger = msgspec.to_builtins(given_for(tokens + more, None if chars is None else chars + more))
    assert [item["head_ref"] for item in larger][: len(smaller)] == [item["head_ref"] for item in smaller]
    assert quotes(smaller).items() <= quotes(larger).items()


def test_the_modes_are_those_of_the_contract() -> None:
    assert (LITE.cap, PRO.cap) == (3000, 5000)
    assert (LITE.tokens_max, PRO.tokens_max) == (1800, 3000)
