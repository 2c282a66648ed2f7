"""Texts through the queue in order, the self-test's verdicts, and whether the server is ready."""

import asyncio

import numpy as np
import pytest

from embed_svc.batching import Limits
from embed_svc.errors import Invalid, Overloaded, Unavailable
from embed_svc.observe import Observer
from embed_svc.self_test import PARAPHRASE, QUESTION, STRANGER, self_test, unsound
from embed_svc.service import Embedder, Readiness
from tests.support.embed_model import FakeModel


@pytest.fixture
def observer() -> Observer:
    return Observer(lambda: 0)


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


def test_a_sound_model_passes_the_self_test() -> None:
    self_test(FakeModel())
    self_test(FakeModel(alone=True, leaks=True))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (FakeModel(scale=2), "a vector has length 2.0000 instead of 1"),
        (FakeModel(scale=float("nan")), "no number"),
        (FakeModel(alike={STRANGER: QUESTION}), "a paraphrase .* is not nearer than a stranger"),
        (FakeModel(alike={STRANGER: QUESTION, PARAPHRASE: QUESTION}), "not nearer"),
        (FakeModel(leaks=True), "depends on its batch"),
    ],
    ids=["norm", "nan", "paraphrase", "all alike", "batch mates"],
)
def test_the_self_test_says_what_is_wrong(model: FakeModel, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        self_test(model)


def test_vectors_of_other_dimensions_than_declared_are_unsound() -> None:
    assert "16 dimensions are declared" in str(unsound(np.ones((2, 3), np.float32), 16))


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
