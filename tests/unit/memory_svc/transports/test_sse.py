"""The wire of older clients: a stream for the answers, an address for the messages."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.sse import sse_client

from memory_svc.domain.access.principal import Principal
from memory_svc.transports import guard
from tests.support.toy_server import TOKEN

MODES = ("legacy", "auto", "2026-07-28")
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@contextlib.asynccontextmanager
async def connected(url: str, mode: str, **headers: str) -> AsyncIterator[Client]:
    """A client of the SDK that has the token."""
    async with Client(sse_client(url, headers={**HEADERS, **headers}), mode=mode) as client:
        yield client


def with_client(url: str, mode: str, use: Callable[[Client], Awaitable[Any]], **headers: str) -> Any:
    """What `use` gives for a connected client."""

    async def run() -> Any:
        async with connected(url, mode, **headers) as client:
            return await use(client)

    return asyncio.run(run())


@pytest.mark.parametrize("mode", MODES)
def test_every_client_mode_lists_and_calls(url: str, mode: str) -> None:
    async def use(client: Client) -> tuple[list[str], Any, Any]:
        names = [tool.name for tool in (await client.list_tools()).tools]
        meta: Any = {"io.agent-memory/idempotency-key": "in-meta"}
        told = await client.call_tool("circumstances", {}, meta=meta)
        return names, told, await client.call_tool("fail", {"kind": "internal"})

    headers = {"X-Time-Zone": "Asia/Tokyo", "X-Request-Id": "my-id"}
    names, told, failed = with_client(f"{url}/sse", mode, use, **headers)
    assert names == ["add", "circumstances", "fail", "wait", "wipe"]
    assert json.loads(told.content[0].text) == {
        "wire": "mcp-sse",
        "principal": "owner",
        "request_id": "my-id",
        "idempotency_key": "in-meta",
        "zone": "Asia/Tokyo",
    }
    assert failed.is_error is True
    assert "tomato" not in failed.content[0].text
    assert json.loads(failed.content[0].text)["request_id"] == "my-id"


@pytest.mark.parametrize("mode", MODES)
def test_calls_at_once_do_not_mix(url: str, mode: str) -> None:
    async def use(client: Client) -> list[str]:
        results: list[Any] = await asyncio.gather(*(client.call_tool("add", {"text": f"{n}"}) for n in range(20)))
        return [json.loads(result.content[0].text)["text"] for result in results]

    assert with_client(f"{url}/sse", mode, use) == [f"{n}" for n in range(20)]


def test_the_call_of_a_client_that_left_is_cancelled(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.7), connected(f"{url}/sse", "legacy") as client:
                await client.call_tool("wait", {"seconds": 30})
        for _ in range(100):
            if not any(record.message == "cancelled" for record in caplog.records):
                await asyncio.sleep(0.05)

    with caplog.at_level(logging.INFO, "memory_svc"):
        asyncio.run(run())
    assert "cancelled" in [record.message for record in caplog.records]


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "words"),
    [
        ("POST", "/messages", b"{}", 400, "session_id"),
        ("POST", "/messages?session_id=nonsense", b"{}", 400, "session"),
        ("POST", "/messages?session_id=00000000000000000000000000000000", b"{}", 404, "session"),
        ("GET", "/messages", b"", 405, "method"),
    ],
)
def test_what_reaches_no_session_is_refused_as_json_rpc_with_a_request_id(
    client: httpx2.Client, method: str, path: str, content: bytes, status: int, words: str
) -> None:
    answer = client.request(
        method, path, content=content, headers={"X-Request-Id": "my-id", "Content-Type": "application/json"}
    )
    assert answer.status_code == status
    error = answer.json()["error"]
    assert words in error["message"]
    assert error["data"]["request_id"] == answer.headers["x-request-id"] == "my-id"


def test_a_client_that_tries_the_newer_wire_first_learns_that_this_is_the_older_one(client: httpx2.Client) -> None:
    answer = client.post("/sse", json={"jsonrpc": "2.0", "id": 1, "method": "initialize"})
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert answer.json()["request_id"]


def test_a_message_that_cannot_be_read_is_refused_and_the_session_goes_on(client: httpx2.Client) -> None:
    with client.stream("GET", "/sse") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: endpoint"
        place = next(lines).removeprefix("data: ")
        assert place.startswith("/messages?session_id=")
        assert client.post(place, content=b"{").status_code == 400
        assert client.post(place, json={"jsonrpc": "2.0", "id": 1, "method": "ping"}).status_code == 202
        assert json.loads(next(line for line in lines if "data: {" in line).removeprefix("data: "))["id"] == 1


def test_a_connection_is_counted_as_long_as_it_is_open(client: httpx2.Client) -> None:
    def sessions() -> float:
        lines = client.get("/metrics").text.splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith('memory_sessions{wire="mcp-sse"}'))

    while sessions():  # those of clients that have left a moment ago
        time.sleep(0.01)
    with client.stream("GET", "/sse") as stream:
        lines = stream.iter_lines()  # held: without it the stream is closed at once
        assert next(lines) == "event: endpoint"
        while sessions() != 1:
            time.sleep(0.01)
    while sessions():
        time.sleep(0.01)


def test_without_the_token_nothing_is_streamed_and_nothing_taken(url: str) -> None:
    for method, path in (("GET", "/sse"), ("POST", "/messages?session_id=00000000000000000000000000000000")):
        answer = httpx2.request(method, url + path, headers={"Authorization": "Bearer wrong"})
        assert answer.status_code == 401
        assert "token" in answer.json()["error"]["message"]


def test_a_session_takes_messages_from_the_credential_alone_that_opened_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "authenticate", lambda authorization, _token: Principal(authorization.decode()))
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    one, other = {"Authorization": "one"}, {"Authorization": "other"}
    with httpx2.Client(base_url=url, timeout=20) as client, client.stream("GET", "/sse", headers=one) as stream:
        lines = stream.iter_lines()
        place = next(line for line in lines if "session_id" in line).removeprefix("data: ")
        assert client.post(place, json=ping, headers=other).status_code == 404
        assert client.post(place, json=ping, headers=one).status_code == 202
        assert json.loads(next(line for line in lines if "data: {" in line).removeprefix("data: "))["id"] == 1
