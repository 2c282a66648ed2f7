"""The README's commands, run as a newcomer runs them: in a fresh clone, in a fresh environment."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from tests.support.processes import ROOT, Process, environment, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.model]
README = (ROOT / "README.md").read_text(encoding="utf-8")
READY_SECONDS = 600.0


def transcript() -> list[tuple[str, str]]:
    """(command, what it prints) of the README's transcript."""
    block = re.search(r"<!-- transcript -->\n```console\n(.*?)```", README, flags=re.DOTALL)
    assert block
    steps: list[tuple[str, str]] = []
    for line in block[1].splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], ""))
        else:
            steps[-1] = (steps[-1][0], line)
    return steps


def test_the_transcript_of_a_first_store_and_recall_is_true(memory: Process) -> None:
    script = "\n".join(f"{command}; echo" for command, _ in transcript())
    script = script.replace("~/.local/share/agent-memory", str(memory.folder)).replace(":8402", f":{memory.port}")
    ran = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, check=True, env=environment())
    printed = [line for line in ran.stdout.splitlines() if line]
    shown = [answer for _, answer in transcript() if answer]
    assert len(printed) == len(shown)
    for line, answer in zip(printed, shown, strict=True):
        json.loads(line)
        pattern = ".*".join(re.escape(part) for part in answer.split("…"))
        assert re.fullmatch(pattern, line), line


def test_the_first_screen_names_the_two_commands_and_the_makefile_has_them() -> None:
    first = "\n".join(README.splitlines()[:25])
    assert re.findall(r"^make (\w+)", first, flags=re.MULTILINE) == ["run", "test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("run", "test"):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh clone, with what is not committed yet."""
    folder = tmp_path_factory.mktemp("clone") / "agent-memory"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who has never run it."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    own = (
        environment() | kept | {"HOME": str(tmp_path), "EMBED_PORT": str(free_port()), "MEMORY_PORT": str(free_port())}
    )
    own.pop("VIRTUAL_ENV", None)
    return own


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_make_run_sets_everything_up_and_one_ctrl_c_stops_both(clone: Path, home: dict[str, str]) -> None:
    log = clone.parent / "run.log"
    with log.open("wb") as output:
        started = subprocess.Popen(
            ["make", "run"], cwd=clone, env=home, stdout=output, stderr=output, start_new_session=True
        )
    try:
        printed = wait_for(log, "Ctrl-C stops both", started)
        token_file = re.search(r"token file +(\S+)", printed)
        assert token_file
        token = Path(token_file[1]).read_text().strip()
        assert token not in printed
        assert f"claude mcp add --transport http memory http://127.0.0.1:{home['MEMORY_PORT']}/mcp" in printed
        request = urllib.request.Request(
            f"http://127.0.0.1:{home['MEMORY_PORT']}/v1/store",
            data=b'{"agent_id": "me", "content": "a first fact"}',
            headers={"Authorization": f"Bearer {token}"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            assert json.load(response)["embedded"] is True
        assert (clone / ".venv").is_dir()
        os.killpg(started.pid, signal.SIGINT)
        started.wait(60)
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait(10)
    printed = log.read_text()
    assert "stopping both services" in printed
    assert "Traceback" not in printed, printed
    for name in ("EMBED_PORT", "MEMORY_PORT"):
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(f"http://127.0.0.1:{home[name]}/livez", timeout=2)
    assert list(Path(home["HOME"]).rglob("memory.db"))
    assert not list(Path(home["HOME"]).rglob("memory.db-wal"))


def wait_for(log: Path, text: str, process: subprocess.Popen[bytes]) -> str:
    """What was printed, once the text is there."""
    ends = time.monotonic() + READY_SECONDS
    while time.monotonic() < ends:
        printed = log.read_text(errors="replace")
        if text in printed:
            return printed
        assert process.poll() is None, printed
        time.sleep(0.2)
    raise AssertionError(log.read_text(errors="replace"))
