"""What surrounds a message of MCP, whichever wire brought it: its caller, its request id, its circumstances."""

import datetime as dt
from typing import Any

from mcp.server.context import ServerRequestContext

from memory_svc.services.operation import Call, Wire
from memory_svc.transports.caller import Caller, Names, call_for, caller_of, local_caller
from memory_svc.transports.session import Session

Context = ServerRequestContext[Any, Any]
TOOLS_PARAMETER = "tools"


def caller_in(context: Context) -> Caller:
    """Who sent the message. What no HTTP request brought has its caller beside it, or is the owner's."""
    if context.request is None:
        return local_caller()
    return context.request if isinstance(context.request, Caller) else caller_of(context.request.scope)


def session_in(context: Context) -> Session | None:
    """The connection that the message came over, where it is one that stays open."""
    return context.lifespan_context if isinstance(context.lifespan_context, Session) else None


def profile_in(context: Context) -> str:
    """Which tools this connection asked to be listed, "" = it did not say."""
    session = session_in(context)
    if session is not None:
        return session.tools
    return str(getattr(context.request, "query_params", {}).get(TOOLS_PARAMETER, ""))


def call_in(context: Context, zone: dt.tzinfo) -> Call:
    """The circumstances of the call: what the message itself says goes before the headers that came with it.

    Raises Invalid as `call_for` does.
    """
    session = session_in(context)
    over_http = hasattr(context.request, "headers")
    wire: Wire = session.wire if session else "mcp-http" if over_http else "mcp-stdio"
    names = Names.of_meta(dict(context.meta or {}))
    if context.request is not None and over_http:
        names = names.over(Names.of_headers(context.request.headers))
    return call_for(caller_in(context), wire, names, zone)
