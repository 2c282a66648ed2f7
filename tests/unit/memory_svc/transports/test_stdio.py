"""MCP over standard input and output, in a process of its own."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO, Any, cast

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from memory_svc.transports import stdio

pytestmark = pytest.mark.e2e
SCRIPT = Path(__file__).parents[3] / "support" / "toy_server.py"
MODES = ("legacy", "auto", "2026-07-28")
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@contextlib.asynccontextmanager
async def connected(mode: str) -> AsyncIterator[Client]:
    """A client of the SDK with a server of its own."""
    with tempfile.TemporaryFile("w") as errors:
        server = StdioServerParameters(command=sys.executable, args=[str(SCRIPT), "stdio"])
        async with Client(stdio_client(server, errlog=errors), mode=mode) as client:
            yield client


@contextlib.contextmanager
def started(store: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A server, over a real store where a folder is named, whose pipes are in our hands; killed if still there."""
    with tempfile.TemporaryFile() as errors:
        command = [sys.executable, str(SCRIPT), "stdio", *([store] if store else [])]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        try:
            yield process
        finally:
            process.kill()
            process.wait(10)
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    cast("IO[bytes]", pipe).close()


def say(process: subprocess.Popen[bytes], *messages: dict[str, Any] | bytes) -> None:
    """Write these messages, a line each."""
    assert process.stdin
    for message in messages:
        line = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
        process.stdin.write(line + b"\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The next message."""
    assert process.stdout
    return dict(json.loads(process.stdout.readline()))


def greet(process: subprocess.Popen[bytes]) -> None:
    """The handshake of the older protocols."""
    say(process, {"id": 0, "method": "initialize", "params": HELLO}, {"method": "notifications/initialized"})
    assert hear(process)["result"]["serverInfo"]["name"] == "agent-memory"


def tool(number: int, name: str, /, **arguments: Any) -> dict[str, Any]:
    """A call of a tool."""
    return {"id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize("mode", MODES)
def test_every_client_mode_lists_and_calls_and_stray_output_stays_off_the_wire(mode: str) -> None:
    async def run() -> None:
        async with connected(mode) as client:
            assert [each.name for each in (await client.list_tools()).tools][:2] == ["add", "circumstances"]
            meta: Any = {"io.agent-memory/idempotency-key": "k1", "io.agent-memory/time-zone": "Asia/Tokyo"}
            told: Any = (await client.call_tool("circumstances", {}, meta=meta)).content[0]
            known = json.loads(told.text)
            assert (known["wire"], known["principal"], known["idempotency_key"]) == ("mcp-stdio", "owner", "k1")
            assert known["zone"] == "Asia/Tokyo"
            assert (await client.call_tool("wipe", {})).is_error is False
            failed: Any = await client.call_tool("fail", {"kind": "internal"})
            assert failed.is_error is True
            assert "tomato" not in failed.content[0].text

    asyncio.run(run())


def test_calls_under_way_are_answered_when_the_input_ends_and_the_process_ends_well() -> None:
    with started() as process:
        greet(process)
        say(process, tool(1, "wait", seconds=0.7), tool(2, "add", text="é"))
        assert process.stdin
        process.stdin.close()
        answers = [hear(process), hear(process)]
        assert [answer["id"] for answer in answers] == [2, 1]
        assert "é" in answers[0]["result"]["content"][0]["text"]
        assert process.wait(10) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server_at_once_and_well(number: signal.Signals) -> None:
    with started() as process:
        greet(process)
        begin = time.monotonic()
        process.send_signal(number)
        assert process.wait(10) == 0
        assert time.monotonic() - begin < 3


def test_a_signal_lets_a_call_under_way_be_answered() -> None:
    with started() as process:
        greet(process)
        say(process, tool(1, "wait", seconds=0.7))
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert "waited" in hear(process)["result"]["content"][0]["text"]
        assert process.wait(10) == 0


def test_a_call_that_was_called_off_is_not_waited_for() -> None:
    with started() as process:
        greet(process)
        say(process, tool(1, "wait", seconds=60), {"method": "notifications/cancelled", "params": {"requestId": 1}})
        assert process.stdin
        process.stdin.close()
        assert process.wait(5) == 0


def test_an_input_that_ends_before_any_message_ends_the_server_well() -> None:
    with started() as process:
        assert process.stdin
        process.stdin.close()
        assert process.wait(10) == 0


def test_a_client_that_no_longer_listens_ends_the_server() -> None:
    with started() as process:
        greet(process)
        assert process.stdout
        process.stdout.close()
        say(process, tool(1, "add", text="a"))
        assert process.wait(10) == 0


@pytest.mark.parametrize(
    ("line", "code", "number"),
    [
        (b"{", -32700, None),
        (b'{"id": 5, "method": "\xff"}', -32700, None),
        (b"[]", -32600, None),
        (b'{"id": 5}', -32600, 5),
        (b'{"jsonrpc": "2.0", "id": "x", "method": 7}', -32600, "x"),
        (b"[" * 100_000, -32700, None),
    ],
)
def test_a_line_that_is_no_message_is_answered_and_the_next_one_is_served(line: bytes, code: int, number: Any) -> None:
    with started() as process:
        greet(process)
        say(process, line, b"", tool(1, "add", text="a"))
        refused = hear(process)
        assert (refused["error"]["code"], refused["id"]) == (code, number)
        assert refused["error"]["data"]["request_id"]
        assert hear(process)["id"] == 1


def test_a_large_message_comes_through_whole_both_ways() -> None:
    text = "ä" * 500_000
    with started() as process:
        greet(process)
        say(process, tool(1, "add", text=text))
        assert json.loads(hear(process)["result"]["content"][0]["text"])["text"] == text


def test_nul_and_lone_surrogates_are_refused_and_whole_numbers_taken() -> None:
    with started() as process:
        greet(process)
        say(process, tool(1, "add", text="a\0"), tool(2, "add", text="a\ud800"), tool(3, "add", text="a", count=5.0))
        answers = {answer["id"]: answer for answer in (hear(process), hear(process), hear(process))}
        assert "NUL" in answers[1]["result"]["content"][0]["text"]
        assert "surrogate" in answers[2]["result"]["content"][0]["text"]
        assert '"count":5,' in answers[3]["result"]["content"][0]["text"]


@pytest.mark.parametrize("message", [{"id": 7, "method": "\ud800"}, {"id": "\ud800", "method": "ping"}])
def test_what_no_answer_could_repeat_is_refused_and_the_session_goes_on(message: dict[str, Any]) -> None:
    with started() as process:
        greet(process)
        say(process, message)
        assert hear(process)["error"]["code"] == -32600
        say(process, tool(1, "add", text="still here"))
        assert hear(process)["id"] == 1


def test_a_line_longer_than_the_limit_is_refused_and_the_session_goes_on() -> None:
    with started() as process:
        greet(process)
        say(process, tool(1, "add", text="x" * 5_000_000), tool(2, "add", text="short"))
        assert hear(process)["error"]["code"] == -32700
        assert hear(process)["id"] == 2


def test_an_error_of_the_sdk_tells_a_request_id() -> None:
    with started() as process:
        greet(process)
        say(process, {"id": 1, "method": "prompts/get", "params": {"name": "x"}})
        error = hear(process)["error"]
        assert error["code"] == -32601
        assert error["data"]["request_id"]


def test_a_client_that_does_not_read_holds_nothing_but_its_own_answers_and_can_still_leave() -> None:
    text = "x" * 200_000
    with started() as process:
        greet(process)
        assert process.stdin
        for number in range(400):
            say(process, tool(number, "add", text=text))
        process.stdin.close()
        assert process.wait(30) == 0


async def test_a_writer_holds_whoever_writes_while_too_much_waits_and_lets_go_in_order() -> None:
    reading, writing = os.pipe()
    writer = stdio._Writer(writing, lambda: None)
    lines = [f"{number} {'x' * 4000}\n".encode() for number in range(2 * stdio.WAITING_LINES_MAX)]

    async def write_all() -> None:
        for line in lines:
            await writer.write(line)

    task = asyncio.create_task(write_all())
    _, unfinished = await asyncio.wait([task], timeout=0.5)
    assert unfinished == {task}
    with os.fdopen(reading, "rb") as pipe:
        found = await asyncio.to_thread(lambda: [pipe.readline() for _ in lines])
        assert found == lines
        await asyncio.wait_for(task, 5)
        await writer.close()
    os.close(writing)


def test_a_stream_that_listens_gets_its_last_word_when_the_input_ends(tmp_path: Path) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"_meta": meta, "notifications": {"resourcesListChanged": True}}
    with started(str(tmp_path)) as process:
        say(process, {"id": 1, "method": "subscriptions/listen", "params": params})
        assert hear(process)["method"] == "notifications/subscriptions/acknowledged"
        begin = time.monotonic()
        assert process.stdin
        process.stdin.close()
        assert hear(process)["id"] == 1
        assert process.wait(10) == 0
        assert time.monotonic() - begin < 5
