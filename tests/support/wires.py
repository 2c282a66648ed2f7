"""One way to call an operation over every wire there is."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from memory_svc.services.operation import Catalogue
from memory_svc.settings import Settings
from memory_svc.transports.http import build_app
from memory_svc.transports.mcp import Mcp
from memory_svc.transports.serving import Serving, bound, url_of
from tests.support.processes import ROOT, environment

WIRES = ("mcp-memory", "mcp-http", "mcp-http-legacy", "sse", "sse-legacy", "stdio", "stdio-legacy", "rest")
TOKEN = "token-of-the-tests"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
BASE = "http://127.0.0.1:8402"
Call = Callable[..., Awaitable[dict[str, Any]]]


async def nothing() -> str | None:
    """Ready."""
    return None


@contextlib.asynccontextmanager
async def served(catalogue: Catalogue, settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the whole HTTP app, its lifespan running, no socket between them."""
    app: Any = build_app(Mcp(catalogue, settings), settings, TOKEN, nothing)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(lifespan_of(app))
        transport = httpx2.ASGITransport(app)
        yield await stack.enter_async_context(httpx2.AsyncClient(transport=transport, base_url=BASE, headers=HEADERS))


@contextlib.asynccontextmanager
async def lifespan_of(app: Any) -> AsyncIterator[None]:
    """The app between its start and its stop."""
    import anyio

    started, stop, stopped = anyio.Event(), anyio.Event(), anyio.Event()
    first = True

    async def receive() -> dict[str, str]:
        nonlocal first
        if first:
            first = False
            return {"type": "lifespan.startup"}
        await stop.wait()
        return {"type": "lifespan.shutdown"}

    async def send(message: dict[str, str]) -> None:
        (started if message["type"] == "lifespan.startup.complete" else stopped).set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(app, {"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)
        await started.wait()
        yield
        stop.set()
        await stopped.wait()


@contextlib.asynccontextmanager
async def listening(catalogue: Catalogue, settings: Settings) -> AsyncIterator[str]:
    """The address of the whole server, which runs in this loop on any free port."""
    own = msgspec.structs.replace(settings, port=0)
    mcp = Mcp(catalogue, own)
    with bound(own) as listener:
        url = url_of(own, listener)
        server = Serving(build_app(mcp, own, TOKEN, nothing), own, url, mcp.leave)
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield url
        finally:
            server.stop(2)
            await task


def over_mcp(client: Client) -> Call:
    """Call tools; the answer is the one text block."""

    async def call(name: str, **arguments: Any) -> dict[str, Any]:
        result = await client.call_tool(name, arguments)
        answer: dict[str, Any] = json.loads(result.content[0].text)
        assert result.is_error is ("code" in answer)
        assert result.structured_content is None
        return answer

    return call


def over_rest(client: httpx2.AsyncClient) -> Call:
    """POST the arguments."""

    async def call(name: str, **arguments: Any) -> dict[str, Any]:
        response = await client.post(f"/v1/{name}", json=arguments)
        answer: dict[str, Any] = response.json()
        assert (response.status_code == 200) is ("code" not in answer)
        return answer

    return call


@contextlib.asynccontextmanager
async def connected(wire: str, catalogue: Catalogue, settings: Settings, folder: Path) -> AsyncIterator[Call]:
    """A call over that wire. stdio has a process and a store of its own."""
    async with contextlib.AsyncExitStack() as stack:
        if wire == "rest":
            yield over_rest(await stack.enter_async_context(served(catalogue, settings)))
        else:
            yield over_mcp(await stack.enter_async_context(opened(wire, catalogue, settings, folder)))


@contextlib.asynccontextmanager
async def opened(
    wire: str, catalogue: Catalogue, settings: Settings, folder: Path, hear: Any = None
) -> AsyncIterator[Client]:
    """A client over a wire that speaks MCP; `hear` is given what the server says by itself."""
    mode = "legacy" if wire.endswith("legacy") else "auto"
    async with contextlib.AsyncExitStack() as stack:
        if wire.startswith("stdio"):
            own = environment(MEMORY_DATA_DIR=str(folder), MEMORY_EMBEDDING_URL="", MEMORY_ZONE=settings.zone)
            server: Any = StdioServerParameters(
                command=sys.executable, args=["-m", "memory_svc", "stdio"], env=own, cwd=ROOT
            )
        elif wire == "mcp-memory":
            server = Mcp(catalogue, settings).connections
        elif wire.startswith("sse"):
            server = sse_client(f"{await stack.enter_async_context(listening(catalogue, settings))}/sse", HEADERS)
        elif wire == "mcp-http-open":
            url = await stack.enter_async_context(listening(catalogue, settings))
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=HEADERS, timeout=20))
            server = streamable_http_client(f"{url}/mcp", http_client=http)
        else:
            http = await stack.enter_async_context(served(catalogue, settings))
            server = streamable_http_client(f"{BASE}/mcp", http_client=http)
        yield await stack.enter_async_context(Client(server, mode=mode, message_handler=hear))
