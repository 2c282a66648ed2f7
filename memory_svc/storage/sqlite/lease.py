"""The lease: the processes of one host have a database open at a time, and whoever comes from another is refused.

Each process lets the beat in its own row grow. Whoever watches a row goes by its own clock alone: a beat that has stood
still for as long as its row allows is that of a process that is gone. Clocks of two hosts are never compared.
"""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import apsw
import msgspec

from memory_svc.errors import Problem, Unavailable
from memory_svc.observe import log
from memory_svc.storage.sqlite.connection import FileIdentity, engine_errors, open_connection
from memory_svc.storage.sqlite.host import Tenant
from memory_svc.storage.sqlite.turn import turn

BEATS = 4
LOOK_SECONDS_MAX = 0.5
WARNING = 30


class Held(msgspec.Struct, frozen=True):
    """A process that has the database open, as its row says."""

    process: str
    host: str
    name: str
    beat: int
    seconds: float


class Watch:
    """How long each beat has stood still."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[int, float]] = {}

    def look(self, rows: Sequence[Held], now: float) -> None:
        """Note the beats of this moment, in seconds of a clock that only this process reads."""
        before = self._since
        self._since = {}
        for row in rows:
            beat, since = before.get(row.process, (row.beat, now))
            self._since[row.process] = (row.beat, since if beat == row.beat else now)

    def is_silent(self, row: Held, now: float) -> bool:
        """Whether its beat has stood still for as long as it may."""
        return now - self._since[row.process][1] >= row.seconds


class Lease:
    """This process's row, and the thread in which its beat grows."""

    def __init__(self, path: Path, tenant: Tenant, turn_seconds: float) -> None:
        """Wait until no other host has the database open; a file that is not there is made.

        Raises Unavailable when another host's process is seen alive, or the file cannot be opened.
        """
        self._path = path
        self._tenant = tenant
        self._turn_seconds = turn_seconds
        self._process = uuid.uuid4().hex
        self._watch = Watch()
        self._taken: Held | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="lease", daemon=True)
        with turn(path, turn_seconds):
            self._connection = open_connection(path)
        self._file = FileIdentity(path)
        # A beat says that this process lives and need not outlast a power cut; what others wrote is synced by them.
        self._connection.execute("PRAGMA synchronous=NORMAL")
        try:
            with engine_errors():
                self._wait()
        except BaseException:
            self._connection.close()
            raise

    def take(self, prepare: Callable[[], None]) -> None:
        """In one turn `prepare` the newest schema and write the row; its beat grows until `release`.

        Raises Unavailable when another host was quicker, and what `prepare` raises.
        """
        try:
            with turn(self._path, self._turn_seconds), engine_errors():
                prepare()
                self._renew()
            if self._taken:
                raise self._open_elsewhere(self._taken.name)
        except BaseException:
            self._connection.close()
            raise
        self._thread.start()

    def check(self) -> None:
        """Raise Unavailable when another host has taken the database over."""
        if self._taken:
            raise self._lost(self._taken.name)

    def guard(self, connection: apsw.Connection) -> None:
        """Raise Unavailable, inside the writer's own transaction, when a process of another host has the database."""
        other = connection.execute("SELECT name FROM leases WHERE host <> ?", (self._tenant.host,)).fetchone()
        if other:
            raise self._lost(other[0])

    def release(self) -> None:
        """Let go of the database at once, so that another host need not wait. What fails is left to run out."""
        self._stopping.set()
        self._thread.join()
        try:
            with self._turn():
                self._connection.execute("DELETE FROM leases WHERE process = ?", (self._process,))
        except Problem as problem:
            log("the lease is left to run out", severity=WARNING, reason=problem.text)
        self._connection.close()

    @property
    def _pause_seconds(self) -> float:
        return self._tenant.seconds / BEATS

    def _wait(self) -> None:
        """Look at the rows of other hosts until they are gone or have stood still for too long."""
        first = {row.process: row.beat for row in self._others()}
        told = False
        while others := self._others():
            now = time.monotonic()
            self._watch.look(others, now)
            alive = next((row for row in others if first.get(row.process) != row.beat), None)
            if alive:
                raise self._open_elsewhere(alive.name)
            if all(self._watch.is_silent(row, now) for row in others):
                return
            if not told:
                log(
                    "the database was open on another host; waiting whether that one is alive",
                    severity=WARNING,
                    host=others[0].name,
                    seconds_max=max(row.seconds for row in others),
                )
            told = True
            time.sleep(min(self._pause_seconds, LOOK_SECONDS_MAX))

    def _others(self) -> list[Held]:
        return [row for row in _rows(self._connection) if row.host != self._tenant.host]

    def _beat_on(self) -> None:
        failed = False
        while not self._stopping.wait(self._pause_seconds):
            try:
                with self._turn():
                    self._renew()
                failed = False
            except Problem as problem:
                if not failed:
                    log("the lease was not renewed; it is tried again", severity=WARNING, reason=problem.text)
                failed = True

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """This process's turn, unless the file has been removed: its folder would be made anew."""
        self._file.check()
        with turn(self._path, self._pause_seconds), engine_errors():
            yield

    def _renew(self) -> None:
        """Remove the rows of processes that are gone; let our own beat grow unless another host has the database."""
        with _immediately(self._connection):
            rows = _rows(self._connection)
            now = time.monotonic()
            self._watch.look(rows, now)
            gone = [row for row in rows if row.process != self._process and self._watch.is_silent(row, now)]
            self._connection.executemany("DELETE FROM leases WHERE process = ?", [(row.process,) for row in gone])
            taken = next((row for row in rows if row.host != self._tenant.host and row not in gone), None)
            if taken is None:
                self._connection.execute(
                    "INSERT INTO leases VALUES (?, ?, ?, 1, ?) ON CONFLICT (process) DO UPDATE SET beat = beat + 1",
                    (self._process, self._tenant.host, self._tenant.name, self._tenant.seconds),
                )
        self._tell(taken, [row for row in gone if row.host != self._tenant.host])

    def _tell(self, taken: Held | None, gone: Sequence[Held]) -> None:
        for row in gone:
            log("took the database over from a host that is silent", severity=WARNING, host=row.name)
        if taken and not self._taken:
            log("another host has taken the database over; nothing more is written", severity=40, host=taken.name)
        elif self._taken and not taken:
            log("this host has the database again", severity=WARNING)
        self._taken = taken

    def _open_elsewhere(self, name: str) -> Unavailable:
        return Unavailable(
            f"{self._path} is open on another host, {name}, which is alive; two hosts must not share a database: stop"
            " the server there, or set MEMORY_DATA_DIR to a folder of this host's own"
        )

    def _lost(self, name: str) -> Unavailable:
        return Unavailable(
            f"{self._path.name} was taken over by another host, {name}, while this process was silent for more than"
            f" {self._tenant.seconds:g} s; nothing is written here until that one is stopped"
        )


def _rows(connection: apsw.Connection) -> list[Held]:
    """Every row; none where the schema is older than they are."""
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'leases'").fetchone():
        return []
    found = connection.execute("SELECT process, host, name, beat, seconds FROM leases ORDER BY process")
    return [Held(*columns) for columns in found]


@contextlib.contextmanager
def _immediately(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
