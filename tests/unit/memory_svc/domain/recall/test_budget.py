"""What fits a number of tokens: by hand, and what must hold for any rows."""

from collections.abc import Sequence

import pytest
import quicktok
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.domain.recall.budget import Size, fitted, tokens_in, tokens_of

steps = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 60)), min_size=1, max_size=4)


def forms(grown: Sequence[tuple[int, int]]) -> list[Size]:
    """Forms that grow by so many turns and bytes each."""
    return [
        Size(sum(turn for turn, _ in grown[: at + 1]), sum(size for _, size in grown[: at + 1]))
        for at in range(len(grown))
    ]


rows = st.lists(steps.map(forms), max_size=8)


def test_tokens_are_a_third_of_the_bytes_rounded_up() -> None:
    assert [tokens_in(size) for size in (0, 1, 3, 4)] == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ('{"content":"Jon (8 May 2023): I lost my job, so I started a studio.","head_ref":"mem:612"},' * 9, 0.95, 1.1),
        ("def parse(text: str) -> Ref | None:\n    return cls(kind, int(digits)) if kind else None\n" * 9, 0.9, 1.25),
        ("今日は東京で会議をした。来週の予定は金曜日までに決める。" * 9, 0.9, 1.3),
        ("這份文件說明部署的步驟，請在週五以前完成。" * 9, 0.6, 1.3),
        ("Москва слезам не верит, а на улице уже темно. " * 9, 0.9, 1.5),
        ("Dziś na spotkaniu ustaliliśmy nowy termin wdrożenia systemu. " * 9, 0.6, 1.1),
        ("שלום לכולם, הפגישה נדחתה ליום שישי בבוקר " * 9, 0.6, 1.1),
        ("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" * 9, 0.6, 1.2),
        ("😀🎉 great 🚀✨💥 " * 9, 0.6, 1.2),
        ("", 1, 1),
    ],
)
def test_tokens_of_a_text_are_near_those_of_cl100k_and_never_under_six_tenths(
    text: str, least: float, most: float
) -> None:
    real = len(quicktok.get_encoding("cl100k_base").encode_ordinary(text))
    assert least * real <= tokens_of(text) <= most * real


def test_every_row_has_its_least_form_before_one_has_more() -> None:
    two = [[Size(0, 10), Size(1, 30)], [Size(0, 10), Size(1, 20)]]
    assert fitted(two, 3) == ([-1, -1], 0, 8)
    assert fitted(two, 4) == ([0, -1], 1, 1)
    assert fitted(two, 7) == ([0, 0], 0, 0)
    assert fitted(two, 14) == ([1, 0], 1, 1)
    assert fitted(two, 17) == ([1, 1], -1, 0)


def test_of_no_rows_nothing_is_given() -> None:
    assert fitted([], 5) == ([], -1, 14)


@given(rows, st.integers(1, 200))
def test_what_is_given_costs_no_more_and_is_the_best_rows(found: list[list[Size]], tokens: int) -> None:
    fit = fitted(found, tokens)
    given_forms = [each[at] for each, at in zip(found, fit.forms, strict=True) if at >= 0]
    assert tokens_in(sum(form.size_bytes for form in given_forms) + fit.left_bytes + 1) == tokens
    assert all(at >= 0 for at in fit.forms[: len(given_forms)])


@given(rows, st.integers(1, 200), st.integers(0, 50))
def test_more_tokens_take_nothing_away(found: list[list[Size]], tokens: int, more: int) -> None:
    fewer, larger = fitted(found, tokens).forms, fitted(found, tokens + more).forms
    assert all(one <= other for one, other in zip(fewer, larger, strict=True))
