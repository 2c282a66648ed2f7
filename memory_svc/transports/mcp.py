"""MCP as all wires of a process speak it: two servers of the SDK over one Catalogue, and what stays open on them."""

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.subscriptions import ListenHandler, ResourcesListChanged, ResourceUpdated, ServerEvent
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from memory_svc.domain.access.principal import Principal
from memory_svc.errors import Invalid, Problem
from memory_svc.observe import log
from memory_svc.services.operation import Catalogue, Wire
from memory_svc.settings import Settings
from memory_svc.transports.announcements import Announcements, Changes
from memory_svc.transports.caller import local_caller
from memory_svc.transports.failures import JSON_RPC_INVALID, TABLE, failed
from memory_svc.transports.message import Context, caller_in, session_in
from memory_svc.transports.resources import Resources, address_at
from memory_svc.transports.session import Incoming, Outgoing, Session, serve_session
from memory_svc.transports.tools import Tools

NAME = "agent-memory"
TOOLS_FRESH_MILLISECONDS = 300_000
INSTRUCTIONS = (
    "A memory that lasts beyond this conversation. Recall before you answer what may have come up before: "
    "in the answer of recall the last message is the best match, and long ones are cut (get_contents has them whole). "
    "Store what will still matter later, one fact a call, as a whole sentence that can be understood by itself, with "
    "names and dates instead of 'he' or 'yesterday'. After store, branch on `result`: stored, skipped (already there) "
    "or rejected. A failed call has ok: false, says in `error` how to mend it, and in `retry` whether to try again."
)
Listen = Callable[[Context, types.SubscriptionsListenRequestParams], Awaitable[types.SubscriptionsListenResult]]


class Mcp:
    """The servers of one process.

    exchanges: for streamable HTTP, where each request is answered by itself. connections: for SSE and stdio, where
    the client stays and can be told of changes.
    """

    def __init__(self, catalogue: Catalogue, settings: Settings) -> None:
        """Raises Invalid when the settings name a tool or a zone that there is not."""
        quieten_sdk()
        self.catalogue = catalogue
        self.announcements = Announcements(catalogue.runtime.storage)
        self._listening: dict[Principal, ListenHandler] = {}
        self._sessions: set[Session] = set()
        parts = Tools(catalogue, settings), Resources(catalogue, settings)
        self.exchanges = _server(*parts, self._listen)
        self.connections = _server(*parts, self._listen)
        self.connections.add_request_handler("resources/subscribe", types.SubscribeRequestParams, _subscribe)
        self.connections.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, _unsubscribe)
        self.connections.add_request_handler("resources/list", types.PaginatedRequestParams, _followed(parts[1]))

    def session(self, principal: Principal, wire: Wire, tools: str = "") -> Session:
        """A new connection of this caller, to be served."""
        return Session(principal, wire, self.announcements, tools)

    async def serve(self, session: Session, incoming: Incoming, outgoing: Outgoing) -> None:
        """Answer over a connection that stays open until the incoming stream ends."""
        self._sessions.add(session)
        try:
            with self.catalogue.runtime.metrics.session(session.wire):
                await serve_session(self.connections, session, incoming, outgoing)
        finally:
            self._sessions.discard(session)

    def leave(self) -> None:
        """Have all that stays open end as soon as what waits is answered."""
        for handler in self._listening.values():
            handler.close()
        for session in tuple(self._sessions):
            session.leaving.set()

    async def _listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Stream what the caller may know of the changes it asked for."""
        principal = caller_in(context).principal
        handler = self._listening.setdefault(principal, ListenHandler(_Bus(self.announcements, principal)))
        async with self.announcements.attended():
            return await handler(context, params)


class _Bus:
    """The announcements that one principal may know of, as events of the SDK."""

    def __init__(self, announcements: Announcements, principal: Principal) -> None:
        self._announcements = announcements
        self._principal = principal

    async def publish(self, event: ServerEvent) -> None:
        """Nothing: what is told comes out of the journal."""
        log("an event was published past the journal", severity=logging.WARNING, kind=type(event).__name__)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Give this listener every event, until the function that comes back is called."""

        def take(changes: Changes) -> None:
            for uri in changes.uris:
                listener(ResourceUpdated(uri))
            if changes.listed:
                listener(ResourcesListChanged())

        return self._announcements.subscribe(self._principal, take)


def _server(tools: Tools, resources: Resources, listen: Listen) -> Server[Any]:
    server: Server[Any] = Server(
        NAME,
        version=version(NAME),
        title="Agent memory",
        instructions=INSTRUCTIONS,
        cache_hints={"tools/list": CacheHint(ttl_ms=TOOLS_FRESH_MILLISECONDS, scope="private")},
        # Else the SDK would look at each call for arguments that are told in headers too, of which no tool has any.
        get_tool_input_schema=lambda _name: None,
        on_list_tools=tools.list,
        on_call_tool=tools.call,
        on_list_resources=resources.page,
        on_list_resource_templates=resources.templates,
        on_read_resource=resources.read,
        on_subscriptions_listen=listen,
    )
    server.middleware.append(_named)
    return server


async def _subscribe(context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
    """Tell this connection when the resource changes.

    Raises NotFound when the address is none of ours.
    """
    uri = address_at(str(params.uri)).uri
    session = session_in(context)
    if session is None:
        raise Invalid("resources/subscribe: this wire cannot push; use subscriptions/listen, /sse or stdio")
    session.news.name(uri)
    await session.news.begin(context.session)
    return types.EmptyResult()


async def _unsubscribe(context: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    """Tell this connection no longer."""
    session = session_in(context)
    if session is not None:
        session.news.drop(address_at(str(params.uri)).uri)
    return types.EmptyResult()


def _followed(resources: Resources) -> Callable[[Context, types.PaginatedRequestParams], Any]:
    """The list of resources; who has read it is told when it changes, if its handshake is one of the older ones."""

    async def listed(context: Context, params: types.PaginatedRequestParams) -> types.ListResourcesResult:
        session = session_in(context)
        if session is not None and context.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
            await session.news.begin(context.session)
        return await resources.page(context, params)

    return listed


def quieten_sdk() -> None:
    """What the SDK refuses is logged by us, with the request id; its own lines have none. Its faults are still told.

    What it reads of a trace in `_meta` and cannot use would be logged in the caller's own words.
    """
    logging.getLogger("mcp").setLevel(logging.ERROR)
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    logging.getLogger("mcp.server.sse").setLevel(logging.CRITICAL)


async def _named(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Every message has a request id, and every error tells it, those of the SDK too."""
    context = dataclasses.replace(ctx, request=ctx.request or local_caller())
    request_id = caller_in(context).request_id
    try:
        return await call_next(context)
    except MCPError as error:
        raise MCPError(error.code, error.message, _with_id(error.error.data, request_id)) from error
    except ValidationError as error:
        places = ", ".join(sorted({".".join(map(str, each["loc"])) for each in error.errors()}))
        words = f"Invalid request parameters: {places[:200]}"
        raise MCPError(JSON_RPC_INVALID, words, {"request_id": request_id}) from error
    except Exception as error:
        failure = failed(error, request_id)
        details = error.details if isinstance(error, Problem) else {}
        code = TABLE[failure.body["code"]].json_rpc
        raise MCPError(code, failure.body["error"], {**details, **failure.body}) from error


def _with_id(data: object, request_id: str) -> dict[str, Any]:
    """The data of an error with the request id among it; what is no object stands under `detail`."""
    if isinstance(data, Mapping):
        return {**data, "request_id": request_id}
    return {"request_id": request_id} if data in (None, "") else {"detail": data, "request_id": request_id}
