"""What of ranked rows fits a number of tokens, so that a larger number never takes anything away.

Every row may take several forms, each larger than the one before. What an answer grows by is one fixed sequence: every
row in its least form, best first, then each in its larger ones. An answer is as much of that sequence as fits.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

BYTES_A_TOKEN = 3
# About what cl100k makes one token of: a word or a part of a long one, three digits, marks that follow one another.
PIECE = re.compile(r"[A-Z_]?[a-z]{1,9}|[A-Z]{1,3}|[0-9]{1,3}|[^\sA-Za-z0-9\x80-\U0010ffff]{1,3}|\n+")
# Tokens of five bytes of what is not ASCII.
OTHERS = 2
# Its brackets, less the comma that the last row has not.
LIST_BYTES = 1


class Size(NamedTuple):
    """How large a form is with its comma, and its turn: the forms of a lower turn are given to all rows first."""

    turn: int
    size_bytes: int


class Fit(NamedTuple):
    """The form that each row may have (-1 = it is left out), and which row's next form did not fit whole.

    growing: -1 = every row has its last form. left_bytes: what that row may yet grow by.
    """

    forms: list[int]
    growing: int
    left_bytes: int


def tokens_in(size_bytes: int) -> int:
    """About how many tokens there are in so many bytes of an answer as JSON: a third of them, rounded up."""
    return -(-size_bytes // BYTES_A_TOKEN)


def bytes_left(sizes: Iterable[int], tokens: int) -> int:
    """What is left of so many tokens beside rows of these sizes, each with its comma; below 0 where they do not fit."""
    return tokens * BYTES_A_TOKEN - LIST_BYTES - sum(sizes)


def tokens_of(text: str) -> int:
    """About how many cl100k tokens a text has: within a tenth in English, code and Japanese, at worst six tenths."""
    others = len(text.encode()) - sum(map(str.isascii, text))
    return len(PIECE.findall(text)) - (-others * OTHERS // 5)


def fitted(rows: Sequence[Sequence[Size]], tokens: int) -> Fit:
    """What fits so many tokens. rows: the forms of each, best row first, from the least to the largest."""
    steps = sorted((form.turn if at else 0, row, at) for row, forms in enumerate(rows) for at, form in enumerate(forms))
    forms = [-1] * len(rows)
    left = bytes_left((), tokens)
    for _, row, at in steps:
        grown = rows[row][at].size_bytes - (rows[row][at - 1].size_bytes if at else 0)
        if grown > left:
            return Fit(forms, row, left)
        left -= grown
        forms[row] = at
    return Fit(forms, -1, left)
