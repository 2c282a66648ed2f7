"""Both services as processes, with the real packaged model."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Process, running


@pytest.fixture(scope="session")
def embed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """An embedding server with the model that can be had here."""
    with running("embed_svc", tmp_path_factory.mktemp("embed")) as process:
        yield process


@pytest.fixture
def memory(embed: Process, tmp_path: Path) -> Iterator[Process]:
    """A memory server with an empty store."""
    with running("memory_svc", tmp_path / "memory", MEMORY_EMBEDDING_URL=embed.url) as process:
        yield process
