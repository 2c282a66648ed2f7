"""Thousands of mixed calls leave memory, file handles and threads as they were."""

import os
import random
from pathlib import Path

import pytest

from tests.support.processes import Process, running

pytestmark = [pytest.mark.e2e, pytest.mark.fault, pytest.mark.slow]
GROWTH_BYTES_MAX = 48 * 1024 * 1024


def state(memory: Process) -> tuple[int, int, int]:
    """Resident bytes, open files, threads."""
    folder = Path(f"/proc/{memory.process.pid}")
    resident = int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resident, len(list((folder / "fd").iterdir())), len(list((folder / "task").iterdir()))


def mixed_calls(memory: Process, count: int, seed: int) -> None:
    """Stores, recalls, edits, deletes, lists, reads, and calls that are refused."""
    chance = random.Random(seed)
    live: list[int] = []
    for number in range(count):
        kind = chance.randrange(10)
        if kind < 3 or not live:
            content = f"fact {seed} {number} {chance.random()} " + "word " * chance.randrange(60)
            live.append(memory.call("store", agent_id="a", content=content)["id"])
        elif kind < 6:
            assert "messages" in memory.call("recall", agent_id="a", query=f"fact {chance.randrange(1000)} word")
        elif kind == 6:
            memory.call("update_memory", memory_id=chance.choice(live), content=f"edited {seed} {number}")
        elif kind == 7:
            memory.call("delete_memory", memory_id=live.pop(chance.randrange(len(live))))
        elif kind == 8:
            memory.call("list_memories", limit=20)
        else:
            assert memory.call("recall", agent_id="a", query="x", limit=1000)["code"] == "invalid"


@pytest.mark.parametrize("calls", [5_000, pytest.param(50_000, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])])
def test_memory_handles_and_threads_stay_flat(tmp_path: Path, calls: int) -> None:
    settings = {"MEMORY_EMBEDDING_URL": "", "MEMORY_WORKER_SECONDS": "0.5", "MEMORY_LOG_LEVEL": "warning"}
    with running("memory_svc", tmp_path / "memory", **settings) as memory:
        mixed_calls(memory, calls // 5, seed=1)
        before = state(memory)
        mixed_calls(memory, calls, seed=2)
        after = state(memory)
        assert after[0] - before[0] < GROWTH_BYTES_MAX, (before, after)
        assert after[1] <= before[1] + 4
        assert after[2] <= before[2] + 4
