"""Archiving a finished stretch of work or talk as an episode."""

import datetime as dt
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from memory_svc.domain.access.principal import Permission
from memory_svc.domain.change import Forget, PutEpisode
from memory_svc.domain.memory import Episode, Kind, Ref, clean_content, instant, utc
from memory_svc.domain.terms import embedded
from memory_svc.errors import Invalid
from memory_svc.services.memory.remember import Channel, Owner, ProjectId, owner
from memory_svc.services.operation import Effect, Receipt, Request, Runtime, operation


class ArchiveEpisode(Request, frozen=True, kw_only=True):
    """The summary of what happened."""

    agent_id: Annotated[str, Meta(max_length=1000, description="Whose episode it is.")]
    summary: Annotated[str, Meta(description="What happened and what came of it, in a few sentences.")]
    history: Annotated[
        list[dict[str, Any]], Meta(description="The messages it sums up; only their `timestamp` is used.")
    ] = msgspec.field(default_factory=list)
    keywords: Annotated[str, Meta(description="Words to find it by.")] = ""
    resolved: Annotated[bool, Meta(description="Whether the matter is closed.")] = False
    project_id: ProjectId = ""
    channel: Channel = ""


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """The episode that was stored."""

    ok: bool = True
    episode_id: int
    truncated: bool | UnsetType = UNSET
    receipt: Receipt


class DeleteEpisode(Request, frozen=True, kw_only=True):
    """Which episode."""

    episode_id: Annotated[int, Meta(description="Number of the episode, as in `ep:<number>`.")]
    agent_id: Owner | UnsetType = UNSET


class EpisodeDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """The episode that is gone."""

    ok: bool = True
    deleted_id: int


@operation(needs=Permission.WRITE, effect=Effect.ADD, idempotent=False)
async def archive_episode(runtime: Runtime, request: ArchiveEpisode) -> Archived:
    """Archive a finished stretch of work as a summary. Each call makes a new episode."""
    chars = runtime.settings.content_chars_max
    summary, summary_cut = clean_content(request.summary, chars)
    keywords, keywords_cut = clean_content(request.keywords, chars)
    if not summary:
        raise Invalid("summary is required to archive an episode: say what happened", episode_id=None)
    start, end = span(request.history, runtime.clock(), runtime.call.zone)
    episode = Episode(
        agent=request.agent_id,
        project=request.project_id,
        channel=request.channel,
        summary=summary,
        keywords=keywords,
        start_time=start,
        end_time=end,
        created_at=utc(runtime.clock()),
        resolved=request.resolved,
    )
    passage = embedded(episode)
    vectors = await runtime.vector_of(passage)
    applied = await runtime.apply(PutEpisode(episode), vectors=vectors)
    return Archived(
        episode_id=applied.id(),
        truncated=summary_cut or keywords_cut or UNSET,
        receipt=await runtime.receipt(Ref(Kind.EPISODE, applied.id()), vectors, passage),
    )


@operation(needs=Permission.WRITE, effect=Effect.ERASE)
async def delete_episode(runtime: Runtime, request: DeleteEpisode) -> EpisodeDeleted:
    """Erase an episode for good."""
    ref = Ref(Kind.EPISODE, request.episode_id)
    await runtime.apply(Forget(ref, owner(request.agent_id)))
    return EpisodeDeleted(deleted_id=request.episode_id)


OPERATIONS = (archive_episode, delete_episode)


def span(history: Sequence[dict[str, Any]], now: dt.datetime, zone: dt.tzinfo) -> tuple[str, str]:
    """The first and the last instant that the messages name, in UTC; "" where none can be read."""
    moments: list[str] = []
    for message in history:
        text = message.get("timestamp")
        if isinstance(text, str) and text.strip():
            try:
                moments.append(instant(text, now, zone))
            except Invalid:
                continue
    if not moments:
        return "", ""
    ordered = sorted(moments, key=dt.datetime.fromisoformat)
    return ordered[0], ordered[-1]
