"""`memory-svc canary` against a server on a real socket."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path

import msgspec
import pytest

from memory_svc.__main__ import main
from memory_svc.domain.canary import PROBES
from memory_svc.domain.text import words
from memory_svc.services.health import OPERATIONS as HEALTH
from memory_svc.services.operation import Catalogue
from tests.conftest import House
from tests.support.wires import TOKEN, listening

Run = Callable[..., Coroutine[None, None, int]]


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    """A file with the token."""
    path = tmp_path / "known"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def run(house: House, token_file: str) -> Run:
    """The exit status of the command against a server of these services."""

    async def run(*more: str) -> int:
        settings = msgspec.structs.replace(house.catalogue.runtime.settings, port=0)
        async with listening(house.catalogue, settings) as url:
            return await asyncio.to_thread(main, ["canary", "--url", f"{url}/", "--token-file", token_file, *more])

    return run


async def test_a_table_tells_every_rank(house: House, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    house.server.words = words
    house.server.alike = {probe.query: probe.content for probe in PROBES if probe.sort == "meaning"}
    assert await run() == 0
    out = capsys.readouterr().out
    assert "| sort | question | rank |" in out
    assert "| thai | ประชุมที่เชียงใหม่ | 1 |" in out
    assert "Every arm finds its rows." in out
    assert await run("--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["worst"]["meaning"], len(found["ranks"])) == (True, 1, len(PROBES))


async def test_a_probe_that_is_not_first_ends_with_one(
    house: House, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    house.server.fault = "refuse"
    assert await run() == 1
    out = capsys.readouterr().out
    assert "| meaning | leg injury from winter sports | not found |" in out
    assert "Recall runs without vectors: degraded: " in out


async def test_a_server_that_is_no_memory_server_or_not_there_is_named(
    house: House, token_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["canary", "--url", "http://127.0.0.1:9", "--token-file"]
    assert await asyncio.to_thread(main, [*given, token_file]) == 2
    assert "http://127.0.0.1:9 does not answer" in capsys.readouterr().err
    assert await asyncio.to_thread(main, [*given, f"{token_file}.none"]) == 2
    assert "the token cannot be read" in capsys.readouterr().err
    bare = Catalogue(HEALTH, house.catalogue.runtime)
    async with listening(bare, msgspec.structs.replace(house.catalogue.runtime.settings, port=0)) as url:
        assert await asyncio.to_thread(main, ["canary", "--url", url, "--token-file", token_file]) == 2
        assert "refuses with status 404: There is no operation" in capsys.readouterr().err
