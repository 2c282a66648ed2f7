"""Texts to vectors in the callers' order, and whether the server can make them."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np

from embed_svc.batching import Batcher, Limits, awaited
from embed_svc.cache import Cache, Known
from embed_svc.errors import Invalid, Unavailable
from embed_svc.identity import Capabilities, identify
from embed_svc.models import Info, Model, Role, Tokens
from embed_svc.observe import Observer
from embed_svc.pooling import Floats, shortened
from embed_svc.self_test import unsound
from embed_svc.spans import NO_SPAN, Span
from embed_svc.tokens import PIECE_CHARS_MAX

LOADING_RETRY_SECONDS = 2
# Reading so few characters takes less than handing them to another thread and back.
HERE_CHARS_MAX = 512


class Reading(msgspec.Struct, frozen=True):
    """How one text was read: its tokens, those that fitted the window, and how many characters they stand for."""

    count: int
    used: int
    end: int

    @property
    def truncated(self) -> bool:
        """Whether the window cut the text."""
        return self.count > self.used


class Embedded(msgspec.Struct, frozen=True):
    """Unit vectors (texts, dimensions) and how each text was read, both in the order asked."""

    vectors: Floats
    readings: list[Reading]

    @property
    def tokens(self) -> int:
        """How many tokens were read."""
        return sum(reading.used for reading in self.readings)

    @property
    def truncated(self) -> int:
        """How many texts were cut."""
        return sum(reading.truncated for reading in self.readings)


class Embedder:
    """A tested model behind its queue: look up, tokenise, batch, run, check, in order."""

    def __init__(self, model: Model, limits: Limits, observer: Observer, cache_bytes_max: int = 0) -> None:
        self.info: Info = model.info
        self._model = model
        self._observer = observer
        self._cache = Cache(cache_bytes_max, model.info.fingerprint)
        observer.follow("embed_cache_bytes", lambda: self._cache.size_bytes)
        self._failing = False
        limits = msgspec.structs.replace(limits, texts_max=1) if model.info.alone else limits
        self._batcher: Batcher[Tokens, Floats] = Batcher(self._run, _length, limits, observer)
        self._tokeniser = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embed-tokeniser")
        # Counting a long text to its end takes seconds; what only waits to be embedded must not wait for it.
        self._counter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embed-counter")

    async def embed(self, texts: Sequence[str], role: Role, whole: bool = False, span: Span = NO_SPAN) -> Embedded:
        """Return the texts' vectors; with `whole`, their tokens are counted to the end. `span` is told of each step.

        Cancelled, it drops what has not run yet. Raises Overloaded where the queue is full, Unavailable when stopping.
        """
        with self._batcher.room(len(texts)):
            known = self._look_up(texts, role)
            missing = [index for index, found in enumerate(known) if found is None]
            with span.tokenising():
                read = await self._read([texts[index] for index in missing], role, whole)
            rows = await self._rows(read, span)
            for index, tokens, row in zip(missing, read, rows, strict=True):
                fresh = Known(vector=row, count=tokens.count, used=len(tokens.ids), end=tokens.end)
                known[index] = fresh
                if len(texts[index]) <= PIECE_CHARS_MAX:
                    self._cache.keep(texts[index], role, fresh)
        self._observer.cached(len(texts) - len(missing), len(missing))
        return self._told([found for found in known if found is not None])

    async def embed_tokens(self, rows: Sequence[Sequence[int]], role: Role, span: Span = NO_SPAN) -> Embedded:
        """Return the vectors of texts given as token ids; as `embed`, and Invalid where an id is no token."""
        with self._batcher.room(len(rows)):
            loop = asyncio.get_running_loop()
            with span.tokenising():
                read = await loop.run_in_executor(self._tokeniser, self._model.adopt, rows, role)
            vectors = await self._rows(read, span)
        return self._told(
            [Known(row, one.count, len(one.ids), one.end) for one, row in zip(read, vectors, strict=True)]
        )

    async def count(self, texts: Sequence[str], role: Role, span: Span = NO_SPAN) -> list[Reading]:
        """Return how each text would be read, without running the model. Raises as `embed` does."""
        with self._batcher.room(len(texts)), span.tokenising():
            read = await self._read(texts, role, whole=True)
        return [Reading(tokens.count, len(tokens.ids), tokens.end) for tokens in read]

    def check_dimensions(self, dimensions: int | None) -> None:
        """Raise Invalid where vectors cannot be cut to so many dimensions; None is all there are."""
        info = self.info
        if dimensions is None or dimensions == info.dimensions:
            return
        if not info.dimensions_min:
            raise Invalid(
                f"dimensions: {info.name} gives {info.dimensions} and is not made to be cut: leave it out, or send "
                f"{info.dimensions}"
            )
        if not info.dimensions_min <= dimensions <= info.dimensions:
            raise Invalid(f"dimensions: {info.name} can give {info.dimensions_min} to {info.dimensions}")

    def shorten(self, vectors: Floats, dimensions: int | None) -> Floats:
        """Return unit vectors of so many dimensions, which `check_dimensions` has allowed."""
        return vectors if dimensions in (None, self.info.dimensions) else shortened(vectors, int(dimensions or 0))

    def close(self) -> None:
        """Stop the threads; what still waits fails as Unavailable."""
        self._batcher.close()
        self._tokeniser.shutdown(wait=True, cancel_futures=True)
        self._counter.shutdown(wait=True, cancel_futures=True)

    def _look_up(self, texts: Sequence[str], role: Role) -> list[Known | None]:
        # While the model fails, what it once said must not make it look sound.
        return [None if self._failing else self._cache.find(text, role) for text in texts]

    async def _read(self, texts: Sequence[str], role: Role, whole: bool) -> list[Tokens]:
        loop = asyncio.get_running_loop()
        read: list[Tokens] = []
        for group in _groups(texts):
            is_long = whole and len(group[0]) > PIECE_CHARS_MAX
            executor = self._counter if is_long else self._tokeniser
            if sum(map(len, group)) <= HERE_CHARS_MAX:
                read += self._model.measure(group, role, whole)
            else:
                read += await loop.run_in_executor(executor, self._model.measure, group, role, whole)
        return read

    async def _rows(self, read: Sequence[Tokens], span: Span) -> list[Floats]:
        return await awaited(self._batcher.submit(read, span)) if read else []

    def _told(self, known: Sequence[Known]) -> Embedded:
        embedded = Embedded(
            vectors=known[0].vector[np.newaxis] if len(known) == 1 else np.stack([one.vector for one in known]),
            readings=[Reading(one.count, one.used, one.end) for one in known],
        )
        self._observer.embedded(embedded.tokens, len(known), embedded.truncated)
        return embedded

    def _run(self, batch: list[Tokens]) -> Floats:
        try:
            vectors = self._model.embed(batch)
            if fault := unsound(vectors, self.info.dimensions):
                raise RuntimeError(fault)
        except BaseException:
            self._failing = True
            raise
        self._failing = False
        return vectors


class Readiness:
    """Whether the server can embed, and if not why; written by the loader, read by every route."""

    def __init__(self, observer: Observer) -> None:
        self.started = False
        self.reason = "the server is starting"
        self.capabilities: Capabilities = identify(None)
        self._embedder: Embedder | None = None
        self._stopped = False
        self._observer = observer

    @property
    def embedder(self) -> Embedder:
        """The embedder that serves. Raises Unavailable, with the reason, where there is none."""
        embedder = self._embedder
        if embedder is None:
            raise Unavailable(f"not ready: {self.reason}", retry_after_seconds=LOADING_RETRY_SECONDS)
        return embedder

    def declare(self, capabilities: Capabilities) -> None:
        """Say who the model is, as far as is known by now."""
        self.capabilities = capabilities

    def open(self, embedder: Embedder) -> None:
        """Serve with this one, whose model has passed its self-test; not once the server is stopping."""
        if self._stopped:
            return
        self._embedder = embedder
        self.started = True
        self._observer.ready(True)

    def close(self, reason: str) -> None:
        """Say why nothing is served; what served is closed by whoever made it."""
        if self._stopped:
            return
        self.reason = reason
        self._embedder = None
        self._observer.ready(False)

    def stop(self, reason: str) -> None:
        """Say so for good."""
        self.close(reason)
        self._stopped = True


def _groups(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the texts in order, in groups of about PIECE_CHARS_MAX characters: callers take turns between them."""
    group: list[str] = []
    held = 0
    for text in texts:
        if group and held + len(text) > PIECE_CHARS_MAX:
            yield group
            group, held = [], 0
        group.append(text)
        held += len(text)
    if group:
        yield group


def _length(tokens: Tokens) -> int:
    return len(tokens.ids)
