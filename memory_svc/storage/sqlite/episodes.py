"""Episodes and profiles as rows of their tables."""

from collections.abc import Sequence
from typing import Any

import apsw

from memory_svc.domain.memory import Episode, Profile
from memory_svc.domain.scope import Scope
from memory_svc.storage.interface import Position
from memory_svc.storage.sqlite.connection import Readers
from memory_svc.storage.sqlite.scope import older, where

COLUMNS = (
    "episodes.id, episodes.agent, episodes.project, episodes.channel, episodes.summary, episodes.keywords, "
    "episodes.start_time, episodes.end_time, episodes.created_at, episodes.resolved, episodes.revision"
)
PROFILE_COLUMNS = "id, agent, user, project, content, updated_at, revision"


def episode_of(row: Sequence[Any]) -> Episode:
    """An episode from the COLUMNS of its row."""
    return Episode(
        id=row[0],
        agent=row[1],
        project=row[2],
        channel=row[3],
        summary=row[4],
        keywords=row[5],
        start_time=row[6],
        end_time=row[7],
        created_at=row[8],
        resolved=bool(row[9]),
        revision=row[10],
    )


def select(connection: apsw.Connection, condition: str, values: Sequence[Any]) -> list[Episode]:
    """The episodes for which the condition holds (which may go on with an order and a limit)."""
    return [episode_of(row) for row in connection.execute(f"SELECT {COLUMNS} FROM episodes WHERE {condition}", values)]


def put(connection: apsw.Connection, episode: Episode) -> int:
    """Write an episode whole, by its id; id 0 = a new one. The id it has."""
    connection.execute(
        "INSERT INTO episodes (id, agent, project, channel, summary, keywords, start_time, end_time, created_at,"
        " resolved, revision) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET (agent, project, channel, summary, keywords, start_time, end_time,"
        " created_at, resolved, revision) = (excluded.agent, excluded.project, excluded.channel, excluded.summary,"
        " excluded.keywords, excluded.start_time, excluded.end_time, excluded.created_at, excluded.resolved,"
        " excluded.revision)",
        (
            episode.id or None,
            episode.agent,
            episode.project,
            episode.channel,
            episode.summary,
            episode.keywords,
            episode.start_time,
            episode.end_time,
            episode.created_at,
            int(episode.resolved),
            episode.revision,
        ),
    )
    return episode.id or connection.last_insert_rowid()


def select_profiles(connection: apsw.Connection, condition: str, values: Sequence[Any]) -> list[Profile]:
    """The profiles for which the condition holds (which may go on with an order and a limit)."""
    statement = f"SELECT {PROFILE_COLUMNS} FROM profiles WHERE {condition}"
    return [
        Profile(
            id=row[0], agent=row[1], user=row[2], project=row[3], content=row[4], updated_at=row[5], revision=row[6]
        )
        for row in connection.execute(statement, values)
    ]


def put_profile(connection: apsw.Connection, profile: Profile) -> int:
    """Write a profile whole, by its id; id 0 = a new one. The id it has."""
    connection.execute(
        "INSERT INTO profiles (id, agent, user, project, content, updated_at, revision) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET (agent, user, project, content, updated_at, revision) = (excluded.agent,"
        " excluded.user, excluded.project, excluded.content, excluded.updated_at, excluded.revision)",
        (
            profile.id or None,
            profile.agent,
            profile.user,
            profile.project,
            profile.content,
            profile.updated_at,
            profile.revision,
        ),
    )
    return profile.id or connection.last_insert_rowid()


class Episodes:
    """Episodes, read."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    async def get(self, scope: Scope, ids: Sequence[int]) -> dict[int, Episode]:
        """Those of these ids that lie in the scope."""
        condition, values = where(scope, "episodes")
        marks = ", ".join("?" * len(ids))
        rows = await self._readers.run(
            lambda connection: select(connection, f"{condition} AND episodes.id IN ({marks})", [*values, *ids])
        )
        return {episode.id: episode for episode in rows}

    async def page(self, scope: Scope, limit: int, before: Position | None = None) -> list[Episode]:
        """The newest by creation, newest first; those after a position of an earlier page."""
        condition, values = where(scope, "episodes")
        after, position = older(before, "episodes")
        order = "ORDER BY episodes.created_at DESC, episodes.id DESC LIMIT ?"
        return await self._readers.run(
            lambda connection: select(connection, f"{condition} AND {after} {order}", [*values, *position, limit])
        )


class Profiles:
    """Profiles, read."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    async def of(self, scope: Scope) -> list[Profile]:
        """The profiles in the scope, newest first."""
        condition, values = where(scope, "profiles", has_channel=False)
        order = "ORDER BY updated_at DESC, id DESC"
        return await self._readers.run(lambda connection: select_profiles(connection, f"{condition} {order}", values))

    async def beside(self, scope: Scope, limit: int, rows_min: int) -> list[Profile]:
        """The newest profiles in the scope that are of no user, newest first.

        None where the scope has fewer than so many memories and episodes.
        """
        condition, values = where(scope, "profiles", has_channel=False)
        order = "AND user = '' ORDER BY updated_at DESC, id DESC LIMIT ?"

        def read(connection: apsw.Connection) -> list[Profile]:
            found = select_profiles(connection, f"{condition} {order}", [*values, limit])
            return found if found and _holds(connection, scope, rows_min) else []

        return await self._readers.run(read)


def _holds(connection: apsw.Connection, scope: Scope, rows_min: int) -> bool:
    """Whether the scope has so many memories and episodes; no more than those are counted."""
    left = rows_min
    for table in ("memories", "episodes"):
        condition, values = where(scope, table, has_source=table == "memories")
        statement = f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {condition} LIMIT ?)"
        left -= next(connection.execute(statement, [*values, max(left, 0)]))[0]
    return left <= 0
