"""The contract between the two services is the wire: our client against our server, over a socket."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator

import pytest
import uvicorn

from embed_svc import api
from embed_svc.batching import Limits
from embed_svc.observe import Observer
from embed_svc.service import Embedder as Server
from embed_svc.service import Readiness
from embed_svc.settings import Settings as ServerSettings
from embed_svc.wire import Observed
from memory_svc.embedding import Embedder as Client
from memory_svc.observe import Metrics
from memory_svc.settings import Settings
from tests.support.embed_model import FINGERPRINT, FakeModel


@pytest.fixture
def readiness() -> Iterator[Readiness]:
    """A server that is ready."""
    observer = Observer(lambda: 0)
    server = Server(FakeModel(window=8), Limits(), observer)
    made = Readiness(observer)
    made.open(server)
    yield made
    server.close()


@pytest.fixture
async def client(readiness: Readiness) -> AsyncIterator[Client]:
    """A client of it."""
    observer = Observer(lambda: 0)
    app = Observed(api.create(ServerSettings(), readiness, observer), observer)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, ws="none"))
    serving = asyncio.create_task(server.serve([listening]))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    made = Client(Settings(data_dir="unused", embedding_url=url), Metrics())
    yield made
    await made.close()
    server.should_exit = True
    await serving


@pytest.mark.parametrize("count", [1, 2, 100, 101, 250])
async def test_any_number_of_texts_gets_a_vector_each_in_order(client: Client, count: int) -> None:
    texts = [f"text {number}" for number in range(count)]
    vectors = await client.embed(texts, "document", 30)
    assert vectors is not None
    assert len(vectors) == count
    assert {vector.fingerprint for vector in vectors} == {FINGERPRINT}
    alone = await client.embed([texts[-1]], "document", 30)
    assert alone == vectors[-1:]


@pytest.mark.parametrize(
    "text", ["会議", "e\u0301 \U0001f600", "a\tb\nc\u0007", "word " * 5000, "\u2028", '"quoted\\"']
)
async def test_any_text_that_memory_stores_gets_a_vector(client: Client, text: str) -> None:
    vectors = await client.embed([text], "query")
    assert vectors is not None
    assert client.failure == ""


async def test_a_server_that_is_not_ready_is_a_failure_that_passes(client: Client, readiness: Readiness) -> None:
    server = readiness.embedder
    readiness.close("the model is loading")
    assert await client.embed(["x"], "query") is None
    assert "503" in client.failure
    readiness.open(server)
    assert await client.embed(["x"], "query") is not None
    assert client.failure == ""
