"""Evidence for an answer: which ranked rows stand together in one item, in what order, and how much of them fits.

What an answer grows by is one fixed sequence of rows, whatever its budget, and an answer is the beginning of it. So a
larger budget never takes an item or a row away.
"""

import datetime as dt
import re
from calendar import month_name
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from memory_svc.domain.memory import Memory, Ref, Row

SUPERSEDES = "supersedes"
SEED, NEIGHBOUR, RELATION = "seed", "neighbour", "relation:"
End = Literal["", "count", "max_evidence", "budget", "tokens"]


class Role(NamedTuple):
    """What one row is to another: `ref` supersedes `of`."""

    ref: Ref
    role: str
    of: Ref


class Step(NamedTuple):
    """A row and the item it belongs to, by the row at its head; why it is there."""

    head: Ref
    ref: Ref
    why: str


class Limits(NamedTuple):
    """How much may be shown: items, rows, characters of quotes (None = any), tokens of the items."""

    items: int
    rows: int
    chars: int | None
    tokens: int


class Size(NamedTuple):
    """What an item costs: characters of its quotes, and its tokens."""

    chars: int
    tokens: int


class Packed(NamedTuple):
    """The items, best first, each with its steps, its head first; the limit that left something out, "" = none did.

    chars, tokens: what they cost. is_raised: even the first row alone is more than the limits allow.
    """

    items: list[list[Step]]
    end: End
    chars: int
    tokens: int
    is_raised: bool


def declared_roles(rows: Mapping[Ref, Row]) -> list[Role]:
    """The roles that these rows declare in their metadata: `"supersedes": "mem:3"`, or a list of refs."""
    found = []
    for ref, row in rows.items():
        told = row.metadata.get(SUPERSEDES) if isinstance(row, Memory) else None
        for text in told if isinstance(told, list) else [told]:
            of = Ref.parse(text) if isinstance(text, str) else None
            if of and of != ref:
                found.append(Role(ref, SUPERSEDES, of))
    return found


def current_first(ranked: Sequence[Ref], roles: Iterable[Role]) -> list[Ref]:
    """The same rows, each that supersedes another one before it; of those that supersede each other the best first."""
    known, newer = set(ranked), dict[Ref, list[Ref]]()
    for role in roles:
        if role.role == SUPERSEDES and role.ref in known:
            newer.setdefault(role.of, []).append(role.ref)
    order: dict[Ref, None] = {}

    def place(ref: Ref, waiting: frozenset[Ref]) -> None:
        for each in newer.get(ref, ()):
            if each not in order and each not in waiting:
                place(each, waiting | {each})
        order.setdefault(ref)

    for ref in ranked:
        place(ref, frozenset({ref}))
    return list(order)


def steps(ordered: Sequence[Ref], beside: Mapping[Ref, Sequence[Ref]], roles: Iterable[Role]) -> list[Step]:
    """Each row with its item, in order: it joins the best one that it has a role to, else at whose head it stands.

    beside: the rows directly before and after a row in its talk.
    """
    linked: dict[Ref, dict[Ref, str]] = {}
    for role in roles:
        linked.setdefault(role.ref, {}).setdefault(role.of, RELATION + role.role)
        linked.setdefault(role.of, {}).setdefault(role.ref, RELATION + role.role)
    heads: dict[Ref, Ref] = {}
    found: list[Step] = []
    for ref in ordered:
        related = {heads[each]: why for each, why in linked.get(ref, {}).items() if each in heads}
        reasons = related or {each: NEIGHBOUR for each in beside.get(ref, ()) if heads.get(each) == each}
        head = next((each for each in dict.fromkeys(heads.values()) if each in reasons), ref)
        heads[ref] = head
        found.append(Step(head, ref, reasons.get(head, SEED)))
    return found


def packed(sequence: Sequence[Step], limits: Limits, size: Callable[[Sequence[Step]], Size]) -> Packed:
    """As much of the sequence as fits; of a limit on items the rows that would open one more are passed over.

    size: what an item of these steps costs. The first row is given whatever it costs, unless no item or row may be.
    """
    kept: dict[Ref, list[Step]] = {}
    sizes: dict[Ref, Size] = {}
    end: End = ""
    rows = 0
    for step in sequence:
        if step.head not in kept and len(kept) == limits.items:
            end = "count"
            continue
        if rows == limits.rows:
            end = "max_evidence"
            break
        grown = [*kept.get(step.head, ()), step]
        whole = sizes | {step.head: size(grown)}
        over = _over(whole.values(), limits)
        if over and rows:
            end = over
            break
        kept[step.head], sizes, rows = grown, whole, rows + 1
    chars, tokens = _total(sizes.values())
    return Packed(list(kept.values()), end, chars, tokens, bool(_over(sizes.values(), limits)))


def day_of(instant: str, zone: dt.tzinfo) -> dt.date:
    """The day of an instant in a zone; where the calendar ends before it, in UTC."""
    moment = dt.datetime.fromisoformat(instant)
    try:
        return moment.astimezone(zone).date()
    except OverflowError:
        return moment.date()


def tells_day(text: str, day: dt.date) -> bool:
    """Whether a text names that day: 8 May 2023, May 8, 2023, 2023-05-08 or 2023年5月8日."""
    month = month_name[day.month]
    forms = (
        f"{day.day} {month} {day.year}",
        f"{month} {day.day}, {day.year}",
        day.isoformat(),
        f"{day.year}年{day.month}月{day.day}日",
    )
    return re.search(rf"(?<!\d)(?:{'|'.join(forms)})(?!\d)", text) is not None


def _over(sizes: Iterable[Size], limits: Limits) -> End:
    chars, tokens = _total(sizes)
    if limits.chars is not None and chars > limits.chars:
        return "budget"
    return "tokens" if tokens > limits.tokens else ""


def _total(sizes: Iterable[Size]) -> Size:
    found = list(sizes)
    return Size(sum(each.chars for each in found), sum(each.tokens for each in found))
