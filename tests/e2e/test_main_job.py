"""The main job: an MCP client stores facts and recalls them by meaning and by word, over every wire."""

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.support.facts import FACTS
from tests.support.processes import ROOT, Process, environment, running

pytestmark = [pytest.mark.e2e, pytest.mark.model]
MODES = ("legacy", "auto", "2026-07-28")


@contextlib.asynccontextmanager
async def over_http(memory: Process, mode: str) -> AsyncIterator[Client]:
    """A client of the HTTP server."""
    headers = {"Authorization": f"Bearer {memory.token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http,
        Client(streamable_http_client(f"{memory.url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


@contextlib.asynccontextmanager
async def over_stdio(folder: Path, embed: Process, mode: str) -> AsyncIterator[Client]:
    """A client that starts its own server."""
    settings = environment(MEMORY_DATA_DIR=str(folder), MEMORY_EMBEDDING_URL=embed.url)
    server = StdioServerParameters(command=sys.executable, args=["-m", "memory_svc", "stdio"], env=settings, cwd=ROOT)
    async with Client(server, mode=mode) as client:
        yield client


async def call(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """The answer in the one text block of a tool's result."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result
    assert len(result.content) == 1
    answer: dict[str, Any] = json.loads(result.content[0].text)
    return answer


async def store_and_recall_everything(client: Client) -> None:
    """Ten facts go in; each is the best match of its paraphrase's answer or near it, and the best of its word's."""
    names = [tool.name for tool in (await client.list_tools()).tools]
    assert {"store", "recall"} <= set(names)
    for fact, _, _ in FACTS:
        answer = await call(client, "store", agent_id="me", message={"content": fact})
        assert (answer["result"], answer["embedded"]) == ("stored", True)
    for fact, paraphrase, word in FACTS:
        by_meaning = await call(client, "recall", agent_id="me", query=paraphrase, limit=3)
        assert fact in [row["content"] for row in by_meaning["messages"]], paraphrase
        by_word = await call(client, "recall", agent_id="me", query=word)
        assert by_word["messages"][-1]["content"] == fact, word
        assert "advisory" not in by_word


@pytest.mark.parametrize("mode", MODES)
async def test_ten_facts_over_http(memory: Process, mode: str) -> None:
    async with over_http(memory, mode) as client:
        await store_and_recall_everything(client)


@pytest.mark.parametrize("mode", MODES)
async def test_ten_facts_over_stdio(embed: Process, tmp_path: Path, mode: str) -> None:
    async with over_stdio(tmp_path, embed, mode) as client:
        await store_and_recall_everything(client)


async def test_two_processes_on_one_file_see_each_others_writes_at_once(memory: Process, embed: Process) -> None:
    async with over_http(memory, "auto") as one, over_stdio(memory.folder, embed, "auto") as other:
        for number, (fact, _, word) in enumerate(FACTS):
            writer, reader = (one, other) if number % 2 else (other, one)
            await call(writer, "store", agent_id="me", content=fact)
            found = await call(reader, "recall", agent_id="me", query=word, trace=True)
            assert found["messages"][-1]["content"] == fact
            assert found["messages"][-1]["match_reason"]["arms"] == ["vectors", "words", "windows"]


async def test_embeddings_may_come_and_go_while_memory_goes_on(tmp_path: Path) -> None:
    with running("embed_svc", tmp_path / "embed") as embed:
        settings = {"MEMORY_EMBEDDING_URL": embed.url, "MEMORY_WORKER_SECONDS": "0.2"}
        with running("memory_svc", tmp_path / "memory", **settings) as memory:
            memory.call("store", agent_id="me", content=FACTS[0][0])
            embed.kill()
            answer = memory.call("store", agent_id="me", content=FACTS[1][0])
            assert (answer["result"], answer["embedded"]) == ("stored", False)
            found = memory.call("recall", agent_id="me", query="Friday")
            assert found["messages"][-1]["content"] == FACTS[1][0]
            assert found["advisory"]["degraded"] is True
            assert memory.metric("memory_embedding_degraded") == 1
            embed.start()
            embed.wait_until_ready()
            await until_zero(memory, "memory_rows_waiting_for_vectors")
            assert memory.metric("memory_embedding_degraded") == 0
            found = memory.call("recall", agent_id="me", query=FACTS[1][1], limit=1)
            assert found["messages"][-1]["content"] == FACTS[1][0]
            assert "advisory" not in found
            assert memory.stop() == 0
            assert embed.stop() == 0


def test_an_embedding_server_that_asks_for_a_token_gets_it_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a-token-of-the-tests\n")
    secret.chmod(0o600)
    with running("embed_svc", tmp_path / "embed", EMBED_TOKEN_FILE=str(secret)) as embed:
        for given, vector in ((str(secret), "done"), ("", "waiting")):
            settings = {"MEMORY_EMBEDDING_URL": embed.url, "MEMORY_EMBEDDING_TOKEN_FILE": given}
            with running("memory_svc", tmp_path / f"memory-{vector}", **settings) as memory:
                assert memory.call("store", agent_id="me", content="x")["receipt"]["vector"] == vector
                assert "a-token-of-the-tests" not in memory.log.read_text()


async def until_zero(memory: Process, name: str) -> None:
    """Wait, with a bound, until a gauge is zero."""
    import anyio

    for _ in range(300):
        if not memory.metric(name) and not memory.metric("memory_embedding_degraded"):
            return
        await anyio.sleep(0.1)
    raise AssertionError(f"{name} is still {memory.metric(name)}")
