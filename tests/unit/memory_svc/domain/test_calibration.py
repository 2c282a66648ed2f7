"""The same memories give the same threshold; a model's scale does not matter; a greater beta asks for more."""

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.domain.recall.calibration import Measured, Method, Rule, measured, questions, threshold
from tests.support.corpus import memory

METHODS: tuple[Method, ...] = ("zscore", "percentile", "separation")
RULE = Rule(method="zscore", beta=1.0, z_factor=1.0, percentile=0.95, sample_size=200)
NOISE = np.random.default_rng(7)
FOUND = Measured(NOISE.normal(0.9, 0.1, 64), NOISE.normal(0.2, 0.1, (64, 199)))


def test_a_question_is_the_latter_half_of_a_memory_that_says_enough() -> None:
    rows = [memory("Anna (8 May): the harbour office opens early"), memory("yes"), memory("x" * 400)]
    assert questions(rows) == {0: rows[0].content[len(rows[0].content) // 2 :]}


def test_evidence_is_the_cosine_and_half_the_share_of_what_is_told() -> None:
    rows = [memory(text) for text in ("harbour office opens", "harbour closed", "nothing")]
    vectors = np.eye(3)
    found = measured(rows, vectors, {0: "harbour office"}, np.array([[0.6, 0.8, 0.0]]))
    told = np.log1p([(3 - 2 + 0.5) / 2.5, (3 - 1 + 0.5) / 1.5])
    assert found.own == pytest.approx([0.6 + 0.5])
    assert found.others[0] == pytest.approx([0.8 + 0.5 * told[0] / told.sum(), 0.0])


@pytest.mark.parametrize("method", METHODS)
def test_a_greater_beta_asks_for_more(method: Method) -> None:
    rules = [msgspec.structs.replace(RULE, method=method, beta=beta) for beta in (0.5, 1.0, 2.0)]
    thresholds = [threshold(FOUND, rule, 500) for rule in rules]
    assert thresholds == sorted(thresholds)
    assert 0.4 < thresholds[0] <= thresholds[-1] < 0.9


def test_the_zscore_goes_by_what_the_best_of_so_many_rows_reaches_by_chance() -> None:
    few, many, more = (threshold(FOUND, RULE, count) for count in (50, 2000, 2_000_000))
    assert few == pytest.approx(0.2 + 0.1 * (2.05 + 1), abs=0.01)
    assert many == more == pytest.approx(0.2 + 0.1 * (3.29 + 1), abs=0.01)


@given(st.floats(0.05, 1.0), st.floats(-0.5, 0.9))
def test_a_model_that_gives_other_cosines_gets_the_same_verdicts(scale: float, shift: float) -> None:
    for method in METHODS:
        rule = msgspec.structs.replace(RULE, method=method)
        moved = threshold(Measured(FOUND.own * scale + shift, FOUND.others * scale + shift), rule, 500)
        assert moved == pytest.approx(threshold(FOUND, rule, 500) * scale + shift, abs=0.0012)


def test_where_rows_are_not_told_apart_the_threshold_lies_between() -> None:
    for own, others in itertools.product((0.4, 0.5), (0.4, 0.5)):
        rule = msgspec.structs.replace(RULE, method="separation")
        assert 0.39 < threshold(Measured(np.full(9, own), np.full((9, 5), others)), rule, 10) < 0.51
