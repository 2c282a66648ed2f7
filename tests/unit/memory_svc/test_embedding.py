"""The client of the embedding server."""

import math
import struct
from collections.abc import AsyncIterator, Mapping

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc import embedding
from memory_svc.embedding import BATCH_CHARS_MAX, TEXT_CHARS_MAX, TEXTS_MAX, Breaker, Embedder, Faulty, batches, unit
from memory_svc.observe import Metrics
from memory_svc.settings import Settings
from tests.support.fakes import EmbeddingServer


@given(st.lists(st.integers(0, 3 * TEXT_CHARS_MAX), max_size=12), st.integers(0, 250))
def test_batches_keep_every_text_in_order_within_the_limits(lengths: list[int], short: int) -> None:
    texts = ["x" * length for length in lengths] + [str(number) for number in range(short)]
    made = list(batches(texts))
    assert [text for batch in made for text in batch] == [text[:TEXT_CHARS_MAX] for text in texts]
    for batch in made:
        assert 0 < len(batch) <= TEXTS_MAX
        assert len(batch) == 1 or sum(map(len, batch)) <= BATCH_CHARS_MAX


@given(st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=50).filter(lambda values: math.hypot(*values) > 1e-3))
def test_a_vector_of_length_one_is_kept_exactly_so(values: list[float]) -> None:
    length = math.hypot(*values)
    packed = unit([value / length for value in values], len(values))
    kept = struct.unpack(f"<{len(values)}f", packed)
    assert math.isclose(math.fsum(value * value for value in kept), 1.0, rel_tol=1e-5)


@pytest.mark.parametrize(
    ("values", "dimensions", "fault"),
    [
        ([0.0, 0.0], 2, "norm"),
        ([2.0, 0.0], 2, "norm"),
        ([1e-320, 0.0], 2, "norm"),
        ([math.nan], 1, "not_finite"),
        ([math.inf, 1.0], 2, "not_finite"),
        ([1e154, 1e154], 2, "not_finite"),
        ([1.0], 2, "dimension"),
    ],
)
def test_a_vector_that_cannot_be_compared_is_refused(values: list[float], dimensions: int, fault: str) -> None:
    with pytest.raises(Faulty) as refused:
        unit(values, dimensions)
    assert refused.value.fault == fault


def test_the_breaker_opens_after_failures_in_a_row_and_closes_with_the_first_success() -> None:
    breaker = Breaker(2)
    breaker.failed()
    breaker.succeeded()
    breaker.failed()
    assert breaker.state == "closed"
    breaker.failed()
    assert breaker.state == "open"
    breaker.state = "half_open"
    breaker.failed()
    assert breaker.state == "open"
    breaker.succeeded()
    assert breaker.state == "closed"


class Client:
    """A client of a stand-in server, with little patience."""

    def __init__(self, folder: object) -> None:
        self.server = EmbeddingServer()
        self.metrics = Metrics()
        settings = Settings(data_dir=str(folder), embedding_query_seconds=0.2, embedding_store_seconds=0.2)
        self.embedder = Embedder(settings, self.metrics, self.server)

    async def ask(self, fault: str) -> bool:
        """Whether a query gets its vector while the server has this fault."""
        self.server.fault = fault
        return await self.embedder.embed(["x"], "query") is not None

    def value(self, name: str, **labels: str) -> float:
        """A metric."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@pytest.fixture
async def client(tmp_path: object) -> AsyncIterator[Client]:
    """A client of a stand-in server."""
    made = Client(tmp_path)
    yield made
    await made.embedder.close()


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("refuse", "unreachable", "cannot be reached"),
        ("status", "status", "status 503"),
        ("busy", "overloaded", "more work than it takes"),
        ("garbage", "garbage", "not what the contract says"),
        ("count", "count", "0 vectors for 1 texts"),
        ("dimension", "dimension", "64 dimensions before and 65 now"),
        ("other_dimension", "dimension", "64 dimensions before and 65 now"),
        ("zero", "norm", "length 0"),
        ("long", "norm", "length 2"),
        ("nan", "garbage", "not what the contract says"),
    ],
)
async def test_what_is_wrong_with_a_server_is_told_apart(client: Client, fault: str, kind: str, words: str) -> None:
    assert await client.ask("")
    assert not await client.ask(fault)
    assert words in client.embedder.failure
    assert client.value("memory_embedding_failures_total", fault=kind) == 1
    assert client.value("memory_embedding_degraded") == 1


async def test_a_vector_shorter_than_it_says_is_told(client: Client) -> None:
    assert not await client.ask("dimension")
    assert "64 values where it says 65" in client.embedder.failure


async def test_a_slow_server_is_told_from_one_that_hangs(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "LATE_SECONDS_MAX", 1.0)
    for fault, kind in (("slow", "slow"), ("hang", "hung")):
        assert not await client.ask(fault)
        assert "did not answer within 0.2 s" in client.embedder.failure
        with anyio.fail_after(5):
            while not client.value("memory_embedding_failures_total", fault=kind):  # noqa: ASYNC110
                await anyio.sleep(0.05)
        assert ("slow and not gone" in client.embedder.failure) is (fault == "slow")
        assert await client.ask("")


async def test_while_the_breaker_is_open_nobody_waits_and_the_server_is_left_alone(client: Client) -> None:
    for _ in range(2):
        assert not await client.ask("refuse")
    assert client.embedder.state == "open"
    assert client.value("memory_embedding_breaker", state="open") == 1
    asked = len(client.server.asked)
    for _ in range(10):
        assert not await client.ask("hang")
    assert len(client.server.asked) == asked


async def test_a_probe_closes_the_breaker_when_the_server_is_well_again(client: Client) -> None:
    for _ in range(2):
        assert not await client.ask("refuse")
    await client.embedder.probe(30)
    assert client.embedder.state == "open"
    client.server.fault = ""
    await client.embedder.probe(30)
    assert client.embedder.state == "closed"
    assert client.value("memory_embedding_degraded") == 0
    assert await client.ask("")


async def test_a_server_that_is_used_is_not_probed(client: Client) -> None:
    assert await client.ask("")
    await client.embedder.probe(30)
    assert len(client.server.asked) == 1
    await client.embedder.probe(0)
    assert len(client.server.asked) == 2


async def test_a_changed_model_is_no_failure_and_is_counted(client: Client) -> None:
    assert await client.ask("")
    client.server.fingerprint = "1:other"
    assert await client.ask("")
    assert client.embedder.fingerprint == "1:other"
    assert client.value("memory_embedding_model_changes_total") == 1
    assert client.value("memory_embedding_degraded") == 0


async def test_a_text_that_gets_no_sound_vector_does_not_fail_those_beside_it(client: Client) -> None:
    client.server.unreadable = "poison"
    vectors = await client.embedder.embed(["one", "poison", "two"], "document")
    assert vectors is not None
    assert [vector is None for vector in vectors] == [False, True, False]
    assert client.embedder.failure == ""


async def test_a_caller_that_gives_up_leaves_no_call_behind(client: Client) -> None:
    client.server.fault = "hang"
    with anyio.move_on_after(0.05):
        await client.embedder.embed(["x"], "query")
    assert client.embedder.failure == ""
    assert client.embedder.state == "closed"


async def test_a_caller_that_waits_less_than_the_server_has_is_let_go_and_a_hung_server_still_counts(
    client: Client,
) -> None:
    client.server.fault = "hang"
    for _ in range(2):
        assert await client.embedder.embed(["x"], "query", within=0.01) is None
    assert client.embedder.failure == ""
    assert "the caller's time" in client.embedder.reason
    with anyio.fail_after(5):
        while client.embedder.state == "closed":  # noqa: ASYNC110
            await anyio.sleep(0.05)
    assert client.value("memory_embedding_degraded") == 1


async def test_a_caller_that_waits_less_does_not_make_a_sound_server_look_broken(client: Client) -> None:
    client.server.fault = "slow"
    patient = Embedder(Settings(data_dir="unused", embedding_query_seconds=5.0), client.metrics, client.server)
    for _ in range(3):
        assert await patient.embed(["x"], "query", within=0.01) is None
    await anyio.sleep(0.6)
    assert (patient.state, patient.failure) == ("closed", "")
    await patient.close()


async def test_callers_that_wait_less_cannot_flood_the_server(client: Client) -> None:
    client.server.fault = "hang"
    for _ in range(3 * embedding.LEFT_MAX):
        assert await client.embedder.embed(["x"], "query", within=0.0) is None
    await anyio.sleep(0.02)
    assert len(client.server.asked) <= embedding.LEFT_MAX


@pytest.mark.parametrize("url", ["http://127.0.0.1:8401", "http://127.0.0.1:8401/", "http://127.0.0.1:8401/embed"])
async def test_the_address_may_name_the_route_or_not(url: str, tmp_path: object) -> None:
    server = EmbeddingServer()
    embedder = Embedder(Settings(data_dir=str(tmp_path), embedding_url=url), Metrics(), server)
    assert await embedder.embed(["x"], "query") is not None
    await embedder.close()


async def test_a_server_without_a_fingerprint_is_known_by_its_dimensions(tmp_path: object) -> None:
    server = EmbeddingServer()
    server.fingerprint = None
    embedder = Embedder(Settings(data_dir=str(tmp_path)), Metrics(), server)
    vectors = await embedder.embed(["x"], "query")
    assert vectors is not None
    assert vectors[0] is not None
    assert vectors[0].fingerprint == "unknown:64"
    await embedder.close()


async def test_each_caller_is_told_in_full_once_for_each_failure(tmp_path: object) -> None:
    server = EmbeddingServer()
    embedder = Embedder(Settings(data_dir=str(tmp_path)), Metrics(), server)
    for _ in range(2):
        server.fault = "status"
        assert await embedder.embed(["x"], "query") is None
        for principal in ("ann", "bob"):
            assert "Tell the user" in embedder.advisory(principal).runbook
            assert "Reminder" in embedder.advisory(principal).runbook
        server.fault = ""
        assert await embedder.embed(["x"], "query") is not None
    await embedder.close()


@pytest.mark.parametrize(
    ("told", "read"),
    [
        (None, None),
        ([], None),
        ([{"truncated": True, "window_end_char": 3}], 3),
        ([{"truncated": True, "window_end_char": None}], None),
        ([{"truncated": True}], None),
        ([{"truncated": False, "window_end_char": 3}], None),
        ([{"truncated": True, "window_end_char": 0}], None),
        ([{"truncated": True, "window_end_char": 99}], None),
        ([{"truncated": True, "window_end_char": 3}] * 2, None),
    ],
)
async def test_how_far_a_text_was_read_is_taken_from_what_the_server_says_where_that_makes_sense(
    told: object, read: int | None
) -> None:
    async def send(_: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        return 200, msgspec.json.encode({"embeddings": [[1.0]], "dimensions": 1, "token_info": told})

    client = Embedder(Settings(data_dir="unused"), Metrics(), send)
    (vector,) = await client.embed(["some words"], "document") or [None]
    assert vector is not None
    assert vector.read == read
    await client.close()


async def test_a_text_too_long_to_be_sent_whole_is_read_as_far_as_it_was_sent() -> None:
    client = Embedder(Settings(data_dir="unused"), Metrics(), EmbeddingServer())
    vectors = await client.embed(["x" * (TEXT_CHARS_MAX + 1), "x" * TEXT_CHARS_MAX], "document")
    assert [vector and vector.read for vector in vectors or []] == [TEXT_CHARS_MAX, None]
    await client.close()
