"""Listing memories and episodes, newest first, page by page."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from memory_svc.domain.access.principal import Permission
from memory_svc.domain.labels import asked_tags, asked_values
from memory_svc.domain.memory import Kind, Ref
from memory_svc.domain.scope import Scope
from memory_svc.domain.text import preview
from memory_svc.services.memory.page import Cursor, next_cursor, position
from memory_svc.services.memory.recall import MetadataFilter, ProjectFilter, TagFilter
from memory_svc.services.operation import Effect, Request, Runtime, operation

MEMORIES_BUDGET_CHARS = 1_000_000
EPISODES_BUDGET_CHARS = 800_000
CUT_CHARS = 500

AgentFilter = Annotated[str, Meta(max_length=1000, description="Whose rows; left out = all you may read.")]


class ListMemories(Request, frozen=True, kw_only=True):
    """Which memories."""

    agent_id: AgentFilter | UnsetType = UNSET
    limit: Annotated[int, Meta(description="Rows at most; at most 500.")] = 100
    cursor: Cursor = ""
    project_id: ProjectFilter | UnsetType = UNSET
    tags: TagFilter = ()
    metadata: MetadataFilter = msgspec.field(default_factory=dict)


class ListedMemory(msgspec.Struct, frozen=True, kw_only=True):
    """A memory in a list."""

    id: int
    agent_id: str
    project_id: str
    content: str
    source: dict[str, Any] | str
    timestamp: str
    created_at: str
    locked: bool
    channel: str
    expires_at: str | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    content_len: int | UnsetType = UNSET
    content_truncated: bool | UnsetType = UNSET
    ref: str | UnsetType = UNSET


class Memories(msgspec.Struct, frozen=True, kw_only=True):
    """Memories, newest first; next_cursor where there are more. budget_chars: contents were cut to keep to it."""

    memories: list[ListedMemory]
    count: int
    next_cursor: str | UnsetType = UNSET
    budget_chars: int | UnsetType = UNSET


class ListEpisodes(Request, frozen=True, kw_only=True):
    """Which episodes."""

    agent_id: AgentFilter | UnsetType = UNSET
    limit: Annotated[int, Meta(description="Rows at most; at most 200.")] = 50
    cursor: Cursor = ""
    project_id: ProjectFilter | UnsetType = UNSET


class ListedEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """An episode in a list."""

    id: int
    agent_id: str
    project_id: str
    summary: str
    keywords: str
    start_time: str | None
    end_time: str | None
    created_at: str
    summary_len: int | UnsetType = UNSET
    summary_truncated: bool | UnsetType = UNSET
    keywords_len: int | UnsetType = UNSET
    keywords_truncated: bool | UnsetType = UNSET
    ref: str | UnsetType = UNSET


class Episodes(msgspec.Struct, frozen=True, kw_only=True):
    """Episodes, newest first; next_cursor where there are more. budget_chars: texts were cut to keep to it."""

    episodes: list[ListedEpisode]
    count: int
    next_cursor: str | UnsetType = UNSET
    budget_chars: int | UnsetType = UNSET


@operation(needs=Permission.READ, effect=Effect.READ)
async def list_memories(runtime: Runtime, request: ListMemories) -> Memories:
    """List memories, newest first."""
    limit = max(0, min(request.limit, 500))
    found = await runtime.storage.memories.page(_scope(runtime, request), limit + 1, position(request.cursor))
    rows = found[:limit]
    listed = [
        ListedMemory(
            id=row.id,
            agent_id=row.agent,
            project_id=row.project,
            content=row.content,
            source=row.source,
            timestamp=row.timestamp,
            created_at=row.created_at,
            locked=row.locked,
            channel=row.channel,
            expires_at=row.expires_at or UNSET,
            tags=list(row.tags) or UNSET,
        )
        for row in rows
    ]
    fits = list(_fits([len(row.content) for row in rows], MEMORIES_BUDGET_CHARS))
    shown = [row if whole else _cut_memory(row) for row, whole in zip(listed, fits, strict=True)]
    spent = any(row.content_truncated is True for row in shown)
    return Memories(
        memories=shown,
        count=len(shown),
        next_cursor=next_cursor(found, limit),
        budget_chars=MEMORIES_BUDGET_CHARS if spent else UNSET,
    )


@operation(needs=Permission.READ, effect=Effect.READ)
async def list_episodes(runtime: Runtime, request: ListEpisodes) -> Episodes:
    """List episodes, newest first."""
    limit = max(0, min(request.limit, 200))
    found = await runtime.storage.episodes.page(_scope(runtime, request), limit + 1, position(request.cursor))
    rows = found[:limit]
    listed = [
        ListedEpisode(
            id=row.id,
            agent_id=row.agent,
            project_id=row.project,
            summary=row.summary,
            keywords=row.keywords,
            start_time=row.start_time or None,
            end_time=row.end_time or None,
            created_at=row.created_at,
        )
        for row in rows
    ]
    fits = list(_fits([len(row.summary) + len(row.keywords) for row in rows], EPISODES_BUDGET_CHARS))
    shown = [row if whole else _cut_episode(row) for row, whole in zip(listed, fits, strict=True)]
    spent = any(row.ref is not UNSET for row in shown)
    return Episodes(
        episodes=shown,
        count=len(shown),
        next_cursor=next_cursor(found, limit),
        budget_chars=EPISODES_BUDGET_CHARS if spent else UNSET,
    )


OPERATIONS = (list_memories, list_episodes)


def _scope(runtime: Runtime, request: ListMemories | ListEpisodes) -> Scope:
    return runtime.present(
        Scope(
            agent=None if request.agent_id is UNSET else request.agent_id,
            project=None if request.project_id is UNSET else request.project_id,
            tags=asked_tags(request.tags) if isinstance(request, ListMemories) else (),
            metadata=asked_values(request.metadata) if isinstance(request, ListMemories) else (),
        )
    )


def _fits(sizes: Sequence[int], budget: int) -> Iterator[bool]:
    """For each row from the front, whether it is still given whole. The first always is."""
    spent = 0
    for at, size in enumerate(sizes):
        spent += size
        yield at == 0 or spent <= budget


def _cut_memory(row: ListedMemory) -> ListedMemory:
    if len(row.content) <= CUT_CHARS:
        return row
    return msgspec.structs.replace(
        row,
        content=preview(row.content, CUT_CHARS),
        content_len=len(row.content),
        content_truncated=True,
        ref=str(Ref(Kind.MEMORY, row.id)),
    )


def _cut_episode(row: ListedEpisode) -> ListedEpisode:
    cut: dict[str, Any] = {}
    for field in ("summary", "keywords"):
        text: str = getattr(row, field)
        if len(text) > CUT_CHARS:
            cut |= {field: preview(text, CUT_CHARS), f"{field}_len": len(text), f"{field}_truncated": True}
    return msgspec.structs.replace(row, **cut, ref=str(Ref(Kind.EPISODE, row.id))) if cut else row
