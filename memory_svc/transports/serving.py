"""Running the app on uvicorn: bind, tell the address, and on a signal answer what is under way before leaving."""

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any, cast

import uvicorn

from memory_svc.errors import Unavailable
from memory_svc.observe import log
from memory_svc.settings import Settings
from memory_svc.transports.guard import SSE_PATH, App, Receive, Scope, Send
from memory_svc.transports.heads import BoundedHeads

ANSWER_SECONDS_MAX = 7.0
CLOSE_SECONDS_MAX = 2
BACKLOG = 2048


async def serve(
    app: App, settings: Settings, leave: Callable[[], None], beside: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Answer until SIGTERM or Ctrl-C; calls under way are then answered, within about ten seconds in all.

    leave: has the streams end that have no end by themselves. beside: another wire, told to end by `leave`, at whose
    end the server leaves too. Raises Unavailable when the address cannot be had.
    """
    with bound(settings) as listener:
        server = Serving(app, settings, url_of(settings, listener), leave)
        if beside is None:
            await server.serve([listener])
        else:
            other = asyncio.ensure_future(beside())
            other.add_done_callback(lambda _: server.stop())
            await server.serve([listener])
            leave()
            await other
    log("stopped")


def bound(settings: Settings) -> socket.socket:
    """A socket that listens where the settings say.

    Raises Unavailable naming the address when it cannot be had.
    """
    host = settings.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named asyncio sends small answers at once; without, each waits 40 ms for the client.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
        listener.bind((host, settings.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise Unavailable(
            f"Cannot listen on {host} port {settings.port}: {reason}; end what uses it, or set "
            "MEMORY_HOST or MEMORY_PORT"
        ) from error
    return listener


def url_of(settings: Settings, listener: socket.socket) -> str:
    """The address under which this machine reaches the server."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host.strip("[]"), settings.host.strip("[]"))
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def uvicorn_config(app: App, settings: Settings) -> uvicorn.Config:
    """As every wire wants it.

    The access log is off since every operation is logged already; uvicorn's own lines go where ours go.
    """
    return uvicorn.Config(
        cast("Any", app),
        host=settings.host,
        port=settings.port,
        http=BoundedHeads,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=CLOSE_SECONDS_MAX,
    )


class Calls:
    """The app, and how many calls it is answering.

    POSTs, and the streams of SSE, which end when told to; the stream that a GET of /mcp opens has no end.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self.under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        counted = int(scope["type"] == "http" and (scope["method"] == "POST" or _is_sse(scope["path"])))
        self.under_way += counted
        try:
            await self._app(scope, receive, send)
        finally:
            self.under_way -= counted


def _is_sse(path: str) -> bool:
    """Whether a path is that of SSE, beneath whatever prefix."""
    return path.rstrip("/").endswith(SSE_PATH)


class Serving(uvicorn.Server):
    """A uvicorn server that is told to exit only once the calls under way are answered.

    Until then `should_exit` stays false, since every stream of server-sent events ends at once when it is set, and the
    answers to clients of the older handshakes are such streams.
    """

    def __init__(self, app: App, settings: Settings, url: str, leave: Callable[[], None]) -> None:
        self._calls = Calls(app)
        super().__init__(uvicorn_config(self._calls, settings))
        self._url = url
        self._leave = leave
        self._stops_by: float | None = None
        self._is_closing = False

    def stop(self, seconds: float = ANSWER_SECONDS_MAX) -> None:
        """Leave once the calls under way are answered, or after these seconds."""
        self._stops_by = time.monotonic() + seconds

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """A first signal asks to leave, a second one to leave now. Not raised again, so that the exit code is 0."""
        self.stop(0 if self._is_closing else ANSWER_SECONDS_MAX)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the app and tell where it listens."""
        await super().startup(sockets)
        log("listening", url=self._url)

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second: whether it is time to leave."""
        if self._stops_by is not None:
            if not self._is_closing:
                self._close_doors()
            self.should_exit = self._calls.under_way == 0 or time.monotonic() >= self._stops_by
        return await super().on_tick(counter)

    def _close_doors(self) -> None:
        """Take no new connection, and let those that have no answer to wait for go."""
        self._is_closing = True
        log("stopping", calls=self._calls.under_way)
        self._leave()
        for server in self.servers:
            server.close()
        for connection in tuple(self.server_state.connections):
            connection.shutdown()
