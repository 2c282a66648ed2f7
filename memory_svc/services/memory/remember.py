"""Storing, changing and forgetting memories."""

import datetime as dt
import json
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from memory_svc.domain.access.principal import Permission
from memory_svc.domain.blocks import Passage
from memory_svc.domain.change import ChangeMemory, Forget, ForgetAgent, PutMemory, SetLock
from memory_svc.domain.labels import tags_of
from memory_svc.domain.memory import (
    TEXT_FIELD_CHARS_MAX,
    Kind,
    Memory,
    Ref,
    clean_content,
    expiry,
    folded_source,
    instant,
    is_naive,
    utc,
)
from memory_svc.domain.scope import Scope
from memory_svc.domain.terms import embedded
from memory_svc.errors import Invalid
from memory_svc.services.memory.similar import Similar, similar_to
from memory_svc.services.operation import Effect, Receipt, Request, Runtime, operation

AHEAD_SECONDS_ALLOWED = 300
FORMS_MIXED = (
    "send content, id, source, timestamp, metadata, tags and expires_at either at the top level or inside message,"
    " not both"
)
FLAT_FIELDS = ("content", "id", "source", "timestamp", "metadata", "tags", "expires_at")

AgentId = Annotated[str, Meta(max_length=1000, description="Whose memory it is.")]
ProjectId = Annotated[str, Meta(max_length=1000, description='Project it belongs to; "" = shared by all.')]
Channel = Annotated[str, Meta(max_length=1000, description='Channel it belongs to; "" = shared by all.')]
MemoryId = Annotated[int, Meta(description="Number of the memory, as in `mem:<number>`.")]
Content = Annotated[str, Meta(description="The fact, as a sentence that can be understood alone.")]
OwnId = Annotated[str, Meta(max_length=1000, description="Your own id; one already stored is skipped.")]
SaidBy = Annotated[dict[str, Any] | str, Meta(description="Who said it: {type, id, name}.")]
SaidAt = Annotated[str, Meta(max_length=64, description="When, ISO-8601 with offset; now if left out.")]
Metadata = Annotated[dict[str, Any], Meta(description="Anything else, at most 8000 characters.")]
Tags = Annotated[tuple[str, ...], Meta(description="Labels by which reads may be filtered.")]
ExpiresAt = Annotated[str, Meta(max_length=64, description="When to forget it for good, ISO-8601; never if left out.")]
Owner = Annotated[str, Meta(max_length=1000, description="Refuse unless this agent owns it.")]
T = TypeVar("T")


class Source(msgspec.Struct, frozen=True):
    """Who said it."""

    type: Annotated[str, Meta(description="User, Agent or System.")] | None = None
    id: Annotated[str, Meta(description="Stable id, such as `discord:123`.")] | None = None
    name: str | None = None


class Message(msgspec.Struct, frozen=True):
    """A fact and where it comes from."""

    content: Content | None = None
    id: OwnId | None = None
    source: SaidBy | None = None
    timestamp: SaidAt | None = None
    metadata: Metadata | None = None
    tags: Tags | None = None
    expires_at: ExpiresAt | None = None


class Store(Request, frozen=True, kw_only=True):
    """Either `message`, or its fields at the top level."""

    agent_id: AgentId | UnsetType = UNSET
    content: Content | UnsetType = UNSET
    message: Annotated[Message, Meta(description="The same fields in an object, in place of the flat form.")] | (
        UnsetType
    ) = UNSET
    id: OwnId | UnsetType = UNSET
    source: SaidBy | UnsetType = UNSET
    timestamp: SaidAt | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET
    tags: Tags | UnsetType = UNSET
    expires_at: ExpiresAt | UnsetType = UNSET
    channel: Channel = ""
    project_id: ProjectId = ""
    lock: Annotated[bool, Meta(description="Protect it from being edited or deleted.")] | UnsetType = UNSET


class AheadOfClock(msgspec.Struct, frozen=True):
    """A timestamp that lies in the future by more than the allowance."""

    timestamp: str
    ahead_by_seconds: float
    allowance_seconds: int


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a fact: `result` says whether it was stored, skipped or rejected.

    similar: memories that say nearly the same; left out where there is none, or where it cannot be told. expires_at:
    when the memory that was stored, or is held already, is forgotten.
    """

    ok: bool
    result: Literal["stored", "skipped", "rejected"]
    reason: str | UnsetType = UNSET
    id: int | UnsetType = UNSET
    embedded: bool | UnsetType = UNSET
    receipt: Receipt | UnsetType = UNSET
    similar: list[Similar] | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET
    timestamp: str | UnsetType = UNSET
    timestamp_ahead_of_clock: AheadOfClock | UnsetType = UNSET
    expires_at: str | UnsetType = UNSET
    locked: bool | UnsetType = UNSET
    resolved_agent_id: str | UnsetType = UNSET


class UpdateMemory(Request, frozen=True, kw_only=True):
    """Which memory, and its new text, when it is forgotten, or both."""

    memory_id: MemoryId
    content: Annotated[str, Meta(description="The new text.")] | UnsetType = UNSET
    expires_at: (
        Annotated[str, Meta(max_length=64, description='When to forget it for good, ISO-8601; "" = never.')] | UnsetType
    ) = UNSET
    agent_id: Owner | UnsetType = UNSET


class Updated(msgspec.Struct, frozen=True, kw_only=True):
    """The memory that was changed."""

    ok: bool = True
    updated_id: int
    truncated: bool | UnsetType = UNSET
    expires_at: str | UnsetType = UNSET
    receipt: Receipt


class LockMemory(Request, frozen=True, kw_only=True):
    """Which memory."""

    memory_id: MemoryId
    agent_id: Owner | UnsetType = UNSET


class Locked(msgspec.Struct, frozen=True, kw_only=True):
    """The memory that is protected now."""

    ok: bool = True
    locked_id: int


class Unlocked(msgspec.Struct, frozen=True, kw_only=True):
    """The memory that is protected no more."""

    ok: bool = True
    unlocked_id: int


class DeleteAgentData(Request, frozen=True, kw_only=True):
    """Whose rows."""

    agent_id: Annotated[str, Meta(max_length=1000, description="Whose rows, every one of them.")]


class AgentDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows of each kind are gone, and how many of them still waited for a vector."""

    ok: bool = True
    agent_id: str
    deleted_memories: int
    deleted_profiles: int
    deleted_episodes: int
    deleted_pending_tasks: int = 0


class DeleteMemory(Request, frozen=True, kw_only=True):
    """Which memory."""

    memory_id: MemoryId
    agent_id: Owner | UnsetType = UNSET


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """The memory that is gone."""

    ok: bool = True
    deleted_id: int


class _Draft(msgspec.Struct, frozen=True):
    """A memory that may be stored, and what the answer must tell of it."""

    memory: Memory
    truncated: bool
    naive: bool
    resolved: bool


class _Rejected(Exception):
    """Why a fact is not taken: an outcome, not a failure."""


@operation(needs=Permission.WRITE, effect=Effect.ADD)
async def store(runtime: Runtime, request: Store) -> Stored:
    """Store one fact. Skips what is already stored; branch on `result`.

    `similar` names memories that say nearly the same: update one of them instead of keeping both.
    """
    locked = False if request.lock is True else UNSET
    try:
        draft = _draft(runtime, request)
    except _Rejected as rejected:
        return Stored(ok=False, result="rejected", reason=str(rejected), locked=locked)
    passage = embedded(draft.memory)
    vectors = await runtime.vector_of(passage)
    applied = await runtime.apply(PutMemory(draft.memory), vectors=vectors)
    outcome = applied.outcomes[0]
    stored = outcome.result == "stored"
    receipt = await runtime.receipt(Ref(Kind.MEMORY, applied.id()), vectors, passage) if stored else None
    kept = msgspec.structs.replace(draft.memory, id=applied.id())
    held = kept if stored else await _memory(runtime, kept.id, kept.agent)
    similar = await similar_to(runtime, kept, vectors.get(0)) if stored else []
    return Stored(
        ok=True,
        result="stored" if stored else "skipped",
        reason=outcome.reason or UNSET,
        id=applied.id(),
        embedded=receipt.vector == "done" if receipt else UNSET,
        receipt=receipt or UNSET,
        similar=similar or UNSET,
        truncated=draft.truncated or UNSET,
        timestamp=draft.memory.timestamp if stored and draft.naive else UNSET,
        timestamp_ahead_of_clock=_ahead(draft.memory.timestamp, runtime.clock()) if stored else UNSET,
        expires_at=held.expires_at if held and held.expires_at else UNSET,
        locked=request.lock or UNSET,
        resolved_agent_id=draft.memory.agent if draft.resolved else UNSET,
    )


@operation(needs=Permission.WRITE, effect=Effect.CHANGE)
async def update_memory(runtime: Runtime, request: UpdateMemory) -> Updated:
    """Replace a memory's text or expiry. Refused while it is locked, and where another memory holds that text."""
    if request.content is UNSET and request.expires_at is UNSET:
        raise Invalid("content: is required; give the new text, or expires_at")
    content, truncated = _new_content(runtime, request.content)
    expires_at = None if request.expires_at is UNSET else expiry(request.expires_at, runtime.clock(), runtime.call.zone)
    agent = owner(request.agent_id)
    before = await _memory(runtime, request.memory_id, agent)
    after = msgspec.structs.replace(before, content=before.content if content is None else content) if before else None
    passage = embedded(after) if after else Passage(content or "")
    vectors = await runtime.vector_of(passage) if after and content is not None else {}
    change = ChangeMemory(request.memory_id, content, agent, expires_at=expires_at)
    await runtime.apply(change, vectors=vectors)
    receipt = await runtime.receipt(Ref(Kind.MEMORY, request.memory_id), vectors, passage)
    return Updated(
        updated_id=request.memory_id,
        truncated=truncated or UNSET,
        expires_at=UNSET if expires_at is None else expires_at,
        receipt=receipt,
    )


@operation(needs=Permission.WRITE, effect=Effect.ERASE)
async def delete_memory(runtime: Runtime, request: DeleteMemory) -> Deleted:
    """Erase a memory for good. Refused while it is locked."""
    await runtime.apply(Forget(Ref(Kind.MEMORY, request.memory_id), owner(request.agent_id)))
    return Deleted(deleted_id=request.memory_id)


@operation(needs=Permission.WRITE, effect=Effect.CHANGE)
async def lock_memory(runtime: Runtime, request: LockMemory) -> Locked:
    """Protect a memory from being edited or deleted. It ranks no higher for it."""
    await runtime.apply(SetLock(request.memory_id, True, owner(request.agent_id)))
    return Locked(locked_id=request.memory_id)


@operation(needs=Permission.WRITE, effect=Effect.CHANGE)
async def unlock_memory(runtime: Runtime, request: LockMemory) -> Unlocked:
    """Let a memory be edited and deleted again."""
    await runtime.apply(SetLock(request.memory_id, False, owner(request.agent_id)))
    return Unlocked(unlocked_id=request.memory_id)


@operation(needs=Permission.WRITE, effect=Effect.ERASE)
async def delete_agent_data(runtime: Runtime, request: DeleteAgentData) -> AgentDeleted:
    """Erase everything of an agent for good: memories (locked ones too), episodes, profiles."""
    if not request.agent_id:
        raise Invalid("agent_id is required for bulk deletion: name the agent")
    applied = await runtime.apply(ForgetAgent(request.agent_id))
    counts = applied.outcomes[0].counts
    return AgentDeleted(
        agent_id=request.agent_id,
        deleted_memories=counts.get(Kind.MEMORY, 0),
        deleted_profiles=counts.get(Kind.PROFILE, 0),
        deleted_episodes=counts.get(Kind.EPISODE, 0),
    )


OPERATIONS = (store, update_memory, delete_memory, lock_memory, unlock_memory, delete_agent_data)


def owner(agent_id: str | UnsetType) -> str | None:
    """The agent that must own the row; None = whoever does."""
    return None if agent_id is UNSET else agent_id


def _draft(runtime: Runtime, request: Store) -> _Draft:
    """The memory in a request, checked in the order in which reasons are told."""
    message = _message(request)
    agent = runtime.settings.default_agent if request.agent_id is UNSET else request.agent_id
    if request.agent_id is UNSET and not agent:
        raise _Rejected("agent_id is required: name the agent, or set MEMORY_DEFAULT_AGENT")
    if not message.content:
        raise _Rejected("empty content")
    flat_default = {"type": "Agent", "id": agent, "name": ""} if request.message is UNSET else {}
    source = folded_source(flat_default if message.source is None else message.source)
    metadata = message.metadata or {}
    for name, value in (("source", source), ("metadata", metadata)):
        _refuse_long(name, value)
    content, truncated = clean_content(message.content, runtime.settings.content_chars_max)
    if not content:
        raise _Rejected("empty after sanitization")
    memory = Memory(
        agent=agent,
        project=request.project_id,
        channel=request.channel,
        msg_id=message.id or "",
        content=content,
        source=source,
        timestamp=_read(lambda: instant(message.timestamp or "", runtime.clock(), runtime.call.zone)),
        metadata=metadata,
        created_at=utc(runtime.clock()),
        locked=request.lock is True,
        expires_at=_read(lambda: expiry(message.expires_at or "", runtime.clock(), runtime.call.zone)),
        tags=_read(lambda: tags_of(message.tags or ())),
    )
    return _Draft(memory, truncated, is_naive(message.timestamp or ""), request.agent_id is UNSET)


def _message(request: Store) -> Message:
    flat = {name: value for name in FLAT_FIELDS if (value := getattr(request, name)) is not UNSET}
    if request.message is UNSET or request.message == Message():
        return Message(**flat)
    if flat:
        raise _Rejected(FORMS_MIXED)
    return request.message


def _refuse_long(name: str, value: object) -> None:
    chars = len(json.dumps(value))
    if chars > TEXT_FIELD_CHARS_MAX:
        raise _Rejected(f"{name} too large ({chars} chars, max {TEXT_FIELD_CHARS_MAX})")


def _read(field: Callable[[], T]) -> T:
    """What a field says; one that cannot be read is an outcome here."""
    try:
        return field()
    except Invalid as problem:
        raise _Rejected(problem.text) from problem


def _new_content(runtime: Runtime, text: str | UnsetType) -> tuple[str | None, bool]:
    """The text in normal form, and whether it was cut; None = it stays."""
    if text is UNSET:
        return None, False
    if not text.strip():
        raise Invalid("Content cannot be empty")
    content, truncated = clean_content(text, runtime.settings.content_chars_max)
    if not content:
        raise Invalid("Content cannot be empty after sanitization")
    return content, truncated


async def _memory(runtime: Runtime, id: int, agent: str | None) -> Memory | None:
    return (await runtime.storage.memories.get(runtime.present(Scope(agent=agent)), [id])).get(id)


def _ahead(timestamp: str, now: dt.datetime) -> AheadOfClock | UnsetType:
    seconds = (dt.datetime.fromisoformat(timestamp) - now).total_seconds()
    if seconds <= AHEAD_SECONDS_ALLOWED:
        return UNSET
    return AheadOfClock(timestamp, round(seconds, 3), AHEAD_SECONDS_ALLOWED)
