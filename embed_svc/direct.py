"""Ordinary requests with texts, answered without the framework; the one place that goes around it (decision 20).

Ordinary is a POST to one of three routes whose body has come whole and is what the route takes. Whatever else comes is
handed to the framework as it came: it knows every route, refuses, and describes all of it.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from litestar.types import ASGIApp, Receive, Send

from embed_svc import answers, failures
from embed_svc.answers import Answer
from embed_svc.bodies import CountRequest, EmbedRequest, OpenAIRequest, decode
from embed_svc.errors import Problem
from embed_svc.guard import Token
from embed_svc.patience import Caller, caller
from embed_svc.service import Readiness


class Route(msgspec.Struct, frozen=True):
    """What a route takes, and what answers it."""

    takes: type
    answer: Callable[[Any, Caller, Readiness], Awaitable[Answer]]
    as_openai: bool = False


ROUTES: dict[str, Route] = {
    "/embed": Route(EmbedRequest, answers.embed),
    "/v1/embeddings": Route(OpenAIRequest, answers.embeddings, as_openai=True),
    "/count_tokens": Route(CountRequest, answers.count_tokens),
}
_JSON = (b"content-type", b"application/json")


class Direct:
    """An ASGI application before another, which gets all that is not ordinary."""

    def __init__(self, app: ASGIApp, readiness: Readiness, body_bytes_max: int, token: Token | None = None) -> None:
        self._app = app
        self._readiness = readiness
        self._body_bytes_max = body_bytes_max
        self._token = token

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        route = ROUTES.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        heads = self._ordinary(scope["headers"]) if route else None
        if route is None or heads is None:
            await self._app(scope, receive, send)
            return
        scope["path_template"] = scope["path"]
        state: dict[str, Any] = scope.setdefault("state", {})
        try:
            first: Any = await receive()
            data = _read(first, route)
            if data is not None:
                answer = await route.answer(data, caller(state, receive, heads), self._readiness)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller is answered
            told = failures.told(error, self._body_bytes_max, route.as_openai, state.get("facts", {}))
            await _send(send, told.status, told.headers, msgspec.json.encode(told.body))
            return
        if data is None:
            await self._app(scope, _again(first, receive), send)
        else:
            await _send(send, 200, answer.headers, answer.body)

    def _ordinary(self, headers: Any) -> dict[bytes, bytes] | None:
        """Return the headers by name, or None where one came twice, the body is too long or the token is not there."""
        heads: dict[bytes, bytes] = dict(headers)
        length = heads.get(b"content-length", b"")
        if len(heads) != len(headers) or not length.isdigit() or int(length) > self._body_bytes_max:
            return None
        if self._token and not self._token.is_in(heads.get(b"authorization", b"").decode("latin-1")):
            return None
        return heads


def _read(message: Any, route: Route) -> Any:
    """Return the body as the route takes it, or None where it has not come whole or is something else."""
    if message["type"] != "http.request" or message.get("more_body"):
        return None
    try:
        return msgspec.convert(decode(message["body"]), route.takes)
    except (Problem, msgspec.ValidationError):
        return None


def _again(message: Any, receive: Receive) -> Receive:
    """Return what gives this message, and then those that follow it."""
    waiting = [message]

    async def received() -> Any:
        return waiting.pop() if waiting else await receive()

    return received


async def _send(send: Send, status: int, headers: dict[str, str], body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    added = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": [_JSON, length, *added]})
    await send({"type": "http.response.body", "body": body, "more_body": False})
