"""How long an answer is worked at: until it is there, its caller has left, or its deadline has passed."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

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
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(_left(request))]
    try:
        seconds = _seconds_left(request)
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            return tasks[0].result()  # type: ignore[return-value]
        if tasks[1].done():
            raise Left("the caller closed the connection before the answer was there")
        raise Unavailable(f"the deadline of {request.headers[DEADLINE]} ms has passed: give it longer, or try later")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


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
