"""How long an answer is worked at: until it is there, its caller has left, or its deadline has passed."""

import asyncio
import time
from collections.abc import Coroutine
from contextlib import closing
from typing import Any, TypeVar, cast

from litestar import Request

from embed_svc.bodies import DEADLINE, deadline_seconds
from embed_svc.errors import Left, Unavailable

Answer = TypeVar("Answer")

# When a request came, by time.monotonic(), in the state of its scope.
ARRIVED = "arrived"


async def while_awaited(request: Request[Any, Any, Any], work: Coroutine[Any, Any, Answer]) -> Answer:
    """Return what `work` returns; the request's body must have been read.

    Raises Left where the caller closes the connection first, Unavailable where its deadline passes first, Invalid
    where that is no number; then the work is cancelled.
    """
    with closing(work):
        seconds = _seconds_left(request)
        worker = cast(asyncio.Task[Any], asyncio.current_task())
        is_waiting = True

        def leave(watched: asyncio.Future[None]) -> None:
            if is_waiting and not watched.cancelled():
                worker.cancel()

        watcher = asyncio.ensure_future(_left(request))
        watcher.add_done_callback(leave)
        try:
            async with asyncio.timeout(seconds) as deadline:
                return await work
        except TimeoutError as error:
            if not deadline.expired():
                raise
            told = request.headers[DEADLINE]
            raise Unavailable(f"the deadline of {told} ms has passed: give it longer, or try later") from error
        except asyncio.CancelledError:
            if not watcher.done() or watcher.cancelled() or worker.uncancel():
                raise
            raise Left("the caller closed the connection before the answer was there") from None
        finally:
            is_waiting = False
            watcher.cancel()


def _seconds_left(request: Request[Any, Any, Any]) -> float | None:
    allowed = deadline_seconds(request.headers)
    if allowed is None:
        return None
    arrived: float = request.scope["state"].get(ARRIVED, time.monotonic())
    return max(arrived + allowed - time.monotonic(), 0)


async def _left(request: Request[Any, Any, Any]) -> None:
    """Return when the connection is closed; what else comes is of no concern."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
