"""Days, weeks, months and years of a time zone, as seen from one instant. Weeks begin on Monday."""

import datetime as dt
from calendar import monthrange
from collections.abc import Callable
from typing import NamedTuple

EARLIEST = dt.datetime(1, 1, 2, tzinfo=dt.UTC)  # a day within what a datetime holds: any zone can show them
LATEST = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)
ONE_DAY, ONE_HOUR = dt.timedelta(days=1), dt.timedelta(hours=1)
UNIT_DAYS = {"day": 1, "week": 7, "weekend": 7}
UNIT_MONTHS = {"month": 1, "quarter": 3, "year": 12}
UNIT_TIMES = {"hour": ONE_HOUR, "minute": dt.timedelta(minutes=1)}
LEAP_GAP_YEARS = 8  # the 29th of February may be that far away (1896, 1904)


class Reading(NamedTuple):
    """A half-open stretch of time, both ends in UTC."""

    start: dt.datetime
    end: dt.datetime


class Found(NamedTuple):
    """What a form made of a piece of the query: every reading it has.

    `of_year` gives the reading in another year, where none was named; a weak one counts only beside a word that makes
    it a time.
    """

    readings: tuple[Reading, ...]
    of_year: Callable[[int], Reading] | None = None
    is_weak: bool = False


class Calendar:
    """The calendar of a zone. Its methods raise ValueError or OverflowError for what no calendar has."""

    def __init__(self, now: dt.datetime, zone: dt.tzinfo) -> None:
        self.now = now.astimezone(dt.UTC)
        self.zone = zone
        self.today = now.astimezone(zone).date()

    def midnight(self, day: dt.date) -> dt.datetime:
        """When that day begins here, in UTC."""
        return dt.datetime.combine(day, dt.time(), self.zone).astimezone(dt.UTC)

    def days(self, first: dt.date, count: int = 1) -> Reading:
        """Whole days."""
        return Reading(self.midnight(first), self.midnight(first + count * ONE_DAY))

    def unit(self, unit: str, offset: int = 0) -> Reading:
        """The day, week, weekend, month, quarter or year that lies `offset` units from the present one."""
        if unit in UNIT_TIMES:
            return self._clock_unit(unit, offset)
        start = moved(begun(self.today, unit), unit, offset)
        if unit == "weekend":
            return self.days(start + 5 * ONE_DAY, 2)
        return Reading(self.midnight(start), self.midnight(moved(start, unit, 1)))

    def lately(self, unit: str, count: int) -> Reading:
        """The last `count` units up to the end of today, or (of hours and minutes) up to now; below 0 the next ones."""
        if unit in UNIT_TIMES:
            there = self.now - count * UNIT_TIMES[unit]
            return Reading(min(there, self.now), max(there, self.now))
        there_day = moved(self.today, unit, -count)
        return Reading(self.midnight(min(there_day, self.today)), self.midnight(max(there_day, self.today) + ONE_DAY))

    def weekday(self, number: int, which: str = "") -> Reading:
        """A day of the week, Monday = 0: the `last` before today, the `next` after it, the one of `this` week.

        Without any of these it is the latest that has begun.
        """
        since = (self.today.weekday() - number) % 7
        ahead = {"last": -(since or 7), "next": 7 - since, "this": number - self.today.weekday(), "": -since}
        return self.days(self.today + ahead[which] * ONE_DAY)

    def day_of_week(self, number: int, weeks: int) -> Reading:
        """A day of the week that lies `weeks` from this one."""
        return self.days(moved(begun(self.today, "week"), "week", weeks) + number * ONE_DAY)

    def months(self, year: int, month: int, count: int = 1) -> Reading:
        """Whole months."""
        first = dt.date(year, month, 1)
        return Reading(self.midnight(first), self.midnight(moved(first, "month", count)))

    def latest(self, of_year: Callable[[int], Reading], which: str = "") -> Reading:
        """The latest of these that has begun; the `last` one over, the `next` to come, or the one of `this` year."""
        if which == "this":
            return of_year(self.today.year)
        if which == "next":
            return nearest(of_year, self.today.year, 1, lambda reading: reading.start > self.now)
        begin = self.midnight(self.today)
        if which == "last":
            return nearest(of_year, self.today.year, -1, lambda reading: reading.end <= begin)
        return nearest(of_year, self.today.year, -1, lambda reading: reading.start <= begin)

    def dated(self, of_year: Callable[[int], Reading], year: int | None, *, is_weak: bool = False) -> Found:
        """What lies in that year, or the latest such that has begun."""
        if year is None:
            return Found((self.latest(of_year),), of_year, is_weak)
        return Found((of_year(year),))

    def month_day(self, year: int | None, month: int, day: int, day_last: int = 0) -> Found:
        """A day of a month, or the days up to another one of it."""

        def of_year(each: int) -> Reading:
            first, last = dt.date(each, month, day), dt.date(each, month, day_last or day)
            return self.days(first, (last - first).days + 1)

        if 0 < day_last <= day:
            raise ValueError("days of a month go up")
        return self.dated(of_year, year)

    def _clock_unit(self, unit: str, offset: int) -> Reading:
        there = (self.now + offset * UNIT_TIMES[unit]).astimezone(self.zone)
        start = there.replace(second=0, microsecond=0)
        start = (start.replace(minute=0) if unit == "hour" else start).astimezone(dt.UTC)
        return Reading(start, start + UNIT_TIMES[unit])


def begun(day: dt.date, unit: str) -> dt.date:
    """The first day of the unit that holds this day."""
    if unit in UNIT_MONTHS:
        size = UNIT_MONTHS[unit]
        return dt.date(day.year, (day.month - 1) // size * size + 1, 1)
    return day if unit == "day" else day - day.weekday() * ONE_DAY


def moved(day: dt.date, unit: str, count: int) -> dt.date:
    """The day so many units on; where its month is too short, that month's last day."""
    if unit in UNIT_DAYS:
        return day + dt.timedelta(days=UNIT_DAYS[unit] * count)
    year, month = divmod(day.year * 12 + day.month - 1 + UNIT_MONTHS[unit] * count, 12)
    return dt.date(year, month + 1, min(day.day, monthrange(max(year, 1), month + 1)[1]))


def nearest(of_year: Callable[[int], Reading], year: int, step: int, is_wanted: Callable[[Reading], bool]) -> Reading:
    """The first reading that is wanted, year after year from this one on.

    Raises ValueError where no year near has it (the 31st of February).
    """
    for away in range(LEAP_GAP_YEARS + 1):
        try:
            reading = of_year(year + step * away)
        except ValueError:
            continue
        if is_wanted(reading):
            return reading
    raise ValueError("no year has that day")
