"""The resident copy of the vectors, which answers exact cosine searches.

It is append-only with a birth and a death number a row, so that a reader sees exactly its snapshot. A long text has
several rows there, one a block: all of one birth and one death, and of the document's scope.
"""

import datetime as dt
import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence

import apsw
import numpy as np
from numpy.typing import NDArray

from memory_svc.domain.memory import Kind, Vector
from memory_svc.domain.recall.fusion import Hits
from memory_svc.domain.scope import CANARY_AGENT, Scope
from memory_svc.storage.nearest import Matrix, View
from memory_svc.storage.sqlite.scope import KNOWN, SAID, Narrowed

ALIVE = np.iinfo(np.int64).max
FOLLOWED = (
    "SELECT v.number, v.document, v.fingerprint, v.vector, v.further, coalesce(memories.agent, episodes.agent),"
    " coalesce(memories.project, episodes.project), coalesce(memories.channel, episodes.channel),"
    " coalesce(memories.source_id, ''),"
    f" coalesce({SAID['memories']}, {SAID['episodes']}), coalesce({KNOWN['memories']}, {KNOWN['episodes']}),"
    " coalesce(memories.expires_at, '')"
    " FROM vectors v"
    " LEFT JOIN memories ON v.document & 15 = 0 AND memories.id = v.document >> 4"
    " LEFT JOIN episodes ON v.document & 15 = 1 AND episodes.id = v.document >> 4"
)
CHANGES_KEPT = 4096
ROW_START = 1024
EPOCH, MICROSECOND = dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.timedelta(microseconds=1)


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
            view, documents, has_blocks = self._matrix.view(), self._documents, bool(self._blocks)
        if changed is None or (changed and newest):
            return Resident().nearest(connection, scope, vector, depth, newest=newest)
        found = _distinct(lambda count: view.best(rows, documents, query, count), depth, len(rows) if has_blocks else 0)
        if not changed:
            return found
        # Rows that changed after this snapshot began are read from it, since the copy may hold later states alone.
        past = Resident()
        past._read(connection, vector.fingerprint, len(query), changed)
        return sorted(found + past._all(scope, query), key=lambda each: (-each[1], each[0]))[:depth]

    def cosines(self, connection: apsw.Connection, vector: Vector, documents: NDArray[np.int64]) -> NDArray[np.float64]:
        """The cosine of each of these rows, in ascending order, as the snapshot has it; NaN = it has no vector."""
        query = np.frombuffer(vector.values, dtype="<f4")
        with self._lock:
            now = self._follow(connection, vector.fingerprint, len(query))
            slots = np.fromiter(map(self._slots.get, documents.tolist(), itertools.repeat(-1)), np.intp, len(documents))
            known = (slots >= 0) & (self._born[slots] <= now)
            held = documents[known].tolist() if self._blocks else ()
            counts = [self._blocks.get(document, 1) for document in held] if self._blocks else None
            view, is_ahead = self._matrix.view(), now < self._number
        found = np.full(len(documents), np.nan)
        found[known] = _greatest(view, slots[known], counts, query)
        if is_ahead and not known.all():
            past = Resident()
            past._read(connection, vector.fingerprint, len(query), documents[~known].tolist())
            for document, cosine in past._all(None, query):
                found[documents.searchsorted(document)] = cosine
        return found

    def nearest_blocks(self, connection: apsw.Connection, vector: Vector, documents: Sequence[int]) -> dict[int, int]:
        """The number of the nearest block, from 0, of those of these rows that have several."""
        query = np.frombuffer(vector.values, dtype="<f4")
        with self._lock:
            now = self._follow(connection, vector.fingerprint, len(query))
            held = [each for each in documents if each in self._blocks and self._born[self._slots[each]] <= now]
            slots = {each: np.arange(self._blocks[each]) + self._slots[each] for each in held}
            view = self._matrix.view()
        return {document: int(view.cosines(own, query).argmax()) for document, own in slots.items()}

    def _all(self, scope: Scope | None, query: NDArray[np.float32]) -> list[tuple[int, float]]:
        rows = self._seen(scope, self._number)
        view = self._matrix.view()
        return _distinct(lambda count: view.best(rows, self._documents, query, count), len(rows), len(rows))

    def _reset(self, fingerprint: str, dimensions: int) -> None:
        self._fingerprint, self._dimensions = fingerprint, dimensions
        self._number = self._count = self._dead = self._floor = 0
        # The first slot of each document, and how many it has where they are several.
        self._slots: dict[int, int] = {}
        self._blocks: dict[int, int] = {}
        self._changes: deque[tuple[int, int]] = deque(maxlen=CHANGES_KEPT)
        self._names: dict[str, int] = {}
        self._matrix = Matrix(dimensions)
        self._documents, self._born, self._died = (np.zeros(ROW_START, dtype=np.int64) for _ in range(3))
        self._axes: NDArray[np.int32] = np.zeros((4, ROW_START), dtype=np.int32)
        self._instants: NDArray[np.int64] = np.zeros((3, ROW_START), dtype=np.int64)

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
        further: bytes | None,
        agent: str | None,
        project: str | None,
        channel: str | None,
        source: str,
        said: str,
        known: str,
        over: str,
    ) -> None:
        self._changes.append((number, document))
        slot = self._slots.pop(document, None)
        if slot is not None:
            count = self._blocks.pop(document, 1)
            self._died[slot : slot + count] = number
            self._dead += count
        if values is None or agent is None or fingerprint != self._fingerprint or len(values) != 4 * self._dimensions:
            return
        blocks = [values] if further is None else _parted(values + further, len(values))
        self._slots[document] = self._count
        if len(blocks) > 1:
            self._blocks[document] = len(blocks)
        axes = [self._name(text) for text in (agent, project or "", channel or "", source)]
        instants = microseconds(said), microseconds(known), microseconds(over) if over else ALIVE
        for block in blocks:
            if self._count == len(self._documents):
                self._grow()
            at = self._count
            self._matrix.add(np.frombuffer(block, dtype="<f4"))
            self._documents[at], self._born[at], self._died[at] = document, number, ALIVE
            self._axes[:, at], self._instants[:, at] = axes, instants
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
        if isinstance(scope, Narrowed):
            return np.flatnonzero(seen & np.isin(self._documents[upto], scope.ids << 4 | Kind.MEMORY.code))
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
            seen &= np.where(is_episode, scope.shows(Kind.EPISODE), np.isin(sources, numbers))
        if scope.kinds:
            seen &= np.isin(self._documents[upto] & 15, [kind.code for kind in scope.kinds])
        return np.flatnonzero(self._timely(scope, seen))

    def _timely(self, scope: Scope, seen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Of these slots those that lie in the times of the scope."""
        said, known, over = self._instants[:, : self._count]
        if scope.since:
            seen &= said >= microseconds(scope.since)
        if scope.until:
            seen &= said < microseconds(scope.until)
        if scope.known_by:
            seen &= known <= microseconds(scope.known_by)
        if scope.now:
            seen &= over > microseconds(scope.now)
        return seen

    def _newest(self, rows: NDArray[np.intp], count: int) -> NDArray[np.intp]:
        """Of these slots those of the rows stored last, so many of them; 0 = all."""
        if not count or len(rows) <= count:
            return rows
        order = rows[np.lexsort((self._documents[rows], self._instants[1, rows]))]
        firsts = np.flatnonzero(np.diff(self._documents[order], prepend=-1))
        return np.sort(order[firsts[-count:][0] :])


def microseconds(instant: str) -> int:
    """How many since 1970, of an instant in UTC, to compare as the texts do; what is none stands before all."""
    try:
        return (dt.datetime.fromisoformat(instant) - EPOCH) // MICROSECOND
    except (ValueError, TypeError):
        return -ALIVE


def _distinct(best: Callable[[int], Hits], depth: int, slots_count: int) -> list[tuple[int, float]]:
    """The best `depth` documents, each with its best block. best: that many slots. slots_count: 0 = one a document."""
    if not slots_count:
        return list(best(depth))
    count = depth
    while True:
        found: dict[int, float] = {}
        for document, cosine in best(count):
            found.setdefault(document, cosine)
        if len(found) >= depth or count >= slots_count:
            return list(found.items())[:depth]
        count *= 2


def _parted(values: bytes, size: int) -> list[bytes]:
    return [values[at : at + size] for at in range(0, len(values), size)]


def _greatest(
    view: View, slots: NDArray[np.intp], counts: Sequence[int] | None, query: NDArray[np.float32]
) -> NDArray[np.float64]:
    """The best cosine of each document. slots: its first one. counts: how many it has, None = one each."""
    if counts is None or not len(slots):
        return view.cosines(slots, query)
    ends = np.cumsum(np.array(counts, np.intp))
    starts = ends - np.array(counts, np.intp)
    every = np.arange(ends[-1]) + np.repeat(slots - starts, counts)
    greatest: NDArray[np.float64] = np.maximum.reduceat(view.cosines(every, query), starts)
    return greatest
