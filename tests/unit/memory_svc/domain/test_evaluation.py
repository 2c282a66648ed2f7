"""The measures of rankings, against values worked out by hand, and what must hold for any ranking."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.domain.evaluation import (
    Abstention,
    Moved,
    abstention,
    means,
    measures,
    moved,
    ndcg_at,
    paired_bootstrap,
    quantile,
    recall_at,
    reciprocal_rank,
)

ROWS = [f"mem:{number}" for number in range(8)]
rankings = st.lists(st.sampled_from(ROWS), unique=True)
relevances = st.sets(st.sampled_from(ROWS), min_size=1)
values = st.lists(st.floats(0, 1), min_size=1, max_size=30)


def test_recall_is_the_share_of_the_relevant_rows_among_the_first() -> None:
    assert recall_at(["a", "b", "c"], {"a", "c", "d", "e"}, 2) == 0.25
    assert recall_at(["a", "b", "c"], {"a", "c", "d", "e"}, 3) == 0.5
    assert recall_at([], {"a"}, 10) == 0.0


def test_the_reciprocal_rank_is_that_of_the_first_relevant_row() -> None:
    assert reciprocal_rank(["a", "b", "c"], {"b", "c"}) == 0.5
    assert reciprocal_rank(["a"], {"b"}) == 0.0


def test_gain_is_discounted_by_the_logarithm_of_the_rank_and_measured_against_the_best_order() -> None:
    best = 1 + 1 / math.log2(3)
    assert ndcg_at(["x", "a", "b"], {"a", "b"}, 10) == pytest.approx((1 / math.log2(3) + 0.5) / best)
    assert ndcg_at(["a"], {"a", "b", "c"}, 1) == 1.0


def test_every_measure_is_cut_where_the_answer_is() -> None:
    assert set(measures(["a"], {"a"}, 10)) == {"R@5", "R@10", "MRR", "nDCG@10"}
    assert set(measures(["a"], {"a"}, 3)) == {"R@3", "MRR", "nDCG@3"}
    assert measures(["x", "y", "a"], {"a"}, 2) == {"R@2": 0.0, "MRR": 0.0, "nDCG@2": 0.0}


@given(rankings, relevances, st.integers(1, 10))
def test_measures_lie_between_0_and_1_and_are_1_for_the_best_ranking(
    ranked: list[str], relevant: set[str], limit: int
) -> None:
    assert all(0 <= value <= 1 + 1e-12 for value in measures(ranked, relevant, limit).values())
    best = measures(sorted(relevant), relevant, limit)
    assert best["MRR"] == 1.0
    assert best[f"nDCG@{limit}"] == pytest.approx(1.0)
    assert best[f"R@{limit}"] == min(1.0, limit / len(relevant))


@given(rankings, relevances, st.integers(1, 9))
def test_more_rows_never_find_less(ranked: list[str], relevant: set[str], k: int) -> None:
    assert recall_at(ranked, relevant, k) <= recall_at(ranked, relevant, k + 1)


def test_the_mean_of_no_questions_is_none() -> None:
    assert means([]) == {}
    assert means([{"MRR": 1.0}, {"MRR": 0.0}]) == {"MRR": 0.5}


def test_silence_is_right_for_what_cannot_be_answered_and_wrong_for_the_rest() -> None:
    found = abstention([(True, True), (True, True), (True, False), (False, False), (False, True)])
    assert found == Abstention(unanswerable=2, silent=1, answerable=3, answered=2)
    assert (found.silent_share, found.answered_share) == (0.5, pytest.approx(2 / 3))


def test_a_share_of_no_questions_is_not_told() -> None:
    assert (abstention([]).silent_share, abstention([]).answered_share) == (None, None)


def test_a_quantile_between_two_values_is_between_them_in_proportion() -> None:
    assert [quantile([4.0, 1.0, 3.0, 2.0], share) for share in (0.0, 0.5, 1.0)] == [1.0, 2.5, 4.0]
    assert quantile([7.0], 0.95) == 7.0


@given(values, st.floats(0, 1))
def test_a_quantile_lies_among_the_values(found: list[float], share: float) -> None:
    assert min(found) <= quantile(found, share) <= max(found)


def test_an_interval_is_clear_where_one_is_better_almost_everywhere() -> None:
    first, second = [1.0] * 45 + [0.0] * 5, [0.0] * 50
    found = paired_bootstrap(first, second)
    assert found.mean == 0.9
    assert 0.75 < found.low < 0.9 < found.high <= 1.0
    assert found.is_clear
    assert paired_bootstrap(second, first).is_clear


def test_an_interval_that_holds_zero_is_not_clear() -> None:
    assert not paired_bootstrap([1.0, 0.0] * 20, [0.0, 1.0] * 20).is_clear
    assert not paired_bootstrap([], []).is_clear


def test_questions_without_their_partner_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        paired_bootstrap([1.0], [])


@given(values, values, st.integers(0, 5))
def test_an_interval_holds_its_mean_and_is_the_same_every_time(
    first: list[float], second: list[float], seed: int
) -> None:
    size = min(len(first), len(second))
    pair = first[:size], second[:size]
    found = paired_bootstrap(*pair, resamples=100, seed=seed)
    assert found == paired_bootstrap(*pair, resamples=100, seed=seed)
    gains = [one - other for one, other in zip(*pair, strict=True)]
    assert min(gains) - 1e-9 <= found.low <= found.high <= max(gains) + 1e-9
    assert found.mean == pytest.approx(-paired_bootstrap(pair[1], pair[0], resamples=1, seed=seed).mean)


def test_a_relevant_row_that_came_went_or_moved_is_told_and_no_other() -> None:
    found = moved(["a", "b", "c"], ["c", "b", "x"], {"a", "b", "c", "d"})
    assert found == [Moved("a", 1, None), Moved("c", 3, 1)]
