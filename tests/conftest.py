"""Fixtures that every suite may use."""

import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from embed_svc.settings import quieten_libraries
from memory_svc.embedding import Embedder
from memory_svc.observe import Metrics
from memory_svc.services import OPERATIONS
from memory_svc.services.operation import Call, Catalogue, Runtime
from memory_svc.services.worker import Worker
from memory_svc.settings import Settings
from memory_svc.storage.interface import Storage
from memory_svc.storage.sqlite.engine import SqliteStorage
from memory_svc.transports.schema import input_schema
from tests.support.fakes import Clock, EmbeddingServer

quieten_libraries()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The services run on asyncio."""
    return "asyncio"


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """A command line run inside a test configures the logging of the whole process; the next test has it as it was."""
    loggers = [logging.getLogger(name) for name in (None, *logging.root.manager.loggerDict)]
    before = [(logger, logger.handlers[:], logger.level) for logger in loggers]
    yield
    logging.captureWarnings(False)
    for logger, handlers, level in before:
        logger.handlers[:] = handlers
        logger.setLevel(level)


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    """An engine over an empty store."""
    async with contextlib.AsyncExitStack() as stack:
        engine = SqliteStorage(tmp_path / "memory.db")
        stack.push_async_callback(engine.close)
        yield engine


class House:
    """The services over a real engine, with a stand-in for the embedding server."""

    def __init__(self, storage: Storage, settings: Settings) -> None:
        self.storage = storage
        self.server = EmbeddingServer()
        self.metrics = Metrics()
        self.clock = Clock()
        self.embedder = Embedder(settings, self.metrics, self.server)
        self.worker = Worker(storage, self.embedder, self.metrics, settings, self.clock)
        runtime = Runtime(
            storage=storage,
            embedder=self.embedder,
            settings=settings,
            metrics=self.metrics,
            clock=self.clock,
            describe=lambda operation: input_schema(operation.request),
        )
        self.catalogue = Catalogue(OPERATIONS, runtime)

    async def call(self, name: str, call: Call | None = None, /, **arguments: Any) -> dict[str, Any]:
        """The answer of an operation."""
        return await self.catalogue.call(name, arguments, call or Call())

    def gauge(self, name: str) -> float:
        """The value of a metric without labels."""
        value = self.metrics.registry.get_sample_value(name)
        assert value is not None
        return value


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings that let nothing take long."""
    return Settings(data_dir=str(tmp_path), embedding_query_seconds=0.2, embedding_store_seconds=0.2)


@pytest.fixture
async def house(storage: Storage, settings: Settings) -> AsyncIterator[House]:
    """The services, ready to be called."""
    made = House(storage, settings)
    yield made
    await made.embedder.close()


@pytest.fixture
async def plain_house(storage: Storage, settings: Settings) -> AsyncIterator[House]:
    """The services without any embedding server."""
    made = House(storage, msgspec.structs.replace(settings, embedding_url=""))
    yield made
    await made.embedder.close()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A suite that was skipped is a suite that was not run: the run then fails."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
