"""Scope to SQL, in one function; what a snapshot makes of a scope; and where a page begins."""

from collections.abc import Mapping

import apsw
import msgspec
import numpy as np

from memory_svc.domain.labels import Scalar
from memory_svc.domain.scope import CANARY_AGENT, Scope
from memory_svc.storage.interface import Position
from memory_svc.storage.sqlite.bm25 import Integers

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


INTEGER_MAX = 2**63 - 1
TAGGED = "memories.id IN (SELECT memory FROM tags WHERE tag = ?)"
VALUED = (
    "EXISTS (SELECT 1 FROM json_each(memories.metadata) AS held WHERE held.key = ? AND held.type IN ({types})"
    " AND held.value IS ?)"
)


class Narrowed(Scope, frozen=True, kw_only=True):
    """A scope whose filter was asked of the snapshot once. ids: every memory that lies in it, in ascending order."""

    ids: Integers


def settled(connection: apsw.Connection, scope: Scope) -> Scope:
    """The scope as the snapshot has it: where no memory's time is over it hides none, and asks nothing of any row."""
    if scope.now and connection.execute(ANY_OVER, (scope.now,)).fetchone() is None:
        scope = msgspec.structs.replace(scope, now="")
    if not scope.is_filtered:
        return scope
    condition, values = where(scope, "memories", has_source=True)
    found = connection.execute(f"SELECT memories.id FROM memories WHERE {condition} ORDER BY memories.id", values)
    return Narrowed(**msgspec.structs.asdict(scope), ids=np.array([id for (id,) in found], np.int64))


def where(scope: Scope, table: str, *, has_channel: bool = True, has_source: bool = False) -> tuple[str, list[Scalar]]:
    """A condition on `table` that holds for the rows of the scope, and its values."""
    conditions = [f"{table}.agent {'<>' if scope.agent is None else '='} ?"]
    values: list[Scalar] = [CANARY_AGENT if scope.agent is None else scope.agent]
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
        values += [len(scope.source), scope.source]
    times = ((f"{SAID[table]} >= ?", scope.since), (f"{SAID[table]} < ?", scope.until))
    for condition, instant in (*times, (f"{KNOWN[table]} <= ?", scope.known_by)):
        if instant:
            conditions.append(condition)
            values.append(instant)
    if scope.now and table == "memories":
        conditions.append("(memories.expires_at = '' OR memories.expires_at > ?)")
        values.append(scope.now)
    if scope.is_filtered:
        filters, asked = _filtered(scope) if table == "memories" else (["0"], [])
        conditions += filters
        values += asked
    return " AND ".join(conditions), values


def _filtered(scope: Scope) -> tuple[list[str], list[Scalar]]:
    """What the tags and the metadata of a scope ask of a memory. A number is one however it is written."""
    conditions = [TAGGED] * len(scope.tags)
    values: list[Scalar] = [*scope.tags]
    for key, value in scope.metadata:
        conditions.append(VALUED.format(types=_types(value)))
        values += [key, float(value) if isinstance(value, int) and abs(value) > INTEGER_MAX else value]
    return conditions, values


def _types(value: Scalar) -> str:
    """How json_each calls the types of a value."""
    if isinstance(value, bool):
        return f"'{str(value).lower()}'"
    if value is None:
        return "'null'"
    return "'text'" if isinstance(value, str) else "'integer', 'real'"


def older(before: Position | None, table: str) -> tuple[str, list[str | int]]:
    """A condition on `table` that holds for the rows behind a position in a list with the newest first."""
    if before is None:
        return "1", []
    return f"({table}.created_at, {table}.id) < (?, ?)", [before.created_at, before.id]
