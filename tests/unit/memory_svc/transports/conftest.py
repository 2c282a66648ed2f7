"""One toy server for the whole folder."""

from collections.abc import Iterator

import httpx2
import pytest

from tests.support.toy_server import BODY_BYTES_MAX, TOKEN, running, settings_for, toy_catalogue


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """The address of a running toy server."""
    settings = settings_for(
        body_bytes_max=BODY_BYTES_MAX, allowed_hosts="memory.example", allowed_origins="https://a.example"
    )
    with running(toy_catalogue(settings), settings) as address:
        yield address


@pytest.fixture
def client(url: str) -> Iterator[httpx2.Client]:
    """An HTTP client of it that has the token."""
    with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=20) as made:
        yield made
