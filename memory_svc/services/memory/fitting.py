"""An answer's rows within its budgets: which are whole, which are cut and with what excerpt, which are left out."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from memory_svc.domain.blocks import Span
from memory_svc.domain.recall.budget import Size, bytes_left, fitted
from memory_svc.domain.recall.excerpt import Asked, excerpt, excerpt_of
from memory_svc.domain.text import preview
from memory_svc.services.memory.shown import Shown, cut, without_excerpt

FULL_CONTENT_BUDGET_CHARS = 200_000
# What every row keeps of its content before one is left out, and the best one whatever the budget.
HEAD_CHARS, BEST_CHARS_MIN = 120, 40
EVERYONE, LONGER, WHOLE = range(3)
# By ref, where in a content the part lies by whose meaning it was found.
Spans = Mapping[str, Span]


class Budget(msgspec.Struct, frozen=True):
    """What an answer may be: contents whole or cut to so many characters (0 = whole), rows of so many tokens (0 = any).

    Whole contents are given while 200,000 characters last.
    """

    full_content: bool
    preview_chars: int
    tokens_max: int


class _Form(NamedTuple):
    """A row as it may be given, its turn, and its size with a comma."""

    turn: int
    row: Shown
    size_bytes: int


class Answered(msgspec.Struct, frozen=True):
    """The rows of an answer, best first, what was left out, and whether the budget of whole contents was spent.

    is_shortened: for its number of tokens.
    """

    rows: list[Shown]
    left_out: list[Shown]
    budget_spent: bool
    is_shortened: bool


def within(
    rows: Sequence[Shown],
    budget: Budget,
    tells: Mapping[str, float] | None = None,
    spans: Callable[[Sequence[Shown]], Spans] = lambda _: {},
) -> Answered:
    """These rows, best first, as the budget gives them.

    tells: what each word of the query tells, by which an excerpt stands beside what is cut; None = nothing was asked.
    spans: of those of these rows that were found by the meaning of a part, by ref, where that lies in the content.
    """
    asked = None if tells is None else Asked(tells)
    turns = list(zip(rows, _whole([len(row.content) for row in rows], budget), strict=True))
    told = _with_excerpts(turns, budget, asked, spans) if asked else turns
    largest = [_largest(row, is_whole, budget.preview_chars) for row, is_whole in told]
    spent = budget.full_content and any(row.content_truncated is True for row in largest)
    kept = largest
    if budget.tokens_max:
        kept = _fitted([list(_forms(*each, budget.preview_chars)) for each in told], budget.tokens_max)
    return Answered(kept, list(rows[len(kept) :]), spent, kept != largest)


def followed_by(answered: Answered, rows: Sequence[Shown], tokens_max: int) -> Answered:
    """The answer with as many of these rows behind its own as there is room for; none of them is cut. 0 = any."""
    kept = list(answered.rows)
    room = bytes_left(map(_size_bytes, kept), tokens_max) if tokens_max else math.inf
    for row in () if answered.is_shortened else rows:
        room -= _size_bytes(row)
        if room < 0:
            break
        kept.append(row)
    return msgspec.structs.replace(answered, rows=kept)


def _with_excerpts(
    rows: Sequence[tuple[Shown, bool]], budget: Budget, asked: Asked, spans: Callable[[Sequence[Shown]], Spans]
) -> list[tuple[Shown, bool]]:
    """These rows, each with whether it may be given whole; those that may be cut with an excerpt.

    Words show where the answer stands more often than meaning does, so that meaning decides where they tell nothing.
    """
    chars = budget.preview_chars
    told = [
        (_with_excerpt(row, chars, asked), is_whole)
        if 0 < chars < len(row.content) and (not is_whole or budget.tokens_max > 0)
        else (row, is_whole)
        for row, is_whole in rows
    ]
    parts = spans([row for row, _ in told if row.excerpt_basis == "start"])
    return [(_with_part(row, chars, asked, parts.get(str(row.ref))), is_whole) for row, is_whole in told]


def _with_excerpt(row: Shown, chars: int, asked: Asked) -> Shown:
    found = excerpt(row.content, chars, asked)
    return msgspec.structs.replace(row, excerpt=found or UNSET, excerpt_basis="lexical" if found else "start")


def _with_part(row: Shown, chars: int, asked: Asked, part: Span | None) -> Shown:
    found = excerpt_of(part, row.content, chars, asked) if part else ""
    return msgspec.structs.replace(row, excerpt=found, excerpt_basis="blocks") if found else row


def _whole(lengths: Sequence[int], budget: Budget) -> Iterator[bool]:
    """For each row from the best on, whether it may be given whole though it is long. The best one always may."""
    left = FULL_CONTENT_BUDGET_CHARS
    for at, length in enumerate(lengths):
        fits = budget.full_content and (not at or length <= left)
        left -= length if fits else min(length, budget.preview_chars)
        yield fits


def _largest(row: Shown, is_whole: bool, chars: int) -> Shown:
    """The most that may be given of a row."""
    return without_excerpt(row) if is_whole or not chars or len(row.content) <= chars else cut(row, chars)


def _forms(row: Shown, is_whole: bool, chars: int) -> Iterator[_Form]:
    """What may be given of a row, from the least to the largest."""
    is_short = not chars or len(row.content) <= chars
    head = HEAD_CHARS if is_short else min(HEAD_CHARS, chars)
    if len(row.content) > head:
        yield _form(EVERYONE, cut(without_excerpt(row), head))
    if not is_short and row.excerpt is not UNSET:
        yield _form(LONGER, cut(row, head))
    if not is_short:
        yield _form(LONGER, cut(row, chars))
    if is_short or is_whole:
        yield _form(LONGER if is_short else WHOLE, _largest(row, is_whole, chars))


def _fitted(rows: Sequence[Sequence[_Form]], tokens: int) -> list[Shown]:
    """As much of the rows as fits, and the best one in any case."""
    forms = [_growing(each) for each in rows]
    fit = fitted([[Size(form.turn, form.size_bytes) for form in each] for each in forms], tokens)
    kept = [each[at].row for each, at in zip(forms, fit.forms, strict=True) if at >= 0]
    if 0 <= fit.growing < len(kept):
        had, wanted = forms[fit.growing][fit.forms[fit.growing] :][:2]
        if wanted.row.excerpt is UNSET or had.row.excerpt is not UNSET:
            kept[fit.growing] = _grown(had.row, wanted.row.content, had.size_bytes + fit.left_bytes)
    elif not kept and forms:
        kept = [_squeezed(forms[0][0].row, fit.left_bytes)]
    return kept


def _growing(forms: Sequence[_Form]) -> list[_Form]:
    """Those that are smaller than every larger one: what is whole may be smaller than what tells that it is cut."""
    kept: list[_Form] = []
    for form in reversed(forms):
        if not kept or form.size_bytes < kept[-1].size_bytes:
            kept.append(form)
    return kept[::-1]


def _squeezed(row: Shown, size_bytes: int) -> Shown:
    if len(row.content) <= BEST_CHARS_MIN:
        return row
    length = len(row.content) if row.content_len is UNSET else row.content_len
    least = msgspec.structs.replace(
        row, content=preview(row.content, BEST_CHARS_MIN), content_len=length, content_truncated=True
    )
    return _grown(least, row.content, size_bytes)


def _grown(row: Shown, content: str, size_bytes: int) -> Shown:
    """The row with as much of this content as its size allows, never less than it has and never all of it."""

    def size_at(chars: int) -> int:
        return _form(LONGER, msgspec.structs.replace(row, content=preview(content, chars))).size_bytes

    longer = range(len(row.content) + 1, len(content))
    fitting = bisect_right(longer, size_bytes, key=size_at)
    return msgspec.structs.replace(row, content=preview(content, len(row.content) + fitting))


def _form(turn: int, row: Shown) -> _Form:
    return _Form(turn, row, _size_bytes(row))


def _size_bytes(row: Shown) -> int:
    """With a comma."""
    return len(msgspec.json.encode(row)) + 1
