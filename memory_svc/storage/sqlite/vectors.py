"""Vectors: rows of a table, and a resident copy that answers exact cosine searches.

The resident copy is append-only with a birth and a death number a row, so that a reader sees exactly its snapshot.
"""

import datetime as dt
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

from memory_svc.domain.memory import Kind, Ref, Vector
from memory_svc.domain.scope import CANARY_AGENT, Scope
from memory_svc.domain.terms import embedded
from memory_svc.storage.interface import RowVector, Waiting
from memory_svc.storage.nearest import Matrix
from memory_svc.storage.sqlite import episodes, memories
from memory_svc.storage.sqlite.connection import Readers, Writer
from memory_svc.storage.sqlite.scope import KNOWN, SAID

ALIVE = np.iinfo(np.int64).max
NEXT_NUMBER = "(SELECT coalesce(max(number), 0) + 1 FROM vectors)"
FOLLOWED = (
    "SELECT v.number, v.document, v.fingerprint, v.vector, coalesce(memories.agent, episodes.agent),"
    " coalesce(memories.project, episodes.project), coalesce(memories.channel, episodes.channel),"
    " coalesce(memories.source_id, ''),"
    f" coalesce({SAID['memories']}, {SAID['episodes']}), coalesce({KNOWN['memories']}, {KNOWN['episodes']})"
    " FROM vectors v"
    " LEFT JOIN memories ON v.document & 15 = 0 AND memories.id = v.document >> 4"
    " LEFT JOIN episodes ON v.document & 15 = 1 AND episodes.id = v.document >> 4"
)
CHANGES_KEPT = 4096
ROW_START = 1024
EPOCH, MICROSECOND = dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.timedelta(microseconds=1)


def put(connection: apsw.Connection, document: int, revision: int, vector: Vector | None) -> None:
    """Note a row's vector, or that the row waits for one."""
    connection.execute(
        f"INSERT INTO vectors (document, number, revision, fingerprint, vector) VALUES (?, {NEXT_NUMBER}, ?, ?, ?)"
        " ON CONFLICT (document) DO UPDATE SET (number, revision, fingerprint, vector) ="
        " (excluded.number, excluded.revision, excluded.fingerprint, excluded.vector)",
        (document, revision, vector.fingerprint if vector else "", vector.values if vector else None),
    )


def revise(connection: apsw.Connection, document: int, revision: int) -> None:
    """Note that a row has moved on with the same text, so that its vector still holds."""
    connection.execute(
        f"UPDATE vectors SET number = {NEXT_NUMBER}, revision = ? WHERE document = ?", (revision, document)
    )


def remove(connection: apsw.Connection, document: int) -> None:
    """Note that a row is gone, so that residents let go of it."""
    connection.execute(
        f"UPDATE vectors SET number = {NEXT_NUMBER}, fingerprint = NULL, vector = NULL WHERE document = ?", (document,)
    )


class Derived:
    """Vectors, as the back-fill sees them."""

    def __init__(self, readers: Readers, writer: Writer) -> None:
        self._readers = readers
        self._writer = writer

    async def waiting(self, fingerprint: str, limit: int) -> list[Waiting]:
        """Rows without a vector of that fingerprint, oldest first."""
        return await self._readers.run(lambda connection: _waiting(connection, fingerprint, limit))

    async def waiting_count(self, fingerprint: str) -> int:
        """How many rows lack a vector of that fingerprint; "" counts those that have none at all."""
        condition = "fingerprint < ? OR fingerprint > ?" if fingerprint else "fingerprint = ?"
        values = [fingerprint] * condition.count("?")
        return await self._readers.run(
            lambda connection: int(
                next(connection.execute(f"SELECT count(*) FROM vectors WHERE {condition}", values))[0]
            )
        )

    async def has_vector(self, ref: Ref) -> bool:
        """Whether the row has a vector, of whatever model."""
        statement = "SELECT 1 FROM vectors WHERE document = ? AND vector IS NOT NULL"
        return await self._readers.run(
            lambda connection: connection.execute(statement, (ref.document,)).fetchone() is not None
        )

    async def forget_vectors(self) -> int:
        """Let every row wait for a new vector; how many there are."""
        return await self._writer.run(_forget_vectors)

    async def set_vectors(self, vectors: Sequence[RowVector]) -> int:
        """Keep these where the row is still at that revision; how many were kept."""
        return await self._writer.run(lambda connection: sum(_set(connection, each) for each in vectors))


class Resident:
    """The vectors of one fingerprint in memory: float32, one row a vector, L2-normalised."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reset("", 0)

    def nearest(
        self, connection: apsw.Connection, scope: Scope, vector: Vector, depth: int, *, newest: int = 0
    ) -> list[tuple[int, float]]:
        """(document, cosine) of the nearest rows of the scope, as the connection's snapshot has them.

        Ties by document. A stored vector of another length or fingerprint is never compared. newest: of the scope only
        so many rows, those stored last; 0 = all.
        """
        query = np.frombuffer(vector.values, dtype="<f4")
        with self._lock:
            now = self._follow(connection, vector.fingerprint, len(query))
            changed = self._changed_after(now)
            rows = self._newest(self._seen(scope, now), newest)
            view, documents = self._matrix.view(), self._documents
        if changed is None or (changed and newest):
            return Resident().nearest(connection, scope, vector, depth, newest=newest)
        found = view.best(rows, documents, query, depth)
        if not changed:
            return found
        # Rows that changed after this snapshot began are read from it, since the copy may hold later states alone.
        past = Resident()
        past._read(connection, vector.fingerprint, len(query), changed)
        return sorted(found + past._all(scope, query), key=lambda each: (-each[1], each[0]))[:depth]

    def cosines(self, connection: apsw.Connection, vector: Vector, documents: Sequence[int]) -> dict[int, float]:
        """The cosine of each of these rows that has a vector, as the connection's snapshot has it."""
        query = np.frombuffer(vector.values, dtype="<f4")
        with self._lock:
            now = self._follow(connection, vector.fingerprint, len(query))
            slots = np.array([self._slots.get(document, -1) for document in documents], np.intp)
            known = (slots >= 0) & (self._born[slots] <= now)
            view, is_ahead = self._matrix.view(), now < self._number
        held = np.array(documents, np.int64)[known]
        found = dict(zip(held.tolist(), view.cosines(slots[known], query).tolist(), strict=True))
        unknown = [document for document in documents if document not in found]
        if is_ahead and unknown:
            past = Resident()
            past._read(connection, vector.fingerprint, len(query), unknown)
            found |= past._all(None, query)
        return found

    def _all(self, scope: Scope | None, query: NDArray[np.float32]) -> list[tuple[int, float]]:
        rows = self._seen(scope, self._number)
        return self._matrix.view().best(rows, self._documents, query, len(rows))

    def _reset(self, fingerprint: str, dimensions: int) -> None:
        self._fingerprint, self._dimensions = fingerprint, dimensions
        self._number = self._count = self._dead = self._floor = 0
        self._slots: dict[int, int] = {}
        self._changes: deque[tuple[int, int]] = deque(maxlen=CHANGES_KEPT)
        self._names: dict[str, int] = {}
        self._matrix = Matrix(dimensions)
        self._documents, self._born, self._died = (np.zeros(ROW_START, dtype=np.int64) for _ in range(3))
        self._axes: NDArray[np.int32] = np.zeros((4, ROW_START), dtype=np.int32)
        self._instants: NDArray[np.int64] = np.zeros((2, ROW_START), dtype=np.int64)

    def _follow(self, connection: apsw.Connection, fingerprint: str, dimensions: int) -> int:
        if (fingerprint, dimensions) != (self._fingerprint, self._dimensions) or self._dead > self._count // 4 + 1024:
            self._reset(fingerprint, dimensions)
        now: int = next(connection.execute("SELECT coalesce(max(number), 0) FROM vectors"))[0]
        if now > self._number:
            for row in connection.execute(f"{FOLLOWED} WHERE v.number > ? ORDER BY v.number", (self._number,)):
                self._take(*row)
            if not self._floor:
                self._floor = now
                self._changes.clear()
            self._number = now
        return now

    def _read(self, connection: apsw.Connection, fingerprint: str, dimensions: int, documents: list[int]) -> None:
        self._reset(fingerprint, dimensions)
        for document in documents:
            for row in connection.execute(f"{FOLLOWED} WHERE v.document = ?", (document,)):
                self._take(*row)
                self._number = max(self._number, row[0])

    def _take(  # noqa: PLR0913, PLR0917 - one argument a selected column
        self,
        number: int,
        document: int,
        fingerprint: str | None,
        values: bytes | None,
        agent: str | None,
        project: str | None,
        channel: str | None,
        source: str,
        said: str,
        known: str,
    ) -> None:
        self._changes.append((number, document))
        slot = self._slots.pop(document, None)
        if slot is not None:
            self._died[slot] = number
            self._dead += 1
        if values is None or agent is None or fingerprint != self._fingerprint or len(values) != 4 * self._dimensions:
            return
        if self._count == len(self._documents):
            self._grow()
        at = self._count
        self._matrix.add(np.frombuffer(values, dtype="<f4"))
        self._documents[at], self._born[at], self._died[at] = document, number, ALIVE
        self._axes[:, at] = [self._name(text) for text in (agent, project or "", channel or "", source)]
        self._instants[:, at] = microseconds(said), microseconds(known)
        self._slots[document] = at
        self._count += 1

    def _grow(self) -> None:
        """Twice the room, in new arrays: a reader keeps those it holds."""
        room = len(self._documents)
        self._documents, self._born, self._died = (
            np.concatenate([column, np.zeros(room, dtype=np.int64)])
            for column in (self._documents, self._born, self._died)
        )
        self._axes = np.concatenate([self._axes, np.zeros_like(self._axes)], axis=1)
        self._instants = np.concatenate([self._instants, np.zeros_like(self._instants)], axis=1)

    def _name(self, text: str) -> int:
        return self._names.setdefault(text, len(self._names))

    def _changed_after(self, now: int) -> list[int] | None:
        """The documents that changed after a snapshot; None when that is not known any more."""
        if now < self._floor:
            return None
        found = [document for number, document in reversed(self._changes) if number > now] if now < self._number else []
        return None if len(found) == CHANGES_KEPT else list(dict.fromkeys(found))

    def _seen(self, scope: Scope | None, now: int) -> NDArray[np.intp]:
        """The slots of the scope, None = all there are, that have not changed since snapshot `now`."""
        upto = slice(0, self._count)
        agents, projects, channels, sources = self._axes[:, upto]
        seen = (self._born[upto] <= now) & (self._died[upto] == ALIVE)
        if scope is None:
            return np.flatnonzero(seen)
        if scope.agent is None:
            seen &= agents != self._names.get(CANARY_AGENT, -1)
        else:
            seen &= agents == self._names.get(scope.agent, -1)
        for column, names in ((projects, scope.projects()), (channels, scope.channels())):
            if names is not None:
                seen &= np.logical_or.reduce([column == self._names.get(name, -1) for name in names])
        if scope.source:
            numbers = [number for name, number in self._names.items() if name.startswith(scope.source)]
            is_episode = self._documents[upto] & 15 == Kind.EPISODE.code
            seen &= np.where(is_episode, scope.shows_episodes(), np.isin(sources, numbers))
        said, known = self._instants[:, upto]
        if scope.since:
            seen &= said >= microseconds(scope.since)
        if scope.until:
            seen &= said < microseconds(scope.until)
        if scope.known_by:
            seen &= known <= microseconds(scope.known_by)
        return np.flatnonzero(seen)

    def _newest(self, rows: NDArray[np.intp], count: int) -> NDArray[np.intp]:
        """Of these slots those of the rows stored last, so many of them; 0 = all."""
        if not count or len(rows) <= count:
            return rows
        return np.sort(rows[np.lexsort((self._documents[rows], self._instants[1, rows]))[-count:]])


def microseconds(instant: str) -> int:
    """How many since 1970, of an instant in UTC, to compare as the texts do; what is none stands before all."""
    try:
        return (dt.datetime.fromisoformat(instant) - EPOCH) // MICROSECOND
    except (ValueError, TypeError):
        return -ALIVE


def _waiting(connection: apsw.Connection, fingerprint: str, limit: int) -> list[Waiting]:
    found: list[Any] = connection.execute(
        "SELECT document, revision FROM vectors WHERE fingerprint < ? UNION ALL"
        " SELECT document, revision FROM vectors WHERE fingerprint > ? LIMIT ?",
        (fingerprint, fingerprint, limit),
    ).fetchall()
    revisions = {Ref.of_document(document): revision for document, revision in found}
    texts: dict[Ref, str] = {}
    for kind, select in ((Kind.MEMORY, memories.select), (Kind.EPISODE, episodes.select)):
        ids = [ref.id for ref in revisions if ref.kind is kind]
        for row in select(connection, f"id IN ({', '.join('?' * len(ids))})", ids):
            texts[Ref(kind, row.id)] = embedded(row)
    return [Waiting(ref, revisions[ref], text) for ref, text in texts.items()]


def _forget_vectors(connection: apsw.Connection) -> int:
    """Each row gets a number of its own, so that residents follow."""
    first = next(connection.execute(f"SELECT {NEXT_NUMBER}"))[0]
    documents = [row[0] for row in connection.execute("SELECT document FROM vectors WHERE fingerprint IS NOT NULL")]
    connection.executemany(
        "UPDATE vectors SET number = ?, fingerprint = '', vector = NULL WHERE document = ?",
        [(first + at, document) for at, document in enumerate(documents)],
    )
    return len(documents)


def _set(connection: apsw.Connection, each: RowVector) -> int:
    connection.execute(
        f"UPDATE vectors SET number = {NEXT_NUMBER}, fingerprint = ?, vector = ?"
        " WHERE document = ? AND revision = ? AND fingerprint IS NOT NULL",
        (each.vector.fingerprint, each.vector.values or None, each.ref.document, each.revision),
    )
    return connection.changes()
