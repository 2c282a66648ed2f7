"""The word arm, from a stored text to an answer, without any vector: every script, identifier and odd query."""

import pytest

from tests.conftest import House
from tests.support.queries import NFD_DATABASE, ODD_QUERIES, SCRIPTS

BUG = "bug-183 and CVE-2024-3094"


async def found(house: House, stored: list[str], query: str) -> list[str]:
    """What a query finds among these, best first."""
    for content in stored:
        await house.call("store", agent_id="a", content=content)
    answer = await house.call("recall", agent_id="a", query=query)
    return [row["content"] for row in reversed(answer["messages"])]


@pytest.mark.parametrize("query", ["bug-183", "CVE-2024-3094", "cve-2024-3094", "BUG-183?", "'bug-183'", "3094"])
async def test_an_identifier_finds_its_row_first(plain_house: House, query: str) -> None:
    others = ["bug reports are read on monday", "183 people came", "CVE numbers are given by MITRE in 2024"]
    assert (await found(plain_house, [*others, BUG], query))[0] == BUG


@pytest.mark.parametrize(("stored", "query"), ODD_QUERIES)
async def test_no_query_is_an_error_or_silently_empty(plain_house: House, stored: str, query: str) -> None:
    assert (await found(plain_house, ["something else altogether", stored], query))[0] == stored


@pytest.mark.parametrize(("stored", "query"), SCRIPTS)
async def test_every_script_finds_its_row_and_the_answer_names_the_arm(
    plain_house: House, stored: str, query: str
) -> None:
    await plain_house.call("store", agent_id="a", content="unrelated text about gardens")
    assert (await found(plain_house, [stored], query))[0] == stored
    answer = await plain_house.call("recall", agent_id="a", query=query, trace=True)
    assert answer["messages"][-1]["match_reason"]["arms"] == ["words", "windows"]


async def test_a_query_of_two_scripts_finds_the_rows_of_both(plain_house: House) -> None:
    rows = await found(plain_house, ["来週の会議は予定どおり", "deploy checklist"], "会議 deploy")
    assert set(rows) == {"来週の会議は予定どおり", "deploy checklist"}


@pytest.mark.parametrize("query", ["DB CI", "ui", "CI", "ab DB"])
async def test_words_of_two_letters_count(plain_house: House, query: str) -> None:
    assert (await found(plain_house, ["DB と UI の CI", "gardens"], query))[0] == "DB と UI の CI"


async def test_marks_that_carry_meaning_are_kept(plain_house: House) -> None:
    assert (await found(plain_house, ["か", "が"], "が"))[0] == "が"


@pytest.mark.parametrize("content", [NFD_DATABASE, "Ｃｌｏｕｄ café cafe\u0301", "a\tb\u0007c \u200b d"])
async def test_the_stored_text_comes_back_as_it_was(plain_house: House, content: str) -> None:
    await plain_house.call("store", agent_id="a", content=content)
    items = (await plain_house.call("get_contents", agent_id="a", refs=["mem:1"]))["items"]
    assert items[0]["content"] == content


async def test_a_query_of_any_length_is_answered(plain_house: House) -> None:
    rows = await found(plain_house, ["needle"], "needle " + "haystack " * 5000 + "京都" * 2000)
    assert rows == ["needle"]
