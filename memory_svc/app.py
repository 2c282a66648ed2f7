"""Where the parts meet: settings to engine, embedder, worker and Catalogue. The only file that names an engine."""

import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec

from memory_svc.domain.memory import zone_of
from memory_svc.embedding import Embedder
from memory_svc.errors import Problem
from memory_svc.observe import Metrics
from memory_svc.services import OPERATIONS
from memory_svc.services.canary import Canary
from memory_svc.services.operation import Catalogue, Runtime
from memory_svc.services.worker import Worker
from memory_svc.settings import Settings
from memory_svc.spans import Tracer
from memory_svc.storage.interface import Storage
from memory_svc.transports.auth import load_token
from memory_svc.transports.schema import input_schema

DATABASE = "memory.db"


class Parts(msgspec.Struct, frozen=True):
    """A running memory server without its wires."""

    catalogue: Catalogue
    storage: Storage
    embedder: Embedder
    worker: Worker

    async def ready(self) -> str | None:
        """Why calls cannot be answered now, or None. Never depends on embeddings."""
        try:
            await self.storage.ping()
        except Problem as problem:
            return problem.text
        return None


@contextlib.asynccontextmanager
async def opened(settings: Settings, *, traced: bool = False) -> AsyncIterator[Parts]:
    """The parts with the worker at work, until the block ends.

    Raises what `assembled` raises.
    """
    async with assembled(settings, traced=traced) as parts, parts.worker.running():
        yield parts


@contextlib.asynccontextmanager
async def assembled(settings: Settings, *, traced: bool = False) -> AsyncIterator[Parts]:
    """The parts, until the block ends: the files are closed last. traced: operations are told to a collector.

    Raises Invalid for a zone or a token that cannot be used, Unavailable when the database cannot be opened.
    """
    zone_of(settings.zone)
    async with contextlib.AsyncExitStack() as stack:
        metrics = Metrics(stack.enter_context(collected()) if traced else None)
        metrics.follow_process()
        storage = open_storage(settings)
        stack.push_async_callback(storage.close)
        token = load_token(Path(settings.embedding_token_file)) if settings.embedding_token_file else ""
        embedder = Embedder(settings, metrics, token=token)
        stack.push_async_callback(embedder.close)
        runtime = Runtime(
            storage=storage,
            embedder=embedder,
            settings=settings,
            metrics=metrics,
            clock=_now,
            describe=lambda operation: input_schema(operation.request),
        )
        worker = Worker(storage, embedder, metrics, settings, _now)
        if settings.canary_seconds:
            worker.steps["canary"] = Canary(runtime).step
        yield Parts(Catalogue(OPERATIONS, runtime), storage, embedder, worker)


@contextlib.contextmanager
def collected() -> Iterator[Tracer]:
    """What sends traces until the block ends, and then what is left of them."""
    # A tenth of a second of imports, and 10 MB.
    from memory_svc.tracing import Tracing

    tracing = Tracing()
    try:
        yield tracing
    finally:
        tracing.close()


def open_storage(settings: Settings) -> Storage:
    """The engine that the settings choose, open.

    Raises Unavailable when it cannot be opened, or another host has it open.
    """
    from memory_svc.storage.sqlite.engine import SqliteStorage
    from memory_svc.storage.sqlite.host import refuse_shared, tenant

    path = Path(settings.data_dir) / DATABASE
    if not settings.allow_shared_files:
        refuse_shared(path)
    return SqliteStorage(path, tenant(settings.lease_host, settings.lease_seconds))


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
