"""Background work: steps that are bounded, measured and safe to run twice."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from memory_svc.embedding import Embedder
from memory_svc.observe import Metrics
from memory_svc.storage.interface import RowVector, Storage

BACKFILL_ROWS = 32
BACKFILL_BATCHES = 100
BATCH_SECONDS_MAX = 60.0
ERASE_STEPS = 200
PROBE = "Does the embedding server answer?"


class Worker:
    """Runs its steps in order, then pauses. A step that fails is counted and tried again in the next round."""

    def __init__(self, storage: Storage, embedder: Embedder, metrics: Metrics, pause_seconds: float) -> None:
        self._storage = storage
        self._embedder = embedder
        self._metrics = metrics
        self._pause_seconds = pause_seconds
        self.steps: dict[str, Callable[[], Awaitable[None]]] = {
            "backfill": self.backfill,
            "checkpoint": self.checkpoint,
            "erase": self.erase,
        }

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The worker at work, until the block ends."""
        task = asyncio.create_task(self._rounds())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def run_once(self) -> None:
        """Every step, once."""
        for name, step in self.steps.items():
            try:
                await step()
            except Exception as error:
                self._metrics.worker_failed(name, error)

    async def backfill(self) -> None:
        """Give vectors to rows that wait for one, a bounded number a round."""
        if not self._embedder.enabled:
            return
        if self._embedder.failure or not self._embedder.fingerprint:
            await self._embedder.embed([PROBE], "query")
        fingerprint = self._embedder.fingerprint
        if not self._embedder.failure:
            for _ in range(BACKFILL_BATCHES):
                if not await self._fill(fingerprint):
                    break
        self._metrics.waiting.set(await self._storage.derived.waiting_count(fingerprint))

    async def checkpoint(self) -> None:
        """Move the write-ahead log into the database."""
        self._metrics.log_bytes.set(await self._storage.upkeep.checkpoint())

    async def erase(self) -> None:
        """Go on with the erasure of what was deleted."""
        for _ in range(ERASE_STEPS):
            if not await self._storage.upkeep.erase_step():
                return

    async def _rounds(self) -> None:
        while True:
            await self.run_once()
            await asyncio.sleep(self._pause_seconds)

    async def _fill(self, fingerprint: str) -> bool:
        """One batch; whether there may be more to do."""
        rows = await self._storage.derived.waiting(fingerprint, BACKFILL_ROWS)
        vectors = (
            await self._embedder.embed([row.text for row in rows], "document", BATCH_SECONDS_MAX) if rows else None
        )
        if not vectors or self._embedder.fingerprint != fingerprint:
            return False
        kept = await self._storage.derived.set_vectors(
            [RowVector(row.ref, row.revision, vector) for row, vector in zip(rows, vectors, strict=True)]
        )
        return kept > 0 and len(rows) == BACKFILL_ROWS
