"""An outage of the embedding server as Prometheus, Alertmanager and the dashboards see it, with real processes."""

import copy
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memory_svc.domain.canary import NOT_FOUND
from observability.__main__ import main
from observability.check import dashboards, faults
from tests.support.facts import FACTS
from tests.support.monitoring import Prometheus, Receiver, alertmanager, prometheus
from tests.support.processes import Process, running

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]
TOKEN = "token-of-the-embedding-server"
WINDOW = "20s"
PAUSE = 0.1
SERIES_MAX = 1000


class Callers:
    """Clients over several wires that call until told to stop: well, wrongly, and without the token."""

    def __init__(self, memory: Process) -> None:
        self.memory = memory
        self.stop = threading.Event()
        self.answers: list[dict[str, Any]] = []
        self.thread = threading.Thread(target=self.call)
        self.thread.start()

    def call(self) -> None:
        """One round of calls after the other."""
        number = 0
        while not self.stop.wait(PAUSE):
            number += 1
            self.memory.call("store", agent_id="me", content=f"Round {number} has begun.")
            self.answers.append(self.memory.call("recall", agent_id="me", query=FACTS[number % len(FACTS)][2]))
            self.memory.call("recall", agent_id="me", limit="many")
            self.tools()
            self.stranger()

    def tools(self) -> None:
        """A call over MCP."""
        params = {"name": "list_memories", "arguments": {"agent_id": "me", "limit": 1}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        accept = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        headers = accept | {"Authorization": f"Bearer {self.memory.token}"}
        request = urllib.request.Request(f"{self.memory.url}/mcp", json.dumps(message).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            response.read()

    def stranger(self) -> None:
        """A call without the token."""
        try:
            urllib.request.urlopen(f"{self.memory.url}/metrics", timeout=30).close()
        except urllib.error.HTTPError as refused:
            refused.close()

    def join(self) -> None:
        """Let them end."""
        self.stop.set()
        self.thread.join(60)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Process, Process]]:
    """Both services, each with a token of its own, the memory one with little patience."""
    token_file = tmp_path / "embed_token"
    token_file.write_text(TOKEN)
    token_file.chmod(0o600)
    with running("embed_svc", tmp_path / "embed", EMBED_TOKEN_FILE=str(token_file)) as embed:
        settings = {
            "MEMORY_EMBEDDING_URL": embed.url,
            "MEMORY_EMBEDDING_TOKEN_FILE": str(token_file),
            "MEMORY_EMBEDDING_QUERY_SECONDS": "1",
            "MEMORY_EMBEDDING_STORE_SECONDS": "1",
            "MEMORY_WORKER_SECONDS": "0.5",
            "MEMORY_CANARY_SECONDS": "2",
        }
        with running("memory_svc", tmp_path / "memory", **settings) as memory:
            yield embed, memory


def until(true: Callable[[], bool], seconds: float, told: Callable[[], object]) -> None:
    """Wait until it is true."""
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, told()
        time.sleep(0.2)


def test_an_outage_is_seen_told_and_seen_to_end_and_every_panel_has_data(
    both: tuple[Process, Process], tmp_path: Path
) -> None:
    embed, memory = both
    for fact, _, _ in FACTS:
        memory.call("store", agent_id="me", content=fact)
    with (
        Receiver() as receiver,
        alertmanager(tmp_path / "alertmanager", receiver.url) as alerts,
        prometheus(tmp_path / "prometheus", memory, embed, alerts, TOKEN) as watching,
    ):
        callers = Callers(memory)
        try:
            begin_well(watching, receiver)
            embed.stop()
            go_dark(watching, receiver)
            embed.start()
            embed.wait_until_ready()
            mend(watching, receiver)
            until(lambda: not all_faults(watching), 30, lambda: all_faults(watching))
            see_what_is_wrong(watching)
        finally:
            callers.join()
    assert all("messages" in answer for answer in callers.answers)


def begin_well(watching: Prometheus, receiver: Receiver) -> None:
    """Both are scraped with their tokens, and nothing is told."""
    until(lambda: watching.values("up") == [1, 1, 1], 30, lambda: watching.values("up"))
    until(lambda: watching.values("memory_embedding_degraded") == [0], 30, watching.firing)
    time.sleep(6)
    assert watching.firing() == set()
    assert receiver.told == []
    assert watching.values('{__name__=~".+_created"}') == []
    assert max(watching.values("scrape_samples_post_metric_relabeling")) < SERIES_MAX


def go_dark(watching: Prometheus, receiver: Receiver) -> None:
    """First the degradation is told, then the outage in its place; what follows from either is not told as well."""
    until(lambda: receiver.has("firing", "MemoryEmbeddingDegraded"), 40, watching.firing)
    assert not receiver.has("firing", "MemoryEmbeddingOutage")
    until(lambda: receiver.has("firing", "MemoryEmbeddingOutage"), 40, watching.firing)
    until(lambda: receiver.has("firing", "EmbedDown"), 20, watching.firing)
    until(lambda: "MemoryBreakerOpen" in watching.firing(), 20, watching.firing)
    assert watching.values('memory_canary_rank{probe="meaning"}') == [NOT_FOUND]
    assert watching.values('memory_canary_rank{probe="english"}') == [1]
    assert watching.values("memory_embedding_degraded") == [1]
    assert watching.values("memory_embedding_degraded_seconds")[0] > 10
    until(lambda: watching.values("memory_rows_waiting_for_vectors")[0] > 0, 20, watching.firing)
    told = next(each for _, name, each in receiver.told if name == "MemoryEmbeddingOutage")
    assert told["labels"]["severity"] == "critical"
    assert told["annotations"]["runbook"] == "docs/guides/operate.md#embedding-is-degraded"


def mend(watching: Prometheus, receiver: Receiver) -> None:
    """The rows get their vectors, and the end is told."""
    until(lambda: watching.values("memory_embedding_degraded") == [0], 40, watching.firing)
    until(lambda: watching.values("min_over_time(memory_rows_waiting_for_vectors[3s])") == [0], 60, watching.firing)
    until(lambda: receiver.has("resolved", "MemoryEmbeddingOutage"), 40, lambda: receiver.told)
    until(lambda: receiver.has("resolved", "EmbedDown"), 40, lambda: receiver.told)
    until(lambda: watching.firing() == set(), 20, watching.firing)
    assert watching.values("max_over_time(memory_rows_waiting_for_vectors[2m])")[0] > 0
    assert not receiver.has("firing", "MemoryBreakerOpen")
    until(lambda: set(watching.values("memory_canary_rank")) == {1}, 20, lambda: watching.values("memory_canary_rank"))
    assert not receiver.has("firing", "MemoryCanaryLost")


def all_faults(watching: Prometheus) -> list[str]:
    """What does not work on any dashboard."""
    return [fault for each in dashboards() for fault in faults(each, watching.url, WINDOW)]


def see_what_is_wrong(watching: Prometheus) -> None:
    """All is well; then a metric, a syntax, a variable and a choice that are wrong are each found."""
    assert main(["check", watching.url]) == 0
    sound = dashboards()[0]
    for wrong, told in (
        ("memory_no_such_metric", "no data"),
        ("rate(up", "parse error"),
        ('up{instance=~"$nobody"}', "there is no variable $nobody"),
        ("0 * up / 0", "no number"),
    ):
        broken = copy.deepcopy(sound)
        next(panel for panel in broken["panels"] if panel["type"] == "stat")["targets"][0]["expr"] = wrong
        found = faults(broken, watching.url, WINDOW)
        assert len(found) == 1
        assert told in found[0]
    broken = copy.deepcopy(sound)
    next(each for each in broken["templating"]["list"] if each["type"] == "query")["query"] = "label_values(none, none)"
    assert "has no values" in faults(broken, watching.url, WINDOW)[0]
