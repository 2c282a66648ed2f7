"""Background work: steps that are bounded, measured and safe to run twice."""

import asyncio
import contextlib
import datetime as dt
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from memory_svc.domain.access.principal import OWNER
from memory_svc.domain.change import Expire, Write
from memory_svc.domain.memory import Vector, utc
from memory_svc.embedding import PROBE, Embedder
from memory_svc.errors import Conflict
from memory_svc.observe import Metrics
from memory_svc.services import blocks
from memory_svc.services.memory.calibrate import calibrated, defaults_of
from memory_svc.settings import Settings
from memory_svc.storage.interface import Due, RowVector, Storage, Waiting

BATCH_ROWS = 32
BATCHES = 20
BATCH_SECONDS_MAX = 60.0
ERASE_STEPS = 200
BREATH_SECONDS = 0.01
CALIBRATED_AT_ONCE = 4
# Memories that grow or shrink by so much of what they were are calibrated at once, others once they rest.
GROWTH = 0.1
REST = dt.timedelta(seconds=60)


class Worker:
    """Runs its steps in order, then pauses. A step that fails is counted and tried again in the next round.

    A step says whether there is more to do: then the next round follows at once.
    """

    def __init__(
        self,
        storage: Storage,
        embedder: Embedder,
        metrics: Metrics,
        settings: Settings,
        clock: Callable[[], dt.datetime],
    ) -> None:
        self._storage = storage
        self._embedder = embedder
        self._metrics = metrics
        self._pause_seconds = settings.worker_seconds
        self._probe_seconds = settings.embedding_probe_seconds
        self._keys_kept = dt.timedelta(hours=settings.idempotency_hours)
        self._clock = clock
        self._settings = settings
        self._resting: dict[str, tuple[str, dt.datetime]] = {}
        self.steps: dict[str, Callable[[], Awaitable[bool]]] = {
            "expire": self.expire,
            "backfill": self.backfill,
            "calibrate": self.calibrate,
            "recalls": self.recalls,
            "checkpoint": self.checkpoint,
            "erase": self.erase,
            "forget_keys": self.forget_keys,
            "measure": self.measure,
        }

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The worker at work, until the block ends."""
        self._metrics.worker_steps(self.steps)
        task = asyncio.create_task(self._rounds())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def run_once(self) -> bool:
        """Every step, once; whether there is more to do."""
        more = False
        for name, step in self.steps.items():
            try:
                more = await step() or more
            except Exception as error:
                self._metrics.worker_failed(name, error)
        self._metrics.worker_ran()
        return more

    async def expire(self) -> bool:
        """Erase memories whose time is over, which nobody sees any more."""
        now = utc(self._clock())
        for _ in range(BATCHES):
            ids = await self._storage.upkeep.expired(now, BATCH_ROWS)
            if not ids:
                return False
            write = Write(principal=OWNER.name, operation="expire", now=now, changes=tuple(map(Expire, ids)))
            outcomes = (await self._storage.apply(write)).outcomes
            self._metrics.expired.inc(sum(outcome.result == "gone" for outcome in outcomes))
        return True

    async def backfill(self) -> bool:
        """Probe the embedding server, and give vectors to rows that wait for one."""
        await self._embedder.probe(self._probe_seconds)
        fingerprint = self._embedder.fingerprint
        more = False
        for _ in range(BATCHES if fingerprint else 0):
            more = await self._fill(fingerprint)
            if not more:
                break
        self._embedder.waiting = await self._storage.derived.waiting_count(fingerprint)
        self._metrics.waiting.set(self._embedder.waiting)
        return more

    async def calibrate(self) -> bool:
        """Calibrate the gate for agents whose memories have changed, once every row has its vector."""
        embedder = self._embedder
        if not self._settings.gate or not embedder.fingerprint or embedder.failure or embedder.waiting:
            return False
        due = await self._storage.calibrations.due(embedder.fingerprint, defaults_of(self._settings))
        now = self._clock()
        before, self._resting = self._resting, {}
        for each in due:
            held = before.get(each.agent)
            self._resting[each.agent] = held if held and held[0] == each.corpus else (each.corpus, now)
        ready = [each for each in due if _is_urgent(each) or now - self._resting[each.agent][1] >= REST]
        for each in ready[:CALIBRATED_AT_ONCE]:
            with contextlib.suppress(Conflict):  # too few of its memories have vectors
                await calibrated(self._storage, embedder, self._settings, each.agent)
                self._metrics.calibrations.inc()
        return len(ready) > CALIBRATED_AT_ONCE

    async def recalls(self) -> bool:
        """Write which memories were recalled since the last round."""
        await self._storage.recalls.flush()
        return False

    async def checkpoint(self) -> bool:
        """Move the write-ahead log into the database."""
        await self._storage.upkeep.checkpoint()
        return False

    async def erase(self) -> bool:
        """Go on with the erasure of what was deleted."""
        more = True
        for _ in range(ERASE_STEPS):
            more = more and await self._storage.upkeep.erase_step()
        self._metrics.erasing.set(int(await self._storage.upkeep.erasing()))
        return more

    async def forget_keys(self) -> bool:
        """Forget idempotency keys that are too old to be repeated."""
        await self._storage.upkeep.forget_keys(utc(self._clock() - self._keys_kept))
        return False

    async def measure(self) -> bool:
        """Refresh the gauges of what there is."""
        sizes = await self._storage.upkeep.sizes()
        self._metrics.sizes(sizes.rows, sizes.database_bytes, sizes.log_bytes, sizes.journal_sequence)
        disk = await asyncio.to_thread(shutil.disk_usage, self._settings.data_dir)
        self._metrics.disk(disk.free, disk.total)
        return False

    async def _rounds(self) -> None:
        while True:
            more = await self.run_once()
            await asyncio.sleep(BREATH_SECONDS if more else self._pause_seconds)

    async def _fill(self, fingerprint: str) -> bool:
        """One batch; whether there may be more to do. First vectors come before further blocks."""
        rows = await self._storage.derived.waiting(fingerprint, BATCH_ROWS)
        bare = [row for row in rows if not row.has_first]
        made = await (self._first(bare) if bare else self._whole(rows))
        if not made or self._embedder.fingerprint != fingerprint:
            return False
        return await self._storage.derived.set_vectors(made) > 0

    async def _first(self, rows: Sequence[Waiting]) -> list[RowVector]:
        """The first vector of each of these rows; [] where the server gives none."""
        # With a text that every model can read in the batch, one that it cannot read is told from a server that fails.
        texts = [*(blocks.first_text(row.passage, self._settings) for row in rows), PROBE]
        vectors = await self._embedder.embed(texts, "document", BATCH_SECONDS_MAX)
        if vectors is None or vectors[-1] is None:
            return []
        none = Vector(self._embedder.fingerprint, b"")
        return [
            RowVector(row.ref, row.revision, blocks.begun(row.passage, vector, self._settings) if vector else none)
            for row, vector in zip(rows, vectors[:-1], strict=True)
        ]

    async def _whole(self, rows: Sequence[Waiting]) -> list[RowVector]:
        """The vector of each of these rows with all blocks; [] where the server does not give them."""
        made = []
        for row in rows:
            vector = await blocks.at_leisure(self._embedder, row.passage, self._settings)
            if vector is None:
                return []
            made.append(RowVector(row.ref, row.revision, vector))
        return made


def _is_urgent(due: Due) -> bool:
    return due.is_rule_new or abs(due.rows_count - due.calibrated_rows) >= GROWTH * due.calibrated_rows
