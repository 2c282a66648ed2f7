"""Labelled questions: how a file of them is read, which rows count, and what the answers amount to."""

import json
from typing import Any

import msgspec
import pytest

from memory_svc.domain.change import PutEpisode, Write
from memory_svc.domain.memory import Episode
from memory_svc.errors import Invalid
from memory_svc.services import OPERATIONS
from memory_svc.services.evaluation import (
    Missing,
    Question,
    existing,
    outcome,
    questions,
    tokens,
)
from memory_svc.services.operation import Call, Catalogue
from tests.conftest import House

FACTS = ("The office cat is called Moss", "Deploys go out on Friday", "Moss the cat sleeps on the printer")


def lines(*objects: dict[str, Any]) -> list[bytes]:
    return [json.dumps(each).encode() for each in objects]


def asked(query: str, *relevant: str, **more: Any) -> list[Question]:
    return questions(lines({"query": query, "relevant": list(relevant), **more}), "q.jsonl", "me")


async def told(house: House) -> None:
    for number, fact in enumerate(FACTS, start=1):
        await house.call("store", agent_id="me", content=fact, id=f"fact {number}")
    await house.call("store", agent_id="other", content="The cat of another agent", id="theirs")


def test_a_row_is_called_by_its_ref_or_by_the_callers_own_id_however_written() -> None:
    (question,) = asked("cat?", "mem:1", "fact 2", "msg:fact 2", "ep:3", "mem:x", channel="c", note="left alone")
    assert question.relevant == ("mem:1", "msg:fact 2", "ep:3", "msg:mem:x")
    assert question.arguments == {"agent_id": "me", "query": "cat?", "channel": "c"}


def test_a_line_may_name_its_agent_and_empty_lines_are_passed_over() -> None:
    found = questions([b"", b'{"query": "q", "relevant": [], "agent_id": "you", "category": "c"}', b" "], "f", "me")
    assert [(each.line, each.agent, each.category, each.relevant) for each in found] == [(2, "you", "c", ())]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"[1]", "is no JSON object"),
        (b'{"query": "q"', "is no JSON object"),
        (b"\xff{}", "is no JSON object"),
        (b'{"relevant": []}', "query: is required"),
        (b'{"query": "q"}', "relevant: is required"),
        (b'{"query": "", "relevant": []}', "query: Expected"),
        (b'{"query": "q", "relevant": "mem:1"}', "relevant: Expected"),
        (b'{"query": "q", "relevant": [1]}', "relevant[0]"),
        (b'{"query": "q\\u0000", "relevant": []}', "query: holds a NUL"),
        (b'{"query": "q", "relevant": [], "agent_id": ""}', "agent_id: whose"),
    ],
)
def test_what_cannot_be_used_is_named_by_line_and_field(line: bytes, said: str) -> None:
    with pytest.raises(Invalid) as caught:
        questions([b'{"query": "q", "relevant": [], "agent_id": "me"}', line], "q.jsonl", "")
    assert caught.value.text.startswith("q.jsonl line 2: ")
    assert said in caught.value.text


def test_a_file_without_questions_is_refused() -> None:
    with pytest.raises(Invalid, match="holds no question"):
        questions([b"\n"], "q.jsonl", "me")


async def test_rows_that_the_agent_does_not_have_are_told_and_do_not_count(house: House) -> None:
    await told(house)
    await house.storage.apply(
        Write("owner", "t", "2026-01-01", (PutEpisode(Episode(agent="me", summary="A talk", created_at="2026-01-01")),))
    )
    file = [*asked("cat?", "mem:1", "mem:4", "ep:1", "ep:2", "fact 3"), *asked("gone?", "theirs"), *asked("never?")]
    kept, missing = await existing(house.catalogue.runtime, file)
    assert [(each.arguments["query"], each.relevant) for each in kept] == [
        ("cat?", ("mem:1", "ep:1", "msg:fact 3")),
        ("never?", ()),
    ]
    assert missing == [Missing(1, "mem:4"), Missing(1, "ep:2"), Missing(1, "msg:theirs")]


async def test_answers_are_measured_by_category_and_as_a_whole(house: House) -> None:
    await told(house)
    file = [*asked("cat Moss", "fact 1", "mem:3", category="pets"), *asked("deploys", "mem:2"), *asked("zzz")]
    found = await outcome(house.catalogue, file, 2)
    assert {name: group.questions for name, group in found.categories.items()} == {"all": 2, "pets": 1}
    assert found.categories["pets"].means == {"R@2": 1.0, "MRR": 1.0, "nDCG@2": 1.0}
    assert found.answers[0].rows[:1] in (["msg:fact 1"], ["mem:3"])
    assert (found.abstention.answerable, found.abstention.answered, found.abstention.unanswerable) == (2, 2, 1)
    assert (found.without_vectors, found.waiting) == (0, 0)
    assert 0 < found.cpu_ms.p50 <= found.cpu_ms.p95
    assert found.tokens > 20


async def test_a_profile_behind_the_rows_is_no_row_of_the_answer(plain_house: House) -> None:
    await told(plain_house)
    await plain_house.call("update_profile", agent_id="me", profile="Likes cats")
    runtime = plain_house.catalogue.runtime
    settings = msgspec.structs.replace(runtime.settings, profile_scope_rows_min=0)
    catalogue = Catalogue(OPERATIONS, msgspec.structs.replace(runtime, settings=settings))
    answer = await catalogue.call("recall", {"agent_id": "me", "query": "deploys"}, Call())
    assert answer["messages"][0]["content"] == "[Profile] Likes cats"
    found = await outcome(catalogue, asked("deploys", "fact 2"), 10)
    assert found.answers[0].rows[0] == "msg:fact 2"
    assert len(found.answers[0].rows) == len(answer["messages"]) - 1


async def test_questions_that_cannot_be_answered_alone_have_no_measures(plain_house: House) -> None:
    await plain_house.call("store", agent_id="me", content="a fact")
    found = await outcome(plain_house.catalogue, asked("nothing like it"), 5)
    assert found.categories["all"].means == {}
    assert (found.abstention.silent, found.abstention.unanswerable) == (1, 1)
    assert (found.without_vectors, found.waiting) == (1, 1)


async def test_a_question_that_recall_refuses_is_named_by_its_line(house: House) -> None:
    with pytest.raises(Invalid, match=r"^line 1: agent_id: "):
        await outcome(house.catalogue, asked("q", agent_id="a" * 1001), 5)


def test_tokens_are_a_third_of_the_bytes_rounded_up() -> None:
    assert tokens({"a": "猫"}) == 4
