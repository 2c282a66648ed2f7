"""Memories, episodes, profiles, precisions, their refs and vectors: the fields, limits and normal forms."""

import datetime as dt
import enum
import hashlib
import re
from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from memory_svc.domain.blocks import Span
from memory_svc.errors import Invalid

TEXT_FIELD_CHARS_MAX = 8000
ANNOTATION = re.compile(r"\[Memory from [^\]\n]{1,200}\]\s*")
SOURCE_TYPES = {
    "user": "User",
    "human": "User",
    "agent": "Agent",
    "ai": "Agent",
    "assistant": "Agent",
    "system": "System",
    "session": "System",
}


class Kind(enum.StrEnum):
    """The kinds of row that callers own. The code is part of a document number and never changes."""

    MEMORY = "memory"
    EPISODE = "episode"
    PROFILE = "profile"
    PRECISION = "precision"

    @property
    def code(self) -> int:
        """The kind's place in a document number."""
        return CODES[self]


KINDS = tuple(Kind)
CODES: Mapping[Kind, int] = {kind: code for code, kind in enumerate(KINDS)}


class Ref(msgspec.Struct, frozen=True, order=True):
    """Names one row: `mem:12`, `ep:3`."""

    kind: Kind
    id: int

    def __str__(self) -> str:
        return f"{PREFIXES[self.kind]}:{self.id}"

    @property
    def document(self) -> int:
        """The row's number in the search indexes: its id and its kind in one integer."""
        return self.id << 4 | self.kind.code

    @classmethod
    def of_document(cls, document: int) -> "Ref":
        """The ref behind a document number."""
        return cls(KINDS[document & 15], document >> 4)

    @classmethod
    def parse(cls, text: str) -> "Ref | None":
        """Read `mem:12` or `ep:3`; None when it is neither."""
        prefix, _, digits = text.partition(":")
        kind = KINDS_BY_PREFIX.get(prefix)
        if kind is None or len(digits) > ID_DIGITS_MAX or not (digits.isascii() and digits.isdigit()):
            return None
        return cls(kind, int(digits))


PREFIXES = {Kind.MEMORY: "mem", Kind.EPISODE: "ep", Kind.PROFILE: "profile", Kind.PRECISION: "precision"}
KINDS_BY_PREFIX = {prefix: kind for kind, prefix in PREFIXES.items()}
ID_DIGITS_MAX = 18


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """A fact as its owner stored it. Instants are ISO-8601 in UTC; id 0 = not stored yet; expires_at "" = never."""

    id: int = 0
    agent: str
    project: str = ""
    channel: str = ""
    msg_id: str = ""
    content: str
    source: dict[str, Any] | str = {}
    timestamp: str
    metadata: dict[str, Any] = {}
    created_at: str
    locked: bool = False
    revision: int = 1
    expires_at: str = ""
    tags: tuple[str, ...] = ()

    def is_over(self, now: str) -> bool:
        """Whether its time is over at that instant: nobody sees it any more."""
        return bool(self.expires_at) and self.expires_at <= now


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """A finished stretch of work or talk, as a summary. Empty times = not known."""

    id: int = 0
    agent: str
    project: str = ""
    channel: str = ""
    summary: str
    keywords: str = ""
    start_time: str = ""
    end_time: str = ""
    created_at: str
    resolved: bool = False
    revision: int = 1


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What is lastingly true of the one an agent serves. One text for each agent, user and project."""

    id: int = 0
    agent: str
    user: str = ""
    project: str = ""
    content: str
    updated_at: str
    revision: int = 1


class Precision(msgspec.Struct, frozen=True, kw_only=True):
    """How sure recall must be before it answers an agent: what was chosen; 0 and "" = what is set for all agents."""

    id: int = 0
    agent: str
    project: str = ""
    beta: float = 0.0
    method: str = ""
    z_factor: float = 0.0
    percentile: float = 0.0
    sample_size: int = 0
    revision: int = 1

    @property
    def is_chosen(self) -> bool:
        """Whether anything was."""
        return bool(self.beta or self.method or self.z_factor or self.percentile or self.sample_size)


class Block(msgspec.Struct, frozen=True):
    """A part of a row's content, from and to, with the values of its vector."""

    start: int
    stop: int
    values: bytes


class Vector(msgspec.Struct, frozen=True):
    """An L2-normalised embedding: little-endian float32 values, and the fingerprint of the model that made it.

    read: how many characters of the text it stands for, where the rest of them still lack blocks; None = none do.
    blocks: of a long text all of them, in order, the first with the vector's own values.
    """

    fingerprint: str
    values: bytes
    read: int | None = None
    blocks: tuple[Block, ...] = ()

    @property
    def spans(self) -> list[Span] | None:
        """Where the blocks of a text lie, [] where one vector stands for all of it; None = it waits for some."""
        return None if self.read is not None else [Span(each.start, each.stop) for each in self.blocks]


Row = Memory | Episode | Profile | Precision
TYPES: Mapping[Kind, type[Memory] | type[Episode] | type[Profile] | type[Precision]] = {
    Kind.MEMORY: Memory,
    Kind.EPISODE: Episode,
    Kind.PROFILE: Profile,
    Kind.PRECISION: Precision,
}


def kind_of(row: Row) -> Kind:
    """The kind of a row."""
    return next(kind for kind, known in TYPES.items() if isinstance(row, known))


def ref_of(row: Row) -> Ref:
    """The ref of a stored row."""
    return Ref(kind_of(row), row.id)


def digest(text: str) -> bytes:
    """16 bytes that stand for a text where equality alone matters (the head of its SHA-256)."""
    return hashlib.sha256(text.encode()).digest()[:16]


def clean_content(text: str, chars_max: int) -> tuple[str, bool]:
    """A content in normal form, and whether it was cut.

    Annotations that recall's readers put around a memory (`[Memory from …]`) are taken out, outer blanks dropped.
    """
    clean = ANNOTATION.sub("", text).strip()
    return clean[:chars_max], len(clean) > chars_max


def folded_source(source: Mapping[str, Any] | str) -> dict[str, Any] | str:
    """A source with its type in one of the known spellings (User, Agent, System); what is not known stays as it is.

    A bare `"assistant"` and a pair `{"User": "u9"}` become the full form with type, id and name.
    """
    if isinstance(source, str):
        known = SOURCE_TYPES.get(source.strip().casefold())
        return {"type": known, "id": "", "name": ""} if known else source
    if set(source) <= {"User", "Agent", "System"} and len(source) == 1:
        return _full_source(*next(iter(source.items())))
    kind = source.get("type")
    if not isinstance(kind, str):
        return dict(source)
    return {**source, "type": SOURCE_TYPES.get(kind.strip().casefold(), kind)}


def _full_source(kind: str, inner: object) -> dict[str, Any]:
    if isinstance(inner, str):
        return {"type": kind, "id": inner, "name": inner if kind == "User" else ""}
    if isinstance(inner, Mapping):
        return {"id": "", "name": "", **inner, "type": kind}
    return {kind: inner}


def source_id_of(source: Mapping[str, Any] | str) -> str:
    """The id by which a source filter finds a memory; "" where it has none."""
    found = source.get("id") if isinstance(source, Mapping) else None
    return found if isinstance(found, str) else ""


def instant(text: str, now: dt.datetime, zone: dt.tzinfo, field: str = "timestamp") -> str:
    """An instant in UTC, ISO-8601 with an explicit zone. Empty text = now; a naive text is read in `zone`.

    Raises Invalid, naming the field, when the text is not an ISO-8601 instant.
    """
    if not text.strip():
        return utc(now)
    try:
        moment = dt.datetime.fromisoformat(text.strip())
        return utc(moment if moment.tzinfo else moment.replace(tzinfo=zone))
    except (ValueError, OverflowError) as error:
        raise Invalid(
            f"{field}: {text[:80]!r} is no ISO-8601 instant that can be kept; write it like 2026-03-01T09:30:00+09:00"
        ) from error


def expiry(text: str, now: dt.datetime, zone: dt.tzinfo) -> str:
    """When a memory's time is over, in UTC; "" = never. Read as a timestamp is.

    Raises Invalid when the text is not an ISO-8601 instant, or not later than now.
    """
    if not text.strip():
        return ""
    over = instant(text, now, zone, "expires_at")
    if over <= utc(now):
        raise Invalid(f"expires_at: {over} is not later than now ({utc(now)}); give a later instant, or leave it out")
    return over


def is_naive(text: str) -> bool:
    """Whether an ISO-8601 instant names no zone, so that one was assumed for it."""
    return bool(text.strip()) and dt.datetime.fromisoformat(text.strip()).tzinfo is None


def utc(moment: dt.datetime) -> str:
    """An aware instant as ISO-8601 in UTC, to the microsecond where it has any."""
    return moment.astimezone(dt.UTC).isoformat()


def zone_of(name: str) -> dt.tzinfo:
    """The time zone of that IANA name.

    Raises Invalid when there is none.
    """
    try:
        return dt.UTC if name.upper() == "UTC" else ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise Invalid(f"zone: {name[:80]!r} is not a time zone; write it like Asia/Tokyo or UTC") from error
