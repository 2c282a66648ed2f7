"""The clients of the comparison: each asks a server over one wire, and knows the process that answers."""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client

from bench.memory import servers

CALL_SECONDS_MAX = 120.0
SETTLE_SECONDS_MAX = 90.0
Call = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
Text = Callable[[str, dict[str, Any]], Awaitable[str]]


class Wire:
    """A server as its clients see it: its name, its process, and the text it answers an operation with."""

    def __init__(self, name: str, process: int, text: Text) -> None:
        self.name = name
        self.process = process
        self.text = text

    async def call(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The answer of an operation. Raises RuntimeError where it failed."""
        return sound(operation, await self.text(operation, arguments))

    def cpu_seconds(self) -> float:
        """The processor time of the server so far."""
        return servers.cpu_seconds(self.process)

    async def settled(self) -> None:
        """Wait until the server does nothing by itself any more."""
        end = time.monotonic() + SETTLE_SECONDS_MAX
        while time.monotonic() < end:
            before = self.cpu_seconds()
            await asyncio.sleep(1.0)
            if self.cpu_seconds() - before <= 0.05:
                return
        raise RuntimeError(f"{self.name} was not at rest within {SETTLE_SECONDS_MAX:g} s")


@contextlib.asynccontextmanager
async def rest(name: str, process: int, address: str) -> AsyncIterator[Wire]:
    """`POST /v1/<operation>`."""
    async with httpx2.AsyncClient(base_url=address, trust_env=False, timeout=CALL_SECONDS_MAX) as client:

        async def text(operation: str, arguments: dict[str, Any]) -> str:
            return (await client.post(f"/v1/{operation}", json=arguments)).text

        yield Wire(name, process, text)


@contextlib.asynccontextmanager
async def mcp_http(name: str, process: int, address: str) -> AsyncIterator[Wire]:
    """MCP over streamable HTTP, as a client of today speaks it."""
    async with Client(f"{address}/mcp", read_timeout_seconds=CALL_SECONDS_MAX) as client:
        yield Wire(name, process, _tool_text(client))


@contextlib.asynccontextmanager
async def mcp_stdio(name: str, server: StdioServerParameters, folder: Path, mode: str) -> AsyncIterator[Wire]:
    """MCP over the standard streams of a process of its own. mode `legacy` = with the handshake of older clients."""
    before = servers.children(os.getpid())
    with (folder / "stdio.log").open("a", encoding="utf-8") as log:
        async with Client(stdio_client(server, errlog=log), mode=mode, read_timeout_seconds=CALL_SECONDS_MAX) as client:
            (process,) = servers.children(os.getpid()) - before
            yield Wire(name, process, _tool_text(client))


def our_stdio(
    name: str, folder: Path, embedding: str, settings: Mapping[str, str] = MappingProxyType({})
) -> contextlib.AbstractAsyncContextManager[Wire]:
    """Ours over stdio, on the database in `folder`, with these settings over its defaults."""
    environ = servers.environment(folder, servers.our_settings(folder, embedding) | dict(settings))
    arguments = ["-m", "memory_svc", "stdio"]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environ, cwd=servers.ROOT)
    return mcp_stdio(name, server, folder, "auto")


def peer_stdio(name: str, python: Path, folder: Path, embedding: str) -> contextlib.AbstractAsyncContextManager[Wire]:
    """The peer over stdio, on the database in `folder`."""
    environ = servers.environment(folder, servers.peer_settings(folder, embedding))
    server = StdioServerParameters(command=str(python), args=["-m", "cpersona"], env=environ, cwd=folder)
    return mcp_stdio(name, server, folder, "legacy")


def _tool_text(client: Client) -> Text:
    async def text(tool: str, arguments: dict[str, Any]) -> str:
        result = await client.call_tool(tool, arguments)
        told = str(getattr(result.content[0], "text", ""))
        if result.is_error:
            raise RuntimeError(f"{tool} failed: {told[:300]}")
        return told

    return text


def sound(operation: str, text: str) -> dict[str, Any]:
    """The answer in a text. Raises RuntimeError where it tells of a failure."""
    answer: dict[str, Any] = json.loads(text)
    if answer.get("ok") is False or "error" in answer:
        raise RuntimeError(f"{operation} failed: {text[:300]}")
    return answer
