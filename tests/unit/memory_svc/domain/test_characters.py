"""How much of a query a text holds in runs of characters, in scripts without blanks."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.domain.recall.characters import ASKED_CHARS_MAX, TEXT_CHARS_MAX, held, unspaced_share

SCRIPTS = st.text(alphabet="国連の加盟かaＡ1 。")


@pytest.mark.parametrize(
    ("query", "better", "worse"),
    [
        pytest.param("国際連合", "国際連合に入る", "国際と連合に入る", id="a run counts more than its parts"),
        pytest.param("加盟した年", "年に加盟した", "年に開かれた", id="more of the query"),
        pytest.param("連盟", "加盟の国", "会議の国", id="one Han character is the root of a word"),
        pytest.param("コンゴ", "コンゴの川", "インドの川", id="a word of three characters"),
        pytest.param("ＡＢＣ社", "abc社の人", "会社の人", id="neither width nor case counts"),
    ],
)
def test_a_text_that_holds_longer_runs_of_the_query_holds_more_of_it(query: str, better: str, worse: str) -> None:
    more, less = held(query, [better, worse])
    assert 1.0 > more > less


def test_a_run_counts_by_its_length() -> None:
    # All three characters stand in one of two texts, and tell the same: 3 of 3 in a run of 3, which counts 3/7.
    assert held("東京都", ["東京都", "大阪"]).tolist() == pytest.approx([3 / 7, 0.0])
    # A run of two, and a Han character alone: (2 * 2/6 + 1 * 1/5) / 3.
    assert held("東京都", ["都は東京", "大阪"]).tolist() == pytest.approx([(2 * 2 / 6 + 1 / 5) / 3, 0.0])


def test_a_single_kana_is_no_run() -> None:
    assert held("かな", ["さかさ", "なごや"]).tolist() == [0.0, 0.0]


def test_what_all_texts_hold_tells_little() -> None:
    rare, common = held("の国", ["村の", "国だ", "町の", "森の"])[:2].tolist(), held("の国", ["の国", "の国"]).tolist()
    assert rare[1] > rare[0]
    assert common == pytest.approx([1 / 3, 1 / 3])


def test_a_long_query_and_a_long_text_are_read_so_far() -> None:
    assert held("東" * ASKED_CHARS_MAX + "京", ["京", "東"])[0] == 0.0
    assert held("京", ["東" * TEXT_CHARS_MAX + "京", "東"]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("query", "texts"), [("", ["東"]), ("東京", []), ("。 、", ["。 、"]), ("東\0京", ["\0", "東\0京"])]
)
def test_what_has_nothing_to_compare_holds_nothing_or_its_share(query: str, texts: list[str]) -> None:
    shares = held(query, texts)
    assert len(shares) == len(texts)
    assert ((shares >= 0.0) & (shares < 1.0)).all()


@given(SCRIPTS, st.lists(SCRIPTS, max_size=4))
def test_a_share_lies_between_nothing_and_all_and_goes_by_the_text_alone(query: str, texts: list[str]) -> None:
    shares = held(query, texts)
    assert ((shares >= 0.0) & (shares < 1.0)).all()
    assert np.array_equal(held(query, texts[::-1]), shares[::-1])


def test_the_share_of_a_query_that_lies_in_scripts_without_blanks() -> None:
    assert unspaced_share({"google": 3.0, "検索": 6.0, "索の": 3.0}) == pytest.approx(0.75)
    assert unspaced_share({"google": 3.0}) == 0.0
    assert unspaced_share({}) == 0.0
    assert math.isclose(unspaced_share({"検索": 0.0, "a": 1.0}), 0.0)
