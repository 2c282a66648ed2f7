"""What answers at once, whatever the store holds and whatever the embedding server does."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from memory_svc.storage.sqlite.engine import SqliteStorage
from tests.support.corpus import put, vector, write
from tests.support.processes import running

pytestmark = pytest.mark.e2e
ROWS = 20_000
SECONDS_PROMISED = 1.0
MARGIN = 5


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held: list[socket.socket] = []

        def take() -> None:
            with contextlib.suppress(OSError):
                while True:
                    held.append(listener.accept()[0])

        threading.Thread(target=take, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        for connection in held:
            connection.close()


@pytest.fixture(scope="module")
async def full_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of many rows, half of which wait for vectors."""
    from memory_svc.domain.change import PutMemory
    from tests.support.corpus import memory

    folder = tmp_path_factory.mktemp("full")
    engine = SqliteStorage(folder / "memory.db")
    for start in range(0, ROWS, 500):
        changes = [PutMemory(memory(f"fact number {number} of many")) for number in range(start, start + 500)]
        vectors = {at: vector(str(start + at), dimensions=384) for at in range(0, 500, 2)}
        await engine.apply(write(*changes), vectors)
    await engine.apply(put("the last one is a needle"))
    await engine.close()
    return folder


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_initialize_and_the_tool_list_wait_for_nothing(full_folder: Path, mode: str) -> None:
    with silent_server() as silent, running("memory_svc", full_folder, MEMORY_EMBEDDING_URL=silent) as memory:
        headers = {"Authorization": f"Bearer {memory.token}"}
        begin = time.perf_counter()
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http,
            Client(streamable_http_client(f"{memory.url}/mcp", http_client=http), mode=mode) as client,
        ):
            listed = await client.list_tools()
        assert time.perf_counter() - begin < SECONDS_PROMISED * MARGIN
        assert {"store", "recall", "get_contents"} <= {tool.name for tool in listed.tools}


def test_with_a_hung_embedding_server_recall_answers_within_its_patience(full_folder: Path) -> None:
    with (
        silent_server() as silent,
        running("memory_svc", full_folder, MEMORY_EMBEDDING_URL=silent, MEMORY_EMBEDDING_QUERY_SECONDS="0.5") as memory,
    ):
        begin = time.perf_counter()
        answer = memory.call("recall", agent_id="a", query="needle")
        assert time.perf_counter() - begin < 0.5 * MARGIN
        assert answer["messages"][-1]["content"] == "the last one is a needle"
        assert "did not answer" in answer["advisory"]["evidence"]
