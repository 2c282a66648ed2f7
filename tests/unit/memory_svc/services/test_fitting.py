"""Rows within a budget: what must hold for any rows, and what recall answers."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from memory_svc.domain.recall.budget import tokens_in
from memory_svc.errors import Invalid
from memory_svc.services.memory.fitting import BEST_CHARS_MIN, Budget, followed_by, within
from memory_svc.services.memory.shown import Shown
from memory_svc.settings import Settings
from memory_svc.storage.interface import Storage
from tests.conftest import House

TELLS = {"harbour": 3.0, "会議": 2.0}
PARTS = st.sampled_from(["word ", "harbour ", 'said "yes"\n', "会議", "天気。", "x" * 90 + " "])
contents = st.lists(PARTS, max_size=120).map("".join)
rows = st.lists(
    st.builds(
        lambda content, name: Shown(content=content, ref="mem:1", source={"name": name}, timestamp="2026-01-01"),
        contents,
        st.text(max_size=10),
    ),
    max_size=6,
)
budgets = st.builds(Budget, st.booleans(), st.sampled_from([0, 50, 500]), st.integers(1, 1500))


def cost(shown: Sequence[Shown]) -> int:
    """The estimated tokens of these rows as they are sent."""
    return tokens_in(len(msgspec.json.encode(shown)))


def holds(larger: Shown, smaller: Shown) -> bool:
    """Whether a row tells all that another form of it does."""
    return larger.content.startswith(smaller.content) and (
        smaller.excerpt is UNSET or smaller.excerpt == larger.excerpt or smaller.excerpt in larger.content
    )


@given(rows, budgets)
def test_rows_cost_at_most_so_many_tokens_unless_the_best_alone_is_larger(found: list[Shown], budget: Budget) -> None:
    answered = within(found, budget, TELLS)
    assert len(answered.rows) + len(answered.left_out) == len(found)
    if cost(answered.rows) > budget.tokens_max:
        assert len(answered.rows) == 1
        assert len(answered.rows[0].content) <= BEST_CHARS_MIN
    if found:
        assert answered.rows
        assert bool(answered.rows[0].content) == bool(found[0].content)


@given(rows, budgets, st.integers(0, 300))
def test_more_tokens_neither_remove_a_row_nor_shorten_one(found: list[Shown], budget: Budget, more: int) -> None:
    fewer = within(found, budget, TELLS).rows
    larger = within(found, msgspec.structs.replace(budget, tokens_max=budget.tokens_max + more), TELLS).rows
    assert len(larger) >= len(fewer)
    assert all(holds(one, other) for one, other in zip(larger, fewer, strict=False))


@given(rows, budgets)
def test_tokens_enough_are_no_limit(found: list[Shown], budget: Budget) -> None:
    unlimited = within(found, msgspec.structs.replace(budget, tokens_max=0), TELLS)
    enough = msgspec.structs.replace(budget, tokens_max=10**9)
    assert within(found, enough, TELLS) == unlimited


@given(rows, rows, budgets, st.integers(0, 300))
def test_what_follows_is_given_whole_in_what_is_left_and_goes_for_no_larger_budget(
    found: list[Shown], behind: list[Shown], budget: Budget, more: int
) -> None:
    def followed(tokens: int) -> list[Shown]:
        answered = within(found, msgspec.structs.replace(budget, tokens_max=tokens), TELLS)
        rows = followed_by(answered, behind, tokens).rows
        assert rows[: len(answered.rows)] == answered.rows
        assert rows[len(answered.rows) :] == behind[: len(rows) - len(answered.rows)]
        assert len(rows) == len(answered.rows) or not tokens or cost(rows) <= tokens
        return rows

    assert len(followed(budget.tokens_max)) <= len(followed(budget.tokens_max + more)) <= len(followed(0))
    assert len(followed(0)) == len(found) + len(behind)


@given(rows, budgets)
def test_what_is_cut_is_a_prefix_and_tells_its_length(found: list[Shown], budget: Budget) -> None:
    for row, given_row in zip(found, within(found, budget, TELLS).rows, strict=False):
        assert row.content.startswith(given_row.content)
        is_cut = len(given_row.content) < len(row.content)
        assert given_row.content_truncated is (True if is_cut else UNSET)
        assert given_row.content_len == (len(row.content) if is_cut else UNSET)
        if given_row.excerpt is not UNSET:
            assert given_row.excerpt in row.content
            assert given_row.excerpt_basis == "lexical"


async def stored(house: House, *texts: str) -> None:
    """Store these for agent a."""
    for text in texts:
        await house.call("store", agent_id="a", message={"content": text})


FILLER = "Nothing of note was said. " * 40


async def test_a_cut_row_has_an_excerpt_where_its_words_stand_beyond_the_cut(plain_house: House) -> None:
    await stored(plain_house, FILLER + "The harbour is the database. " + FILLER, "The harbour. " + FILLER, "harbour")
    rows = (await plain_house.call("recall", agent_id="a", query="where is the harbour"))["messages"]
    by_ref = {row["ref"]: row for row in rows}
    assert "The harbour is the database." in by_ref["mem:1"]["excerpt"]
    assert len(by_ref["mem:1"]["excerpt"]) <= 800
    assert by_ref["mem:1"]["excerpt_basis"] == "lexical"
    assert "excerpt" not in by_ref["mem:2"]
    assert by_ref["mem:2"]["excerpt_basis"] == "start"
    assert "excerpt_basis" not in by_ref["mem:3"]


async def test_an_episode_has_one_too_and_whole_or_newest_rows_have_none(plain_house: House) -> None:
    await plain_house.call("archive_episode", agent_id="a", summary=FILLER + "We chose the harbour. ", history=[])
    await stored(plain_house, FILLER + "harbour")
    cut = (await plain_house.call("recall", agent_id="a", query="harbour"))["messages"]
    whole = (await plain_house.call("recall", agent_id="a", query="harbour", full_content=True))["messages"]
    newest = (await plain_house.call("recall", agent_id="a", query=""))["messages"]
    assert all("harbour" in row["excerpt"] for row in cut)
    assert not [row for row in whole + newest if "excerpt" in row or "excerpt_basis" in row]


async def test_rows_are_shortened_before_the_worst_are_left_out(plain_house: House) -> None:
    await stored(plain_house, *(f"harbour {number} " + FILLER for number in range(8)))
    ask = {"agent_id": "a", "query": "harbour"}
    everything = (await plain_house.call("recall", **ask))["messages"]
    for tokens in (1, 60, 200, 600, 1200, 5000):
        answer = await plain_house.call("recall", **ask, max_tokens=tokens)
        refs = [row["ref"] for row in answer["messages"]]
        assert refs == [row["ref"] for row in everything][-len(refs) :]
        assert answer.get("rows_left_out", 0) == 8 - len(refs)
        assert tokens_in(len(msgspec.json.encode(answer["messages"]))) <= tokens or len(refs) == 1
    assert answer["messages"] == everything
    shortened = (await plain_house.call("recall", **ask, max_tokens=900))["messages"]
    assert len(shortened) == 8
    assert len(shortened[-1]["content"]) == 500
    assert len(shortened[0]["content"]) == 120


async def test_a_budget_goes_with_whole_contents_limit_and_what_is_excluded(plain_house: House) -> None:
    texts = [f"harbour {number} " + FILLER for number in range(4)]
    await stored(plain_house, *texts)
    ask = {"agent_id": "a", "query": "harbour", "full_content": True, "exclude_contents": [texts[0]], "limit": 2}
    answer = await plain_house.call("recall", **ask, max_tokens=900)
    worse, best = answer["messages"]
    assert len(best["content"]) > 1000
    assert "content_truncated" not in best
    assert len(worse["content"]) >= 500
    assert "rows_left_out" not in answer
    assert "full_content_budget_chars" not in answer
    assert len((await plain_house.call("recall", **ask))["messages"]) == 2


async def test_the_newest_rows_and_those_beside_a_conversation_keep_to_it(plain_house: House) -> None:
    await stored(plain_house, *(f"harbour {number} " + FILLER for number in range(4)))
    newest = await plain_house.call("recall", agent_id="a", query="", max_tokens=100)
    assert newest["rows_left_out"] == 3
    assert newest["messages"][0]["content"].startswith("harbour 3")
    said = [{"role": "user", "content": "hello " * 200}]
    answer = await plain_house.call(
        "recall_with_context", agent_id="a", query="harbour", external_context=said, max_tokens=100
    )
    assert answer["rows_left_out"] == 3
    assert {row.get("context_type") for row in answer["messages"]} == {"conversation", None}


async def test_a_trace_tells_what_was_left_out_for_it(plain_house: House) -> None:
    await stored(plain_house, *(f"harbour {number} " + FILLER for number in range(3)))
    answer = await plain_house.call("recall", agent_id="a", query="harbour", trace=True, max_tokens=100)
    outcomes = [row["outcome"] for row in answer["trace"]["rows"]]
    assert outcomes == ["shown", "left out: beyond max_tokens", "left out: beyond max_tokens"]


async def test_without_previews_rows_are_whole_until_the_budget_cuts_them(storage: Storage, settings: Settings) -> None:
    house = House(storage, msgspec.structs.replace(settings, embedding_url="", preview_chars=0))
    await stored(house, FILLER + "harbour")
    whole = (await house.call("recall", agent_id="a", query="harbour"))["messages"][0]
    cut = (await house.call("recall", agent_id="a", query="harbour", max_tokens=100))["messages"][0]
    await house.embedder.close()
    assert whole["content"] == FILLER + "harbour"
    assert 120 < len(cut["content"]) < 300
    assert "excerpt" not in cut


@pytest.mark.parametrize("tokens", [-1, "5", 1.5])
async def test_a_budget_that_makes_no_sense_is_refused_by_name(plain_house: House, tokens: object) -> None:
    with pytest.raises(Invalid, match="^max_tokens: "):
        await plain_house.call("recall", agent_id="a", query="x", max_tokens=tokens)
