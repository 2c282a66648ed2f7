"""MCP as all wires of a process speak it: two servers of the SDK over one Catalogue, and what stays open on them."""

import dataclasses
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from mcp.server import Server
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from memory_svc.errors import Problem
from memory_svc.services.operation import Catalogue
from memory_svc.settings import Settings
from memory_svc.transports.caller import local_caller
from memory_svc.transports.failures import JSON_RPC_INVALID, TABLE, failed
from memory_svc.transports.message import Context, caller_in
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


class Mcp:
    """The servers of one process.

    exchanges: for streamable HTTP, where each request is answered by itself. connections: for SSE and stdio, where
    the client stays and can be told of changes.
    """

    def __init__(self, catalogue: Catalogue, settings: Settings) -> None:
        """Raises Invalid when the settings name a tool or a zone that there is not."""
        self.catalogue = catalogue
        tools = Tools(catalogue, settings)
        self.exchanges = _server(tools)
        self.connections = _server(tools)
        self._sessions: set[Session] = set()

    async def serve(self, session: Session, incoming: Incoming, outgoing: Outgoing) -> None:
        """Answer over a connection that stays open until the incoming stream ends."""
        self._sessions.add(session)
        try:
            await serve_session(self.connections, session, incoming, outgoing)
        finally:
            self._sessions.discard(session)

    def leave(self) -> None:
        """Have all that stays open end as soon as what waits is answered."""
        for session in tuple(self._sessions):
            session.leaving.set()


def _server(tools: Tools) -> Server[Any]:
    server: Server[Any] = Server(
        NAME,
        version=version(NAME),
        title="Agent memory",
        instructions=INSTRUCTIONS,
        cache_hints={"tools/list": CacheHint(ttl_ms=TOOLS_FRESH_MILLISECONDS, scope="private")},
        get_tool_input_schema=tools.schemas.get,
        on_list_tools=tools.list,
        on_call_tool=tools.call,
    )
    server.middleware.append(_named)
    return server


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
