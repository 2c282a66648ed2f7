"""Which rows stand together and how much of them fits: by hand, and what must hold for any rows and budgets."""

import datetime as dt
from collections.abc import Sequence
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.domain.memory import Kind, Memory, Ref
from memory_svc.domain.recall.reconstruct import (
    Limits,
    Packed,
    Role,
    Size,
    Step,
    current_first,
    day_of,
    declared_roles,
    packed,
    steps,
    tells_day,
)
from tests.support.corpus import episode, memory

NO_LIMITS = Limits(100, 100, None, 10**9)
ids = st.integers(1, 12)
roles = st.lists(st.builds(lambda one, other: supersedes(one, other), ids, ids), max_size=6)
rankings = st.lists(ids, unique=True, max_size=12).map(lambda found: [mem(id) for id in found])
# Rows of a talk: ids that follow one another stand beside each other.
sizes = st.dictionaries(ids, st.tuples(st.integers(0, 50), st.integers(1, 50)))


def mem(id: int) -> Ref:
    """The ref of a memory."""
    return Ref(Kind.MEMORY, id)


def supersedes(one: int, other: int) -> Role:
    """One memory supersedes another."""
    return Role(mem(one), "supersedes", mem(other))


def talk(*refs: Ref) -> dict[Ref, list[Ref]]:
    """The rows before and after each of these in one talk."""
    return {ref: [mem(ref.id - 1), mem(ref.id + 1)] for ref in refs}


def told(found: Sequence[Step]) -> list[tuple[int, int, str]]:
    """(head, row, why) of each step."""
    return [(step.head.id, step.ref.id, step.why) for step in found]


def fit(sequence: Sequence[Step], limits: Limits, costs: dict[int, tuple[int, int]] | None = None) -> Packed:
    """What fits, where each row costs a fixed size."""

    def size(item: Sequence[Step]) -> Size:
        known = [(costs or {}).get(step.ref.id, (10, 10)) for step in item]
        return Size(sum(chars for chars, _ in known), sum(tokens for _, tokens in known))

    return packed(sequence, limits, size)


def shown(found: Packed) -> list[list[int]]:
    """The ids of each item, its head first."""
    return [[step.ref.id for step in item] for item in found.items]


def test_a_row_declares_what_it_supersedes_as_a_ref_or_a_list_of_them() -> None:
    def declaring(told: object) -> Memory:
        return memory("x", metadata={"supersedes": told})

    rows = {
        mem(1): declaring("mem:2"),
        mem(3): declaring(["ep:4", "mem:5", 6, None]),
        mem(6): declaring("mem:6"),
        mem(7): declaring({"mem": 1}),
        Ref(Kind.EPISODE, 8): episode("y"),
    }
    found = {(str(role.ref), role.role, str(role.of)) for role in declared_roles(rows)}
    assert found == {("mem:1", "supersedes", "mem:2"), *(("mem:3", "supersedes", of) for of in ("ep:4", "mem:5"))}


def test_what_supersedes_a_row_stands_before_it() -> None:
    def ordered(ranked: Sequence[int], *told: Role) -> list[int]:
        return [ref.id for ref in current_first([mem(id) for id in ranked], told)]

    assert ordered([1, 2, 3], supersedes(3, 1)) == [3, 1, 2]
    assert ordered([1, 2, 3], supersedes(3, 2), supersedes(2, 1)) == [3, 2, 1]
    assert ordered([1, 2], supersedes(9, 1)) == [1, 2]
    assert ordered([1, 2], supersedes(1, 2), supersedes(2, 1)) == [2, 1]


@given(rankings, roles)
def test_no_row_is_lost_or_doubled_whatever_supersedes_what(ranked: list[Ref], told: list[Role]) -> None:
    ordered = current_first(ranked, told)
    assert sorted(ordered) == sorted(ranked)
    assert [step.ref for step in steps(ordered, talk(*ranked), told)] == ordered


def test_a_row_joins_the_best_item_at_whose_head_it_stands_and_else_begins_its_own() -> None:
    refs = [mem(id) for id in (5, 9, 6, 7, 4, 8)]
    assert told(steps(refs, talk(*refs), ())) == [
        (5, 5, "seed"),
        (9, 9, "seed"),
        (5, 6, "neighbour"),
        (7, 7, "seed"),
        (5, 4, "neighbour"),
        (9, 8, "neighbour"),
    ]


def test_a_row_joins_the_item_of_what_it_has_a_role_to_before_that_of_a_neighbour() -> None:
    refs = [mem(id) for id in (1, 9, 3, 5)]
    found = steps(refs, {mem(3): [mem(9)]}, [supersedes(3, 1), supersedes(5, 3), supersedes(7, 9)])
    assert told(found) == [
        (1, 1, "seed"),
        (9, 9, "seed"),
        (1, 3, "relation:supersedes"),
        (1, 5, "relation:supersedes"),
    ]


def test_items_are_given_until_one_does_not_fit_and_no_later_one_takes_its_place() -> None:
    sequence = steps([mem(id) for id in (1, 5, 9)], {}, ())
    costs = {1: (10, 10), 5: (50, 50), 9: (1, 1)}
    assert shown(fit(sequence, NO_LIMITS, costs)) == [[1], [5], [9]]
    by_tokens, by_chars = fit(sequence, Limits(9, 9, None, 20), costs), fit(sequence, Limits(9, 9, 20, 999), costs)
    assert shown(by_tokens) == shown(by_chars) == [[1]]
    assert (by_tokens.end, by_chars.end) == ("tokens", "budget")
    assert (by_tokens.chars, by_tokens.tokens) == (10, 10)


def test_a_limit_of_items_passes_over_what_would_open_one_more() -> None:
    refs = [mem(id) for id in (1, 5, 2, 6)]
    found = fit(steps(refs, talk(*refs), ()), Limits(1, 9, None, 999))
    assert (shown(found), found.end) == ([[1, 2]], "count")
    assert shown(fit(steps(refs, {}, ()), Limits(0, 9, None, 999))) == []


def test_a_limit_of_rows_ends_the_answer() -> None:
    found = fit(steps([mem(1), mem(5), mem(9)], {}, ()), Limits(9, 2, None, 999))
    assert (shown(found), found.end) == ([[1], [5]], "max_evidence")


def test_the_best_row_is_given_though_it_is_larger_than_the_budget() -> None:
    found = fit(steps([mem(1), mem(5)], {}, ()), Limits(9, 9, 5, 5))
    assert (shown(found), found.is_raised, found.end) == ([[1]], True, "budget")
    assert not fit([], Limits(9, 9, 5, 5)).is_raised


@given(rankings, roles, sizes, st.integers(0, 12), st.integers(1, 12), st.integers(0, 400), st.integers(0, 400))
def test_a_larger_budget_removes_no_item_and_no_row(
    ranked: list[Ref],
    told: list[Role],
    costs: dict[int, tuple[int, int]],
    items: int,
    rows: int,
    budget: int,
    more: int,
) -> None:
    sequence = steps(current_first(ranked, told), talk(*ranked), told)
    smaller, larger = (fit(sequence, Limits(items, rows, each, each), costs) for each in (budget, budget + more))
    for item, grown in zip(smaller.items, larger.items, strict=False):
        assert grown[: len(item)] == item
    assert len(larger.items) >= len(smaller.items)
    assert len(smaller.items) <= items
    assert sum(map(len, smaller.items)) <= rows
    assert max(smaller.tokens, smaller.chars) <= budget or (smaller.is_raised and sum(map(len, smaller.items)) == 1)


def test_a_day_is_that_of_the_zone_and_at_the_end_of_the_calendar_that_of_utc() -> None:
    tokyo = ZoneInfo("Asia/Tokyo")
    assert day_of("2026-03-02T20:00:00+00:00", tokyo) == dt.date(2026, 3, 3)
    assert day_of("9999-12-31T20:00:00+00:00", tokyo) == dt.date(9999, 12, 31)


@pytest.mark.parametrize("text", ["on 8 May 2023", "(May 8, 2023)", "2023-05-08T10:00", "2023年5月8日に"])
def test_a_text_that_tells_the_day_is_known(text: str) -> None:
    assert tells_day(text, dt.date(2023, 5, 8))
    assert not tells_day(text, dt.date(2023, 5, 9))
    assert not tells_day(text.replace("8", "18"), dt.date(2023, 5, 8))
