"""How rows look to a caller: the fields of an answer, cut to a preview or whole within a budget."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from memory_svc.domain.blocks import Span
from memory_svc.domain.memory import Episode, Kind, Memory, Profile, Ref
from memory_svc.domain.text import preview

EPISODE_MARK = "[Episode] "
PROFILE_MARK = "[Profile] "


class MatchReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a row is in the answer: how it was ranked, its score there, its cosine where it has one, and who found it."""

    signal: str
    score: float
    cosine: float | UnsetType = UNSET
    rrf: float | UnsetType = UNSET
    rsf: float | UnsetType = UNSET
    arms: list[str]


class Confidence(msgspec.Struct, frozen=True, kw_only=True):
    """How sure a row is the one that is meant, by its cosine and its age; score, 0 to 1, orders the answer."""

    score: float
    cosine: float | UnsetType = UNSET
    age_hours: float | UnsetType = UNSET
    resolved: bool | UnsetType = UNSET


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One row of an answer. `content_len` is told where the content is cut; `get_contents` gives it whole.

    A profile has neither ref nor timestamp.

    excerpt: the part beyond the cut that tells most of what the query's words tell. excerpt_basis: lexical = that part
    is given; start = none tells more than the beginning, which is the content; blocks = so it is, and given is the part
    that means most nearly what is asked.
    """

    content: str
    ref: str | UnsetType = UNSET
    source: dict[str, Any] | str
    timestamp: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    expires_at: str | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    context_type: Literal["conversation"] | UnsetType = UNSET
    confidence: Confidence | UnsetType = UNSET
    match_reason: MatchReason | UnsetType = UNSET
    content_len: int | UnsetType = UNSET
    content_truncated: bool | UnsetType = UNSET
    excerpt: str | UnsetType = UNSET
    excerpt_basis: Literal["blocks", "lexical", "start"] | UnsetType = UNSET


def whole(row: Memory | Episode) -> Shown:
    """A row with its whole content."""
    if isinstance(row, Episode):
        return Shown(
            content=EPISODE_MARK + row.summary,
            ref=str(Ref(Kind.EPISODE, row.id)),
            source={"System": "episode"},
            timestamp=row.start_time or row.created_at,
        )
    return Shown(
        content=row.content,
        ref=str(Ref(Kind.MEMORY, row.id)),
        source=row.source,
        timestamp=row.timestamp,
        id=row.msg_id or UNSET,
        expires_at=row.expires_at or UNSET,
    )


def shown_profile(profile: Profile) -> Shown:
    """A profile as it stands behind an answer's rows: whole, with no ref and no place in time."""
    return Shown(content=PROFILE_MARK + profile.content, source={"System": "profile"})


def shown_part(ref: Ref, span: Span) -> Span:
    """Where a part of a row's content lies in what is shown of the row."""
    before = len(EPISODE_MARK) if ref.kind is Kind.EPISODE else 0
    return Span(span.start + before, span.stop + before)


def complete(row: Memory | Episode) -> Shown:
    """A row with its whole content and its tags."""
    shown = whole(row)
    return msgspec.structs.replace(shown, tags=list(row.tags)) if isinstance(row, Memory) and row.tags else shown


def cut(row: Shown, chars: int) -> Shown:
    """A row cut to the first `chars` characters of its content, where it is longer; 0 = whole."""
    if not chars or len(row.content) <= chars:
        return row
    return msgspec.structs.replace(
        row, content=preview(row.content, chars), content_len=len(row.content), content_truncated=True
    )


def without_excerpt(row: Shown) -> Shown:
    """A row as it is where its content shows what an excerpt would."""
    return msgspec.structs.replace(row, excerpt=UNSET, excerpt_basis=UNSET) if row.excerpt_basis is not UNSET else row
