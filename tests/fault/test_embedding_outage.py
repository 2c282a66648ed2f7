"""An embedding server that is killed, stopped or frozen while callers recall: nobody is failed, nothing is lost."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.facts import FACTS
from tests.support.processes import Process, running

pytestmark = [pytest.mark.e2e, pytest.mark.fault, pytest.mark.model]
CLIENTS = 4
QUERY_SECONDS = 1.0
MARGIN = 5


class Recallers:
    """Clients that recall without a pause and note each answer with its moment and duration."""

    def __init__(self, memory: Process) -> None:
        self.memory = memory
        self.answers: list[tuple[float, float, dict]] = []
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self.recall) for _ in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def recall(self) -> None:
        """Ask one question after the other."""
        for number in range(100_000):
            if self.stop.is_set():
                return
            begin = time.perf_counter()
            answer = self.memory.call("recall", agent_id="me", query=FACTS[number % len(FACTS)][2], limit=3)
            self.answers.append((begin, time.perf_counter() - begin, answer))

    def join(self) -> None:
        """Let them end."""
        self.stop.set()
        for thread in self.threads:
            thread.join(60)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Process, Process]]:
    """Both services, the memory one with little patience."""
    with running("embed_svc", tmp_path / "embed") as embed:
        settings = {
            "MEMORY_EMBEDDING_URL": embed.url,
            "MEMORY_EMBEDDING_QUERY_SECONDS": str(QUERY_SECONDS),
            "MEMORY_EMBEDDING_STORE_SECONDS": str(QUERY_SECONDS),
            "MEMORY_WORKER_SECONDS": "0.5",
        }
        with running("memory_svc", tmp_path / "memory", **settings) as memory:
            yield embed, memory


def kill(embed: Process) -> Callable[[], object]:
    """Gone without a word; comes back as a new process."""
    embed.kill()
    return lambda: (embed.start(), embed.wait_until_ready())


def stop(embed: Process) -> Callable[[], object]:
    """Told to end."""
    assert embed.stop() == 0
    return lambda: (embed.start(), embed.wait_until_ready())


def freeze(embed: Process) -> Callable[[], object]:
    """Takes connections and answers nothing."""
    os.kill(embed.process.pid, signal.SIGSTOP)
    return lambda: os.kill(embed.process.pid, signal.SIGCONT)


@pytest.mark.parametrize("harm", [kill, stop, freeze], ids=lambda harm: harm.__name__)
def test_no_recall_fails_and_every_row_gets_its_vector_in_the_end(
    both: tuple[Process, Process], harm: Callable[[Process], Callable[[], object]]
) -> None:
    embed, memory = both
    for fact, _, _ in FACTS:
        assert memory.call("store", agent_id="me", content=fact)["embedded"] is True
    recallers = Recallers(memory)
    try:
        time.sleep(1)
        mend = harm(embed)
        harmed = time.perf_counter()
        while memory.breaker() != "open":
            assert time.perf_counter() - harmed < 30
            time.sleep(0.05)
        opened = time.perf_counter()
        receipts = [
            memory.call("store", agent_id="me", content=f"written in the dark {number}") for number in range(20)
        ]
        time.sleep(2)
        mended = time.perf_counter()
        mend()
        wait_until_whole(memory)
    finally:
        recallers.join()
    assert all(receipt["result"] == "stored" for receipt in receipts)
    assert {receipt["receipt"]["vector"] for receipt in receipts} == {"waiting"}
    for _, _, answer in recallers.answers:
        assert answer.get("messages"), answer
    dark = [(seconds, answer) for begin, seconds, answer in recallers.answers if opened < begin < mended - 1]
    assert dark
    assert all("advisory" in answer and answer["channels"]["vectors"].startswith("degraded") for _, answer in dark)
    assert max(seconds for seconds, _ in dark) < QUERY_SECONDS * MARGIN
    answer = memory.call("recall", agent_id="me", query="what was written when there was no light", trace=True)
    assert "advisory" not in answer
    assert "waiting" not in answer["channels"]
    found = [row for row in answer["messages"] if row["content"].startswith("written in the dark")]
    assert found
    assert all("vectors" in row["match_reason"]["arms"] for row in found)


def wait_until_whole(memory: Process) -> None:
    """Until the breaker is closed and no row waits."""
    ends = time.monotonic() + 60
    while memory.breaker() != "closed" or memory.metric("memory_rows_waiting_for_vectors"):
        assert time.monotonic() < ends, memory.log.read_text()[-3000:]
        time.sleep(0.1)
