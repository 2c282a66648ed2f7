"""A server that moves to another host: what the old one and the new one do and say, as real processes."""

import contextlib
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import Process, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.fault]
SECONDS = "4"
CANNOT_START = 2


def server(folder: Path, host: str) -> Process:
    """A memory server on the files of this folder, which takes itself to be on that host."""
    settings = {"MEMORY_EMBEDDING_URL": "", "MEMORY_LEASE_HOST": host, "MEMORY_LEASE_SECONDS": SECONDS}
    return Process("memory_svc", folder, free_port(), **settings)


def test_a_second_host_is_refused_takes_over_after_a_kill_and_at_once_after_a_stop(tmp_path: Path) -> None:
    first = server(tmp_path, "a").wait_until_ready()
    processes = [first]
    try:
        beside = server(tmp_path, "a").wait_until_ready()
        processes.append(beside)
        assert first.call("store", agent_id="a", content="told to the first")["result"] == "stored"
        refused = server(tmp_path, "b")
        processes.append(refused)
        assert refused.process.wait(60) == CANNOT_START
        assert "which is alive; two hosts must not share a database" in refused.log.read_text()
        first.kill()
        beside.kill()
        taking = server(tmp_path, "b").wait_until_ready()
        processes.append(taking)
        assert "took the database over from a host that is silent" in taking.log.read_text()
        assert taking.call("recall", agent_id="a", query="told")["messages"][0]["content"] == "told to the first"
        assert taking.call("store", agent_id="a", content="told to the second")["result"] == "stored"
        assert taking.stop() == 0
        marked = taking.log.stat().st_size
        back = server(tmp_path, "a").wait_until_ready()
        processes.append(back)
        assert "another host" not in back.log.read_text()[marked:]
        assert len(back.call("recall", agent_id="a", query="told")["messages"]) == 2
        assert back.stop() == 0
    finally:
        for process in processes:
            if process.process.poll() is None:
                process.kill()


def answer(process: Process, path: str) -> tuple[int, str]:
    """Status and body of a health route."""
    try:
        with urllib.request.urlopen(f"{process.url}{path}", timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def until(is_so: Callable[[], bool]) -> None:
    """Wait until something holds."""
    ends = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.1)


def test_a_server_that_was_halted_writes_nothing_when_it_wakes_and_goes_on_once_the_other_stops(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        halted = server(tmp_path, "a").wait_until_ready()
        stack.callback(halted.kill)
        assert halted.call("store", agent_id="a", content="before")["result"] == "stored"
        halted.process.send_signal(signal.SIGSTOP)
        taking = server(tmp_path, "b").wait_until_ready()
        stack.callback(taking.kill)
        assert taking.call("store", agent_id="a", content="meanwhile")["result"] == "stored"
        halted.process.send_signal(signal.SIGCONT)
        refused = halted.call("store", agent_id="a", content="after")
        assert (refused["code"], refused["retry"]) == ("unavailable", True)
        assert "was taken over by another host" in refused["error"]
        until(lambda: answer(halted, "/readyz")[0] == 503)
        assert "was taken over by another host" in answer(halted, "/readyz")[1]
        assert answer(halted, "/livez")[0] == 200
        assert halted.call("recall", agent_id="a", query="meanwhile")["messages"][-1]["content"] == "meanwhile"
        assert taking.stop() == 0
        until(lambda: answer(halted, "/readyz")[0] == 200)
        assert halted.call("store", agent_id="a", content="again")["result"] == "stored"
        assert halted.stop() == 0
