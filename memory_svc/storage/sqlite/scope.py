"""Scope to SQL, in one function; and where a page begins."""

from memory_svc.domain.scope import Scope
from memory_svc.storage.interface import Position


def where(scope: Scope, table: str, *, has_channel: bool = True, has_source: bool = False) -> tuple[str, list[str]]:
    """A condition on `table` that holds for the rows of the scope, and its values."""
    conditions: list[str] = []
    values: list[str] = []
    if scope.agent is not None:
        conditions.append(f"{table}.agent = ?")
        values.append(scope.agent)
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
    return " AND ".join(conditions) or "1", values


def older(before: Position | None, table: str) -> tuple[str, list[str | int]]:
    """A condition on `table` that holds for the rows behind a position in a list with the newest first."""
    if before is None:
        return "1", []
    return f"({table}.created_at, {table}.id) < (?, ?)", [before.created_at, before.id]
