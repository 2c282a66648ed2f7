"""The gate before every route: names the request, checks Host, Origin and token, and bounds the body."""

import asyncio
import contextlib
import hmac
import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any

from memory_svc.domain.access.principal import OWNER
from memory_svc.errors import Denied, Invalid, Problem, TooLarge, Unauthenticated
from memory_svc.observe import Metrics, log
from memory_svc.settings import Settings
from memory_svc.transports.auth import authenticate
from memory_svc.transports.caller import Caller, attach, request_id_from
from memory_svc.transports.failures import failed

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]
HEALTH_PATHS = frozenset({"/livez", "/readyz", "/startupz"})
MCP_PATH = "/mcp"
SSE_PATH = "/sse"
MESSAGES_PATH = "/messages"
JSON_RPC_PATHS = frozenset({MCP_PATH, SSE_PATH, MESSAGES_PATH})
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::([0-9]{1,5}))?")
ORIGIN = re.compile(r"https?://(.+)")
LISTED_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#*,\s]+")
HEADER_NAMES = re.compile(rb"[A-Za-z0-9-]{1,100}(?:\s*,\s*[A-Za-z0-9-]{1,100}){0,50}")
METHODS = b"GET, POST, DELETE"
READABLE = b"Mcp-Session-Id, MCP-Protocol-Version, X-Request-Id, Retry-After, WWW-Authenticate"
PREFLIGHT_SECONDS = b"600"
MISDIRECTED = 421
NO_CONTENT = 204


DRAIN_BYTES_MAX = 64_000_000
DRAIN_SECONDS_MAX = 3.0


class Guard:
    """An ASGI app around another, so that no route, known or unknown, is reached past it.

    The health routes need no token and may be asked for by address, as a kubelet does: they tell nothing of anyone.
    """

    def __init__(self, app: App, settings: Settings, token: str, metrics: Metrics) -> None:
        """Raises Invalid when MEMORY_CORS_ORIGINS names what is no origin."""
        self._app = app
        self._metrics = metrics
        self._token = token.encode()
        self._open = settings.allow_unauthenticated_http
        self._body_bytes_max = settings.body_bytes_max
        self._hosts = _listed(settings.allowed_hosts)
        self._readers = _origins(settings.cors_origins)
        self._origins = _listed(settings.allowed_origins) | self._readers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it with the body of its failure."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["headers"] = headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        request_id = request_id_from(_header(headers, b"x-request-id").decode("latin-1"))
        answer = self._readable(headers, _naming(send, request_id))
        is_health = scope["path"] in HEALTH_PATHS
        try:
            self._check_host(headers, by_address=is_health)
            self._check_origin(headers)
            if self._is_preflight(scope["method"], headers):
                await _allow(headers, answer)
                return
            principal = OWNER if is_health or self._open else authenticate(self._authorization(headers), self._token)
            body = b"" if is_health else await self._body(headers, receive)
        except Problem as problem:
            self._metrics.refused(problem.kind)
            await _refuse(problem, request_id, scope["path"], answer)
            return
        if body is not None:
            attach(scope, Caller(principal, request_id))
            await self._app(scope, _replayed(body, receive), answer)

    def _check_host(self, headers: Headers, *, by_address: bool) -> None:
        """Without this a web page could reach us under a name of its own that it has resolve to this machine."""
        if sum(name == b"host" for name, _ in headers) > 1:
            raise _Misdirected("The request names more than one host; send one Host header")
        host = _header(headers, b"host").decode("latin-1").lower()
        if "*" in self._hosts or _among(host, self._hosts) or (by_address and _is_address(host)):
            return
        raise _Misdirected(
            f"The host name {host[:200]!r} is not one of this server's; if it should be, name it in "
            "MEMORY_ALLOWED_HOSTS"
        )

    def _check_origin(self, headers: Headers) -> None:
        """Programs send no Origin; a browser does, and cannot be kept from it."""
        origin = _header(headers, b"origin").decode("latin-1").lower()
        if not origin or origin in self._origins:
            return
        host = ORIGIN.fullmatch(origin)
        if host is None or not _among(host[1], ()):
            raise Denied(
                f"Web pages of {origin[:200]!r} may not call this server; if they should, name the origin in "
                "MEMORY_ALLOWED_ORIGINS"
            )

    def _is_preflight(self, method: str, headers: Headers) -> bool:
        """Whether a browser asks, without a token, if a page may call. Only where some page may."""
        asks = _header(headers, b"access-control-request-method")
        return method == "OPTIONS" and bool(asks) and self._reader(headers) != b""

    def _reader(self, headers: Headers) -> bytes:
        """The origin of a page that may read the answer, b"" for none."""
        origin = _header(headers, b"origin")
        return origin if origin.decode("latin-1").lower() in self._readers else b""

    def _readable(self, headers: Headers, send: Send) -> Send:
        """`send`, which lets a page read the response if its origin may. What is refused is told readably too."""
        if not self._readers:
            return send
        reader = self._reader(headers)
        added = [(b"vary", b"Origin")]
        if reader:
            added += [(b"access-control-allow-origin", reader), (b"access-control-expose-headers", READABLE)]

        async def readable(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        return readable

    def _authorization(self, headers: Headers) -> bytes:
        """The one Authorization header; two would leave open which of them counts."""
        found = [value for name, value in headers if name == b"authorization"]
        if len(found) > 1 and not all(hmac.compare_digest(found[0], each) for each in found):
            raise Unauthenticated("There is more than one Authorization header; send one")
        return found[0] if found else b""

    async def _body(self, headers: Headers, receive: Receive) -> bytes | None:
        """The whole body; None when the client left before its end."""
        declared, waits = _header(headers, b"content-length"), bool(_header(headers, b"expect"))
        if declared.isdigit() and int(declared) > self._body_bytes_max:
            raise await self._too_large(receive, more=not waits)
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._body_bytes_max:
                raise await self._too_large(receive, more=more and not waits)
        return bytes(body)

    async def _too_large(self, receive: Receive, *, more: bool) -> TooLarge:
        """What tells it, once the rest was read where more of the body comes."""
        if more:
            await _drain(receive)
        return TooLarge(
            f"The body is larger than {self._body_bytes_max} bytes; send less at once, or raise MEMORY_BODY_BYTES_MAX",
            limit_bytes=self._body_bytes_max,
        )


class _Misdirected(Denied):
    """Asked for under a name that is not ours: HTTP has a status of its own for it."""


async def _drain(receive: Receive) -> None:
    """Read on for a while: a client whose body is left unread sees its connection reset and never the answer."""
    left = DRAIN_BYTES_MAX
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS_MAX):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return


async def _refuse(problem: Problem, request_id: str, path: str, send: Send) -> None:
    """The failure's body; where MCP is spoken inside an error of JSON-RPC, which is all that its clients can read."""
    failure = failed(problem, request_id, status=MISDIRECTED if isinstance(problem, _Misdirected) else None)
    log("refused", outcome=problem.kind, status=failure.status, request_id=request_id)
    content = failure.as_json_rpc() if path.rstrip("/") in JSON_RPC_PATHS else failure.encoded()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(content)), **failure.headers}
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": failure.status, "headers": raw})
    await send({"type": "http.response.body", "body": content, "more_body": False})


async def _allow(headers: Headers, send: Send) -> None:
    """The answer to a preflight: these methods, and the headers that were asked for."""
    asked = _header(headers, b"access-control-request-headers")
    allowed = [(b"access-control-allow-methods", METHODS), (b"access-control-max-age", PREFLIGHT_SECONDS)]
    if HEADER_NAMES.fullmatch(asked):
        allowed.append((b"access-control-allow-headers", asked))
    await send({"type": "http.response.start", "status": NO_CONTENT, "headers": allowed})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _naming(send: Send, request_id: str) -> Send:
    """`send`, with the request id among the headers of the response."""

    async def named(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
        await send(message)

    return named


def _replayed(body: bytes, receive: Receive) -> Receive:
    """`receive`, which gives the body that was read and then whatever comes."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return waiting.pop() if waiting else await receive()

    return replayed


def _header(headers: Headers, wanted: bytes) -> bytes:
    return next((value for name, value in headers if name == wanted), b"")


def _listed(names: str) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in names.split(",") if name.strip())


def _origins(names: str) -> frozenset[str]:
    listed = _listed(names)
    strange = sorted(name for name in listed if not LISTED_ORIGIN.fullmatch(name))
    if strange:
        raise Invalid(f"MEMORY_CORS_ORIGINS: {strange[0][:200]!r} is no origin; write it like https://app.example:8443")
    return listed


def _among(host: str, allowed: Iterable[str]) -> bool:
    """Whether a host is a loopback name or a listed one; a name that is listed without a port is right with any."""
    parts = HOST.fullmatch(host)
    return parts is not None and (parts[1] in LOOPBACK or parts[1] in allowed or host in allowed)


def _is_address(host: str) -> bool:
    """An address cannot be made to mean another machine, as a name can."""
    parts = HOST.fullmatch(host)
    try:
        return parts is not None and bool(ipaddress.ip_address(parts[1].strip("[]")))
    except ValueError:
        return False
