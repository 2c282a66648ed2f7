"""The Litestar app of the memory server and its lifespan: MCP, REST, health and metrics behind one guard."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec
from litestar import Litestar, MediaType, Request, Response, asgi, get
from litestar.exceptions import HTTPException
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from memory_svc.errors import Unavailable
from memory_svc.services.operation import Catalogue
from memory_svc.settings import Settings
from memory_svc.transports.caller import caller_of
from memory_svc.transports.failures import TABLE, failed, unrouted
from memory_svc.transports.guard import MCP_PATH, App, Guard
from memory_svc.transports.handing import telling, with_user
from memory_svc.transports.mcp import Mcp
from memory_svc.transports.openapi import openapi
from memory_svc.transports.prefix import beneath
from memory_svc.transports.rest import call_route
from memory_svc.transports.sse import sse_routes

if TYPE_CHECKING:
    from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler
    from litestar.types import Receive, Scope, Send

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
WELL = b'{"ok":true}'
Ready = Callable[[], Awaitable[str | None]]
Background = contextlib.AbstractAsyncContextManager[Any]


def build_app(mcp: Mcp, settings: Settings, token: str, ready: Ready, background: Sequence[Background] = ()) -> App:
    """The ASGI app of the whole server.

    `ready` gives None, or the reason why calls cannot be answered now. The contexts of `background` are entered in
    order when the server starts and left in reverse after its last answer.
    """
    catalogue = mcp.catalogue
    manager = StreamableHTTPSessionManager(
        mcp.exchanges,
        stateless=True,
        json_response=False,
        max_request_body_size=settings.body_bytes_max,
    )
    started = asyncio.Event()

    @contextlib.asynccontextmanager
    async def lifespan(_app: Litestar) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for each in background:
                await stack.enter_async_context(each)
            await stack.enter_async_context(manager.run())
            started.set()
            yield

    app = Litestar(
        route_handlers=[
            _mcp_route(manager),
            *sse_routes(mcp, settings),
            call_route(catalogue, settings),
            _document_route(catalogue, settings),
            _metrics_route(catalogue),
            *_health_routes(ready, started),
        ],
        lifespan=[lifespan],
        exception_handlers={Exception: _answer_failure},
        openapi_config=None,
        logging_config=None,
        request_max_body_size=None,
        debug=False,
        pdb_on_exception=False,
    )
    return beneath(settings.path_prefix, Guard(cast("App", app), settings, token, catalogue.runtime.metrics))


def _mcp_route(manager: StreamableHTTPSessionManager) -> "ASGIRouteHandler":
    @asgi(MCP_PATH, copy_scope=True)
    async def mcp_route(scope: "Scope", receive: "Receive", send: "Send") -> None:
        fields = cast("dict[str, Any]", scope)
        told: Any = telling(fields, cast("Any", send))
        await manager.handle_request(with_user(fields), cast("Any", receive), told)

    return mcp_route


def _document_route(catalogue: Catalogue, settings: Settings) -> "HTTPRouteHandler":
    document = msgspec.json.encode(openapi(catalogue, settings.path_prefix))

    @get("/openapi.json")
    async def document_route() -> Response[bytes]:
        return Response(document, media_type=MediaType.JSON)

    return document_route


def _metrics_route(catalogue: Catalogue) -> "HTTPRouteHandler":
    metrics = catalogue.runtime.metrics

    @get("/metrics")
    async def metrics_route() -> Response[bytes]:
        return Response(metrics.exposition(), media_type=PROMETHEUS)

    return metrics_route


def _health_routes(ready: Ready, started: asyncio.Event) -> "tuple[HTTPRouteHandler, ...]":
    @get("/livez")
    async def live_route() -> Response[bytes]:
        return Response(WELL, media_type=MediaType.JSON)

    @get("/startupz")
    async def started_route() -> Response[bytes]:
        if not started.is_set():
            raise Unavailable("starting")
        return Response(WELL, media_type=MediaType.JSON)

    @get("/readyz")
    async def ready_route() -> Response[bytes]:
        reason = await ready() if started.is_set() else "starting"
        if reason is not None:
            raise Unavailable(reason)
        return Response(WELL, media_type=MediaType.JSON)

    return live_route, started_route, ready_route


def _answer_failure(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The body of the failure table for whatever a route raised, the framework's own refusals too."""
    request_id = caller_of(cast("dict[str, Any]", request.scope)).request_id
    status, headers = None, {}
    if isinstance(error, HTTPException) and error.status_code < TABLE["internal"].status:
        status, headers = error.status_code, dict(error.headers or {})
        error = unrouted(status, request.method, request.scope["path"])
    failure = failed(error, request_id, status=status)
    return Response(
        failure.encoded(),
        status_code=failure.status,
        headers={**headers, **failure.headers},
        media_type=MediaType.JSON,
    )
