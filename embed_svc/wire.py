"""Around the application, on the wire: each request gets an id, a log line and a count, whatever answers it."""

import re
import time
import uuid
from typing import Any

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from embed_svc.observe import Observer

REQUEST_ID = "x-request-id"
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Observed:
    """An ASGI application whose HTTP requests are measured, those that match no route too."""

    def __init__(self, app: ASGIApp, observer: Observer) -> None:
        self._app = app
        self._observer = observer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection; what is not HTTP passes through."""
        if scope["type"] == ScopeType.HTTP:
            await self._measured(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _measured(self, scope: Any, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        status = 500
        facts = {"request_id": _request_id(scope["headers"])}
        # Handlers add to the facts; a server's own state, where it has one, stays.
        scope["state"] = {**scope.get("state", {}), "facts": facts}

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                marked = [*message["headers"], (REQUEST_ID.encode(), facts["request_id"].encode())]
                message["headers"] = marked
            await send(message)

        try:
            await self._app(scope, receive, sent)
        finally:
            self._observer.request(scope.get("path_template"), status, time.perf_counter() - started, facts)


def _request_id(headers: list[tuple[bytes, bytes]]) -> str:
    """Return the caller's own id where it is a short plain word, else a new one."""
    given = next((value.decode("latin-1") for name, value in headers if name == REQUEST_ID.encode()), "")
    return given if _SAFE_ID.fullmatch(given) else uuid.uuid4().hex
