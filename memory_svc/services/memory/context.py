"""Recall beside a conversation: what is remembered and what was just said, in one order of time."""

import datetime as dt
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from memory_svc.domain.access.principal import Permission
from memory_svc.domain.memory import instant
from memory_svc.domain.recall.time_cue import TimeCue
from memory_svc.errors import Invalid
from memory_svc.services.memory.recall import (
    AsOf,
    Include,
    MaxTokens,
    MetadataFilter,
    ProjectFilter,
    Recall,
    Recalled,
    TagFilter,
    recalled,
)
from memory_svc.services.memory.shown import Shown
from memory_svc.services.operation import Effect, Request, Runtime, operation

MERGED_ROLES = ("user", "assistant")
NOTE = "what these roles said is not recalled again, and is not among the messages"


class ContextEntry(msgspec.Struct, frozen=True):
    """Something that was said in the conversation at hand."""

    role: Annotated[str, Meta(description="user and assistant are merged; others only filter.")] | None = None
    content: str | None = None
    name: str | None = None
    user_id: str | None = None
    timestamp: Annotated[str, Meta(description="When, ISO-8601 with offset.")] | None = None


class RecallWithContext(Request, frozen=True, kw_only=True):
    """A query, whose memories may answer it, and the conversation at hand."""

    agent_id: Annotated[str, Meta(max_length=1000, description="Whose memory to search.")]
    query: Annotated[str, Meta(description='What to look for, in any words; "" = the newest memories.')]
    external_context: Annotated[
        list[ContextEntry], Meta(max_length=1000, description="What was said; it is not recalled again.")
    ] = msgspec.field(default_factory=list)
    limit: Annotated[int, Meta(ge=0, le=100, description="Memories at most.")] = 10
    channel: Annotated[str, Meta(max_length=1000, description="Rows of it and shared ones.")] = ""
    deep: Annotated[
        bool, Meta(description="Admit weaker matches: answer with the best rows, even where none speaks to the query.")
    ] = False
    project_id: ProjectFilter | UnsetType = UNSET
    source_id: Annotated[str, Meta(max_length=1000, description="Only sources whose id begins so.")] = ""
    full_content: Annotated[bool, Meta(description="Give contents whole instead of their beginning.")] = False
    max_tokens: MaxTokens = 0
    time_cue: TimeCue | None = None
    as_of: AsOf = None
    tags: TagFilter = ()
    metadata: MetadataFilter = msgspec.field(default_factory=dict)
    include: Include = ()


class FilterOnly(msgspec.Struct, frozen=True):
    """Roles whose words filtered the recall and are not shown."""

    roles: list[str]
    note: str = NOTE


class RecalledWithContext(Recalled, frozen=True, kw_only=True):
    """What is remembered and what was said, oldest first. Rows of the conversation have a `context_type`."""

    context_filter_only: FilterOnly | UnsetType = UNSET


@operation(needs=Permission.READ, effect=Effect.READ)
async def recall_with_context(runtime: Runtime, request: RecallWithContext) -> RecalledWithContext:
    """Recall beside a conversation: one list of memories and of what was said, oldest first."""
    said = request.external_context
    asked = {
        name: getattr(request, name) for name in Recall.__struct_fields__ if name in RecallWithContext.__struct_fields__
    }
    found = await recalled(runtime, Recall(**asked, exclude_contents=[entry.content or "" for entry in said]))
    merged = [_shown(entry) for entry in said if entry.role in MERGED_ROLES and (entry.content or "").strip()]
    now, zone = runtime.clock(), runtime.call.zone
    messages = sorted([*merged, *found.messages], key=lambda row: _moment(row.timestamp or "", now, zone))
    hidden = sorted({entry.role or "(unset)" for entry in said if entry.role not in MERGED_ROLES})
    fields: dict[str, Any] = msgspec.structs.asdict(found) | {"messages": messages}
    return RecalledWithContext(**fields, context_filter_only=FilterOnly(hidden) if hidden else UNSET)


OPERATIONS = (recall_with_context,)


def _shown(entry: ContextEntry) -> Shown:
    user = {"type": "User", "id": f"discord:{entry.user_id or 'User'}", "name": entry.name or "User"}
    return Shown(
        content=entry.content or "",
        source=user if entry.role == "user" else {"type": "Agent", "id": "self"},
        timestamp=entry.timestamp or "",
        context_type="conversation",
    )


def _moment(text: str, now: dt.datetime, zone: dt.tzinfo) -> dt.datetime:
    """When a row is from; what cannot be read stands first."""
    try:
        return dt.datetime.fromisoformat(instant(text, now, zone)) if text.strip() else FIRST
    except Invalid:
        return FIRST


FIRST = dt.datetime.min.replace(tzinfo=dt.UTC)
