"""Evidence by `reconstruct`: which memories an answer quotes, and within how many of its first tokens."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import quicktok  # type: ignore[import-untyped]

from bench.quality.data import Question
from memory_svc.domain.evaluation import Interval, means, paired_bootstrap

PART = "LoCoMo"
# cl100k tokens of an answer within which its items count, by mode.
BUDGETS = {"lite": 1000, "pro": 3000}
_COUNTER = quicktok.get_encoding("cl100k_base")


class Quoted(msgspec.Struct, frozen=True):
    """What one answer quotes: the ids of each item's memories with the tokens up to the item's end, and all tokens."""

    items: list[tuple[list[str], int]]
    tokens: int


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """One mode's answers without any text, a question an entry.

    found, rows: memories quoted that answer it, and memories quoted; `_within` in items that end within the budget.
    """

    found_within: list[int]
    found: list[int]
    rows_within: list[int]
    rows: list[int]
    tokens: list[int]


class _Items(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw]


def asked_for(questions: Sequence[Question]) -> list[Question]:
    """The questions that evidence is gathered for."""
    return [each for each in questions if each.part == PART]


def quoted(text: str, keys: Callable[[Mapping[str, Any]], list[str]]) -> Quoted:
    """What the text of an answer quotes. keys: the ids of a row."""
    items, end = [], 0
    for raw in msgspec.json.decode(text, type=_Items).items:
        part = bytes(raw).decode()
        end = text.index(part, end) + len(part)
        item = msgspec.json.decode(part)
        rows = [{"ref": item["head_ref"]}, *item.get("excerpts", ())]
        items.append(([key for row in rows for key in keys(row)], _COUNTER.count(text[:end])))
    return Quoted(items, _COUNTER.count(text))


def gathered(answers: Sequence[Quoted], questions: Sequence[Question], tokens_max: int) -> Gathered:
    """What these answers to these questions quote."""
    all_of = [[key for keys, _ in answer.items for key in keys] for answer in answers]
    within = [[key for keys, end in answer.items if end <= tokens_max for key in keys] for answer in answers]

    def found(quotes: Sequence[Sequence[str]]) -> list[int]:
        return [len(set(keys) & set(question.relevant)) for keys, question in zip(quotes, questions, strict=True)]

    return Gathered(
        found_within=found(within),
        found=found(all_of),
        rows_within=list(map(len, within)),
        rows=list(map(len, all_of)),
        tokens=[answer.tokens for answer in answers],
    )


def summary(found: Gathered, relevant: Sequence[int], chosen: Sequence[bool]) -> dict[str, float]:
    """The means over the chosen questions: shares found, rows, tokens. relevant: how many memories answer each."""
    columns = zip(found.found_within, found.found, found.rows_within, found.tokens, relevant, chosen, strict=True)
    return means(
        [
            {"within": within / wanted, "all": every / wanted, "rows": float(rows), "tokens": float(tokens)}
            for within, every, rows, tokens, wanted, is_chosen in columns
            if is_chosen
        ]
    )


def gain(one: Gathered, other: Gathered, relevant: Sequence[int]) -> Interval:
    """How much more of what answers a question one shows within the budget than the other."""
    first, second = (
        [count / wanted for count, wanted in zip(each.found_within, relevant, strict=True)] for each in (one, other)
    )
    return paired_bootstrap(first, second)
