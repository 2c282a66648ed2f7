"""The images, built once for all tests of containers."""

from pathlib import Path

import pytest

from tests.support.containers import Podman, made


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Podman:
    """Podman, with the images of both services as this checkout makes them."""
    folder: Path = tmp_path_factory.mktemp("containers")
    return made(folder)
