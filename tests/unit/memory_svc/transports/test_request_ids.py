"""Every error and every log line tells the id of its request, whoever made the error and over whichever wire."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.shared.exceptions import MCPError

from memory_svc.transports.mcp import Mcp
from tests.support.toy_client import connected
from tests.support.toy_server import TOKEN, settings_for, toy_catalogue

HEADERS = {"Authorization": f"Bearer {TOKEN}", "X-Request-Id": "my-id"}
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
MODERN = {"MCP-Protocol-Version": "2026-07-28"}


async def refused(client: Client) -> list[MCPError]:
    """What the SDK itself refuses, and what a handler of ours does."""
    errors = []
    for ask in (
        lambda: client.session.send_request(types.GetPromptRequest(params={"name": "x"}), types.GetPromptResult),
        lambda: client.read_resource("nonsense"),
        lambda: client.list_tools(cursor=None),
    ):
        try:
            await ask()
        except MCPError as error:
            errors.append(error)
    return errors


def over(kind: str, url: str, mode: str) -> Any:
    """A client over that wire."""
    if kind == "sse":
        return Client(sse_client(f"{url}/sse", headers=HEADERS), mode=mode)
    if kind == "memory":
        settings = settings_for()
        return Client(Mcp(toy_catalogue(settings), settings).connections, mode=mode)
    return connected(f"{url}/mcp", mode, HEADERS)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("kind", ["http", "sse", "memory"])
def test_an_error_of_json_rpc_tells_the_request_id(url: str, kind: str, mode: str) -> None:
    async def run() -> list[MCPError]:
        async with over(kind, url, mode) as client:
            return await refused(client)

    unknown, missing = asyncio.run(run())
    assert (unknown.code, missing.code) == (-32601, -32602)
    for error in (unknown, missing):
        assert error.data["request_id"] if kind == "memory" else error.data["request_id"] == "my-id"


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"{", ACCEPT, 400),
        (b"[]", ACCEPT, 400),
        (b"{}", {"Content-Type": "application/json", "Accept": "text/plain"}, 406),
        (b"{}", {"Content-Type": "text/plain", "Accept": ACCEPT["Accept"]}, 400),
        (b"{", {**ACCEPT, **MODERN}, 400),
        (b"{}", {**MODERN, "Content-Type": "application/json", "Accept": "text/plain"}, 406),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "tools/list"}', {**ACCEPT, **MODERN}, 400),
        (b'{"jsonrpc": "2.0", "id": 7, "method": "tools/list"}', {**ACCEPT, "MCP-Protocol-Version": "9"}, 400),
    ],
)
def test_what_is_refused_before_any_message_is_read_tells_it_too(
    url: str, caplog: pytest.LogCaptureFixture, content: bytes, headers: dict[str, str], status: int
) -> None:
    with caplog.at_level(logging.INFO, "memory_svc"):
        answer = httpx2.post(f"{url}/mcp", content=content, headers={**HEADERS, **headers})
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["message"]
    assert error["data"]["request_id"] == answer.headers["x-request-id"] == "my-id"
    lines = [vars(record)["fields"] for record in caplog.records if record.message == "refused"]
    assert lines == [{"status": status, "request_id": "my-id"}]


def test_a_get_and_a_delete_that_mean_nothing_here_tell_it(url: str) -> None:
    for method, headers in (("DELETE", ACCEPT), ("GET", {**ACCEPT, **MODERN}), ("PUT", ACCEPT)):
        answer = httpx2.request(method, f"{url}/mcp", headers={**HEADERS, **headers})
        assert answer.status_code == 405
        assert answer.json()["error"]["data"]["request_id"] == "my-id"


def test_a_call_and_its_log_line_have_the_same_id_over_every_wire(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def told(client: Client) -> str:
        result: Any = await client.call_tool("circumstances", {})
        return str(json.loads(result.content[0].text)["request_id"])

    async def run(use: Callable[[Client], Awaitable[str]]) -> list[str]:
        found = []
        for kind in ("http", "sse", "memory"):
            async with over(kind, url, "legacy") as client:
                found.append(await use(client))
        return found

    with caplog.at_level(logging.INFO, "memory_svc"):
        ids = asyncio.run(run(told))
    lines = [vars(record)["fields"] for record in caplog.records if record.message == "operation"]
    assert [line["request_id"] for line in lines if line["operation"] == "circumstances"] == ids


def test_the_log_of_the_sdk_adds_no_lines_without_an_id(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO),
        httpx2.Client(base_url=url, headers=HEADERS, timeout=20) as client,
        client.stream("GET", "/sse") as stream,
    ):
        lines = stream.iter_lines()
        place = next(line for line in lines if "session_id" in line).removeprefix("data: ")
        assert client.post(place, content=b"{", headers=ACCEPT).status_code == 400
        httpx2.post(f"{url}/messages?session_id=00000000000000000000000000000000", content=b"{}", headers=HEADERS)
        httpx2.post(f"{url}/messages", content=b"{}", headers=HEADERS)
        httpx2.post(f"{url}/mcp", content=b"{", headers={**HEADERS, **ACCEPT})
    assert [record.name for record in caplog.records if record.name.startswith("mcp")] == []
