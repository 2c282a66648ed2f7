"""A client of the SDK for a toy server."""

import contextlib
from collections.abc import AsyncIterator

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.toy_server import TOKEN


@contextlib.asynccontextmanager
async def connected(url: str, mode: str, headers: dict[str, str] | None = None) -> AsyncIterator[Client]:
    """A client of the SDK that has the token."""
    given = {"Authorization": f"Bearer {TOKEN}", **(headers or {})}
    async with (
        httpx2.AsyncClient(headers=given, timeout=20) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client
