"""What a run found: each system's answers without any text, as JSON, and the page of tables made from them."""

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from bench.quality import evidence
from bench.quality.data import ADVERSARIAL, OFF_TOPIC_PART, Question
from bench.quality.evidence import BUDGETS, Gathered, gathered
from bench.quality.systems import LIMIT, OURS, RESTARTED, Answers, Given
from memory_svc.domain.evaluation import (
    RESAMPLES,
    SEED,
    Interval,
    means,
    measures,
    paired_bootstrap,
    recall_at,
)

MEASURES = ("R@5", "R@10", "MRR", "nDCG@10")
SHOWN = "R, all rows"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question without its text: where it belongs, and how many memories answer it."""

    part: str
    category: str
    agent: str
    relevant: int


class System(msgspec.Struct, frozen=True, kw_only=True):
    """One system's answers, a question an entry: ranks of the relevant rows from 1, rows given, cl100k tokens.

    gathered: what it reconstructed, by mode.
    """

    name: str
    ranks: list[list[int]]
    rows: list[int]
    tokens: list[int]
    gathered: dict[str, Gathered] = {}


class DataResult(msgspec.Struct, frozen=True, kw_only=True):
    """One data set: its questions and what every system answered.

    model: of the vectors. restarted: how many questions a system gave other rows after a restart.
    """

    name: str
    model: str
    memories: int
    questions: list[Asked]
    systems: list[System]
    restarted: dict[str, int]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run. fitted: conversations whose questions were looked at when weights were chosen."""

    command: str
    measured_at: str
    machine: dict[str, str]
    remarks: list[str]
    fitted: list[str]
    data: list[DataResult]


def asked(questions: Iterable[Question]) -> list[Asked]:
    """The questions without their texts."""
    return [
        Asked(part=each.part, category=each.category, agent=each.agent, relevant=len(each.relevant))
        for each in questions
    ]


def system(answers: Answers, questions: Sequence[Question]) -> System:
    """A system's answers without their texts."""
    return System(
        name=answers.system,
        ranks=[_ranks(given, question) for given, question in zip(answers.given, questions, strict=True)],
        rows=[len(given.keys) for given in answers.given],
        tokens=[given.tokens for given in answers.given],
        gathered={
            mode: gathered(found, evidence.asked_for(questions), BUDGETS[mode])
            for mode, found in answers.quoted.items()
        },
    )


def scores(found: System, questions: Sequence[Asked], chosen: Callable[[Asked], bool]) -> list[dict[str, float]]:
    """The measures of each chosen question; of one that nothing answers only how much came."""
    scored = []
    for ranks, rows, tokens, question in zip(found.ranks, found.rows, found.tokens, questions, strict=True):
        if chosen(question):
            hits = {rank: f"hit {at}" for at, rank in enumerate(ranks)}
            ranked = [hits.get(rank, f"row {rank}") for rank in range(1, rows + 1)]
            relevant = [f"hit {at}" for at in range(question.relevant)]
            shown = {SHOWN: recall_at(ranked, relevant, rows)} if relevant else {}
            found_by = measures(ranked, relevant, LIMIT) if relevant else {}
            scored.append({**found_by, **shown, "tokens": float(tokens), "rows": float(rows)})
    return scored


def restarted(answers: Sequence[Answers]) -> dict[str, int]:
    """How many questions each system gave other rows, or in another order, after a restart."""
    by_name = {each.system: each.given for each in answers}
    return {
        name: sum(one.keys != other.keys for one, other in zip(given, by_name[name + RESTARTED], strict=True))
        for name, given in by_name.items()
        if name + RESTARTED in by_name
    }


def gains(
    one: System, other: System, questions: Sequence[Asked], chosen: Callable[[Asked], bool]
) -> dict[str, Interval]:
    """By how much one system is better than another on the chosen questions, by measure."""
    pair = [scores(each, questions, chosen) for each in (one, other)]
    return {
        name: paired_bootstrap([each[name] for each in pair[0]], [each[name] for each in pair[1]]) for name in MEASURES
    }


def write(json_file: Path, page_file: Path, result: Result) -> str:
    """Write both; the page."""
    page = markdown(result)
    for file in (json_file, page_file):
        file.parent.mkdir(parents=True, exist_ok=True)
    json_file.write_bytes(_spread(msgspec.json.encode(result)))
    page_file.write_text(page, encoding="utf-8")
    return page


def markdown(result: Result) -> str:
    """The page: a table a part, then what ours gains in it, then the conversations."""
    head = (
        "# How well recall finds\n\n"
        f"Written by `make bench-quality`, {result.measured_at}:\n\n```sh\n{result.command}\n```\n\n"
        "No language model takes part. Every question is one `recall` with limit 10 over stdio. R@k: the share of the"
        " memories\nthat answer a question among the first k rows; MRR: 1 over the rank of the first of them; both and"
        " nDCG@10 in percent.\ntokens: of the whole answer, cl100k. Every answer, without any text, is in"
        " `bench/results/quality.json`."
    )
    facts = _bullets(f"{name}: {value}" for name, value in result.machine.items())
    remarks = _bullets(result.remarks)
    parts = [section for data in result.data for section in _data(data, result.fitted)]
    return "\n\n".join([head, remarks, facts, *parts]) + "\n"


def _data(data: DataResult, fitted: Sequence[str]) -> list[str]:
    parts = list(dict.fromkeys(question.part for question in data.questions))
    agents = list(dict.fromkeys(question.agent for question in data.questions))
    changed = ", ".join(f"{name} {count:,}" for name, count in data.restarted.items())
    return [
        *(_part(data, part) for part in parts if part != OFF_TOPIC_PART),
        *([_silence(data, parts[0])] if OFF_TOPIC_PART in parts else []),
        *([_evidence(data, fitted)] if any(each.gathered for each in data.systems) else []),
        *([_agents(data, parts[0], agents, fitted)] if len(agents) > 1 else []),
        f"{data.name}: of {len(data.questions):,} questions so many got other rows or another order after a restart:\n"
        f"{changed}.",
    ]


def _silence(data: DataResult, part: str) -> str:
    """How often each system says nothing where it should, and something where it should."""
    rows = []
    for each in data.systems:
        found = {name: scores(each, data.questions, _within(name)) for name in (OFF_TOPIC_PART, part)}
        silent = means([{"silent": float(not one["rows"])} for one in found[OFF_TOPIC_PART]])["silent"]
        answered = means([{"answered": float(one["rows"] > 0)} for one in found[part]])["answered"]
        rows.append([each.name, _percent(silent), _percent(answered)])
    count = sum(question.part == OFF_TOPIC_PART for question in data.questions)
    titles = ["system", "off topic, answered with nothing", f"{part}, answered"]
    return f"## {OFF_TOPIC_PART}\n\n{count} questions, percent.\n\n{table(titles, rows)}"


def _part(data: DataResult, part: str) -> str:
    count = sum(question.part == part for question in data.questions)
    counts = Counter(each.category for each in data.questions if each.part == part)
    categories = sorted(name for name in counts if name not in ("", ADVERSARIAL))
    of_each = f" ({', '.join(f'{counts[name]} {name}' for name in categories)})" if categories else ""
    head = f"## {part}\n\n{count:,} questions{of_each}, {data.memories:,} memories, vectors of {data.model}."
    rows = []
    for each in data.systems:
        whole = means(scores(each, data.questions, _within(part)))
        by_category = [means(scores(each, data.questions, _within(part, category=name)))["R@10"] for name in categories]
        shares = [*(whole[name] for name in MEASURES), *by_category, whole[SHOWN]]
        rows.append([each.name, *map(_percent, shares), f"{whole['rows']:.1f}", f"{whole['tokens']:,.0f}"])
    titles = ["system", *MEASURES, *(f"{name} R@10" for name in categories), SHOWN, "rows", "tokens"]
    return _paragraphs(head, table(titles, rows), _gains(data, part))


def _gains(data: DataResult, part: str, agents: Sequence[str] = ()) -> str:
    """What ours gains over each peer. "" where there is none. agents: on whose questions alone."""
    ours = next(each for each in data.systems if each.name == OURS)
    rows = [
        [each.name, *(_gain(gain) for gain in gains(ours, each, data.questions, _within(part, agents)).values())]
        for each in data.systems
        if not each.name.startswith(OURS)
    ]
    told = f"Ours less each peer, points, 95 % by the paired bootstrap ({RESAMPLES:,} resamples, seed {SEED}):"
    return f"{told}\n\n{table(['peer', *MEASURES], rows)}" if rows else ""


def _evidence(data: DataResult, fitted: Sequence[str]) -> str:
    """How much of what answers a question each system quotes within its budgets."""
    asked = [each for each in data.questions if each.part == evidence.PART]
    relevant = [each.relevant for each in asked]
    able = [each for each in data.systems if each.gathered]
    groups = {
        "all": [True] * len(asked),
        **({"fitted": [each.agent in fitted for each in asked]} if fitted else {}),
        **({"held out": [each.agent not in fitted for each in asked]} if fitted else {}),
    }
    rows = []
    for mode, budget in BUDGETS.items():
        for each in able:
            found = {name: evidence.summary(each.gathered[mode], relevant, chosen) for name, chosen in groups.items()}
            shares = [_percent(group["within"]) if group else "–" for group in found.values()]
            whole = found["all"]
            size = [f"{whole['rows']:.1f}", _percent(whole["all"]), f"{whole['tokens']:,.0f}"]
            rows.append([f"{each.name}, {mode}", f"{budget:,}", *shares, *size])
    ours = next(each for each in able if each.name == OURS)
    gained = [
        [each.name, *(_gain(evidence.gain(ours.gathered[mode], each.gathered[mode], relevant)) for mode in BUDGETS)]
        for each in able
        if not each.name.startswith(OURS)
    ]
    told = f"Ours less each peer within the budget, points, 95 % by the paired bootstrap ({RESAMPLES:,} resamples):"
    return _paragraphs(
        f"## {evidence.PART}, evidence",
        f"{len(asked):,} questions, one `reconstruct` with its mode and no other limit. *Within*: the share of the"
        " memories that\nanswer a question quoted in items that end within the first so many cl100k tokens of the"
        " answer; rows: memories\nquoted there. *In all*: in the whole answer, which has so many tokens.",
        table(["system", "within", *groups, "rows", "in all", "tokens"], rows),
        f"{told}\n\n{table(['peer', *BUDGETS], gained)}" if gained else "",
    )


def _agents(data: DataResult, part: str, agents: Sequence[str], fitted: Sequence[str]) -> str:
    held_out = [agent for agent in agents if agent not in fitted]
    groups: Mapping[str, Sequence[str]] = {
        **{f"{agent}, fitted" if agent in fitted else agent: [agent] for agent in agents},
        **({"held out": held_out} if fitted and held_out else {}),
    }
    rows = []
    for name, members in groups.items():
        found = [scores(each, data.questions, _within(part, members)) for each in data.systems]
        if found[0]:
            values = [means(each) for each in found]
            told = [f"{_percent(value['R@10'])} / {_percent(value['MRR'])}" for value in values]
            rows.append([name, str(len(found[0])), *told])
    named = f"Weights of ours were chosen on {', '.join(fitted)}; the others are held out."
    unnamed = "This run was told of no conversation on which weights of ours were chosen (`--fitted`)."
    return _paragraphs(
        f"### {part} by conversation: R@10 / MRR",
        named if fitted else unnamed,
        table(["conversation", "questions", *(each.name for each in data.systems)], rows),
        f"Held out. {_gains(data, part, held_out)}" if fitted and held_out and _gains(data, part) else "",
    )


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column stands left and whose others stand right."""
    lines = [titles, ["---", *["--:"] * (len(titles) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _within(part: str, agents: Sequence[str] = (), category: str = "") -> Callable[[Asked], bool]:
    """Whether a question belongs to a part, and to these agents and that category where they are given."""

    def belongs(question: Asked) -> bool:
        return (
            question.part == part and (not agents or question.agent in agents) and category in ("", question.category)
        )

    return belongs


def _ranks(given: Given, question: Question) -> list[int]:
    """The rank of each relevant row that is there, once."""
    ranks: dict[str, int] = {}
    for rank, key in enumerate(given.keys, start=1):
        if key in question.relevant:
            ranks.setdefault(key, rank)
    return list(ranks.values())


def _paragraphs(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(textwrap.fill(line, 118, initial_indent="- ", subsequent_indent="  ") for line in lines)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _gain(gain: Interval) -> str:
    text = f"{100 * gain.mean:+.1f} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"
    return f"**{text}**" if gain.is_clear else text


def _spread(encoded: bytes) -> bytes:
    """JSON with a line a question or a list of numbers, so that a change can be read as a difference."""
    for begin in (b'{"part"', b'{"name"', b'"rows"', b'"tokens"', b'"gathered"', b'"found"', b'"rows_within"'):
        encoded = encoded.replace(begin, b"\n" + begin)
    return encoded + b"\n"
