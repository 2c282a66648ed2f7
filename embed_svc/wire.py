"""Around the application, on the wire: each request gets an id, a log line and a count, whatever answers it.

What all bodies hold at once is bounded here, and it is known here whether any request is still at work.
"""

import random
import re
import time
from collections.abc import Callable
from typing import Any

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from embed_svc.errors import Overloaded
from embed_svc.observe import QUIET_ROUTES, ROUTES, UNMATCHED, Observer
from embed_svc.patience import ARRIVED, SPAN
from embed_svc.spans import NO_SPAN, Span, Tracer

REQUEST_ID = b"x-request-id"
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Observed:
    """An ASGI application whose HTTP requests are measured, those that match no route too."""

    def __init__(
        self,
        app: ASGIApp,
        observer: Observer,
        bodies_bytes_max: int = 64 << 20,
        refuse: Callable[[], None] = lambda: None,
        tracer: Tracer | None = None,
    ) -> None:
        """`refuse` makes the application refuse what comes from then on; `tracer` is told of each request."""
        self._app = app
        self._observer = observer
        self._bodies_bytes_max = bodies_bytes_max
        self._bodies_bytes = 0
        self._tracer = tracer or Tracer()
        # Ids are to differ, not to be secret; the system's own randomness is a call of it each time.
        self._ids = random.Random()
        self.at_work = 0
        self.refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection; what is not HTTP passes through."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
        elif scope["path"] in QUIET_ROUTES:
            await self._measured(scope, receive, send, NO_SPAN)
        else:
            route = scope["path"] if scope["path"] in ROUTES else UNMATCHED
            with self._tracer.request(route, scope["headers"]) as span:
                await self._measured(scope, receive, send, span)

    async def _measured(self, scope: Any, receive: Receive, send: Send, span: Span) -> None:
        started = time.perf_counter()
        status = 500
        request_id = _given_id(scope["headers"]) or f"{self._ids.getrandbits(128):032x}"
        facts: dict[str, object] = {"request_id": request_id}
        if span.trace_id:
            facts["trace_id"] = span.trace_id
        # Handlers add to the facts; a server's own state, where it has one, stays.
        scope["state"] = {**scope.get("state", {}), "facts": facts, ARRIVED: started, SPAN: span}
        held = 0
        counts = scope["path"] not in QUIET_ROUTES

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (REQUEST_ID, request_id.encode())]
            await send(message)

        async def received() -> Any:
            nonlocal held
            message = await receive()
            if message["type"] == "http.request":
                size = len(message.get("body", b""))
                if self._bodies_bytes + size > self._bodies_bytes_max:
                    raise Overloaded(f"bodies of {self._bodies_bytes_max} bytes are held already: try again later")
                held += size
                self._bodies_bytes += size
            return message

        self.at_work += counts
        try:
            await self._app(scope, received, sent)
        finally:
            self.at_work -= counts
            self._bodies_bytes -= held
            span.answered(status)
            self._observer.request(scope.get("path_template"), status, time.perf_counter() - started, facts)


def _given_id(headers: list[tuple[bytes, bytes]]) -> str:
    """Return the caller's own id where it is a short plain word, else ""."""
    for name, value in headers:
        if name == REQUEST_ID:
            given = value.decode("latin-1")
            return given if _SAFE_ID.fullmatch(given) else ""
    return ""
