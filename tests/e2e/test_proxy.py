"""A real nginx, configured as the guide says, before a real memory server: over TLS, and beneath a path."""

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ResourceUpdated

from memory_svc.settings import Settings
from memory_svc.transports.serving import uvicorn_config
from tests.support.nginx import NAME, PREFIX, Proxy, guided, nginx
from tests.support.processes import Process, running
from tests.support.wires import over_mcp

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore:resources/")]
PUBLISHED = {"MEMORY_EMBEDDING_URL": "", "MEMORY_ALLOWED_HOSTS": NAME, "MEMORY_PATH_PREFIX": PREFIX}
WIRES = ("mcp", "mcp-legacy", "sse", "sse-legacy")
TOLD_SECONDS_MAX = 5.0
BUFFERED = {"proxy_buffering off": "proxy_buffering on"}


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A memory server that knows under which name and path it is published."""
    with running("memory_svc", tmp_path_factory.mktemp("memory"), **PUBLISHED) as process:
        yield process


@pytest.fixture(scope="module")
def proxy(memory: Process, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """nginx before it, as the guide has it."""
    with nginx(tmp_path_factory.mktemp("proxy") / "nginx", memory.port) as started:
        yield started


def headers(memory: Process) -> dict[str, str]:
    """What a client sends that has the token and asks for the published name."""
    return {"Host": NAME, "Authorization": f"Bearer {memory.token}"}


@contextlib.contextmanager
def asking(proxy: Proxy, memory: Process) -> Iterator[httpx2.Client]:
    """A client of plain HTTP beneath the published path."""
    with httpx2.Client(base_url=proxy.url, headers=headers(memory), verify=proxy.trusted, trust_env=False) as client:
        client.timeout = httpx2.Timeout(30)
        yield client


@contextlib.asynccontextmanager
async def connected(wire: str, proxy: Proxy, memory: Process, hear: Any = None) -> AsyncIterator[Client]:
    """A client of the SDK over that wire; `hear` is given what the server says by itself."""

    def trusting(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
        given = {"headers": headers, "timeout": timeout, "auth": auth, "trust_env": False}
        return httpx2.AsyncClient(verify=proxy.trusted, **given)

    mode = "legacy" if wire.endswith("legacy") else "2026-07-28"
    async with contextlib.AsyncExitStack() as stack:
        if wire.startswith("sse"):
            server: Any = sse_client(f"{proxy.url}/sse", headers(memory), httpx_client_factory=trusting)
        else:
            http = await stack.enter_async_context(trusting(headers(memory), 30))
            server = streamable_http_client(f"{proxy.url}/mcp", http_client=http)
        yield await stack.enter_async_context(Client(server, mode=mode, message_handler=hear))


@pytest.mark.parametrize("wire", WIRES)
async def test_a_client_stores_and_recalls_through_tls_and_beneath_the_path(
    proxy: Proxy, memory: Process, wire: str
) -> None:
    async with connected(wire, proxy, memory) as client:
        assert {"store", "recall"} <= {tool.name for tool in (await client.list_tools()).tools}
        call = over_mcp(client)
        assert (await call("store", agent_id=wire, content="The database is called harbour."))["result"] == "stored"
        found = await call("recall", agent_id=wire, query="harbour")
        assert [row["content"] for row in found["messages"]] == ["The database is called harbour."]


@pytest.mark.parametrize("wire", ["mcp", "sse"])
async def test_an_announcement_comes_while_its_stream_stays_open(proxy: Proxy, memory: Process, wire: str) -> None:
    async with connected(wire, proxy, memory) as client:
        await told_of_a_change(client, f"listens-{wire}")


async def test_an_announcement_comes_to_a_session_of_an_older_handshake(proxy: Proxy, memory: Process) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            heard.put_nowait(str(message.params.uri))

    async with connected("sse-legacy", proxy, memory, hear) as client:
        await client.subscribe_resource("memory://subscribes/profile")
        await over_mcp(client)("update_profile", agent_id="subscribes", profile="likes tea")
        async with asyncio.timeout(TOLD_SECONDS_MAX):
            assert await heard.get() == "memory://subscribes/profile"


@pytest.mark.parametrize("wire", ["mcp", "sse"])
async def test_where_nginx_buffers_the_streams_themselves_ask_it_not_to(
    memory: Process, tmp_path: Path, wire: str
) -> None:
    with nginx(tmp_path / "nginx", memory.port, BUFFERED) as buffering:
        async with connected(wire, buffering, memory) as client:
            await told_of_a_change(client, f"buffered-{wire}")


async def told_of_a_change(client: Client, agent: str) -> None:
    """Listen for a profile, change it, and be told."""
    uri = f"memory://{agent}/profile"
    async with client.listen(resource_subscriptions=[uri]) as events:
        await over_mcp(client)("update_profile", agent_id=agent, profile="likes tea")
        async with asyncio.timeout(TOLD_SECONDS_MAX):
            assert await anext(events) == ResourceUpdated(uri)


def test_a_foreign_name_is_refused_by_the_server_and_the_published_one_is_served(proxy: Proxy, memory: Process) -> None:
    with asking(proxy, memory) as client:
        assert client.post("/v1/list_memories").status_code == 200
        refused = client.post("/v1/list_memories", headers={"Host": "evil.example"})
        assert (refused.status_code, refused.json()["code"]) == (421, "denied")
        assert "MEMORY_ALLOWED_HOSTS" in refused.json()["error"]
        refused = client.post("/mcp", json={}, headers={"Host": "evil.example"})
        assert (refused.status_code, refused.json()["error"]["data"]["code"]) == (421, "denied")


def test_no_forwarded_header_is_believed(proxy: Proxy, memory: Process) -> None:
    forwarded = {"X-Forwarded-Host": NAME, "Forwarded": f"host={NAME}", "X-Forwarded-For": "127.0.0.1"}
    with asking(proxy, memory) as client:
        assert client.post("/v1/list_memories", headers={**forwarded, "Host": "evil.example"}).status_code == 421
        foreign = {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "gopher", "X-Forwarded-Prefix": "/evil"}
        assert client.post("/v1/list_memories", headers=foreign).status_code == 200
        with client.stream("GET", "/sse", headers=foreign) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: endpoint"
            assert next(lines).startswith(f"data: {PREFIX}/messages?session_id=")


def test_without_the_token_nothing_is_told(proxy: Proxy, memory: Process) -> None:
    with asking(proxy, memory) as client:
        for path in ("/mcp", "/messages", "/v1/recall"):
            refused = client.post(path, json={}, headers={"Authorization": "Bearer wrong"})
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer"), path


def test_the_document_names_the_published_path(proxy: Proxy, memory: Process) -> None:
    with asking(proxy, memory) as client:
        assert client.get("/openapi.json").json()["servers"] == [{"url": PREFIX}]


@pytest.mark.parametrize(
    "path",
    [
        f"{PREFIX}/metrics",
        f"{PREFIX}/livez",
        f"{PREFIX}/readyz",
        f"{PREFIX}/startupz",
        f"{PREFIX}/v1/%2e%2e/metrics",
        f"{PREFIX}/mcp/%2e%2e/metrics",
        f"{PREFIX}//metrics",
        "/metrics",
        "/v1/list_memories",
        "/mcp",
        "/",
    ],
)
def test_what_is_not_published_stays_inside(proxy: Proxy, memory: Process, path: str) -> None:
    with asking(proxy, memory) as client:
        answer = client.get(proxy.url.removesuffix(PREFIX) + path)
        assert answer.status_code == 404
        assert "x-request-id" not in answer.headers


@pytest.mark.parametrize("path", ["/v1/store", "/mcp"])
def test_a_body_that_is_too_large_is_refused_in_the_servers_own_words(proxy: Proxy, memory: Process, path: str) -> None:
    limit = Settings(data_dir="unused").body_bytes_max
    for content in (b" " * (limit + 1), (b" " * 65_536 for _ in range(limit // 65_536 + 1))):
        with asking(proxy, memory) as client:
            refused = client.post(path, content=content, headers={"Content-Type": "application/json"})
            answer = refused.json()
            failure = answer["error"]["data"] if path == "/mcp" else answer
            assert (refused.status_code, failure["code"], failure["limit_bytes"]) == (413, "too_large", limit)


def test_a_caller_who_is_too_fast_is_told_when_to_come_again(tmp_path: Path) -> None:
    slow = {"MEMORY_CALLS_PER_SECOND_MAX": "1"}
    with (
        running("memory_svc", tmp_path / "memory", **PUBLISHED, **slow) as memory,
        nginx(tmp_path / "nginx", memory.port) as proxy,
        asking(proxy, memory) as client,
    ):
        answers = [client.post("/v1/list_memories") for _ in range(5)]
        refused = next(answer for answer in answers if answer.status_code != 200)
        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
        assert int(refused.headers["retry-after"]) >= 1


def test_while_the_server_is_away_the_proxy_says_so_and_afterwards_goes_on(tmp_path: Path) -> None:
    with (
        running("memory_svc", tmp_path / "memory", **PUBLISHED) as memory,
        nginx(tmp_path / "nginx", memory.port) as proxy,
        asking(proxy, memory) as client,
    ):
        assert client.post("/v1/store", json={"agent_id": "me", "content": "before"}).json()["id"] == 1
        memory.kill()
        assert [client.post("/v1/list_memories").status_code for _ in range(3)] == [502] * 3
        memory.start()
        memory.wait_until_ready()
        assert client.post("/v1/store", json={"agent_id": "me", "content": "after"}).json()["id"] == 2


def test_a_silent_call_is_answered_by_the_guides_patience_and_cut_off_by_less(tmp_path: Path) -> None:
    """Seconds stand for minutes: a store waits 3 s for an embedding server that does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        waits = {
            "MEMORY_EMBEDDING_URL": f"http://127.0.0.1:{mute.getsockname()[1]}",
            "MEMORY_EMBEDDING_STORE_SECONDS": "3",
            "MEMORY_EMBEDDING_FAILURES_MAX": "100",
        }
        with running("memory_svc", tmp_path / "memory", **{**PUBLISHED, **waits}) as memory:
            for name, changed, status in (
                ("less", {"proxy_read_timeout 3600s": "proxy_read_timeout 1s"}, 504),
                ("guided", {}, 200),
            ):
                with nginx(tmp_path / name, memory.port, changed) as proxy, asking(proxy, memory) as client:
                    answer = client.post("/v1/store", json={"agent_id": "me", "content": f"by {name}"})
                    assert answer.status_code == status, answer.text
            assert json.loads(answer.content)["embedded"] is False
            assert memory.call("list_memories")["count"] == 2  # what was cut off was done


def test_the_proxy_is_more_patient_than_the_server_and_lets_go_of_connections_before_it() -> None:
    patience = dict(re.findall(r"(\w+_timeout) (\d+)s;", guided()))
    settings = Settings(data_dir="unused")
    unused: Any = None
    assert int(patience["proxy_read_timeout"]) > settings.call_seconds_max
    assert int(patience["proxy_send_timeout"]) > settings.call_seconds_max
    assert int(patience["keepalive_timeout"]) < uvicorn_config(unused, settings).timeout_keep_alive
