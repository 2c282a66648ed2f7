"""MCP over a real connection, with the SDK's client in every mode it has."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.sse import sse_client

from memory_svc.errors import Invalid
from memory_svc.transports.mcp import Mcp
from memory_svc.transports.tools import CORE_TOOLS, listed
from tests.support import toy_server
from tests.support.toy_client import connected
from tests.support.toy_server import TOKEN, settings_for, toy_catalogue

MODES = ("legacy", "auto", "2026-07-28")
MODERN = "2026-07-28"
MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def with_client(url: str, mode: str, use: Callable[[Client], Awaitable[Any]], **headers: str) -> Any:
    """What `use` gives for a connected client."""

    async def run() -> Any:
        async with connected(url, mode, headers) as client:
            return await use(client)

    return asyncio.run(run())


def call(url: str, mode: str, name: str, /, **arguments: Any) -> Any:
    """The result of a tool."""
    return with_client(f"{url}/mcp", mode, lambda client: client.call_tool(name, arguments))


def text_of(result: Any) -> dict[str, Any]:
    """The JSON in the one text block of a tool result."""
    assert len(result.content) == 1
    assert result.content[0].type == "text"
    assert result.structured_content is None
    return dict(json.loads(result.content[0].text))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
def test_tools_are_listed_in_order_with_their_schemas_and_hints(url: str, mode: str, path: str) -> None:
    tools = with_client(url + path, mode, lambda client: client.list_tools()).tools
    assert [tool.name for tool in tools] == [each.name for each in toy_server.OPERATIONS]
    assert tools[0].description == "Keep a text — “as it is”."
    assert tools[0].input_schema["required"] == ["text"]
    assert all(tool.output_schema is None for tool in tools)
    assert tools[1].annotations.model_dump(exclude_none=True, by_alias=True) == {"readOnlyHint": True}
    assert tools[4].annotations.destructive_hint is True


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_is_one_block_of_compact_json_in_utf_8(url: str, mode: str) -> None:
    result = call(url, mode, "add", text="é")
    assert result.is_error is False
    assert result.content[0].text == '{"result":"stored","text":"é","count":1,"metadata":{}}'
    assert result.structured_content is None


@pytest.mark.parametrize("mode", MODES)
def test_a_failure_is_a_tool_result_with_the_body_of_the_failure(url: str, mode: str) -> None:
    for name, arguments, code in (
        ("fail", {"kind": "conflict"}, "conflict"),
        ("fail", {"kind": "internal"}, "internal"),
        ("nothing", {}, "not_found"),
        ("add", {"text": "a\0"}, "invalid"),
        ("add", {}, "invalid"),
    ):
        result = call(url, mode, name, **arguments)
        assert result.is_error is True
        assert text_of(result)["code"] == code
        assert "tomato" not in result.content[0].text


@pytest.mark.parametrize("mode", MODES)
def test_a_whole_number_may_be_written_with_a_fraction(url: str, mode: str) -> None:
    assert text_of(call(url, mode, "add", text="a", count=5.0))["count"] == 5


@pytest.mark.parametrize("mode", MODES)
def test_key_and_zone_come_from_the_message_or_from_headers(url: str, mode: str) -> None:
    meta = {"io.agent-memory/idempotency-key": "in-meta", "io.agent-memory/time-zone": "Asia/Tokyo"}
    headers = {"Idempotency-Key": "in-header", "X-Time-Zone": "Europe/Paris", "X-Request-Id": "my-id"}

    async def ask(client: Client) -> list[Any]:
        with_meta: Any = meta
        return [
            await client.call_tool("circumstances", {}, meta=with_meta),
            await client.call_tool("circumstances", {}),
        ]

    said, headed = [text_of(each) for each in with_client(f"{url}/mcp", mode, ask, **headers)]
    assert (said["idempotency_key"], said["zone"]) == ("in-meta", "Asia/Tokyo")
    assert (headed["idempotency_key"], headed["zone"], headed["request_id"]) == ("in-header", "Europe/Paris", "my-id")
    assert (headed["wire"], headed["principal"]) == ("mcp-http", "owner")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("milliseconds", "words"), [(50, "wait took longer than 0.05 s"), ([], "deadline: expected")])
def test_a_message_may_say_how_long_its_sender_waits(url: str, mode: str, milliseconds: object, words: str) -> None:
    async def ask(client: Client) -> Any:
        meta: Any = {"io.agent-memory/deadline-ms": milliseconds}
        return await client.call_tool("wait", {"seconds": 30}, meta=meta)

    assert words in text_of(with_client(f"{url}/mcp", mode, ask))["error"]


@pytest.mark.parametrize("mode", MODES)
def test_a_client_learns_how_to_use_the_memory(url: str, mode: str) -> None:
    async def learn(client: Client) -> tuple[Any, Any]:
        return client.instructions, client.server_info

    instructions, info = with_client(f"{url}/mcp", mode, learn)
    if mode != MODERN:
        assert "best match" in instructions
        assert info.name == "agent-memory"


def modern(url: str, params: dict[str, Any] | bytes, **headers: str) -> httpx2.Response:
    """A tools/call of the newest protocol as raw HTTP."""
    whole = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    content = params if isinstance(params, bytes) else json.dumps(whole).encode()
    given = {
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "add",
    }
    return httpx2.post(f"{url}/mcp", content=content, headers={**given, **headers}, timeout=20)


def test_a_lone_surrogate_is_refused(url: str) -> None:
    params = {"name": "add", "arguments": {"text": "a\ud800"}, "_meta": MODERN_META}
    answer = modern(url, params)
    assert "lone surrogate" in answer.json()["result"]["content"][0]["text"]
    older = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {TOKEN}"}
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "add", "arguments": {"text": "\ud800"}},
    }
    content = json.dumps(message).encode()
    headers = {**older, "Content-Type": "application/json"}
    assert httpx2.post(f"{url}/mcp", content=content, headers=headers).status_code == 400


def test_the_tool_list_may_be_kept_for_a_while(url: str) -> None:
    headers = {"Mcp-Method": "tools/list", "Mcp-Name": ""}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": MODERN_META}}
    result = modern(url, json.dumps(message).encode(), **headers).json()["result"]
    assert (result["ttlMs"], result["cacheScope"]) == (300_000, "private")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"{}", b"5"])
def test_what_is_no_message_is_refused_as_json_rpc(url: str, body: bytes) -> None:
    answer = modern(url, body)
    if answer.content:
        assert answer.status_code == 400
        assert answer.json()["jsonrpc"] == "2.0"


@pytest.mark.parametrize("mode", MODES)
def test_without_the_token_a_client_is_told_why(url: str, mode: str) -> None:
    async def run() -> None:
        async with connected(f"{url}/mcp", mode, {"Authorization": "Bearer wrong"}) as client:
            await client.list_tools()

    with pytest.raises(Exception) as refused:  # noqa: PT011
        asyncio.run(run())
    assert "token" in repr(flattened(refused.value))


def flattened(error: BaseException) -> list[BaseException]:
    """The errors inside a group of errors."""
    if isinstance(error, BaseExceptionGroup):
        return [inner for each in error.exceptions for inner in flattened(each)]
    return [error]


@pytest.mark.parametrize("mode", MODES)
def test_the_call_of_a_client_that_left_is_cancelled(url: str, mode: str, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with connected(f"{url}/mcp", mode) as client:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await client.call_tool("wait", {"seconds": 30})
        for _ in range(100):
            if not any(record.message == "cancelled" for record in caplog.records):
                await asyncio.sleep(0.05)

    with caplog.at_level(logging.INFO, "memory_svc"):
        asyncio.run(run())
    assert "cancelled" in [record.message for record in caplog.records]


def test_calls_at_once_do_not_mix(url: str) -> None:
    async def run(mode: str) -> list[str]:
        async with connected(f"{url}/mcp", mode) as client:
            results = await asyncio.gather(*(client.call_tool("add", {"text": f"{mode} {n}"}) for n in range(20)))
            return [text_of(result)["text"] for result in results]

    async def both() -> list[list[str]]:
        return list(await asyncio.gather(*(run(mode) for mode in MODES)))

    assert asyncio.run(both()) == [[f"{mode} {n}" for n in range(20)] for mode in MODES]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wire", ["http", "sse"])
def test_the_address_says_which_tools_are_listed_and_every_one_can_be_called(url: str, mode: str, wire: str) -> None:
    async def use(client: Client) -> tuple[list[str], Any]:
        names = [tool.name for tool in (await client.list_tools()).tools]
        return names, await client.call_tool("add", {"text": "a"})

    def ask(profile: str) -> Any:
        if wire == "http":
            return with_client(f"{url}/mcp?tools={profile}", mode, use)

        async def run() -> Any:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with Client(sse_client(f"{url}/sse?tools={profile}", headers=headers), mode=mode) as client:
                return await use(client)

        return asyncio.run(run())

    for profile, wanted in (("wait,circumstances", ["circumstances", "wait"]), ("core", []), ("core,wipe", ["wipe"])):
        names, called = ask(profile)
        assert names == wanted
        assert called.is_error is False
    with pytest.raises(Exception) as refused:  # noqa: PT011
        ask("forget,wait")
    assert "no 'forget'" in repr(flattened(refused.value))


def test_the_settings_say_which_tools_are_listed_where_the_address_does_not() -> None:
    async def names(tools: str) -> list[str]:
        settings = settings_for(tools=tools)
        async with Client(Mcp(toy_catalogue(settings), settings).connections) as client:
            return [tool.name for tool in (await client.list_tools()).tools]

    assert asyncio.run(names("wait, add")) == ["add", "wait"]
    assert asyncio.run(names("core")) == []
    assert len(asyncio.run(names("full"))) == 5
    for wrong in ("", " ,", "everything"):
        with pytest.raises(Invalid, match="MEMORY_TOOLS: tools: there is no"):
            asyncio.run(names(wrong))


def test_the_core_names_the_everyday_tools_that_there_are() -> None:
    from memory_svc.services import OPERATIONS

    names = [each.name for each in OPERATIONS]
    core = listed(names, "core")
    assert {"store", "recall", "get_contents", "update_memory", "delete_memory"} <= core
    assert core <= set(CORE_TOOLS)
    assert core == listed(names, "core,recall")
    assert listed(names, "full") == set(names)
