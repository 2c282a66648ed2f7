"""The writer's turn: a file lock by which processes write one after the other, with a bound on the wait.

SQLite's own waiting is a poll, of which one of two busy writers gets the worse; a file lock queues.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from memory_svc.errors import Unavailable
from memory_svc.observe import log
from memory_svc.settings import refusal

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

PATIENCE_SECONDS = 1.0


@contextlib.contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turn what the file system raises into Unavailable that names the file."""
    try:
        yield
    except OSError as error:
        raise Unavailable(f"Cannot open {refusal(path, error)}") from error


@contextlib.contextmanager
def turn(path: Path, seconds: float) -> Iterator[None]:
    """Hold the lock beside the database, until the block ends.

    Raises Unavailable when another process holds it for longer than these seconds, or the file cannot be made.
    """
    with file_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path.with_name(path.name + "-turn"), os.O_CREAT | os.O_RDWR, 0o600)
    attempt = _Attempt(descriptor)
    if not attempt.succeeds(seconds):
        raise Unavailable(
            f"Another process has held {path.name} for {seconds:.0f} s; see whether one that uses it is stopped"
        )
    try:
        yield
    finally:
        os.close(descriptor)


class _Attempt:
    """One try to get the lock. Who gives up leaves a thread behind that lets go of the lock when it comes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._decided = threading.Lock()
        self._held = threading.Event()
        self._given_up = False

    def succeeds(self, seconds: float) -> bool:
        """Whether the lock is held now."""
        if _locked(self._descriptor, wait=False):
            return True
        threading.Thread(target=self._wait, name="turn", daemon=True).start()
        if not self._held.wait(min(PATIENCE_SECONDS, seconds)):
            log("waiting for another process to let go of the database", severity=30)
            self._held.wait(max(0.0, seconds - PATIENCE_SECONDS))
        with self._decided:
            self._given_up = not self._held.is_set()
        return not self._given_up

    def _wait(self) -> None:
        _locked(self._descriptor, wait=True)
        with self._decided:
            self._held.set()
            if self._given_up:
                os.close(self._descriptor)


def _locked(descriptor: int, *, wait: bool) -> bool:
    """Whether the lock is held. Closing the descriptor lets go of it, also when its process dies."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
