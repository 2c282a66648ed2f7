"""The times a query speaks of: dates and stretches of time, in English and Japanese words and in digits.

No clock and no guess: `now` and the zone are given, and what may well mean something else is left alone.
"""

import datetime as dt
import re
from collections.abc import Iterable
from itertools import islice

import msgspec

from memory_svc.domain.recall.when import english, japanese, numeric
from memory_svc.domain.recall.when.calendar import EARLIEST, LATEST, Calendar
from memory_svc.domain.recall.when.forms import Form
from memory_svc.domain.recall.when.relations import Piece, related
from memory_svc.domain.text import normal
from memory_svc.errors import Invalid

__all__ = ["EARLIEST", "LATEST", "Span", "instant", "spans"]

QUERY_CHARS_MAX, SPANS_MAX = 1000, 8
FOUND_MAX = 32  # of one form

# What every form holds. Most queries hold none of it, and cost no more than these searches.
SIGN = re.compile(
    r"(?<![a-z])(?:(?:to(?:day|night|morrow)|yesterday|days?|weeks?|weekends?|nights?|mornings?|afternoons?|evenings?"
    r"|months?|quarters?|years?|hours?|minutes?|(?:mon|tues|wednes|thurs|fri|satur|sun)day|tues?|thu|thurs?|fri"
    r"|jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?|q[1-4])(?![a-z])|(?:19|20)[0-9]|[0-9]{1,2}/[0-9]{1,2}/)"
)
SIGN_BEYOND_ASCII = re.compile(
    "[0-9〇一二三四五六七八九十元][年月日週ヶケかカヵ個箇時分間]|[今昨明本]日|[今昨][朝夜晩]|[今先来々][週月]|[今去昨来本]年"
    "|曜|おとと|あさって|明後日"
)
# Digits are often set off from the character that counts them.
SET_OFF = re.compile(r"(?<=[0-9]) (?=[年月日週ヶケかカヵ個箇時分])|(?<=[年月]) (?=[0-9])")


class Span(msgspec.Struct, frozen=True):
    """A stretch of time, half open, in UTC, and what of the query said so (in lower case, NFKC)."""

    start: dt.datetime
    end: dt.datetime
    text: str


def spans(query: str, now: dt.datetime, zone: dt.tzinfo) -> list[Span]:
    """The times that a query speaks of, in its order, each once, at most eight; none is the usual answer.

    `now` is aware; days begin at midnight in `zone`. An open side ends at EARLIEST or LATEST. A date with two readings
    (8/5/2023) gives both. Only the first 1,000 characters are read, and no text raises anything.
    """
    text = normal(query[:QUERY_CHARS_MAX]).lower()
    is_ascii = text.isascii()
    if not (SIGN.search(text) or (not is_ascii and SIGN_BEYOND_ASCII.search(text))):
        return []
    text = " ".join(text.replace("’", "'").split())
    forms = [*numeric.FORMS, *english.FORMS]
    if not is_ascii:
        text, forms = SET_OFF.sub("", text), [*forms, *japanese.FORMS]
    said: dict[tuple[dt.datetime, dt.datetime], str] = {}
    for at, to, readings in related(text, _pieces(text, forms, Calendar(now, zone))):
        for start, end in readings:
            said.setdefault((start, end), text[at:to])
    return [Span(start, end, words) for (start, end), words in islice(said.items(), SPANS_MAX)]


def instant(text: str, zone: dt.tzinfo) -> dt.datetime:
    """The instant, in UTC, that a caller gave in ISO-8601.

    Without an offset it is a time in `zone`, and a date alone is its midnight there. Raises Invalid, with an
    example, when it is none or lies beyond the years 1 to 9999.
    """
    try:
        moment = dt.datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(dt.UTC)
    except (ValueError, OverflowError) as error:
        raise Invalid(
            f"{text[:80]!r} is no ISO-8601 date or instant; write it like 2026-03-01 or 2026-03-01T09:30:00+09:00"
        ) from error


def _pieces(text: str, forms: Iterable[Form], calendar: Calendar) -> list[Piece]:
    """What the forms find, in the order of the text; of two that overlap the one that begins first, then the longer."""
    found: list[Piece] = []
    for form in forms:
        for match in islice(form.pattern.finditer(text), FOUND_MAX):
            try:
                found.append(Piece(*match.span(), form.read(match, calendar)))
            except (ValueError, OverflowError):
                continue
    kept: list[Piece] = []
    for piece in sorted(found, key=lambda piece: (piece.at, -piece.to)):
        if not kept or piece.at >= kept[-1].to:
            kept.append(piece)
    return kept
