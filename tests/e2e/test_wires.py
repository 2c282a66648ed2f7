"""Real processes: both wires in one, and clients that outlive the server they spoke to."""

import contextlib
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.support.processes import ROOT, Process, environment, free_port, running

pytestmark = pytest.mark.e2e
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def settings_for(folder: Path, port: int) -> dict[str, str]:
    """The variables of a server without embeddings."""
    return environment(MEMORY_DATA_DIR=str(folder), MEMORY_PORT=str(port), MEMORY_EMBEDDING_URL="")


async def call(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """The answer in the one text block of a tool's result."""
    result: Any = await client.call_tool(name, arguments)
    answer: dict[str, Any] = json.loads(result.content[0].text)
    return answer


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_one_process_serves_its_starter_on_stdio_and_others_on_its_port(tmp_path: Path, mode: str) -> None:
    port = free_port()
    command = ["-m", "memory_svc", "serve", "--stdio"]
    server = StdioServerParameters(command=sys.executable, args=command, env=settings_for(tmp_path, port), cwd=ROOT)
    async with Client(server, mode=mode) as own:
        await call(own, "store", agent_id="me", content="The staging database is called harbour.")
        token = (tmp_path / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        async with Client(sse_client(f"http://127.0.0.1:{port}/sse", headers=headers), mode=mode) as other:
            found = await call(other, "recall", agent_id="me", query="harbour")
            assert found["messages"][-1]["ref"] == "mem:1"
            await call(other, "store", agent_id="me", content="Deploys go out on Friday.")
        found = await call(own, "recall", agent_id="me", query="Friday")
        assert found["messages"][-1]["ref"] == "mem:2"


@contextlib.contextmanager
def started(folder: Path, port: int) -> Any:
    """A process of both wires whose pipes are in our hands; killed if it is still there at the end."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "memory_svc", "serve", "--stdio"],
            cwd=ROOT, env=settings_for(folder, port), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.wait(10)
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def greet(process: Any) -> None:
    """The handshake of the older protocols."""
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "agent-memory"


def test_with_the_end_of_the_input_the_whole_process_ends_well(tmp_path: Path) -> None:
    port = free_port()
    with started(tmp_path, port) as process:
        greet(process)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
            assert answer.status == 200
        process.stdin.close()
        assert process.wait(15) == 0
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=2)
        assert "Traceback" not in (tmp_path / "log").read_text()


def test_with_a_signal_the_whole_process_ends_well_though_the_input_goes_on(tmp_path: Path) -> None:
    with started(tmp_path, free_port()) as process:
        greet(process)
        process.terminate()
        assert process.wait(15) == 0
        assert "Traceback" not in (tmp_path / "log").read_text()


def test_where_the_port_is_taken_the_process_says_so_and_ends(tmp_path: Path) -> None:
    port = free_port()
    with started(tmp_path, port) as first:
        greet(first)
        with started(tmp_path, port) as second:
            assert second.wait(20) == 2
            assert f"port {port}" in (tmp_path / "log").read_text()


@contextlib.asynccontextmanager
async def over_http(memory: Process, mode: str, **headers: str) -> AsyncIterator[Client]:
    """A client of the HTTP server."""
    given = {"Authorization": f"Bearer {memory.token}", **headers}
    async with (
        httpx2.AsyncClient(headers=given, timeout=30, trust_env=False) as http,
        Client(streamable_http_client(f"{memory.url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
@pytest.mark.parametrize("headers", [{}, {"Mcp-Session-Id": "0123456789abcdef0123456789abcdef"}])
async def test_a_client_outlives_a_restart_whatever_session_it_believes_in(
    tmp_path: Path, mode: str, headers: dict[str, str]
) -> None:
    with running("memory_svc", tmp_path, MEMORY_EMBEDDING_URL="") as memory:
        async with over_http(memory, mode, **headers) as client:
            assert (await call(client, "store", agent_id="me", content="before"))["result"] == "stored"
            memory.kill()
            memory.start()
            await anyio.to_thread.run_sync(memory.wait_until_ready)
            assert (await call(client, "store", agent_id="me", content="after"))["id"] == 2
            assert (await call(client, "list_memories"))["count"] == 2


def test_an_old_session_id_is_no_reason_to_refuse(tmp_path: Path) -> None:
    with running("memory_svc", tmp_path, MEMORY_EMBEDDING_URL="") as memory:
        headers = {
            "Authorization": f"Bearer {memory.token}",
            "Accept": "application/json, text/event-stream",
            "Mcp-Session-Id": "of-a-server-that-is-no-more",
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        answer = httpx2.post(f"{memory.url}/mcp", json=message, headers=headers)
        assert answer.status_code == 200
        assert '"name":"recall"' in answer.text
        assert "mcp-session-id" not in answer.headers
