"""Labelled questions, asked through the one door: what came back, how good it was and what it took."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from memory_svc.domain.evaluation import Abstention, abstention, means, measures, quantile
from memory_svc.domain.memory import Kind, Ref
from memory_svc.domain.recall.budget import tokens_in
from memory_svc.domain.scope import Scope
from memory_svc.errors import Invalid, Problem
from memory_svc.services.operation import Call, Catalogue, Request, Runtime, read
from memory_svc.storage.interface import Position

OWN_ID = "msg:"
PAGE_ROWS = 500
FILTERS = ("project_id", "channel", "source_id", "deep")
ALL = "all"


class Labelled(Request, frozen=True, kw_only=True):
    """One line of a file of questions; what else it holds is left alone.

    relevant: refs (`mem:1`, `ep:2`) or the caller's own ids, bare or as `msg:ID`; none = nothing can answer it.
    """

    query: Annotated[str, Meta(min_length=1)]
    relevant: list[Annotated[str, Meta(min_length=1)]]
    agent_id: str | UnsetType = UNSET
    category: str = ""
    project_id: str | UnsetType = UNSET
    channel: str | UnsetType = UNSET
    source_id: str | UnsetType = UNSET
    deep: bool | UnsetType = UNSET


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question, the line it stands on, and the names of the rows that answer it; arguments: those of `recall`."""

    line: int
    arguments: dict[str, Any]
    category: str
    relevant: tuple[str, ...]

    @property
    def agent(self) -> str:
        """Whose memory is asked."""
        return str(self.arguments["agent_id"])


class Missing(msgspec.Struct, frozen=True):
    """A row that a question calls relevant and that its agent does not have."""

    line: int
    row: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One question's answer: names of rows, best first, and what it took. measures: {} = it cannot be answered."""

    line: int
    category: str
    query: str
    rows: list[str]
    measures: dict[str, float]
    tokens: int
    wall_ms: float
    cpu_ms: float
    with_vectors: bool


class Group(msgspec.Struct, frozen=True):
    """How many answerable questions a category has, and the means of their measures."""

    questions: int
    means: dict[str, float]


class Cost(msgspec.Struct, frozen=True):
    """Milliseconds of a recall."""

    p50: float
    p95: float


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """All answers under one set of settings, and what they amount to.

    tokens: the mean, an estimate. waiting: rows of the store that no vector arm can find yet.
    """

    categories: dict[str, Group]
    abstention: Abstention
    tokens: float
    wall_ms: Cost
    cpu_ms: Cost
    without_vectors: int
    waiting: int
    answers: list[Answer]


def objects(lines: Iterable[bytes], name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file with the numbers of their lines; empty lines are passed over.

    Raises Invalid naming the line that holds none.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield number, msgspec.json.decode(line, type=dict[str, Any])
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise Invalid(f"{name} line {number}: is no JSON object ({error})") from error


def questions(lines: Iterable[bytes], name: str, agent: str) -> list[Question]:
    """The questions of a file. agent: asked where a line names none.

    Raises Invalid naming the line and the field that cannot be used, or the file when it holds no question.
    """
    found = []
    for number, line in objects(lines, name):
        try:
            found.append(_question(number, read(Labelled, line)[0], agent))
        except Invalid as problem:
            raise Invalid(f"{name} line {number}: {problem.text}") from problem
    if not found:
        raise Invalid(f"{name}: holds no question; write one JSON object a line")
    return found


async def existing(runtime: Runtime, asked: Sequence[Question]) -> tuple[list[Question], list[Missing]]:
    """The questions with the relevant rows that there are, and what is missing.

    A question of whose rows none is left is left out: it is neither answerable nor known not to be.
    """
    own = {agent: await _own_ids(runtime, agent) for agent in {each.agent for each in asked if _by_own_id(each)}}
    kept, missing = [], []
    for question in asked:
        there = await _refs(runtime, question) | own.get(question.agent, frozenset())
        missing += [Missing(question.line, row) for row in question.relevant if row not in there]
        left = tuple(row for row in question.relevant if row in there)
        if left or not question.relevant:
            kept.append(msgspec.structs.replace(question, relevant=left))
    return kept, missing


async def outcome(catalogue: Catalogue, asked: Sequence[Question], limit: int) -> Outcome:
    """Every question asked once, in order, after the first one was asked to warm up.

    Raises the Problem of a question that cannot be asked, with its line.
    """
    runtime = catalogue.runtime
    await _answer(catalogue, asked[0], limit)
    answers = [await _answer(catalogue, question, limit) for question in asked]
    return summed(answers, await runtime.storage.derived.waiting_count(runtime.embedder.fingerprint))


def summed(answers: Sequence[Answer], waiting: int) -> Outcome:
    """What these answers amount to. There must be one."""
    scored = [each for each in answers if each.measures]
    names = [ALL, *sorted({each.category for each in scored if each.category})]
    by_name = {name: [each.measures for each in scored if name in (ALL, each.category)] for name in names}
    return Outcome(
        categories={name: Group(len(found), means(found)) for name, found in by_name.items()},
        abstention=abstention([(bool(each.measures), bool(each.rows)) for each in answers]),
        tokens=sum(each.tokens for each in answers) / len(answers),
        wall_ms=_cost([each.wall_ms for each in answers]),
        cpu_ms=_cost([each.cpu_ms for each in answers]),
        without_vectors=sum(not each.with_vectors for each in answers),
        waiting=waiting,
        answers=list(answers),
    )


def tokens(answer: Mapping[str, Any]) -> int:
    """About how many tokens an answer has: a third of its bytes as JSON.

    An estimate: cl100k takes 3.1 bytes a token of answers in English and 2.7 in Japanese.
    """
    return tokens_in(len(msgspec.json.encode(answer)))


def _question(number: int, labelled: Labelled, agent: str) -> Question:
    asked = labelled.agent_id or agent
    if not asked:
        raise Invalid("agent_id: whose memory is asked? Name it there or with --agent")
    filters = {name: value for name in FILTERS if (value := getattr(labelled, name)) is not UNSET}
    return Question(
        line=number,
        arguments={"agent_id": asked, "query": labelled.query, **filters},
        category=labelled.category,
        relevant=tuple(dict.fromkeys(_named(row) for row in labelled.relevant)),
    )


def _named(relevant: str) -> str:
    ref = Ref.parse(relevant)
    return str(ref) if ref else relevant if relevant.startswith(OWN_ID) else OWN_ID + relevant


def _by_own_id(question: Question) -> bool:
    return any(row.startswith(OWN_ID) for row in question.relevant)


async def _own_ids(runtime: Runtime, agent: str) -> frozenset[str]:
    found: set[str] = set()
    position: Position | None = None
    scope = runtime.present(Scope(agent=agent))
    while rows := await runtime.storage.memories.page(scope, PAGE_ROWS, position):
        found |= {OWN_ID + row.msg_id for row in rows if row.msg_id}
        position = Position(rows[-1].created_at, rows[-1].id)
    return frozenset(found)


async def _refs(runtime: Runtime, question: Question) -> frozenset[str]:
    scope = runtime.present(Scope(agent=question.agent))
    refs = [ref for row in question.relevant if (ref := Ref.parse(row))]
    memories = await runtime.storage.memories.get(scope, [ref.id for ref in refs if ref.kind is Kind.MEMORY])
    episodes = await runtime.storage.episodes.get(scope, [ref.id for ref in refs if ref.kind is Kind.EPISODE])
    there = {Ref(Kind.MEMORY, id) for id in memories} | {Ref(Kind.EPISODE, id) for id in episodes}
    return frozenset(map(str, there))


async def _answer(catalogue: Catalogue, question: Question, limit: int) -> Answer:
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        answer = await catalogue.call("recall", {**question.arguments, "limit": limit}, Call())
    except Problem as problem:
        raise type(problem)(f"line {question.line}: {problem.text}") from problem
    took = (time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000
    rows = [_row(message, question.relevant) for message in reversed(answer["messages"]) if "ref" in message]
    return Answer(
        line=question.line,
        category=question.category,
        query=question.arguments["query"],
        rows=rows,
        measures=measures(rows, question.relevant, limit) if question.relevant else {},
        tokens=tokens(answer),
        wall_ms=took[0],
        cpu_ms=took[1],
        with_vectors=answer["channels"]["vectors"].startswith("ran"),
    )


def _row(message: Mapping[str, Any], relevant: Sequence[str]) -> str:
    """The name by which the question calls a row, else its ref."""
    own = OWN_ID + message.get("id", "")
    return own if own in relevant else str(message["ref"])


def _cost(milliseconds: Sequence[float]) -> Cost:
    return Cost(quantile(milliseconds, 0.5), quantile(milliseconds, 0.95))
