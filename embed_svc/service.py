"""Texts to vectors in the callers' order, the self-test that lets the model serve, and whether it does."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np

from embed_svc.batching import Batcher, Limits
from embed_svc.errors import Invalid, Unavailable
from embed_svc.models import Info, Model, Role, Tokens
from embed_svc.observe import Observer
from embed_svc.pooling import Floats

LOADING_RETRY_SECONDS = 2
_NORM_TOLERANCE = 1e-3
_SAME_COSINE_MIN = 0.9999

QUESTION = "How do I change a password that I have forgotten?"
PARAPHRASE = "Steps to reset your login credentials when you no longer remember them."
STRANGER = "A glacier feeds the turquoise lake high up in the mountains."


class Embedded(msgspec.Struct, frozen=True):
    """Unit vectors (texts, dimensions) in the order asked, the tokens read for them and how many texts were cut."""

    vectors: Floats
    tokens: int
    truncated: int


class Embedder:
    """A tested model behind its queue: tokenise, batch, run, check, in order."""

    def __init__(self, model: Model, limits: Limits, observer: Observer) -> None:
        self.info: Info = model.info
        self._model = model
        self._observer = observer
        limits = msgspec.structs.replace(limits, texts_max=1) if model.info.alone else limits
        self._batcher: Batcher[Tokens, Floats] = Batcher(self._run, _length, limits, observer)
        self._tokeniser = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embed-tokeniser")

    async def embed(self, texts: Sequence[str], role: Role) -> Embedded:
        """Return the texts' vectors. Raises Overloaded where the queue is full, Unavailable when stopping."""
        with self._batcher.room(len(texts)):
            loop = asyncio.get_running_loop()
            read = await loop.run_in_executor(self._tokeniser, self._model.measure, texts, role)
            rows: list[Floats] = await asyncio.wrap_future(self._batcher.submit(read))
        embedded = Embedded(
            vectors=np.stack(rows),
            tokens=sum(len(one.ids) for one in read),
            truncated=sum(one.truncated for one in read),
        )
        self._observer.embedded(embedded.tokens, len(texts), embedded.truncated)
        return embedded

    def close(self) -> None:
        """Stop both threads; what still waits fails as Unavailable."""
        self._batcher.close()
        self._tokeniser.shutdown(wait=True, cancel_futures=True)

    def _run(self, batch: list[Tokens]) -> Floats:
        vectors = self._model.embed(batch)
        if fault := unsound(vectors, self.info.dimensions):
            raise RuntimeError(fault)
        return vectors


class Readiness:
    """Whether the server can embed, and if not why; written by the loader, read by every route."""

    def __init__(self, observer: Observer) -> None:
        self.started = False
        self.reason = "the server is starting"
        self._embedder: Embedder | None = None
        self._observer = observer

    @property
    def embedder(self) -> Embedder:
        """The embedder that serves. Raises Unavailable, with the reason, where there is none."""
        embedder = self._embedder
        if embedder is None:
            raise Unavailable(f"not ready: {self.reason}", retry_after_seconds=LOADING_RETRY_SECONDS)
        return embedder

    def open(self, embedder: Embedder) -> None:
        """Serve with this one, whose model has passed `self_test`."""
        self._embedder = embedder
        self.started = True
        self._observer.ready(True)

    def close(self, reason: str) -> None:
        """Say why nothing is served; what served is closed by whoever made it."""
        self.reason = reason
        self._embedder = None
        self._observer.ready(False)


def self_test(model: Model) -> None:
    """Embed fixed sentences for real. Raises Invalid, saying what is wrong, where the vectors cannot be right."""
    (question,) = model.measure([QUESTION], "query")
    answers = model.measure([PARAPHRASE, STRANGER], "document")
    together = model.embed([question, *answers]) if not model.info.alone else _one_by_one(model, [question, *answers])
    if fault := unsound(together, model.info.dimensions):
        raise Invalid(f"the self-test of {model.info.name} failed: {fault}")
    near, far = (float(together[0] @ other) for other in together[1:])
    if not near > far:
        raise Invalid(
            f"the self-test of {model.info.name} failed: a paraphrase (cosine {near:.3f}) is not nearer than a "
            f"stranger ({far:.3f}); pooling, prefixes or files are wrong"
        )
    cosines = (together * _one_by_one(model, [question, *answers])).sum(axis=1)
    if cosines.min() < _SAME_COSINE_MIN:
        raise Invalid(
            f"the self-test of {model.info.name} failed: a text's vector depends on its batch (cosine "
            f"{cosines.min():.5f} to the same text alone)"
        )


def unsound(vectors: Floats, dimensions: int) -> str | None:
    """Return what is wrong with vectors that should be (texts, dimensions) and of length 1, or None."""
    if vectors.shape[1:] != (dimensions,):
        return f"vectors have shape {vectors.shape}, {dimensions} dimensions are declared"
    if not np.isfinite(vectors).all():
        return "a vector holds what is no number"
    lengths = np.linalg.norm(vectors, axis=1)
    if np.abs(lengths - 1).max() > _NORM_TOLERANCE:
        return f"a vector has length {lengths[np.abs(lengths - 1).argmax()]:.4f} instead of 1"
    return None


def _one_by_one(model: Model, batch: Sequence[Tokens]) -> Floats:
    return np.concatenate([model.embed([tokens]) for tokens in batch])


def _length(tokens: Tokens) -> int:
    return len(tokens.ids)
