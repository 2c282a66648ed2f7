"""What a caller says about time: when something was said (a cue), and up to when the store is to be looked at.

No clock: `now` and the zone are given. A date alone stands for the whole day in that zone.
"""

import datetime as dt
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from memory_svc.domain.memory import utc
from memory_svc.domain.recall.when import EARLIEST, LATEST, instant
from memory_svc.domain.recall.when.calendar import Calendar, Reading, moved
from memory_svc.errors import Invalid

LONG_AGO_MONTHS = 3
ONE_MICROSECOND = dt.timedelta(microseconds=1)


class Ago(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The day, week (from Monday) or month of the calendar so far back; long_ago = over 3 months, without a value."""

    unit: Literal["days", "weeks", "months", "long_ago"]
    value: Annotated[int, Meta(ge=0, le=10_000)] | None = None


class TimeCue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Only if the request names a time: said after and/or before (ISO-8601; a date is the whole day), or ago."""

    confidence: Annotated[
        Literal["sure", "likely", "vague"],
        Meta(description="sure = search that time alone; else its rows only rank higher."),
    ]
    after: str | None = None
    before: str | None = None
    ago: Ago | Literal["long_ago"] | None = None


class ReadCue(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a cue was read, in UTC: from `after` on, and before `before`. What is missing is open."""

    confidence: Literal["sure", "likely", "vague"]
    after: str = ""
    before: str = ""


class Times(msgspec.Struct, frozen=True):
    """What a call says about time, as it was read, in UTC."""

    cue: ReadCue | UnsetType = UNSET
    as_of: str | UnsetType = UNSET

    @property
    def searched(self) -> tuple[str, str]:
        """The stretch of time that is searched alone, half open, an open side being ""."""
        return (self.cue.after, self.cue.before) if self.cue and self.cue.confidence == "sure" else ("", "")

    @property
    def lifted(self) -> tuple[tuple[str, str], ...]:
        """The stretches of time whose rows rank higher."""
        if not self.cue or self.cue.confidence == "sure":
            return ()
        return ((self.cue.after or utc(EARLIEST), self.cue.before or utc(LATEST)),)


def times(cue: TimeCue | None, as_of: str | None, now: dt.datetime, zone: dt.tzinfo) -> Times:
    """What the two arguments say. Raises Invalid, naming the field, where one cannot be read."""
    return Times(read_cue(cue, now, zone) if cue else UNSET, read_as_of(as_of, zone) if as_of else UNSET)


def read_cue(cue: TimeCue, now: dt.datetime, zone: dt.tzinfo) -> ReadCue:
    """The cue in UTC. Raises Invalid, naming the field, where it names no period, or two, or cannot be read."""
    if bool(cue.ago) == bool(cue.after or cue.before):
        raise Invalid('time_cue: give after, before or both, or else ago, like {"ago": {"unit": "days", "value": 3}}')
    if cue.ago:
        period = _ago(Ago("long_ago") if isinstance(cue.ago, str) else cue.ago, Calendar(now, zone))
        return ReadCue(cue.confidence, *(utc(each) if each > EARLIEST else "" for each in period))
    after = _moment("time_cue.after", cue.after, zone) if cue.after else None
    before = _moment("time_cue.before", cue.before, zone, is_end=True) if cue.before else None
    if after and before and after >= before:
        raise Invalid(f"time_cue: before ({cue.before}) is not later than after ({cue.after}); exchange or part them")
    return ReadCue(cue.confidence, utc(after) if after else "", utc(before) if before else "")


def read_as_of(text: str, zone: dt.tzinfo) -> str:
    """The last instant that counts, in UTC: the one named, or the last of the day named. Raises Invalid for no time."""
    last = _moment("as_of", text, zone, is_end=True)
    return utc(last if _date(text) is None else last - ONE_MICROSECOND)


def _ago(ago: Ago, calendar: Calendar) -> Reading:
    if ago.unit == "long_ago":
        return Reading(EARLIEST, calendar.midnight(moved(calendar.today, "month", -LONG_AGO_MONTHS)))
    if ago.value is None:
        raise Invalid(f"time_cue.ago.value: is required; give how many {ago.unit} ago it was")
    return calendar.unit(ago.unit.removesuffix("s"), -ago.value)


def _moment(field: str, text: str, zone: dt.tzinfo, *, is_end: bool = False) -> dt.datetime:
    """The instant of a field in UTC; of a date alone where that day begins in the zone, or ends."""
    try:
        moment = instant(text, zone)
    except Invalid as error:
        raise Invalid(f"{field}: {error}") from error
    day = _date(text)
    if day is None or not is_end:
        return moment
    return Calendar(moment, zone).days(day).end if day < LATEST.date() else LATEST


def _date(text: str) -> dt.date | None:
    """The date that a text is, where it names no hour."""
    try:
        return dt.date.fromisoformat(text.strip())
    except ValueError:
        return None
