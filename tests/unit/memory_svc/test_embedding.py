"""The client of the embedding server."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.embedding import BATCH_CHARS_MAX, TEXT_CHARS_MAX, TEXTS_MAX, Embedder, batches, normalised
from memory_svc.errors import Unavailable
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


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=50).filter(lambda values: any(abs(v) > 1e-3 for v in values))
)
def test_a_vector_is_brought_to_length_one(values: list[float]) -> None:
    packed = normalised(values, len(values))
    unit = struct.unpack(f"<{len(values)}f", packed)
    assert math.isclose(math.fsum(value * value for value in unit), 1.0, rel_tol=1e-5)


@pytest.mark.parametrize(
    ("values", "dimensions"), [([0.0, 0.0], 2), ([math.nan], 1), ([math.inf, 1.0], 2), ([1.0], 2), ([1e-320, 0.0], 2)]
)
def test_a_vector_that_cannot_be_compared_is_refused(values: list[float], dimensions: int) -> None:
    with pytest.raises(Unavailable, match="vector"):
        normalised(values, dimensions)


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
