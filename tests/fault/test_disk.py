"""A disk that is full or fails: a clear error, nothing answered is lost, and it goes on when the disk is well again."""

import resource
from pathlib import Path

import pytest

from memory_svc.domain.scope import Scope
from memory_svc.storage.sqlite.engine import SqliteStorage
from tests.support.processes import Process, running

pytestmark = [pytest.mark.e2e, pytest.mark.fault]
DISK_BYTES = 6_000_000


def fill(memory: Process) -> tuple[dict[str, int], list[dict]]:
    """Store until the disk is full, and some more; what was stored, and the failures."""
    stored: dict[str, int] = {}
    failures: list[dict] = []
    for number in range(3_000):
        content = f"fact {number} " + "x" * 4_000
        answer = memory.call("store", agent_id="a", content=content)
        if answer.get("result") == "stored":
            stored[content] = answer["id"]
        else:
            failures.append(answer)
        if len(failures) > 5:
            break
    return stored, failures


async def test_a_full_disk_is_told_and_nothing_that_was_answered_is_lost(tmp_path: Path) -> None:
    """The server may not make any file larger than this, until it may."""
    settings = {"MEMORY_EMBEDDING_URL": "", "MEMORY_WORKER_SECONDS": "0.3"}
    with running("memory_svc", tmp_path / "memory", **settings) as memory:
        resource.prlimit(memory.process.pid, resource.RLIMIT_FSIZE, (DISK_BYTES, resource.RLIM_INFINITY))
        stored, failures = fill(memory)
        assert len(stored) > 50
        assert failures
        for failure in failures:
            assert (failure["code"], failure["retry"]) == ("unavailable", True)
            assert "disk" in failure["error"]
        found = memory.call("recall", agent_id="a", query="fact", limit=5)
        assert found["messages"]
        resource.prlimit(memory.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        assert memory.call("store", agent_id="a", content="after the flood")["result"] == "stored"
        memory.kill()
    await nothing_is_lost(tmp_path / "memory", stored)


@pytest.mark.parametrize("fault", ["fdatasync:error=EIO:when=30+", "pwrite64:error=ENOSPC:when=400+"])
async def test_a_disk_that_fails_stops_writes_clearly_and_loses_nothing(tmp_path: Path, fault: str) -> None:
    """The system calls of the server are made to fail by strace, from some call on."""
    command = [
        "strace",
        "-f",
        "-qq",
        "-e",
        "trace=fdatasync,fsync,pwrite64",
        "-e",
        f"inject={fault}",
        "-o",
        "/dev/null",
    ]
    settings = {"MEMORY_EMBEDDING_URL": "", "MEMORY_WORKER_SECONDS": "1"}
    with running("memory_svc", tmp_path / "memory", prefix=command, **settings) as memory:
        stored, failures = fill(memory)
        assert stored
        assert failures
        assert {failure["code"] for failure in failures} == {"unavailable"}
        memory.kill_tree()
    await nothing_is_lost(tmp_path / "memory", stored)


async def nothing_is_lost(folder: Path, stored: dict[str, int]) -> None:
    """Every answered row is there, and the journal agrees with the rows."""
    engine = SqliteStorage(folder / "memory.db")
    kept = await engine.memories.get(Scope(), list(stored.values()))
    assert {row.content: row.id for row in kept.values()} == stored
    assert await engine.upkeep.verify() == []
    await engine.close()
