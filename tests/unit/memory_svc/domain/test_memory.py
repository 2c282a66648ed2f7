"""Refs, instants, sources."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.domain.memory import Kind, Ref, clean_content, instant, is_naive, utc, zone_of
from memory_svc.domain.scope import Scope
from memory_svc.errors import Invalid

NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


@given(st.sampled_from(Kind), st.integers(1, 1 << 58))
def test_a_ref_survives_its_text_and_its_document_number(kind: Kind, id: int) -> None:
    ref = Ref(kind, id)
    assert Ref.parse(str(ref)) == ref
    assert Ref.of_document(ref.document) == ref


@pytest.mark.parametrize(
    "text", ["", "mem", "mem:", "mem:x", "mem:-1", "MEM:1", " mem:1", "mem:1.0", "ep:1:2", "mem:٢"]
)
def test_what_is_no_ref_is_none(text: str) -> None:
    assert Ref.parse(text) is None


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("2026-03-01T09:30:00+09:00", "2026-03-01T00:30:00+00:00"),
        ("2026-03-01T09:30:00.5Z", "2026-03-01T09:30:00.500000+00:00"),
        ("2026-03-01 09:30", "2026-03-01T00:30:00+00:00"),
        ("  2026-03-01  ", "2026-02-28T15:00:00+00:00"),
        ("20260301T093000", "2026-03-01T00:30:00+00:00"),
        ("", "2026-03-01T00:00:00+00:00"),
    ],
)
def test_an_instant_is_kept_in_utc_and_a_naive_one_is_read_in_the_declared_zone(text: str, kept: str) -> None:
    assert instant(text, NOW, zone_of("Asia/Tokyo")) == kept


@pytest.mark.parametrize("text", ["garbage", "yesterday", "2026-13-01", "1714979289", "0001-01-01T00:00:00+09:00"])
def test_what_is_no_instant_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Invalid, match="write it like"):
        instant(text, NOW, dt.UTC)


def test_a_naive_text_is_told_from_one_with_a_zone() -> None:
    assert is_naive("2026-03-01T09:30:00")
    assert not is_naive("2026-03-01T09:30:00Z")
    assert not is_naive("")


@pytest.mark.parametrize("name", ["Nowhere/City", "", "../etc/passwd", "\0"])
def test_a_zone_that_is_not_known_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="zone"):
        zone_of(name)


@given(st.datetimes(min_value=dt.datetime(1900, 1, 1)), st.integers(-720, 840))
def test_utc_keeps_the_moment(naive: dt.datetime, minutes: int) -> None:
    moment = naive.replace(tzinfo=dt.timezone(dt.timedelta(minutes=minutes)))
    assert dt.datetime.fromisoformat(utc(moment)) == moment


@given(st.text(), st.integers(1, 50))
def test_cleaning_twice_changes_nothing_more_of_a_text_that_was_not_cut(text: str, chars: int) -> None:
    clean, was_cut = clean_content(text, chars)
    assert len(clean) <= chars
    assert was_cut is (len(text) > chars and was_cut)


def test_a_scope_admits_its_own_project_and_what_is_shared() -> None:
    scope = Scope(agent="a", project="P")
    assert scope.admits("a", "P")
    assert scope.admits("a", "")
    assert not scope.admits("a", "Q")
    assert not scope.admits("b", "P")
    assert Scope().admits("b", "Q")
