"""A connection that stays open, over SSE or stdio: who speaks, what waits for an answer, what it is to be told of."""

import asyncio
from typing import Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server import Server
from mcp.server.lowlevel import NotificationOptions
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.message import SessionMessage

from memory_svc.domain.access.principal import Principal
from memory_svc.services.operation import Wire
from memory_svc.transports.announcements import Announcements
from memory_svc.transports.news import News

HAND_OVER_SECONDS = 0.1
Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


class Session:
    """One such connection. Handlers find it as the SDK's context of the connection's life.

    leaving: set when the connection is to end as soon as what waits is answered.
    """

    def __init__(self, principal: Principal, wire: Wire, announcements: Announcements, tools: str = "") -> None:
        self.wire = wire
        self.tools = tools
        self.news = News(principal, announcements)
        self._waiting: set[types.RequestId] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self.leaving = asyncio.Event()

    def came(self, message: types.JSONRPCMessage) -> None:
        """Note a message of the client: a request waits from now on, one that was called off no longer does."""
        if isinstance(message, types.JSONRPCRequest):
            self._waiting.add(message.id)
            self._idle.clear()
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            self._settle((message.params or {}).get("requestId"))

    def went(self, message: types.JSONRPCMessage) -> None:
        """Note a message to the client: an answer settles its request."""
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._settle(message.id)

    async def answered(self) -> None:
        """Wait until no request waits, not even one that is just being handed from stream to stream."""
        while not self._idle.is_set():
            await self._idle.wait()
            await asyncio.sleep(HAND_OVER_SECONDS)

    async def left(self) -> None:
        """Wait until the connection is to end and nothing waits any more."""
        await self.leaving.wait()
        await asyncio.sleep(HAND_OVER_SECONDS)
        await self.answered()

    def _settle(self, request: object) -> None:
        self._waiting = {waiting for waiting in self._waiting if waiting != request}
        if not self._waiting:
            self._idle.set()


async def serve_session(server: Server[Any], session: Session, incoming: Incoming, outgoing: Outgoing) -> None:
    """Answer over these streams until the incoming one ends, in the era of the client's first request."""
    options = server.create_initialization_options(NotificationOptions(resources_changed=True))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.news.tell)
        await serve_dual_era_loop(server, incoming, outgoing, lifespan_state=session, init_options=options)
        tasks.cancel_scope.cancel()
