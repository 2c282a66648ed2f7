"""Tags and values by which memories are filtered."""

import pytest

from memory_svc.domain.labels import TAGS_MAX, asked_tags, asked_values, folded, tags_of
from memory_svc.errors import Invalid


def test_tags_are_kept_as_given_but_for_blanks_and_each_once() -> None:
    assert tags_of([" Red", "red ", "ＲＥＤ", "two  words", "STRASSE", "straße"]) == ("Red", "two  words", "STRASSE")


@pytest.mark.parametrize(
    ("one", "other"), [("Red", "rED"), ("ｱｲ", "アイ"), ("Straße", "STRASSE"), ("e\u0301", "É"), ("ﬁle", "FILE")]
)
def test_tags_are_compared_without_case_and_width(one: str, other: str) -> None:
    assert folded(one) == folded(other)
    assert asked_tags([one, other]) == (folded(one),)


def test_marks_tell_tags_apart() -> None:
    assert folded("resume") != folded("résumé")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["a", " "], r"^tags\[1\]: is empty; leave it out"),
        (["x" * 101], r"^tags\[0\]: has 101 characters; shorten it to 100"),
        ([f"t{number}" for number in range(TAGS_MAX + 1)], r"^tags: 33 are too many; give at most 32"),
    ],
)
def test_tags_that_cannot_be_kept_are_named(given: list[str], problem: str) -> None:
    for read in (tags_of, asked_tags):
        with pytest.raises(Invalid, match=problem):
            read(given)


def test_a_filter_of_values_takes_every_scalar() -> None:
    given = {"a": "x", "b": 1, "c": 1.5, "d": True, "e": None}
    assert asked_values(given) == tuple(given.items())


@pytest.mark.parametrize("value", [{"x": 1}, [1]])
def test_a_filter_by_a_list_or_an_object_is_refused_by_its_key(value: object) -> None:
    with pytest.raises(Invalid, match=r"^metadata\.deep: is no text, number, true, false or null; give one of these"):
        asked_values({"deep": value})


def test_a_filter_of_too_many_values_is_refused() -> None:
    with pytest.raises(Invalid, match=r"^metadata: 33 keys are too many; give at most 32"):
        asked_values({str(number): 1 for number in range(33)})
