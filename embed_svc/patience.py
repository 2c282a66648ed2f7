"""How long an answer is worked at: until it is there, its caller has left, or its deadline has passed."""

import asyncio
import time
from collections.abc import Coroutine, Mapping
from contextlib import closing
from typing import Any, TypeVar, cast

import msgspec
from litestar.types import Receive

from embed_svc.bodies import DEADLINE, deadline_seconds
from embed_svc.errors import Left, Unavailable
from embed_svc.spans import NO_SPAN, Span

Answer = TypeVar("Answer")

# When a request came, by time.perf_counter(), in the state of its scope.
ARRIVED = "arrived"
# The span of a request, in the same place.
SPAN = "span"
_DEADLINE = DEADLINE.encode()
# Most answers are there before; to watch their connections too would cost more than to run now and then for nobody.
UNWATCHED_SECONDS = 0.02


class Caller(msgspec.Struct, frozen=True):
    """Who waits for an answer, the body having been read: `deadline` is that header, `facts` what will be logged.

    `span` is the request in its trace.
    """

    receive: Receive
    deadline: str | None
    arrived: float
    facts: dict[str, object]
    span: Span = NO_SPAN


def caller(state: Mapping[str, Any], receive: Receive, headers: Mapping[bytes, bytes]) -> Caller:
    """Return the caller of a request, by the state of its scope and its headers."""
    given = headers.get(_DEADLINE)
    deadline = None if given is None else given.decode("latin-1")
    arrived = state.get(ARRIVED, 0.0) or time.perf_counter()
    return Caller(receive, deadline, arrived, state.get("facts", {}), state.get(SPAN, NO_SPAN))


async def while_awaited(caller: Caller, work: Coroutine[Any, Any, Answer]) -> Answer:
    """Return what `work` returns.

    Raises Left where the caller closes the connection first, Unavailable where its deadline passes first, Invalid
    where that is no number; then the work is cancelled.
    """
    with closing(work):
        seconds = _seconds_left(caller)
        watch = _Watch(caller.receive)
        try:
            return await (work if seconds is None else _within(seconds, work, caller))
        except asyncio.CancelledError:
            if not watch.has_cancelled():
                raise
            raise Left("the caller closed the connection before the answer was there") from None
        finally:
            watch.end()


class _Watch:
    """Cancels the task that began it once the connection is closed, looking from UNWATCHED_SECONDS on."""

    def __init__(self, receive: Receive) -> None:
        loop = asyncio.get_running_loop()
        self._receive = receive
        self._worker = cast(asyncio.Task[Any], asyncio.current_task(loop))
        self._watcher: asyncio.Task[None] | None = None
        self._is_waiting = True
        self._timer = loop.call_later(UNWATCHED_SECONDS, self._begin)

    def has_cancelled(self) -> bool:
        """Say, once the task is cancelled, whether that was because its caller has left, and nothing else was."""
        watcher = self._watcher
        return watcher is not None and watcher.done() and not watcher.cancelled() and not self._worker.uncancel()

    def end(self) -> None:
        """Look no more."""
        self._is_waiting = False
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def _begin(self) -> None:
        self._watcher = asyncio.ensure_future(_left(self._receive))
        self._watcher.add_done_callback(self._leave)

    def _leave(self, watched: asyncio.Task[None]) -> None:
        if self._is_waiting and not watched.cancelled():
            self._worker.cancel()


async def _within(seconds: float, work: Coroutine[Any, Any, Answer], caller: Caller) -> Answer:
    try:
        async with asyncio.timeout(seconds) as deadline:
            return await work
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise Unavailable(f"the deadline of {caller.deadline} ms has passed: give it longer, or try later") from error


def _seconds_left(caller: Caller) -> float | None:
    allowed = deadline_seconds(caller.deadline)
    return None if allowed is None else max(caller.arrived + allowed - time.perf_counter(), 0)


async def _left(receive: Receive) -> None:
    """Return when the connection is closed; what else comes is of no concern."""
    while (await receive())["type"] != "http.disconnect":
        pass
