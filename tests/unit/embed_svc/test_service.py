"""Texts through the queue in order, and whether the server is ready."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from embed_svc.batching import Limits
from embed_svc.errors import Overloaded, Unavailable
from embed_svc.models import Role, Tokens
from embed_svc.observe import Observer
from embed_svc.service import Embedder, Readiness
from tests.support.embed_model import FakeModel


@pytest.fixture
def observer() -> Observer:
    return Observer(lambda: 0)


async def shown(observer: Observer, line: bytes) -> None:
    """Return once the metrics show it."""
    for _ in range(5_000):
        if line in observer.exposition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError(line)


def test_vectors_come_in_the_order_of_the_texts_and_equal_those_alone(observer: Observer) -> None:
    embedder = Embedder(FakeModel(), Limits(), observer)
    texts = [f"{'word ' * (index % 7)}{index}" for index in range(60)]

    async def run() -> None:
        together = await embedder.embed(texts, "document")
        for index in (0, 17, 59):
            alone = await embedder.embed([texts[index]], "document")
            np.testing.assert_array_equal(alone.vectors[0], together.vectors[index])
        assert together.vectors.shape == (60, 16)
        assert together.vectors.dtype == np.float32

    asyncio.run(run())
    embedder.close()


def test_callers_at_once_each_get_their_own(observer: Observer) -> None:
    model = FakeModel()
    embedder = Embedder(model, Limits(), observer)

    async def run() -> None:
        model.gate.clear()
        calls = [asyncio.create_task(embedder.embed([f"caller {index}", "same"], "query")) for index in range(20)]
        await asyncio.sleep(0)
        model.gate.set()
        answers = [answer.vectors for answer in await asyncio.gather(*calls)]
        assert len({answer[0].tobytes() for answer in answers}) == 20
        assert len({answer[1].tobytes() for answer in answers}) == 1
        assert len(model.batches) < 40

    asyncio.run(run())
    embedder.close()


def test_texts_cut_by_the_window_are_counted(observer: Observer) -> None:
    embedder = Embedder(FakeModel(window=4), Limits(), observer)
    embedded = asyncio.run(embedder.embed(["a b c", "a b c d", "a"], "document"))
    assert (embedded.truncated, embedded.tokens) == (1, 4 + 4 + 2)
    assert b"embed_truncated_total 1.0" in observer.exposition()
    embedder.close()


def test_a_model_whose_rows_touch_each_other_runs_each_text_alone(observer: Observer) -> None:
    model = FakeModel(leaks=True, alone=True)
    embedder = Embedder(model, Limits(), observer)
    asyncio.run(embedder.embed(["a", "b", "c"], "document"))
    assert [len(batch) for batch in model.batches] == [1, 1, 1]
    embedder.close()


def test_a_full_queue_refuses_and_leaves_those_inside_alone(observer: Observer) -> None:
    model = FakeModel()
    embedder = Embedder(model, Limits(queue_texts_max=100), observer)

    async def run() -> None:
        model.gate.clear()
        inside = asyncio.create_task(embedder.embed(["x"] * 100, "document"))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await embedder.embed(["y"], "document")
        model.gate.set()
        assert len((await inside).vectors) == 100
        assert len((await embedder.embed(["y"], "document")).vectors) == 1

    asyncio.run(run())
    embedder.close()


def test_a_vector_that_is_not_of_length_one_is_never_answered(observer: Observer) -> None:
    embedder = Embedder(FakeModel(scale=0.5), Limits(), observer)
    with pytest.raises(RuntimeError, match=r"length 0\.5000 instead of 1"):
        asyncio.run(embedder.embed(["a"], "document"))
    embedder.close()


def test_a_text_asked_again_runs_once_and_only_in_its_role(observer: Observer) -> None:
    model = FakeModel()
    embedder = Embedder(model, Limits(), observer, cache_bytes_max=1 << 20)

    async def run() -> None:
        first = await embedder.embed(["a", "b"], "document")
        again = await embedder.embed(["b", "c", "a"], "document")
        np.testing.assert_array_equal(again.vectors[[2, 0]], first.vectors)
        assert [reading.count for reading in again.readings] == [2, 2, 2]
        await embedder.embed(["a"], "query")

    asyncio.run(run())
    assert sorted(len(tokens.ids) for batch in model.batches for tokens in batch) == [2, 2, 2, 2]
    assert b'embed_cache_total{outcome="hit"} 2.0' in observer.exposition()
    assert b'embed_cache_total{outcome="miss"} 4.0' in observer.exposition()
    embedder.close()


def test_a_caller_that_is_cancelled_between_batches_takes_the_rest_along(observer: Observer) -> None:
    model = FakeModel()
    embedder = Embedder(model, Limits(texts_max=1), observer)

    async def run() -> None:
        model.gate.clear()
        gone = asyncio.create_task(embedder.embed(["a", "b", "c"], "document"))
        await shown(observer, b"embed_queue_tokens 4.0")
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        model.gate.set()
        await embedder.embed(["d"], "document")

    asyncio.run(run())
    assert len(model.batches) == 2
    assert b"embed_queue_texts 0.0" in observer.exposition()
    embedder.close()


def test_a_long_text_is_counted_where_no_other_waits_for_it(observer: Observer) -> None:
    class Slow(FakeModel):
        """Counts long texts only when its gate is open."""

        def measure(self, texts: Sequence[str], role: Role, whole: bool = False) -> list[Tokens]:
            assert not whole or self.gate.wait(10)
            return super().measure([text[:50] for text in texts], role, whole)

    model = Slow()
    embedder = Embedder(model, Limits(), observer)

    async def run() -> None:
        model.gate.clear()
        long = asyncio.create_task(embedder.count(["x" * 100_000], "document"))
        await asyncio.sleep(0.01)
        ids = asyncio.create_task(embedder.embed_tokens([[1]], "document"))
        await shown(observer, b"embed_queue_texts 2.0")
        model.gate.set()
        await ids
        assert len(await long) == 1

    asyncio.run(run())
    embedder.close()


def test_readiness_tells_its_reason_until_an_embedder_serves_and_again_after(observer: Observer) -> None:
    readiness = Readiness(observer)
    with pytest.raises(Unavailable, match="starting"):
        _ = readiness.embedder
    readiness.close("fetching 810 MB")
    with pytest.raises(Unavailable, match="not ready: fetching 810 MB"):
        _ = readiness.embedder
    embedder = Embedder(FakeModel(), Limits(), observer)
    readiness.open(embedder)
    assert readiness.embedder is embedder
    assert b"embed_model_ready 1.0" in observer.exposition()
    readiness.close("the server is stopping")
    assert readiness.started
    assert b"embed_model_ready 0.0" in observer.exposition()
    with pytest.raises(Unavailable, match="stopping"):
        _ = readiness.embedder
    embedder.close()
