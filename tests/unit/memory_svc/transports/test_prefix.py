"""A server that a proxy publishes beneath a path: the proxy may take the path off or leave it on."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.sse import sse_client

from memory_svc.errors import Invalid
from memory_svc.settings import load
from memory_svc.transports.serving import Calls
from tests.support.toy_server import TOKEN, running, settings_for, toy_catalogue

HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def published() -> Iterator[str]:
    """The address of a server that is told of its path."""
    settings = settings_for(path_prefix="/team/memory")
    with running(toy_catalogue(settings), settings) as address:
        yield address


@pytest.mark.parametrize("prefix", ["/team/memory", ""])
def test_every_route_answers_with_the_prefix_and_without(published: str, prefix: str) -> None:
    with httpx2.Client(base_url=published + prefix, headers=HEADERS) as client:
        assert client.post("/v1/add", json={"text": "a"}).status_code == 200
        assert client.get("/livez", headers={"Authorization": ""}).status_code == 200
        assert client.get("/metrics", headers={"Authorization": ""}).status_code == 401
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accept = {"Accept": "application/json, text/event-stream"}
        assert '"name":"add"' in client.post("/mcp", json=message, headers=accept).text
        refused = client.post("/mcp", json=message, headers={"Authorization": ""})
        assert refused.json()["error"]["data"]["code"] == "unauthenticated"


@pytest.mark.parametrize(
    "path", ["/team/memory", "/team/memoryv1/add", "/team/v1/add", "/team/memory/team/memory/livez"]
)
def test_what_only_looks_like_the_prefix_is_not_found(published: str, path: str) -> None:
    assert httpx2.get(published + path, headers=HEADERS).status_code == 404


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("prefix", ["/team/memory", ""])
def test_a_session_of_sse_posts_its_messages_beneath_the_prefix(published: str, prefix: str, mode: str) -> None:
    async def names() -> list[str]:
        async with Client(sse_client(f"{published}{prefix}/sse", HEADERS), mode=mode) as client:
            return [tool.name for tool in (await client.list_tools()).tools]

    assert "add" in asyncio.run(names())
    with httpx2.stream("GET", f"{published}{prefix}/sse", headers=HEADERS) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "event: endpoint"
        assert next(lines).startswith("data: /team/memory/messages?session_id=")


def test_the_document_names_the_prefix_as_the_server_of_its_paths(published: str) -> None:
    address = f"{published}/team/memory/openapi.json"
    document = json.loads(httpx2.get(address, headers=HEADERS).text)
    called = urljoin(address, document["servers"][0]["url"]) + "/v1/add"
    assert httpx2.post(called, json={"text": "a"}, headers=HEADERS).status_code == 200


def test_without_a_prefix_paths_are_those_of_the_root(url: str) -> None:
    assert httpx2.get(f"{url}/openapi.json", headers=HEADERS).json()["servers"] == [{"url": "/"}]
    assert httpx2.get(f"{url}/team/memory/livez", headers=HEADERS).status_code == 404


@pytest.mark.parametrize(
    "prefix", ["memory", "/memory/", "/a//b", "/..", "/a/../b", "/a b", "/v1", "//host", "/a?b", "/é"]
)
def test_a_prefix_that_is_no_plain_path_stops_the_start(prefix: str) -> None:
    with pytest.raises(Invalid, match="MEMORY_PATH_PREFIX"):
        load({"HOME": "/home/ann", "MEMORY_PATH_PREFIX": prefix})


@pytest.mark.parametrize("prefix", ["", "/memory", "/team/memory", "/v1/memory", "/~ann/memory.2"])
def test_a_plain_path_is_a_prefix(prefix: str) -> None:
    assert load({"HOME": "/home/ann", "MEMORY_PATH_PREFIX": prefix}).path_prefix == prefix


async def test_a_stream_of_sse_is_waited_for_beneath_the_prefix_too() -> None:
    seen: list[int] = []

    async def app(*_: Any) -> None:
        seen.append(calls.under_way)

    calls = Calls(app)
    nothing: Any = None
    for path in ("/sse", "/team/memory/sse/", "/mcp"):
        await calls({"type": "http", "method": "GET", "path": path}, nothing, nothing)
    assert seen == [1, 1, 0]
