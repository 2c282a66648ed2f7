"""Memories as rows of a table."""

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from memory_svc.domain.labels import folded
from memory_svc.domain.memory import Memory, digest, source_id_of
from memory_svc.domain.scope import Scope
from memory_svc.domain.terms import talk_of
from memory_svc.storage.interface import Position
from memory_svc.storage.sqlite.connection import Readers
from memory_svc.storage.sqlite.scope import older, where

COLUMNS = (
    "memories.id, memories.agent, memories.project, memories.channel, memories.msg_id, memories.content, "
    "memories.source, memories.timestamp, memories.metadata, memories.created_at, memories.locked, memories.revision, "
    "memories.expires_at, memories.tags"
)

WRITTEN = (
    "agent, project, channel, msg_id, digest, content, source, source_id, timestamp, metadata, talk, created_at,"
    " locked, revision, expires_at, tags"
)
PUT = (
    f"INSERT INTO memories (id, {WRITTEN}) VALUES (?{', ?' * (WRITTEN.count(',') + 1)}) ON CONFLICT (id) DO UPDATE"
    f" SET ({WRITTEN}) = (excluded.{WRITTEN.replace(', ', ', excluded.')})"
)


def memory_of(row: Sequence[Any]) -> Memory:
    """A memory from the COLUMNS of its row."""
    return Memory(
        id=row[0],
        agent=row[1],
        project=row[2],
        channel=row[3],
        msg_id=row[4],
        content=row[5],
        source=msgspec.json.decode(row[6]),
        timestamp=row[7],
        metadata=msgspec.json.decode(row[8]),
        created_at=row[9],
        locked=bool(row[10]),
        revision=row[11],
        expires_at=row[12],
        tags=tuple(msgspec.json.decode(row[13])),
    )


def select(connection: apsw.Connection, condition: str, values: Sequence[Any]) -> list[Memory]:
    """The memories for which the condition holds (which may go on with an order and a limit)."""
    return [memory_of(row) for row in connection.execute(f"SELECT {COLUMNS} FROM memories WHERE {condition}", values)]


def put(connection: apsw.Connection, memory: Memory) -> int:
    """Write a memory whole, by its id; id 0 = a new one. The id it has."""
    connection.execute(
        PUT,
        (
            memory.id or None,
            memory.agent,
            memory.project,
            memory.channel,
            memory.msg_id,
            digest(memory.content),
            memory.content,
            msgspec.json.encode(memory.source).decode(),
            source_id_of(memory.source),
            memory.timestamp,
            msgspec.json.encode(memory.metadata).decode(),
            talk_of(memory),
            memory.created_at,
            int(memory.locked),
            memory.revision,
            memory.expires_at,
            msgspec.json.encode(memory.tags).decode(),
        ),
    )
    id = memory.id or connection.last_insert_rowid()
    if memory.id:
        untag(connection, id)
    if memory.tags:
        connection.executemany(
            "INSERT INTO tags (tag, memory) VALUES (?, ?)", [(tag, id) for tag in {*map(folded, memory.tags)}]
        )
    return id


def untag(connection: apsw.Connection, id: int) -> None:
    """Let no tag find this memory."""
    connection.execute("DELETE FROM tags WHERE memory = ?", (id,))


def with_msg_id(connection: apsw.Connection, memory: Memory) -> list[Memory]:
    """The memories that hold this one's msg_id where the agent and project of this one see them, oldest first."""
    if not memory.msg_id:
        return []
    return select(
        connection,
        "agent = ? AND project IN (?, '') AND msg_id = ? ORDER BY id",
        (memory.agent, memory.project, memory.msg_id),
    )


def with_content(connection: apsw.Connection, memory: Memory, *, shared: bool) -> list[Memory]:
    """The memories that hold this one's text in its bucket, oldest first; shared = or in one that this bucket sees."""
    projects, channels = (
        ((memory.project, ""), (memory.channel, "")) if shared else ((memory.project,), (memory.channel,))
    )
    return select(
        connection,
        f"agent = ? AND project IN ({', '.join('?' * len(projects))}) AND channel IN ({', '.join('?' * len(channels))})"
        " AND digest = ? ORDER BY id",
        (memory.agent, *projects, *channels, digest(memory.content)),
    )


class Memories:
    """Memories, read."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    async def get(self, scope: Scope, ids: Sequence[int]) -> dict[int, Memory]:
        """Those of these ids that lie in the scope."""
        condition, values = where(scope, "memories", has_source=True)
        marks = ", ".join("?" * len(ids))
        rows = await self._readers.run(
            lambda connection: select(connection, f"{condition} AND memories.id IN ({marks})", [*values, *ids])
        )
        return {memory.id: memory for memory in rows}

    async def page(self, scope: Scope, limit: int, before: Position | None = None) -> list[Memory]:
        """The newest by creation, newest first; those after a position of an earlier page."""
        condition, values = where(scope, "memories", has_source=True)
        after, position = older(before, "memories")
        order = "ORDER BY memories.created_at DESC, memories.id DESC LIMIT ?"
        return await self._readers.run(
            lambda connection: select(connection, f"{condition} AND {after} {order}", [*values, *position, limit])
        )
