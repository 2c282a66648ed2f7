"""How much of a query in a script without blanks a text holds, character by character.

The word index cuts such scripts into pairs, which stand for words but know neither a word of three characters nor one.
A run of the query's characters that stands in the text as a whole tells more than its pairs apart; and a Han character
is a word or the root of one, so that 加盟 and 連盟 have one in common though they share no pair.
"""

import itertools
import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from memory_svc.domain.text import UNSPACED, is_unspaced

Floats = NDArray[np.float64]
Lengths = NDArray[np.uint8]
Codes = NDArray[np.uint32]
ASKED_CHARS_MAX = 128
TEXT_CHARS_MAX = 2_000
# A run of so many characters counts half of what its characters tell.
RUN_CHARS_HALF = 4
COUNTED = re.compile(rf"[^\W_]|[{UNSPACED}]")
HAN = re.compile("[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
# Full-width letters, digits and signs are those of ASCII in another width.
WIDE_FIRST, WIDE_LAST, WIDE_BEYOND = 0xFF01, 0xFF5E, 0xFEE0
BEFORE_TEXT = "\0"
ONE = np.uint8(1)


def unspaced_share(tells: Mapping[str, float]) -> float:
    """The share of what a query's words tell that lies in scripts without blanks; tells: of each word its idf."""
    inside = sum(told for word, told in tells.items() if is_unspaced(word))
    return inside / sum(tells.values()) if inside else 0.0


def held(query: str, texts: Sequence[str]) -> Floats:
    """Of each text the share (0 to 1) of what the query's characters tell that it holds in runs.

    The query is cut into the longest runs that stand in the text, from the left. A run of n characters counts
    n / (n + 4) of what they tell; one of a single character is none, unless it is Han. What a character tells is its
    idf among these texts: what all of them hold puts none before another.
    """
    asked = query[:ASKED_CHARS_MAX].lower()
    runs = _runs(asked, texts)
    frequencies = np.count_nonzero(runs, axis=1)
    counted = np.array([COUNTED.match(each) is not None for each in asked], np.bool_)
    tells = counted * np.log1p((len(texts) - frequencies + 0.5) / (frequencies + 0.5))
    alone = [HAN.match(each) is not None for each in asked]
    before = [0.0, *np.cumsum(tells).tolist()]
    return np.array([_told(lengths, before, alone) for lengths in runs.T.tolist()]) / (before[-1] or 1.0)


def _runs(asked: str, texts: Sequence[str]) -> Lengths:
    """How long the longest run is that begins at a place of the query (rows) and stands in a text (columns)."""
    wanted = _codes(asked)
    codes = _codes("".join(BEFORE_TEXT + text[:TEXT_CHARS_MAX].replace(BEFORE_TEXT, " ").lower() for text in texts))
    runs = (codes == np.where(wanted, wanted, WIDE_BEYOND)[:, np.newaxis]).astype(np.uint8)
    for longer, run in itertools.pairwise(runs[::-1]):
        run[:-1] *= longer[1:] + ONE
    return np.maximum.reduceat(runs, np.flatnonzero(codes == 0), axis=1)


def _told(lengths: Sequence[int], before: Sequence[float], alone: Sequence[bool]) -> float:
    """What the runs of a text tell. before: what the characters before each place of the query tell."""
    told, begin, count = 0.0, 0, len(lengths)
    while begin < count:
        length = lengths[begin]
        if length > 1 or (length and alone[begin]):
            told += (before[begin + length] - before[begin]) * length / (length + RUN_CHARS_HALF)
        begin += length or 1
    return told


def _codes(text: str) -> Codes:
    """The numbers of the characters, without regard to width."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    return np.where((codes >= WIDE_FIRST) & (codes <= WIDE_LAST), codes - np.uint32(WIDE_BEYOND), codes)
