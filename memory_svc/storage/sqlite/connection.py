"""Connections: how the file is opened, who reads, who writes when. Engine errors become Problems here alone."""

import asyncio
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import apsw

from memory_svc.errors import Conflict, Overloaded, Problem, Unavailable
from memory_svc.storage.sqlite.turn import file_errors, turn

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]
Check = Callable[[apsw.Connection], None]
BUSY_MILLISECONDS = 10_000
TURN_SECONDS_MAX = 10.0
GROUP_WRITES_MAX = 256
WAITING_WRITES_MAX = 10_000
GATHER_SECONDS_MAX = 0.005
PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA wal_autocheckpoint=0",
    "PRAGMA secure_delete=ON",
    "PRAGMA temp_store=MEMORY",
)


@contextlib.contextmanager
def engine_errors() -> Iterator[None]:
    """Turn what the engine raises into Conflict (a constraint) or Unavailable (anything else)."""
    try:
        yield
    except apsw.ConstraintError as error:
        raise Conflict(f"The store refuses this: {error}") from error
    except apsw.Error as error:
        raise Unavailable(f"The database does not answer: {error}") from error


def open_connection(path: Path) -> apsw.Connection:
    """A connection to a file that is private to its owner and made when absent.

    Raises Unavailable when the file cannot be opened or is not a database.
    """
    # A file that is there is never opened here: closing it would drop every lock that SQLite holds on it in this
    # process (How To Corrupt An SQLite Database File, section 2.2).
    with file_errors(path), contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with engine_errors():
        connection = apsw.Connection(str(path))
        connection.set_busy_timeout(BUSY_MILLISECONDS)
        for pragma in PRAGMAS:
            connection.execute(pragma)
    refuse_read_only(connection, path)
    return connection


def numbers(given: Sequence[int]) -> str:
    """These numbers as the JSON array that `json_each` reads: one statement serves however many there are."""
    return f"[{','.join(map(str, given))}]"


def refuse_read_only(connection: apsw.Connection, path: Path) -> None:
    """Close the connection and raise Unavailable where it can only read: nothing could be stored."""
    if connection.readonly("main"):
        connection.close()
        raise Unavailable(f"Cannot write {path}; see that this user may write there, and that the disk is writable")


class FileIdentity:
    """Which file was opened: what is written to one that was removed or replaced since is lost at the next start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened = self._now()

    def check(self) -> None:
        """Raise Unavailable unless the file is still where it was opened."""
        if self._now() != self._opened:
            raise Unavailable(
                f"{self._path} was removed or replaced while it was open; put it back, or restart to begin with what"
                " is there now"
            )

    def _now(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino


class Readers:
    """A few connections that read, each in a snapshot of its own."""

    def __init__(self, path: Path, count: int) -> None:
        # The one that was used last is taken first, since it holds the pages that are asked for.
        self._idle: list[apsw.Connection] = []
        self._file = FileIdentity(path)
        self._all = [open_connection(path) for _ in range(count)]
        for connection in self._all:
            connection.execute("PRAGMA query_only=ON")
            self._idle.append(connection)
        # As many as there are connections: whoever runs in one finds one idle.
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="read")

    async def run(self, work: Work[T]) -> T:
        """What `work` returns, given a connection inside a snapshot."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._in_snapshot, work)

    async def ping(self) -> None:
        """Raise Unavailable unless the file is there and the first page of each table can be read."""
        await self.run(self._ping)

    async def aside(self, work: Callable[[], T]) -> T:
        """What `work` returns, run in a reading thread with no connection of the pool."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Wait for the reads in flight and close."""
        self._threads.shutdown()
        for connection in self._all:
            connection.close()

    def _ping(self, connection: apsw.Connection) -> None:
        self._file.check()
        for (table,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchall()

    def _in_snapshot(self, work: Work[T]) -> T:
        connection = self._idle.pop()
        try:
            with engine_errors():
                connection.execute("BEGIN")
                try:
                    return work(connection)
                finally:
                    connection.execute("ROLLBACK")
        finally:
            self._idle.append(connection)


class _Job:
    """One write that waits for its turn, and who is to be told."""

    def __init__(self, work: Work[Any]) -> None:
        self.work = work
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.answer: Any = Unavailable("The write was not done; try again")

    def tell(self) -> None:
        """Give the answer to whoever still waits for it."""
        if self.future.done():
            return
        if isinstance(self.answer, Exception):
            self.future.set_exception(self.answer)
        else:
            self.future.set_result(self.answer)


class Writer:
    """The one writer of a process. What waits together commits together; a refused write is rolled back alone."""

    def __init__(self, path: Path, check: Check) -> None:
        """check: raises Unavailable, inside the transaction of each group, when this process may not write."""
        self._path = path
        self._check = check
        self._connection = open_connection(path)
        self._file = FileIdentity(path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="write")
        self._waiting: deque[_Job] = deque()
        self._lock = threading.Lock()
        self._running = False
        self._last_writes = 1
        self._last_seconds = 0.0

    async def run(self, work: Work[T]) -> T:
        """What `work` returns, given the writing connection, once its effects are on disk.

        Raises what `work` raises as a Problem; Overloaded when too many writes wait; Unavailable when the commit fails.
        """
        if len(self._waiting) >= WAITING_WRITES_MAX:
            raise Overloaded("Too many writes wait for the disk; try again shortly", retry_after_seconds=1.0)
        job = _Job(work)
        self._waiting.append(job)
        with self._lock:
            if not self._running:
                self._running = True
                self._thread.submit(self._write_all).add_done_callback(_surface)
        result: T = await job.future
        return result

    async def run_alone(self, work: Callable[[], T]) -> T:
        """What `work` returns, run in the writing thread and in this process's turn, so that nobody else writes."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._alone, work)

    def _alone(self, work: Callable[[], T]) -> T:
        with turn(self._path, TURN_SECONDS_MAX), engine_errors():
            self._check(self._connection)
            return work()

    def close(self) -> None:
        """Finish what waits and close."""
        self._thread.shutdown()
        self._connection.close()

    def _write_all(self) -> None:
        while True:
            self._gather()
            group = self._next_group()
            if not group:
                return
            begin = time.monotonic()
            try:
                self._write_group(group)
            finally:
                _tell_all(group)
            self._last_writes, self._last_seconds = len(group), time.monotonic() - begin

    def _gather(self) -> None:
        """Wait a little for the callers who wrote together: the first to come back would else be synced alone."""
        patience = min(self._last_seconds / 4, GATHER_SECONDS_MAX)
        end = time.monotonic() + patience
        while len(self._waiting) < self._last_writes > 1 and time.monotonic() < end:
            time.sleep(patience / 10)

    def _next_group(self) -> list[_Job]:
        with self._lock:
            group = [self._waiting.popleft() for _ in range(min(len(self._waiting), GROUP_WRITES_MAX))]
            self._running = bool(group)
            return group

    def _write_group(self, group: list[_Job]) -> None:
        try:
            with turn(self._path, TURN_SECONDS_MAX), engine_errors():
                self._file.check()
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    self._check(self._connection)
                    answers = [self._write_one(job) for job in group]
                    self._connection.execute("COMMIT")
                finally:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
        except Problem as problem:
            answers = [problem] * len(group)
        for job, answer in zip(group, answers, strict=True):
            job.answer = answer

    def _write_one(self, job: _Job) -> Any:
        connection = self._connection
        connection.execute("SAVEPOINT one")
        try:
            answer = job.work(connection)
        except apsw.ConstraintError as error:
            answer = Conflict(f"The store refuses this: {error}")
        except apsw.Error:
            raise
        except Exception as error:  # this write's caller gets it; its neighbours commit
            answer = error
        if isinstance(answer, Exception):
            connection.execute("ROLLBACK TO one")
        connection.execute("RELEASE one")
        return answer


def _tell_all(group: list[_Job]) -> None:
    for loop in {job.loop for job in group}:
        told = [job for job in group if job.loop is loop]
        with contextlib.suppress(RuntimeError):  # the loop ended with its callers
            loop.call_soon_threadsafe(_tell, told)


def _tell(jobs: list[_Job]) -> None:
    for job in jobs:
        job.tell()


def _surface(done: Future[None]) -> None:
    """A fault of our own in the writing thread is not swallowed: the interpreter prints it."""
    done.result()
