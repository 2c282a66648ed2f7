"""Scope to SQL, in one function; what a snapshot makes of a scope; and where a page begins."""

from collections.abc import Mapping

import apsw
import msgspec

from memory_svc.domain.scope import CANARY_AGENT, Scope
from memory_svc.storage.interface import Position

# When a row was said, and when it was stored.
SAID: Mapping[str, str] = {
    "memories": "memories.timestamp",
    "episodes": "coalesce(nullif(episodes.start_time, ''), episodes.created_at)",
    "profiles": "profiles.updated_at",
}
KNOWN: Mapping[str, str] = {
    "memories": "memories.created_at",
    "episodes": "episodes.created_at",
    "profiles": "profiles.updated_at",
}
ANY_OVER = "SELECT 1 FROM memories WHERE expires_at <> '' AND expires_at <= ? LIMIT 1"


def settled(connection: apsw.Connection, scope: Scope) -> Scope:
    """The scope as the snapshot has it: where no memory's time is over it hides none, and asks nothing of any row."""
    if scope.now and connection.execute(ANY_OVER, (scope.now,)).fetchone() is None:
        return msgspec.structs.replace(scope, now="")
    return scope


def where(scope: Scope, table: str, *, has_channel: bool = True, has_source: bool = False) -> tuple[str, list[str]]:
    """A condition on `table` that holds for the rows of the scope, and its values."""
    conditions = [f"{table}.agent {'<>' if scope.agent is None else '='} ?"]
    values = [CANARY_AGENT if scope.agent is None else scope.agent]
    projects = scope.projects()
    if projects is not None:
        conditions.append(f"{table}.project IN ({', '.join('?' * len(projects))})")
        values += projects
    channels = scope.channels()
    if channels is not None and has_channel:
        conditions.append(f"{table}.channel IN (?, ?)")
        values += channels
    if scope.source and has_source:
        conditions.append(f"substr({table}.source_id, 1, ?) = ?")
        values += [len(scope.source), scope.source]  # type: ignore[list-item]
    times = ((f"{SAID[table]} >= ?", scope.since), (f"{SAID[table]} < ?", scope.until))
    for condition, instant in (*times, (f"{KNOWN[table]} <= ?", scope.known_by)):
        if instant:
            conditions.append(condition)
            values.append(instant)
    if scope.now and table == "memories":
        conditions.append("(memories.expires_at = '' OR memories.expires_at > ?)")
        values.append(scope.now)
    return " AND ".join(conditions), values


def older(before: Position | None, table: str) -> tuple[str, list[str | int]]:
    """A condition on `table` that holds for the rows behind a position in a list with the newest first."""
    if before is None:
        return "1", []
    return f"({table}.created_at, {table}.id) < (?, ?)", [before.created_at, before.id]
