"""How a way of writing a time is declared: what it looks like, and what it means."""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from memory_svc.domain.recall.when.calendar import Calendar, Found

# Not inside an identifier, a path, a version or an address. Letters of other scripts may touch: 2023-05-08に.
BEFORE = r"(?<![a-z0-9_./@#$-])(?<![0-9][,:])"
AFTER = r"(?![a-z0-9_]|[-./@:,][a-z0-9_])"
YEAR = r"(?:19|20)[0-9]{2}"


class Form(NamedTuple):
    """One way of writing a time. `read` raises ValueError or OverflowError for what no calendar has."""

    pattern: re.Pattern[str]
    read: Callable[[re.Match[str], Calendar], Found]


def any_of(phrases: Iterable[str]) -> str:
    """A group that takes any of these, the longest first."""
    return "(" + "|".join(sorted(phrases, key=len, reverse=True)) + ")"


def word(pattern: str) -> re.Pattern[str]:
    """A pattern that stands by itself."""
    return re.compile(BEFORE + "(?:" + pattern + ")" + AFTER)
