"""The contract between the two services is the wire: our client against our server, over a socket."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator

import pytest
import uvicorn

from embed_svc import api
from embed_svc.batching import Limits
from embed_svc.direct import Direct
from embed_svc.observe import Observer
from embed_svc.service import Embedder as Server
from embed_svc.service import Readiness
from embed_svc.settings import Settings as ServerSettings
from embed_svc.wire import Observed
from memory_svc.domain.blocks import Passage, covered
from memory_svc.embedding import Embedder as Client
from memory_svc.observe import Metrics
from memory_svc.services.blocks import at_leisure
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
    settings = ServerSettings()
    framework = api.create(settings, readiness, observer)
    app = Observed(Direct(framework, readiness, settings.body_bytes_max), observer)
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


async def test_a_text_that_is_longer_than_the_window_is_read_to_its_end_in_blocks(client: Client) -> None:
    text = " ".join(f"word{number}" for number in range(100))
    vectors = await client.embed([text, "short"], "document", 30)
    assert vectors is not None
    assert [vector.read for vector in vectors if vector] == [len("word0 word1 word2 word3 word4 word5 word6"), None]
    whole = await at_leisure(client, Passage(text), Settings(data_dir="unused"))
    assert whole is not None
    assert whole.read is None
    assert len(whole.blocks) > 14
    assert covered(whole.spans or []) == len(text)
    assert whole.blocks[0].values == whole.values == vectors[0].values


async def test_of_a_query_it_is_not_asked_how_far_it_was_read(client: Client) -> None:
    vectors = await client.embed(["word " * 100], "query", 30)
    assert [vector and vector.read for vector in vectors or []] == [None]
