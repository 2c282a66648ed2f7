"""What is left after a memory server was killed in the middle of its writes."""

import threading
from http.client import HTTPException
from pathlib import Path

import pytest

from memory_svc.domain.scope import Scope
from memory_svc.storage.sqlite.engine import SqliteStorage
from tests.support.processes import Process, free_port

CLIENTS = 8
WRITES_BEFORE_THE_KILL = 60
pytestmark = [pytest.mark.e2e, pytest.mark.fault]


class Writers:
    """Clients that store without a pause and note every fact that was answered."""

    def __init__(self, memory: Process, round_number: int) -> None:
        self.memory, self.round_number = memory, round_number
        self.answered: dict[str, int] = {}
        self.enough = threading.Event()
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self.write, args=(number,)) for number in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def write(self, client: int) -> None:
        """Store until the server is gone."""
        for number in range(100_000):
            if self.stop.is_set():
                return
            content = f"fact {number} of client {client} in round {self.round_number}"
            try:
                answer = self.memory.call("store", agent_id=f"agent{client}", content=content)
            except (OSError, HTTPException, ValueError):
                return
            if answer.get("result") == "stored":
                self.answered[content] = answer["id"]
                if len(self.answered) >= WRITES_BEFORE_THE_KILL:
                    self.enough.set()

    def join(self) -> None:
        """Wait until all have noticed."""
        self.stop.set()
        for thread in self.threads:
            thread.join(60)


@pytest.mark.parametrize("rounds", [10, pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])])
async def test_every_answered_store_survives_a_kill_and_the_journal_agrees_with_the_rows(
    tmp_path: Path, rounds: int
) -> None:
    answered: dict[str, int] = {}
    memory = Process(
        "memory_svc", tmp_path / "memory", free_port(), MEMORY_EMBEDDING_URL="", MEMORY_WORKER_SECONDS="0.05"
    )
    try:
        for number in range(rounds):
            memory.wait_until_ready()
            writers = Writers(memory, number)
            assert writers.enough.wait(60), memory.log.read_text()[-2000:]
            memory.kill()
            writers.join()
            answered |= writers.answered
            memory.start()
        memory.wait_until_ready()
        assert memory.stop() == 0
    finally:
        if memory.process.poll() is None:
            memory.kill()
    assert len(answered) >= rounds * WRITES_BEFORE_THE_KILL
    engine = SqliteStorage(memory.folder / "memory.db")
    kept = await engine.memories.get(Scope(), list(answered.values()))
    assert {row.content: row.id for row in kept.values()} == answered
    assert await engine.upkeep.verify() == []
    copy = SqliteStorage(tmp_path / "copy.db")
    after = 0
    while rows := await engine.journal.after(after, 1000):
        await copy.journal.replay(rows)
        after = rows[-1].sequence
    assert await copy.memories.page(Scope(), 100_000) == await engine.memories.page(Scope(), 100_000)
    await copy.close()
    await engine.close()
