"""Long texts in overlapping blocks, so that a model which reads no further than its window reads all of them."""

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

# A block ends in its last quarter, where a sentence, a line or at least a word does, and begins where one does too.
ENDS_WITHIN, OVERLAP, OVERLAP_MIN = 4, 6, 12
# Texts are not equally dense: most blocks of so much of what a window took of the first one fit into it.
FITTING = 0.9
CHARS_MIN = 16
SENTENCE_END = re.compile(r"[.!?…]+[\"'”’)\]]*\s+|[。．！？]+[」』）]*|\n+")
BLANKS = re.compile(r"\s+")
JOINER = "\u200d"
# Zero-width joiners, vowels and finals of Hangul written in parts, tones of skin, letters of flags.
JOINED = (range(0x200C, 0x200E), range(0x1160, 0x1200), range(0x1F3FB, 0x1F400), range(0xE0020, 0xE0080))
FLAGS = range(0x1F1E6, 0x1F200)


class Span(NamedTuple):
    """A part of a text: from, to."""

    start: int
    stop: int


class Passage(msgspec.Struct, frozen=True):
    """A text that is embedded.

    lead: what stands before each block but the first. begins: where the row's own content begins in the text.
    """

    text: str
    lead: str = ""
    begins: int = 0

    def block(self, span: Span) -> str:
        """The text of a block."""
        return (self.lead if span.start else "") + self.text[span.start : span.stop]

    def reached(self, span: Span, read: int) -> int:
        """Where in the text the first `read` characters of a block end."""
        return span.start + max(read - (len(self.lead) if span.start else 0), 0)

    def within(self, span: Span) -> Span:
        """A part of the text as a part of the row's own content."""
        return Span(max(span.start - self.begins, 0), max(span.stop - self.begins, 0))


def planned(passage: Passage, chars: int) -> list[Span]:
    """The blocks of at most so many characters that a text is cut into before a model has read any of it; 0 = one."""
    whole = Span(0, len(passage.text))
    if not chars or whole.stop <= chars:
        return [whole]
    return cut(passage.text, whole, max(chars - len(passage.lead), CHARS_MIN))


def unread(passage: Passage, span: Span, read: int | None) -> list[Span]:
    """The blocks for what a model left of a block of which it read the first `read` characters; None = all of them."""
    if read is None:
        return []
    chars = int(read * FITTING) - len(passage.lead)
    reached = passage.reached(span, read)
    if chars < CHARS_MIN or not reached < span.stop:
        return []
    return cut(passage.text, Span(_resumed(passage.text, reached, chars), span.stop), chars)


def cut(text: str, span: Span, chars: int) -> list[Span]:
    """Overlapping parts of at most so many characters that cover this part of a text, in order."""
    found: list[Span] = []
    start = span.start
    while span.stop - start > chars:
        stop = _ended(text, start, start + chars)
        found.append(Span(start, stop))
        start = _resumed(text, stop, chars)
    return [*found, Span(start, span.stop)]


def covered(spans: Iterable[Span]) -> int:
    """How many characters lie in any of these parts."""
    count = reached = 0
    for start, stop in sorted(spans):
        count += max(stop - max(start, reached), 0)
        reached = max(reached, stop)
    return count


def _ended(text: str, start: int, stop: int) -> int:
    """The best place for a block to end, up to `stop`: the last one in its last quarter."""
    least = stop - (stop - start) // ENDS_WITHIN
    for pattern in (SENTENCE_END, BLANKS):
        places = _ends(pattern, text, least, stop)
        if places:
            return places[-1]
    return next((place for place in range(stop, least, -1) if _parts(text, place)), stop)


def _resumed(text: str, stop: int, chars: int) -> int:
    """The best place for the next block to begin: some way before this one ends."""
    earliest, latest = stop - chars // OVERLAP, stop - chars // OVERLAP_MIN
    for pattern in (SENTENCE_END, BLANKS):
        places = _ends(pattern, text, earliest, latest)
        if places:
            return places[0]
    return next((place for place in range(earliest, latest) if _parts(text, place)), earliest)


def _ends(pattern: re.Pattern[str], text: str, start: int, stop: int) -> list[int]:
    return [match.end() for match in pattern.finditer(text, start, stop) if _parts(text, match.end())]


def _parts(text: str, place: int) -> bool:
    """Whether a text may be parted there: not within what is read as one character."""
    before, after = text[place - 1 : place], text[place : place + 1]
    if not before or not after:
        return True
    if unicodedata.category(after).startswith("M") or any(ord(after) in each for each in JOINED):
        return False
    if before == JOINER or (before, after) == ("\r", "\n"):
        return False
    return not (ord(before) in FLAGS and ord(after) in FLAGS)
