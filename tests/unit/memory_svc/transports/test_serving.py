"""The server as a process: it tells its address, and on a signal answers what is under way and leaves with 0."""

import asyncio
import contextlib
import functools
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.sse import sse_client

from memory_svc.errors import Unavailable
from memory_svc.transports.serving import bound, url_of
from tests.support.toy_client import connected
from tests.support.toy_server import TOKEN, settings_for

pytestmark = pytest.mark.e2e
SCRIPT = Path(__file__).parents[3] / "support" / "toy_server.py"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


class Server:
    """A toy server in a process of its own, whose log lines can be read."""

    def __init__(self, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        self.process = process
        self._log = log
        self.url = str(self.wait_for("listening")["url"])

    def lines(self) -> list[dict[str, Any]]:
        """Every line logged so far."""
        self._log.seek(0)
        return [json.loads(line) for line in self._log.read().splitlines() if line.endswith(b"}")]

    def wait_for(self, event: str) -> dict[str, Any]:
        """The line of an event, within ten seconds."""
        for _ in range(200):
            found = [line for line in self.lines() if line["event"] == event]
            if found:
                return found[0]
            time.sleep(0.05)
        raise AssertionError(f"{event} was not logged: {self.lines()}")


@contextlib.contextmanager
def started(store: str = "") -> Iterator[Server]:
    """A toy server, over a real store where a folder is named; killed if it is still there at the end."""
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, str(SCRIPT), "http", *([store] if store else [])]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
        try:
            yield Server(process, log)
        finally:
            process.kill()
            process.wait(10)


def in_thread(work: Any) -> tuple[threading.Thread, list[Any]]:
    """Start some work; its answer comes into the list."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(work()))
    thread.start()
    return thread, answers


def waited_over_rest(url: str) -> str:
    """The answer of a slow operation."""
    return httpx2.post(f"{url}/v1/wait", json={"seconds": 1.5}, headers=HEADERS, timeout=20).text


def waited_over_mcp(url: str, mode: str, seconds: float = 1.5) -> str:
    """The answer of a slow tool, or nothing."""

    async def run() -> str:
        text = ""
        with contextlib.suppress(BaseExceptionGroup, httpx2.HTTPError):
            async with connected(f"{url}/mcp", mode) as client:
                await client.list_tools()
                result: Any = await client.call_tool("wait", {"seconds": seconds})
                text = result.content[0].text
        return text

    return asyncio.run(run())


def waited_over_sse(url: str, mode: str) -> str:
    """The answer of a slow tool over the older wire, or nothing."""

    async def run() -> str:
        async with Client(sse_client(f"{url}/sse", headers=HEADERS), mode=mode) as client:
            await client.list_tools()
            result: Any = await client.call_tool("wait", {"seconds": 1.5})
            return str(result.content[0].text)

    return asyncio.run(run())


WAYS = {
    "rest": waited_over_rest,
    **{mode: functools.partial(waited_over_mcp, mode=mode) for mode in ("legacy", "auto", "2026-07-28")},
    **{f"sse {mode}": functools.partial(waited_over_sse, mode=mode) for mode in ("legacy", "2026-07-28")},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_call_under_way_is_answered_and_then_the_server_leaves_well(number: signal.Signals, way: str) -> None:
    with started() as server:
        ask = WAYS[way]
        thread, answers = in_thread(lambda: ask(server.url))
        server.wait_for("waiting")
        server.process.send_signal(number)
        assert server.process.wait(12) == 0
        thread.join(10)
        assert '"waited"' in answers[0]
        events = [line["event"] for line in server.lines()]
        assert events.index("stopping") < events.index("operation") < events.index("background ended")
        assert events[-1] == "stopped"
        assert not any("Traceback" in json.dumps(line) for line in server.lines())


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
def test_an_open_stream_and_an_idle_connection_do_not_hold_the_server(path: str) -> None:
    with started() as server, httpx2.Client(base_url=server.url, headers=HEADERS, timeout=20) as client:
        client.get("/livez")
        with client.stream("GET", path, headers={"Accept": "text/event-stream"}) as stream:
            assert stream.status_code == 200
            begin = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(12) == 0
            assert time.monotonic() - begin < 4
        assert not any("Traceback" in json.dumps(line) for line in server.lines())


@pytest.mark.parametrize("wire", ["http", "sse"])
def test_a_stream_that_listens_is_ended_with_a_last_word(wire: str) -> None:
    graceful: list[bool] = []

    async def listen(url: str, listening: threading.Event) -> None:
        sse: Any = sse_client(f"{url}/sse", headers=HEADERS)
        client = Client(sse, mode="2026-07-28") if wire == "sse" else connected(f"{url}/mcp", "2026-07-28")
        async with client as session, session.listen(resources_list_changed=True) as events:
            listening.set()
            async for _ in events:
                pass
            graceful.append(True)

    with tempfile.TemporaryDirectory() as folder, started(folder) as server:
        listening = threading.Event()
        thread, _ = in_thread(lambda: asyncio.run(listen(server.url, listening)))
        assert listening.wait(20)
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(12) == 0
        assert time.monotonic() - begin < 4
        thread.join(10)
        assert graceful == [True]
        assert not any("Traceback" in json.dumps(line) for line in server.lines())


def test_a_second_signal_gives_up_the_calls_under_way_and_still_ends_what_was_begun() -> None:
    with started() as server:
        thread, _ = in_thread(lambda: waited_over_mcp(server.url, "2026-07-28", seconds=60))
        server.wait_for("waiting")
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("stopping")
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(8) == 0
        assert "background ended" in [line["event"] for line in server.lines()]
        thread.join(10)


def test_no_new_connection_is_taken_while_the_server_leaves() -> None:
    with started() as server:
        thread, answers = in_thread(lambda: waited_over_mcp(server.url, "2026-07-28"))
        server.wait_for("waiting")
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("stopping")
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{server.url}/livez")
        thread.join(10)
        assert "waited" in answers[0]
        assert server.process.wait(12) == 0


def test_the_log_has_one_json_line_for_an_operation_and_none_for_a_request() -> None:
    with started() as server:
        httpx2.post(f"{server.url}/v1/add", json={"text": "secret text"}, headers={**HEADERS, "X-Request-Id": "my-id"})
        httpx2.get(f"{server.url}/livez")
        httpx2.post(f"{server.url}/v1/add", json={"text": "secret text"})
        refused = server.wait_for("refused")
        assert (refused["status"], refused["outcome"]) == (401, "unauthenticated")
        lines = server.lines()
        assert [line["event"] for line in lines] == ["background began", "listening", "operation", "refused"]
        assert lines[2]["request_id"] == "my-id"
        assert "secret text" not in json.dumps(lines)
        assert TOKEN not in json.dumps(lines)


def test_an_address_in_use_is_named_with_what_to_do() -> None:
    with bound(settings_for()) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(Unavailable, match=f"port {port}.*MEMORY_PORT"):
            bound(settings_for(port=port))


@pytest.mark.parametrize(
    ("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("localhost", "localhost"), ("0.0.0.0", "127.0.0.1")]
)
def test_the_address_told_is_one_that_this_machine_can_reach(host: str, shown: str) -> None:
    settings = settings_for(host=host)
    with bound(settings) as listener:
        assert url_of(settings, listener) == f"http://{shown}:{listener.getsockname()[1]}"


def test_an_address_of_ipv6_stands_in_brackets() -> None:
    with socket.socket(socket.AF_INET6) as listener:
        listener.bind(("::1", 0))
        assert url_of(settings_for(host="::"), listener) == f"http://[::1]:{listener.getsockname()[1]}"


def test_small_answers_are_sent_at_once() -> None:
    with bound(settings_for()) as listener:
        assert listener.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize(
    "begin",
    [
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"POST /v1/add HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX: ",
        b"POST /v1/add HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;x=",
    ],
    ids=["header", "trailer", "chunk extension"],
)
def test_what_has_no_end_and_is_no_body_is_cut_off(begin: bytes) -> None:
    with started() as server, socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), 10) as sent:
        sent.sendall(begin)
        with contextlib.suppress(ConnectionError):
            for _ in range(10_000):
                sent.sendall(b"v" * 10_000)
            pytest.fail("a hundred megabytes were taken")
        assert httpx2.get(f"{server.url}/livez", timeout=10).status_code == 200


def test_two_hosts_are_refused() -> None:
    with started() as server, socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), 10) as sent:
        sent.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(functools.partial(sent.recv, 65_536), b""))
    assert answer.startswith(b"HTTP/1.1 421 ")
    assert b"more than one host" in answer
