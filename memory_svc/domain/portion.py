"""Parts of a text that a caller asks for: by characters, or by blocks, a fixed cut of the text into readable parts."""

import re
import unicodedata
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from memory_svc.domain.blocks import BLANKS, SENTENCE_END
from memory_svc.domain.memory import digest

BLOCK_CHARS_MAX = 800
REVISION_CHARS = 16
# In its second half a block ends after a paragraph, else after a sentence or a line, else after a word.
PARAGRAPH_END = re.compile(r"\n[^\S\n]*\n\s*")
Reason = Literal[
    "invalid_range",
    "stale_revision",
    "no_current_nodes",
    "no_current_blocks",
    "span_out_of_range",
    "block_out_of_range",
]


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of a row, or by span or block a part of it."""

    ref: str
    span: Annotated[list[int], Meta(description="Characters [from, before].")] | UnsetType = UNSET
    block: Annotated[int | list[int], Meta(description="Block from 0 (800 characters), or [first, last].")] | (
        UnsetType
    ) = UNSET
    node: int | list[int] | UnsetType = UNSET
    revision: Annotated[str, Meta(description="Refuse if the text is another one now.")] | UnsetType = UNSET

    @property
    def is_whole(self) -> bool:
        """Whether all of the row is asked for, of whatever revision."""
        return (self.span, self.block, self.node, self.revision) == (UNSET,) * 4


class Portion(msgspec.Struct, frozen=True, kw_only=True):
    """The part that is given: its characters, half open, of how many. block: the first and last of `of` blocks.

    revision: stands for the text that these numbers are of.
    """

    span: tuple[int, int]
    content_len: int
    revision: str
    block: tuple[int, int] | UnsetType = UNSET
    of: int | UnsetType = UNSET


def portion(text: str, part: Part) -> Portion | Reason:
    """Where in the text the part lies, or why it cannot be given exactly. An end beyond the text means its end."""
    if sum(each is not UNSET for each in (part.span, part.block, part.node)) > 1:
        return "invalid_range"
    revision = revision_of(text)
    if part.revision not in (UNSET, revision):
        return "stale_revision"
    whole = Portion(span=(0, len(text)), content_len=len(text), revision=revision)
    if part.span is not UNSET:
        return _by_characters(whole, part.span)
    if part.block is not UNSET:
        return _by_blocks(whole, part.block, blocks(text))
    return whole if part.node is UNSET else "no_current_nodes"


def revision_of(text: str) -> str:
    """Stands for a text where its parts are named by numbers."""
    return digest(text).hex()[:REVISION_CHARS]


def blocks(text: str) -> list[tuple[int, int]]:
    """The blocks of a text, half open and one after the other; () for an empty one. Each has 800 characters at most.

    Text that is appended changes the last one alone.
    """
    found: list[tuple[int, int]] = []
    start = 0
    while len(text) - start > BLOCK_CHARS_MAX:
        end = _end(text, start)
        found.append((start, end))
        start = end
    return [*found, (start, len(text))] if text else []


def _by_characters(whole: Portion, span: list[int]) -> Portion | Reason:
    if len(span) != 2 or not 0 <= span[0] < span[1]:
        return "invalid_range"
    if span[0] >= whole.content_len:
        return "span_out_of_range"
    return msgspec.structs.replace(whole, span=(span[0], min(span[1], whole.content_len)))


def _by_blocks(whole: Portion, asked: int | list[int], found: list[tuple[int, int]]) -> Portion | Reason:
    ends = [asked, asked] if isinstance(asked, int) else asked
    if len(ends) != 2 or not 0 <= ends[0] <= ends[1]:
        return "invalid_range"
    if not found:
        return "no_current_blocks"
    if ends[1] >= len(found):
        return "block_out_of_range"
    first, last = ends
    return msgspec.structs.replace(whole, span=(found[first][0], found[last][1]), block=(first, last), of=len(found))


def _end(text: str, start: int) -> int:
    least, end = start + BLOCK_CHARS_MAX // 2, start + BLOCK_CHARS_MAX
    for pattern in (PARAGRAPH_END, SENTENCE_END, BLANKS):
        places = [match.end() for match in pattern.finditer(text, least, end)]
        if places:
            return places[-1]
    while end > least and unicodedata.category(text[end]).startswith("M"):
        end -= 1
    return end
