"""Scores by time and use."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.domain.recall.fusion import Scores, ordered
from memory_svc.domain.recall.scoring import (
    Ages,
    Decay,
    boundary_factors,
    confidence,
    decays,
    kept_before_gap,
    lowered,
    nearness,
    recent_factors,
)

HOURS = st.floats(0, 1e6)
VALUES = st.floats(-3, 3)
FACTORS = st.floats(0, 1)
NEVER = math.nan


def aged(*ages: float, counts: tuple[int, ...] = (), since: tuple[float, ...] = (), span: float = 0.0) -> Ages:
    """Rows of these ages, never recalled where nothing else is said."""
    none = len(ages)
    return Ages(np.array(ages), np.array(counts or (0,) * none), np.array(since or (NEVER,) * none), span)


def test_a_cosine_counts_between_floor_and_ceiling() -> None:
    near = nearness(np.array([-0.3, 0.2, 0.475, 0.75, 1.0]), np.zeros(5), 0.2, 0.75)
    assert near.tolist() == pytest.approx([0, 0, 0.5, 1, 1])


def test_a_row_without_a_vector_counts_by_what_it_holds_of_the_query() -> None:
    assert nearness(np.array([math.nan, 0.1]), np.array([0.6, 0.9]), 0.2, 0.75).tolist() == [0.6, 0.0]


def test_a_ceiling_below_the_floor_is_a_step() -> None:
    assert nearness(np.array([0.4, 0.6]), np.zeros(2), 0.5, 0.3).tolist() == [0.0, 1.0]


def test_age_lowers_to_a_floor() -> None:
    assert decays(aged(0, 200, 1e6), Decay()).tolist() == pytest.approx([1, 0.5, 0.3])


def test_memories_of_a_long_time_age_more_slowly() -> None:
    assert decays(aged(200, span=1680), Decay()).tolist() == pytest.approx([1 / (1 + 0.1)])


def test_an_age_that_is_not_known_is_half_the_span() -> None:
    unknown, half = decays(aged(NEVER, 500, span=1000), Decay())
    assert unknown == half


def test_what_is_often_recalled_keeps_more_but_not_for_ever_and_not_above_the_ceiling() -> None:
    old = aged(*[1e6] * 4, counts=(0, 9, 9, 10**9), since=(NEVER, 0, 1e4, 0))
    never, now, long_ago, always = decays(old, Decay())
    assert (never, always) == (0.3, 0.5)
    assert never < long_ago < now < always


def test_confidence_is_the_mean_of_nearness_and_age_and_less_for_what_is_resolved() -> None:
    given = confidence(np.array([0.64, 0.64]), np.array([0.25, 0.25]), np.array([False, True]), 0.3)
    assert given.tolist() == pytest.approx([0.4, 0.12])


def test_rows_before_the_boundary_are_lowered_by_the_hour_to_a_floor_and_others_are_not() -> None:
    said = np.array([1000.0, 1001.0, 990.0, 0.0, NEVER])
    factors = boundary_factors(said, 1000.0, 0.01, 0.5)
    assert factors.tolist() == pytest.approx([1, 1, math.exp(-0.1), 0.5, 1])
    assert boundary_factors(said, NEVER, 0.01, 0.5).tolist() == [1.0] * 5


def test_what_was_recalled_just_now_is_lowered() -> None:
    since = np.array([0.0, 0.05, 0.1, NEVER])
    assert recent_factors(since, 5 / 60, 0.7).tolist() == [0.7, 0.7, 1.0, 1.0]


@given(st.lists(st.tuples(VALUES, FACTORS), min_size=1))
def test_no_factor_raises_a_row_and_rows_of_one_factor_keep_their_order(rows: list[tuple[float, float]]) -> None:
    values, factors = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    assert (lowered(values, factors) <= values).all()
    same = lowered(np.sort(values), np.full(len(values), factors[0]))
    assert (np.diff(same) >= 0).all()


@given(st.lists(st.tuples(VALUES, FACTORS), min_size=1))
def test_a_row_for_which_something_speaks_never_falls_behind_one_for_which_nothing_does(
    rows: list[tuple[float, float]],
) -> None:
    values, factors = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    after = lowered(values, factors)
    assert after[values > 0].min(initial=math.inf) >= after[values <= 0].max(initial=-math.inf)


@given(st.lists(HOURS, min_size=1), st.floats(0, 10), st.floats(0, 1), st.floats(0, 1), HOURS)
def test_what_time_leaves_lies_between_nothing_and_all_and_never_grows_with_age(
    ages: list[float], rate: float, floor: float, ceiling: float, span: float
) -> None:
    left = decays(aged(*sorted(ages), span=span), Decay(rate=rate, floor=floor, ceiling=ceiling))
    assert ((left >= 0) & (left <= 1)).all()
    assert (np.diff(left) <= 0).all()


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ([0.9, 0.88, 0.4, 0.39], 2),
        ([0.9, 0.85, 0.8, 0.76], 4),
        ([0.9, 0.1], 2),
        ([0.9], 1),
        ([], 0),
        ([0.0, -0.5, -1.0], 3),
        ([0.9, 0.5, 0.1], 1),
    ],
)
def test_a_list_breaks_off_before_its_largest_gap(values: list[float], kept: int) -> None:
    assert kept_before_gap(values, 0.15, 3) == kept


@given(st.lists(st.floats(0, 1)), FACTORS, st.integers(0, 9))
def test_the_best_row_is_never_cut_off(values: list[float], gap: float, rows: int) -> None:
    assert min(len(values), 1) <= kept_before_gap(sorted(values, reverse=True), gap, rows) <= len(values)


def test_rows_of_one_score_go_by_what_breaks_ties_and_then_by_number() -> None:
    scores = Scores(np.array([16, 32, 48]), np.array([1.0, 1.0, 1.0]), np.array([0.1, 0.2, 0.2]))
    assert [row.ref.id for row in ordered(scores, {})] == [2, 3, 1]
