"""The official conformance suite against our HTTP app, which holds the suite's fixtures (`conformance_server.py`)."""

import contextlib
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installed import newer_node, node_modules
from tests.support.processes import ROOT, environment, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(900)]
BASELINE = Path(__file__).parent / "conformance-baseline.yml"
SUITE_SECONDS_MAX = 150


@contextlib.contextmanager
def served(log: Path) -> Iterator[str]:
    """The address of the server with the fixtures."""
    port = free_port()
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.conformance_server", str(port)],
            cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stderr=errors,
        )  # fmt: skip
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2):
                break
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        assert process.wait(20) == 0


def baseline(revision: str) -> set[str]:
    """The scenarios that fail in that revision."""
    part = BASELINE.read_text().split(f"\n{revision}:\n")[1]
    return set(re.findall(r"^  - (\S+)$", part.split("\n20")[0], flags=re.MULTILINE))


def failures(printed: str) -> set[str]:
    """The scored scenarios that failed."""
    run, _, unscored = printed.partition("\nNot scored")
    failed = set(re.findall(r"^✗ (\S+): ", run, flags=re.MULTILINE))
    return failed - set(re.findall(r"^  \S (\S+) \(", unscored, flags=re.MULTILINE))


@pytest.mark.parametrize(("revision", "passes"), [("2026-07-28", 150), ("2025-11-25", 60)])
def test_what_the_suite_scores_passes_but_for_the_baseline(tmp_path: Path, revision: str, passes: int) -> None:
    suite = node_modules() / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    command = [str(newer_node()), str(suite), "server", "--requirements", revision, "-o", str(tmp_path / "results")]
    with served(tmp_path / "log") as url:
        done = subprocess.run(
            [*command, "--url", url], cwd=tmp_path, env=environment(), capture_output=True, text=True,
            check=False, timeout=SUITE_SECONDS_MAX,
        )  # fmt: skip
    expected = baseline(revision)
    assert failures(done.stdout) == expected, done.stdout[-4000:]
    assert done.returncode == int(bool(expected))
    total = re.search(r"Total: ([0-9]+) passed", done.stdout)
    assert total
    assert int(total[1]) >= passes
    assert '"level": "error"' not in (tmp_path / "log").read_text()
