"""Clients of others, as their users run them, against a real server: they list, store, recall, are told of changes."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory_svc.transports.tools import CORE_TOOLS
from tests.support.installed import LOCKS, environment_of, found, node_modules
from tests.support.processes import ROOT, Process, environment, free_port, running

pytestmark = [pytest.mark.e2e, pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(900)]
CLIENT_SECONDS_MAX = 60


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A server without embeddings."""
    with running("memory_svc", tmp_path_factory.mktemp("clients"), MEMORY_EMBEDDING_URL="") as process:
        yield process


def printed(command: list[str], folder: Path, **variables: str) -> str:
    """What a client prints. It has a home of its own, and no more of our environment than its path."""
    done = subprocess.run(
        command, cwd=folder, env={"PATH": os.environ["PATH"], "HOME": str(folder), **variables},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=CLIENT_SECONDS_MAX,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def own_server(folder: Path) -> dict[str, Any]:
    """How a client starts a server itself."""
    settings = environment(MEMORY_DATA_DIR=str(folder / "own"), MEMORY_EMBEDDING_URL="")
    return {
        "command": sys.executable,
        "args": ["-m", "memory_svc", "stdio"],
        "env": {**settings, "PYTHONPATH": str(ROOT)},
    }


@pytest.mark.parametrize("wire", ["http", "sse", "stdio"])
@pytest.mark.parametrize(("which", "mode"), [("sdk", "legacy"), ("client", "legacy"), ("client", "auto")])
def test_both_sdks_for_typescript(memory: Process, tmp_path: Path, which: str, mode: str, wire: str) -> None:
    script = node_modules().parent / "speak.mjs"
    shutil.copy(LOCKS / script.name, script)
    target = {"url": memory.url, "token": memory.token, **own_server(tmp_path)}
    saw = json.loads(printed([found("node"), str(script), which, wire, mode, json.dumps(target)], tmp_path))
    told = saw.pop("told")
    version = saw.pop("version")
    assert set(saw.pop("tools")) <= set(CORE_TOOLS)
    assert saw == {
        "stored": "stored",
        "best": f"Told by {which} over {wire} as {mode}.",
        "code": "invalid",
        "listed": True,
        "templates": 3,
        "text": f"Told by {which} over {wire} as {mode}.",
    }
    if mode == "legacy" and wire != "http":
        assert "notifications/resources/updated" in told
    if mode == "auto":
        assert version == "2026-07-28"


@pytest.mark.parametrize("wire", ["http", "sse"])
def test_the_inspector(memory: Process, tmp_path: Path, wire: str) -> None:
    inspector = str(node_modules() / ".bin" / "mcp-inspector")
    address = f"{memory.url}/{'mcp' if wire == 'http' else 'sse'}"
    base = [inspector, "--cli", address, "--transport", wire, "--header", f"Authorization: Bearer {memory.token}"]
    tools = json.loads(printed([*base, "--method", "tools/list"], tmp_path))["tools"]
    assert {tool["name"] for tool in tools} <= set(CORE_TOOLS)
    arguments = ["--tool-arg", "agent_id=me", "--tool-arg", f"content=Told by the inspector over {wire}."]
    called = json.loads(printed([*base, "--method", "tools/call", "--tool-name", "store", *arguments], tmp_path))
    answer = json.loads(called["content"][0]["text"])
    assert answer["result"] == "stored"
    read = [*base, "--method", "resources/read", "--uri", f"memory://me/mem:{answer['id']}"]
    assert json.loads(printed(read, tmp_path))["contents"][0]["text"] == f"Told by the inspector over {wire}."


def test_fastmcp_of_the_generation_before(memory: Process, tmp_path: Path) -> None:
    fastmcp = str(environment_of("fastmcp") / "bin" / "fastmcp")
    quiet = {"FASTMCP_CHECK_FOR_UPDATES": "off", "NO_COLOR": "1", "COLUMNS": "200"}
    base = ["--auth", memory.token]
    for address in (f"{memory.url}/mcp", f"{memory.url}/sse"):
        assert "recall" in printed([fastmcp, "list", address, *base], tmp_path, **quiet)
        arguments = ["agent_id=me", f"content=Told by fastmcp at {address[-4:]}"]
        answer = printed([fastmcp, "call", address, "store", *arguments, *base], tmp_path, **quiet)
        assert '"result":"stored"' in "".join(answer.split())


CLAUDE_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_BUG_COMMAND": "1",
}


def test_claude_code_connects_over_every_wire_where_nothing_else_can_be_reached(tmp_path: Path) -> None:
    """A network of its own with nothing but loopback; the client ends well even where it fails, so its words count."""
    port = free_port()
    own = own_server(tmp_path)
    settings = environment(MEMORY_DATA_DIR=str(tmp_path / "data"), MEMORY_PORT=str(port), MEMORY_EMBEDDING_URL="")
    plan = {
        "claude": str(node_modules() / ".bin" / "claude"),
        "serve": [sys.executable, "-m", "memory_svc", "serve"],
        "settings": settings,
        "url": f"http://127.0.0.1:{port}",
        "token_file": str(tmp_path / "data" / "token"),
        "stdio": [own["command"], *own["args"]],
        "stdio_env": own["env"],
        "environment": {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **CLAUDE_QUIET},
    }
    alone = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--user", "--map-root-user"]
    command = [*alone, sys.executable, str(LOCKS / "claude_alone.py"), json.dumps(plan)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=150
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    lines = [line for line in done.stdout.splitlines() if line.startswith("memory-")]
    assert len(lines) == 4, done.stdout
    connected = {line.partition(":")[0]: "✔ Connected" in line or "✓ Connected" in line for line in lines}
    assert connected == {"memory-http": True, "memory-sse": True, "memory-stdio": True, "memory-wrong": False}
