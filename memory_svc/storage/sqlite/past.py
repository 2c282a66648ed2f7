"""What is known of candidates beside what they say, read where a score asks for it."""

import datetime as dt
import math
from collections.abc import Iterator, Mapping
from typing import Any

import apsw
import numpy as np

from memory_svc.domain.memory import Kind, Ref
from memory_svc.domain.recall.fusion import Flags, Floats, Integers
from memory_svc.domain.scope import Scope
from memory_svc.storage.sqlite.connection import numbers
from memory_svc.storage.sqlite.recalls import Recalls
from memory_svc.storage.sqlite.scope import SAID, where

# As the index has it.
ENDED = "coalesce(nullif(end_time, ''), nullif(start_time, ''), created_at)"
# When rows of a kind were said, by their ids, given as a JSON array.
INSTANTS: Mapping[Kind, str] = {
    kind: f"SELECT {table}.id, {SAID[table]} FROM json_each(?) AS asked CROSS JOIN {table} ON {table}.id = asked.value"
    for kind, table in ((Kind.MEMORY, "memories"), (Kind.EPISODE, "episodes"))
}
RESOLVED = (
    "SELECT episodes.id FROM json_each(?) AS asked CROSS JOIN episodes ON episodes.id = asked.value WHERE resolved"
)


class Past:
    """The past of the candidates of one query, in its snapshot. Columns are those of its documents."""

    def __init__(self, connection: apsw.Connection, scope: Scope, documents: Integers, recalls: Recalls) -> None:
        self._connection = connection
        self._scope = scope
        self._documents = documents
        self._recalls = recalls

    def boundary(self) -> float:
        """When the newest episode of the scope ended, else began, else was stored."""
        condition, values = where(self._scope, "episodes")
        statement = f"SELECT {ENDED} FROM episodes WHERE {condition} ORDER BY {ENDED} DESC LIMIT 1"
        found = self._connection.execute(statement, values).fetchone()
        return hours(found[0]) if found else math.nan

    def span_hours(self) -> float:
        """From the oldest memory of the scope to the newest."""
        condition, values = where(self._scope, "memories", has_source=True)
        statement = f"SELECT min(timestamp), max(timestamp) FROM memories WHERE {condition}"
        oldest, newest = next(self._connection.execute(statement, values))
        return float(np.nan_to_num(hours(newest or "") - hours(oldest or "")))

    def said(self) -> Floats:
        """When each candidate was said; an episode, when it began, else when it was stored."""
        column = np.full(len(self._documents), math.nan)
        for kind, statement in INSTANTS.items():
            for id, instant in self._of(kind, statement):
                column[self._place(Ref(kind, id))] = hours(instant)
        return column

    def resolved(self) -> Flags:
        """Which candidates are episodes that are closed."""
        column = np.zeros(len(self._documents), np.bool_)
        for (id,) in self._of(Kind.EPISODE, RESOLVED):
            column[self._place(Ref(Kind.EPISODE, id))] = True
        return column

    def recalled(self) -> tuple[Integers, Floats]:
        """How often each memory was recalled, and when last."""
        counts, last = np.zeros(len(self._documents), np.int64), np.full(len(self._documents), math.nan)
        for id, each in self._recalls.known(self._connection, self._ids(Kind.MEMORY)).items():
            place = self._place(Ref(Kind.MEMORY, id))
            counts[place], last[place] = each.count, hours(each.last)
        return counts, last

    def _of(self, kind: Kind, statement: str) -> Iterator[tuple[Any, ...]]:
        ids = self._ids(kind)
        yield from self._connection.execute(statement, (numbers(ids),)) if ids else ()

    def _ids(self, kind: Kind) -> list[int]:
        ids: list[int] = (self._documents[self._documents & 15 == kind.code] >> 4).tolist()
        return ids

    def _place(self, ref: Ref) -> int:
        return int(self._documents.searchsorted(ref.document))


def hours(instant: str) -> float:
    """How many since 1970, of an instant in UTC; NaN for what is none."""
    try:
        return dt.datetime.fromisoformat(instant).timestamp() / 3600
    except (ValueError, TypeError, OverflowError):
        return math.nan
