"""Dates in digits: ISO-8601 with or without a time, year first with slashes, and slashes with the year last."""

import datetime as dt
import re

from memory_svc.domain.recall.when.calendar import Calendar, Found, Reading
from memory_svc.domain.recall.when.forms import YEAR, Form, word

CLOCK = r"(?:[t ]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(?:[.,][0-9]{1,9})?(?: ?(z|[+-][0-9]{2}:?[0-9]{2}))?)?"


def _date(match: re.Match[str], calendar: Calendar) -> Found:
    year, month, day, minute, second, zone = match.groups()
    date = dt.date(int(year), int(month), int(day))
    if minute is None:
        return Found((calendar.days(date),))
    moment = dt.datetime.fromisoformat(f"{date}T{minute}{second or ''}{(zone or '').upper()}")
    start = (moment if moment.tzinfo else moment.replace(tzinfo=calendar.zone)).astimezone(dt.UTC)
    return Found((Reading(start, start + dt.timedelta(seconds=1 if second else 60)),))


def _month(match: re.Match[str], calendar: Calendar) -> Found:
    return Found((calendar.months(int(match[1]), int(match[2])),))


def _year_last(match: re.Match[str], calendar: Calendar) -> Found:
    """Day first and month first: nobody can tell, so both are read where both are days."""
    left, right, year = map(int, match.groups())
    orders = dict.fromkeys((month, day) for month, day in ((left, right), (right, left)) if month <= 12)
    if not orders:
        raise ValueError("no month")
    return Found(tuple(calendar.days(dt.date(year, month, day)) for month, day in orders))


FORMS = (
    Form(word(rf"({YEAR})[-/]([0-9]{{1,2}})[-/]([0-9]{{1,2}}){CLOCK}"), _date),
    Form(word(rf"({YEAR})[-/]([0-9]{{2}})"), _month),
    Form(word(rf"([0-9]{{1,2}})/([0-9]{{1,2}})/({YEAR})"), _year_last),
)
