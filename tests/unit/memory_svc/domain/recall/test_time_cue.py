"""How a time cue and an as_of are read."""

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.domain.memory import utc
from memory_svc.domain.recall.time_cue import Ago, TimeCue, Times, read_as_of, read_cue, times
from memory_svc.domain.recall.when import spans
from memory_svc.errors import Invalid

TOKYO, ANGELES = ZoneInfo("Asia/Tokyo"), ZoneInfo("America/Los_Angeles")
NOW = dt.datetime(2026, 3, 11, 15, 30, tzinfo=TOKYO)  # a Wednesday


def read(zone: dt.tzinfo = TOKYO, **cue: Any) -> tuple[str, str]:
    """The stretch of time of a cue that a caller sends."""
    found = read_cue(msgspec.convert({"confidence": "sure", **cue}, TimeCue), NOW, zone)
    return found.after, found.before


@pytest.mark.parametrize(
    ("cue", "after", "before"),
    [
        ({"after": "2026-03-01"}, "2026-02-28T15:00:00+00:00", ""),
        ({"before": "2026-03-01"}, "", "2026-03-01T15:00:00+00:00"),
        ({"after": "2026-03-01", "before": "2026-03-01"}, "2026-02-28T15:00:00+00:00", "2026-03-01T15:00:00+00:00"),
        ({"after": "2026-03-01T08:30"}, "2026-02-28T23:30:00+00:00", ""),
        ({"after": "2026-03-01T08:30Z"}, "2026-03-01T08:30:00+00:00", ""),
        ({"before": "2026-03-01T08:30:00.5+09:00"}, "", "2026-02-28T23:30:00.500000+00:00"),
        ({"after": " 2026-03-01 ", "before": None, "ago": None}, "2026-02-28T15:00:00+00:00", ""),
        ({"before": "9999-12-31"}, "", "9999-12-31T00:00:00+00:00"),
        ({"ago": {"unit": "days", "value": 0}}, "2026-03-10T15:00:00+00:00", "2026-03-11T15:00:00+00:00"),
        ({"ago": {"unit": "days", "value": 1}}, "2026-03-09T15:00:00+00:00", "2026-03-10T15:00:00+00:00"),
        ({"ago": {"unit": "weeks", "value": 1}}, "2026-03-01T15:00:00+00:00", "2026-03-08T15:00:00+00:00"),
        ({"ago": {"unit": "months", "value": 1}}, "2026-01-31T15:00:00+00:00", "2026-02-28T15:00:00+00:00"),
        ({"ago": {"unit": "long_ago"}}, "", "2025-12-10T15:00:00+00:00"),
        ({"ago": {"unit": "long_ago", "value": 7}}, "", "2025-12-10T15:00:00+00:00"),
        ({"ago": "long_ago"}, "", "2025-12-10T15:00:00+00:00"),
    ],
)
def test_a_cue_is_a_half_open_stretch_in_utc(cue: dict[str, Any], after: str, before: str) -> None:
    assert read(**cue) == (after, before)


@pytest.mark.parametrize(
    ("cue", "told"),
    [
        ({}, "time_cue: give after, before or both, or else ago"),
        ({"after": "", "before": ""}, "time_cue: give after"),
        ({"after": "2026-03-01", "ago": "long_ago"}, "time_cue: give after"),
        ({"after": "last spring"}, "time_cue.after: 'last spring' is no ISO-8601 date or instant; write it like"),
        ({"before": "2026-02-30"}, "time_cue.before: '2026-02-30' is no"),
        ({"after": "2026-03-02", "before": "2026-03-01"}, "time_cue: before (2026-03-01) is not later than after"),
        ({"after": "2026-03-02T00:00", "before": "2026-03-02T00:00"}, "time_cue: before"),
        ({"ago": {"unit": "days"}}, "time_cue.ago.value: is required; give how many days ago it was"),
    ],
)
def test_a_cue_that_cannot_be_read_names_the_field_and_what_to_give(cue: dict[str, Any], told: str) -> None:
    with pytest.raises(Invalid) as caught:
        read(**cue)
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize("cue", [{"befor": "2026-03-01"}, {"ago": "recently"}, {"ago": {"unit": "days", "n": 1}}])
def test_a_name_that_a_cue_does_not_have_is_refused_and_not_passed_over(cue: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(**cue)


@pytest.mark.parametrize("zone", [TOKYO, dt.UTC, ANGELES])
@pytest.mark.parametrize("unit", ["days", "weeks", "months"])
@pytest.mark.parametrize("value", [2, 3, 9, 100])
def test_ago_is_what_the_same_words_in_a_query_are(zone: dt.tzinfo, unit: str, value: int) -> None:
    (said,) = spans(f"{value} {unit} ago", NOW, zone)
    assert read(zone, ago={"unit": unit, "value": value}) == (utc(said.start), utc(said.end))


@given(
    st.sampled_from(["days", "weeks", "months"]),
    st.integers(0, 10_000),
    st.datetimes(dt.datetime(1970, 1, 2), dt.datetime(2200, 1, 1), timezones=st.timezones()),
)
def test_every_ago_within_its_limits_is_a_stretch_that_lies_back(unit: Any, value: int, now: dt.datetime) -> None:
    zone = now.tzinfo or dt.UTC
    found = read_cue(TimeCue("vague", ago=Ago(unit, value)), now, zone)
    assert found.after < found.before
    assert found.after <= utc(now)


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("2026-03-01T08:30", "2026-02-28T23:30:00+00:00"),
        ("2026-03-01T08:30:00Z", "2026-03-01T08:30:00+00:00"),
        ("2026-03-01", "2026-03-01T14:59:59.999999+00:00"),
    ],
)
def test_as_of_is_the_last_instant_that_counts(text: str, last: str) -> None:
    assert read_as_of(text, TOKYO) == last


def test_a_bad_as_of_is_named() -> None:
    with pytest.raises(Invalid, match=r"^as_of: 'then' is no ISO-8601"):
        read_as_of("then", TOKYO)


def test_only_a_sure_cue_narrows_and_any_other_lifts() -> None:
    for confidence, searched, lifted in (
        ("sure", ("2026-02-28T15:00:00+00:00", ""), ()),
        ("likely", ("", ""), (("2026-02-28T15:00:00+00:00", "9999-12-31T00:00:00+00:00"),)),
        ("vague", ("", ""), (("2026-02-28T15:00:00+00:00", "9999-12-31T00:00:00+00:00"),)),
    ):
        found = times(TimeCue(confidence, after="2026-03-01"), None, NOW, TOKYO)
        assert (found.searched, found.lifted) == (searched, lifted)
    only_before = times(TimeCue("vague", before="2026-03-01"), "", NOW, TOKYO)
    assert only_before.lifted == (("0001-01-02T00:00:00+00:00", "2026-03-01T15:00:00+00:00"),)
    assert times(None, None, NOW, TOKYO) == Times()
    assert Times().searched == ("", "")
