"""What stands beside a time and changes it (since, until, between one and another), or makes it one (in March)."""

import re
from collections.abc import Iterable
from itertools import pairwise, product
from typing import NamedTuple

from memory_svc.domain.recall.when.calendar import EARLIEST, LATEST, Found, Reading, nearest

NEAR_CHARS = 48
PART = r"(?:the )?(?:(?:very )?(?:start|beginning|middle|end) of |early |mid |late )?(?:the )?"
LEADING = re.compile(
    r"(?<![a-z0-9_])(?:(?P<unread>(?:day|night|morning|week|weekend|month|quarter|year|hour|minute)s? (?:before|after))"
    r"|(?P<since>(?:ever )?since|starting(?: from| in| on)?)|(?P<before>before|prior to|earlier than)"
    r"|(?P<until>up until|until|till|up to|as of)|(?P<by>by)|(?P<after>after|later than)"
    r"|(?P<within>in|on|during|from|over|around|throughout|back in|at"
    rf"|early|mid|late|(?:start|beginning|middle|end) of)) {PART}$"
)
ENDS = "(?=[にのはもで、。,?!) ]|$)"
TRAILING = re.compile(
    r"(?P<since>以降|以後|以来|から| onwards?(?![a-z]))|(?P<until>まで|以前)"
    rf"|(?P<before>(?:よりも?|の)?前{ENDS})|(?P<after>(?:よりも?|の)?後{ENDS})"
)
OPENING = re.compile(rf"(?<![a-z0-9_])(?:(?P<both>between)|from|since|starting(?: from| in| on)?) {PART}$")
TO = re.compile(rf" ?(?:to|through|thru|until|till|up to|[-–—~〜]|から|より) ?{PART}")
AND = re.compile(rf" and {PART}|と")
# A time told by another one: the Sunday before May 8, last Friday on May 8.
TOLD_BY = re.compile(r",? (?:before|after|of|on|in) (?:the )?")
CLOSING = re.compile("(?P<both>の?間)|まで")


class Piece(NamedTuple):
    """What a form found, and where."""

    at: int
    to: int
    found: Found


class Related(NamedTuple):
    """The readings of one time, or of two that stand for all between them, and where it is said."""

    at: int
    to: int
    readings: tuple[Reading, ...]


def related(text: str, pieces: list[Piece]) -> list[Related]:
    """The times of a text whose pieces are these, in its order."""
    told: list[Related] = []
    joined: Piece | None = None
    for piece, following in pairwise([*pieces, None]):
        if piece is None or piece is joined:
            continue
        pair = _pair(text, piece, following) if following else None
        if pair:
            joined = following
        is_told = following is not None and TOLD_BY.fullmatch(text, piece.to, following.at)
        one = pair or (None if is_told else _single(text, piece))
        if one:
            told.append(one._replace(readings=_within_time(one.readings)))
    return told


def _pair(text: str, first: Piece, second: Piece) -> Related | None:
    opening = OPENING.search(text, max(0, first.at - NEAR_CHARS), first.at)
    closing = CLOSING.match(text, second.to)
    if AND.fullmatch(text, first.to, second.at):
        is_pair = any(mark and mark["both"] for mark in (opening, closing))
    else:
        is_weak = first.found.is_weak and second.found.is_weak
        is_pair = bool(TO.fullmatch(text, first.to, second.at)) and (bool(opening) or not is_weak)
    if not is_pair:
        return None
    at, to = opening.start() if opening else first.at, closing.end() if closing else second.to
    return Related(at, to, _all_between(first.found, second.found))


def _all_between(first: Found, second: Found) -> tuple[Reading, ...]:
    """From the one to the end of the other; where no year is said, the year that puts them closest, in their order."""
    left, right = first.readings, second.readings
    try:
        if second.of_year:
            begin = left[0].start
            right = (nearest(second.of_year, begin.year, 1, lambda reading: reading.end > begin),)
        elif first.of_year:
            end = right[0].start
            left = (nearest(first.of_year, end.year + 1, -1, lambda reading: reading.start <= end),)
    except (ValueError, OverflowError):
        return ()
    pairs = zip(left, right, strict=True) if len(left) == len(right) else product(left, right)
    return tuple(Reading(min(a.start, b.start), max(a.end, b.end)) for a, b in pairs)


def _single(text: str, piece: Piece) -> Related | None:
    leading = LEADING.search(text, max(0, piece.at - NEAR_CHARS), piece.at)
    trailing = TRAILING.match(text, piece.to)
    kind = (leading and leading.lastgroup) or ""
    at, to = (leading.start() if leading else piece.at), piece.to
    if kind == "unread" or (piece.found.is_weak and kind in {"", "by"}):
        return None
    if kind in {"", "within"}:
        at = piece.at
        if trailing:
            kind, to = trailing.lastgroup or "", trailing.end()
    return Related(at, to, tuple(_changed(reading, kind) for reading in piece.found.readings))


def _changed(reading: Reading, kind: str) -> Reading:
    match kind:
        case "since":
            return Reading(reading.start, LATEST)
        case "after":
            return Reading(reading.end, LATEST)
        case "before":
            return Reading(EARLIEST, reading.start)
        case "until" | "by":
            return Reading(EARLIEST, reading.end)
        case _:
            return reading


def _within_time(readings: Iterable[Reading]) -> tuple[Reading, ...]:
    """Without what is empty, or so far away that some zone could not show it."""
    bounded = (Reading(max(start, EARLIEST), min(end, LATEST)) for start, end in readings)
    return tuple(reading for reading in bounded if reading.start < reading.end)
