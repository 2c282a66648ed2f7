"""Requests to the embedding server: connections that were dropped, answers that are none, callers that leave."""

import asyncio
import contextlib
import gzip
import socket
import struct
from collections.abc import AsyncIterator, Callable

import anyio
import pytest

from memory_svc import embedding_http
from memory_svc.embedding import Embedder
from memory_svc.embedding_http import Connections
from memory_svc.observe import Metrics
from memory_svc.settings import Settings

VECTOR = b'{"embeddings":[[1.0]],"dimensions":1,"fingerprint":"1:one"}'


def answer(body: bytes = VECTOR, status: str = "200 OK", *headers: str) -> bytes:
    """An answer as it stands on the wire."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


class Peer:
    """The other end of the wire. `replies` holds what it says to the requests of a connection, in order; None hangs up.

    After the last it says the same again. abrupt: it hangs up with a reset.
    """

    def __init__(self, *replies: bytes | None, abrupt: bool = False) -> None:
        self.replies = replies
        self.abrupt = abrupt
        self.connections = 0
        self.open = 0
        self.requests: list[bytes] = []
        self.silent = asyncio.Event()
        self.url = ""

    @contextlib.asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncIterator[None]:
        """It takes connections until the block ends, and drops them all then."""
        server = await asyncio.start_server(self._talk, "127.0.0.1", port, reuse_address=True)
        self.url = f"http://localhost:{server.sockets[0].getsockname()[1]}"
        self.writers: set[asyncio.StreamWriter] = set()
        try:
            yield
        finally:
            server.close()
            self.hang_up()

    def hang_up(self) -> None:
        """Drop every connection."""
        for writer in self.writers:
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            for number in range(1000):
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
                self.requests.append(head + await reader.readexactly(int(length.split(b":")[1])))
                reply = self.replies[min(number, len(self.replies) - 1)]
                if reply is None:
                    break
                if reply == b"":
                    self.silent.set()
                writer.write(reply)
                await writer.drain()
        self.open -= 1
        if self.abrupt:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writers.discard(writer)
        writer.close()


def client_of(peer: Peer, path: str = "", token: str = "") -> Embedder:
    """A client of it."""
    settings = Settings(data_dir="unused", embedding_url=peer.url + path, embedding_query_seconds=5.0)
    return Embedder(settings, Metrics(), token=token)


@contextlib.asynccontextmanager
async def talking(
    *replies: bytes | None, abrupt: bool = False, token: str = ""
) -> AsyncIterator[tuple[Peer, Embedder]]:
    """Both ends."""
    peer = Peer(*replies, abrupt=abrupt)
    async with peer.listening():
        client = client_of(peer, token=token)
        try:
            yield peer, client
        finally:
            await client.close()


async def until(met: Callable[[], bool]) -> None:
    """Wait, a while at most."""
    with anyio.fail_after(5):
        while not met():  # noqa: ASYNC110
            await anyio.sleep(0.005)


async def test_a_connection_is_kept_and_a_request_says_what_it_must() -> None:
    async with talking(answer(VECTOR, "200 OK", "Set-Cookie: a=b"), token="secret") as (peer, client):
        for _ in range(3):
            assert await client.embed(["é"], "query") is not None
        assert peer.connections == 1
        head, _, body = peer.requests[-1].partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        assert lines[0] == b"post /embed http/1.1"
        assert b"authorization: bearer secret" in lines
        assert b"content-type: application/json" in lines
        assert b"cookie" not in head.lower()
        assert body == '{"texts":["é"],"input_type":"query"}'.encode()


@pytest.mark.parametrize("abrupt", [False, True])
async def test_a_kept_connection_that_is_dropped_when_it_is_used_fails_no_call(abrupt: bool) -> None:
    async with talking(answer(), None, abrupt=abrupt) as (peer, client):
        for _ in range(4):
            assert await client.embed(["x"], "query") is not None
            assert client.failure == ""
        assert peer.connections > 2


async def test_connections_that_are_dropped_together_fail_no_call() -> None:
    async with talking(answer(), None, abrupt=True) as (_, client):
        for _ in range(3):
            found = await asyncio.gather(*(client.embed(["x"], "query") for _ in range(20)))
            assert all(found)
            assert client.failure == ""


async def test_a_call_does_not_fail_where_every_kept_connection_is_dropped_when_it_is_used() -> None:
    async with talking(answer(), None) as (peer, client):
        assert all(await asyncio.gather(*(client.embed(["x"], "query") for _ in range(5))))
        assert peer.open == 5
        assert await client.embed(["x"], "query") is not None
        assert client.failure == ""


async def test_a_server_that_closes_idle_connections_or_was_started_anew_fails_no_call() -> None:
    peer = Peer(answer())
    async with peer.listening():
        client = client_of(peer)
        assert all(await asyncio.gather(*(client.embed(["x"], "query") for _ in range(3))))
        peer.hang_up()
        assert await client.embed(["x"], "query") is not None
    again = Peer(answer())
    async with again.listening(int(peer.url.rpartition(":")[2])):
        assert await client.embed(["x"], "query") is not None
        assert client.failure == ""
        await client.close()


async def test_a_server_that_drops_every_request_is_asked_twice_and_no_more() -> None:
    async with talking(None) as (peer, client):
        assert await client.embed(["x"], "query") is None
        assert "cannot be reached (ServerDisconnectedError)" in client.failure
        assert peer.connections == 2


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (answer(b"", "302 Found", "Location: /elsewhere"), "status 302"),
        (answer(b"", "307 Temporary Redirect", "Location: /elsewhere"), "status 307"),
        (answer(b"", "401 Unauthorized"), "status 401"),
        (answer(b"{}", "429 Too Many Requests"), "more work than it takes"),
        (answer(gzip.compress(VECTOR), "200 OK", "Content-Encoding: gzip"), "not what the contract says"),
        (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", "cannot be reached"),
    ],
)
async def test_an_answer_that_is_none_is_told_apart_and_no_address_is_followed(reply: bytes, words: str) -> None:
    async with talking(reply) as (peer, client):
        assert await client.embed(["x"], "query") is None
        assert words in client.failure
        assert len(peer.requests) == 1


async def test_an_answer_that_breaks_off_is_a_server_that_cannot_be_reached() -> None:
    async with talking(answer()[:-5], None) as (peer, client):
        asked = asyncio.create_task(client.embed(["x"], "query"))
        await until(lambda: len(peer.requests) == 1)
        peer.hang_up()
        assert await asked is None
        assert "cannot be reached" in client.failure
        assert len(peer.requests) == 1


async def test_an_answer_that_does_not_end_is_garbage_and_is_not_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_http, "ANSWER_BYTES_MAX", 100_000)
    endless = answer()[: answer().index(b"\r\n")] + b"\r\nContent-Length: 9000000000\r\n\r\n" + b" " * 200_000
    async with talking(endless) as (peer, client):
        assert await client.embed(["x"], "query") is None
        assert "not what the contract says" in client.failure
        await until(lambda: peer.open == 0)


async def test_callers_that_leave_give_their_connections_back() -> None:
    async with talking(b"") as (peer, client):
        for _ in range(150):
            asked = asyncio.create_task(client.embed(["x"], "query"))
            await peer.silent.wait()
            peer.silent.clear()
            asked.cancel()
        await until(lambda: peer.open == 0)
        peer.replies = (answer(),)
        assert await client.embed(["x"], "query") is not None
        assert client.failure == ""


async def test_more_callers_than_any_usual_limit_wait_for_no_connection() -> None:
    async with talking(b"") as (peer, client):
        asked = [asyncio.create_task(client.embed(["x"], "query")) for _ in range(150)]
        await until(lambda: peer.open == 150)
        for task in asked:
            task.cancel()
        await asyncio.wait(asked)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[", "http://a..b", "http://u:p@127.0.0.1:1"])
async def test_an_address_where_nobody_is_raises_nothing(url: str) -> None:
    client = Embedder(Settings(data_dir="unused", embedding_url=url), Metrics(), token="secret")
    assert await client.embed(["x"], "query") is None
    assert "cannot be reached" in client.failure
    await client.close()


def test_it_is_made_where_no_loop_runs_and_closed_without_having_been_used() -> None:
    connections = Connections("http://127.0.0.1:1/embed", "")
    asyncio.run(connections.close())


async def test_the_environment_names_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with talking(answer()) as (_, client):
        assert await client.embed(["x"], "query") is not None
