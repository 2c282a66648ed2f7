"""The wire of older clients: `GET /sse` streams the answers to what is posted to `/messages`."""

import contextlib
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from litestar import asgi
from litestar.exceptions import MethodNotAllowedException
from mcp.server.sse import SseServerTransport
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage

from memory_svc.settings import Settings
from memory_svc.transports.caller import caller_of
from memory_svc.transports.guard import MESSAGES_PATH, SSE_PATH
from memory_svc.transports.handing import telling, with_user
from memory_svc.transports.mcp import Mcp
from memory_svc.transports.message import TOOLS_PARAMETER
from memory_svc.transports.session import Session

if TYPE_CHECKING:
    from litestar.handlers import ASGIRouteHandler
    from litestar.types import Receive, Scope, Send

Item = SessionMessage | Exception


def sse_routes(mcp: Mcp, settings: Settings) -> "tuple[ASGIRouteHandler, ...]":
    """Both routes. A session takes messages from the credential alone that opened it."""
    transport = SseServerTransport(MESSAGES_PATH, max_request_body_size=settings.body_bytes_max)

    @asgi(SSE_PATH, copy_scope=True)
    async def sse_route(scope: "Scope", receive: "Receive", send: "Send") -> None:
        fields = cast("dict[str, Any]", scope)
        if fields["method"] != "GET":
            raise MethodNotAllowedException(headers={"Allow": "GET"})
        asked = parse_qs(fields["query_string"].decode("latin-1"))
        session = mcp.session(caller_of(fields).principal, "mcp-sse", asked.get(TOOLS_PARAMETER, [""])[-1])
        # The SDK puts the path under which an app is mounted before that of the messages.
        fields["root_path"] = settings.path_prefix
        async with transport.connect_sse(with_user(fields), cast("Any", receive), cast("Any", send)) as (read, write):
            await _serve(mcp, session, read, write)

    @asgi(MESSAGES_PATH, copy_scope=True)
    async def messages_route(scope: "Scope", receive: "Receive", send: "Send") -> None:
        fields = cast("dict[str, Any]", scope)
        told: Any = telling(fields, cast("Any", send))
        await transport.handle_post_message(with_user(fields), cast("Any", receive), told)

    return sse_route, messages_route


async def _serve(mcp: Mcp, session: Session, read: ReadStream[Item], write: WriteStream[SessionMessage]) -> None:
    """One connection, until the client leaves or the server does."""
    into, received = anyio.create_memory_object_stream[Item](0)
    out, sent = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read, session, read, into)
        tasks.start_soon(_end, session, into)
        tasks.start_soon(mcp.serve, session, received, out)
        await _write(session, sent, write)
        tasks.cancel_scope.cancel()


async def _read(session: Session, read: ReadStream[Item], into: MemoryObjectSendStream[Item]) -> None:
    """Hand the client's messages to the server; what could not be read was refused when it was posted."""
    async with into, read:
        while True:
            try:
                item = await read.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                return
            if isinstance(item, SessionMessage):
                session.came(item.message)
                await into.send(item)


async def _end(session: Session, into: MemoryObjectSendStream[Item]) -> None:
    """When the session is to end: no message more, whereupon the server closes the other direction."""
    await session.left()
    await into.aclose()


async def _write(
    session: Session, sent: MemoryObjectReceiveStream[SessionMessage], write: WriteStream[SessionMessage]
) -> None:
    """Hand the server's messages to the client until there are no more, or nobody is there to take them."""
    async with sent, write:
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for item in sent:
                await write.send(item)
                session.went(item.message)
