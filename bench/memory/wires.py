"""The clients of the comparison: each asks a server over one wire, and knows the process that answers."""

import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client

from bench.memory import servers

CALL_SECONDS_MAX = 120.0
Call = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class Wire:
    """A server as its clients see it: its name, its process, and how an operation is called."""

    def __init__(self, name: str, process: int, call: Call) -> None:
        self.name = name
        self.process = process
        self.call = call

    def cpu_seconds(self) -> float:
        """The processor time of the server so far."""
        return servers.cpu_seconds(self.process)


@contextlib.asynccontextmanager
async def rest(name: str, process: int, address: str) -> AsyncIterator[Wire]:
    """`POST /v1/<operation>`."""
    async with httpx2.AsyncClient(base_url=address, trust_env=False, timeout=CALL_SECONDS_MAX) as client:

        async def call(operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
            response = await client.post(f"/v1/{operation}", json=arguments)
            return _sound(operation, response.json(), is_failed=response.status_code != httpx2.codes.OK)

        yield Wire(name, process, call)


@contextlib.asynccontextmanager
async def mcp_http(name: str, process: int, address: str) -> AsyncIterator[Wire]:
    """MCP over streamable HTTP, as a client of today speaks it."""
    async with Client(f"{address}/mcp", read_timeout_seconds=CALL_SECONDS_MAX) as client:
        yield Wire(name, process, _tool_call(client))


@contextlib.asynccontextmanager
async def mcp_stdio(name: str, server: StdioServerParameters, folder: Path, mode: str) -> AsyncIterator[Wire]:
    """MCP over the standard streams of a process of its own. mode `legacy` = with the handshake of older clients."""
    before = servers.children(os.getpid())
    with (folder / "stdio.log").open("a", encoding="utf-8") as log:
        async with Client(stdio_client(server, errlog=log), mode=mode, read_timeout_seconds=CALL_SECONDS_MAX) as client:
            (process,) = servers.children(os.getpid()) - before
            yield Wire(name, process, _tool_call(client))


def our_stdio(name: str, folder: Path, embedding: str) -> contextlib.AbstractAsyncContextManager[Wire]:
    """Ours over stdio, on the database in `folder`."""
    environ = servers.environment(folder, servers.our_settings(folder, embedding))
    arguments = ["-m", "memory_svc", "stdio"]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environ, cwd=servers.ROOT)
    return mcp_stdio(name, server, folder, "auto")


def peer_stdio(name: str, python: Path, folder: Path, embedding: str) -> contextlib.AbstractAsyncContextManager[Wire]:
    """The peer over stdio, on the database in `folder`."""
    environ = servers.environment(folder, servers.peer_settings(folder, embedding))
    server = StdioServerParameters(command=str(python), args=["-m", "cpersona"], env=environ, cwd=folder)
    return mcp_stdio(name, server, folder, "legacy")


def _tool_call(client: Client) -> Call:
    async def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        result = await client.call_tool(tool, arguments)
        text = getattr(result.content[0], "text", "")
        if result.is_error:
            raise RuntimeError(f"{tool} failed: {text[:300]}")
        return _sound(tool, json.loads(text))

    return call


def _sound(operation: str, answer: dict[str, Any], *, is_failed: bool = False) -> dict[str, Any]:
    if is_failed or answer.get("ok") is False or "error" in answer:
        raise RuntimeError(f"{operation} failed: {str(answer)[:300]}")
    return answer
