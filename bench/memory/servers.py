"""Starting and ending what is measured, and what the system says of its processes."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import httpx2

from bench.memory.stub import DIMENSIONS

ROOT = Path(__file__).parents[2]
READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0
_TICKS = os.sysconf("SC_CLK_TCK")
# All that a measured process inherits: above all nothing that tunes a numeric library.
_KEPT = ("PATH", "LANG", "TMPDIR")


def environment(home: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """What a measured process finds in its environment."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | {"HOME": str(home)} | dict(settings)


def cpu_seconds(process: int) -> float:
    """The processor time so far, in user and system mode, of a process and all it has started (`proc_pid_stat(5)`)."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    own = sum(int(field) for field in fields[11:15]) / _TICKS
    return own + sum(cpu_seconds(child) for child in children(process))


def children(process: int) -> set[int]:
    """The processes that a process has started and that still run."""
    found: set[int] = set()
    for listed in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found |= {int(child) for child in listed.read_text(encoding="utf-8").split()}
    return found


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def started(command: Sequence[str], environ: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, env=dict(environ), stdout=output, stderr=output, cwd=ROOT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS_MAX)


@contextlib.contextmanager
def stub(folder: Path, dimensions: int = DIMENSIONS) -> Iterator[str]:
    """The base address of a stand-in for the embedding server."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = (sys.executable, "-m", "bench.memory.stub", str(port), str(dimensions))
    with started(command, environment(folder, {}), folder / "stub.log") as process:
        await_ready(process, "POST", f"{address}/embed", b'{"texts": []}')
        yield address


@contextlib.contextmanager
def ours(
    folder: Path, embedding: str, module: str = "memory_svc", prefix: Sequence[str] = ()
) -> Iterator[tuple[int, str]]:
    """Process and address of our server over HTTP on the database in `folder`, run by `module`."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    settings = our_settings(folder, embedding) | {"MEMORY_PORT": str(port)}
    command = (*prefix, sys.executable, "-m", module, "serve")
    with started(command, environment(folder, settings), folder / "server.log") as process:
        await_ready(process, "GET", f"{address}/readyz")
        yield process.pid, address


def our_settings(folder: Path, embedding: str) -> dict[str, str]:
    """Ours with its defaults, without a token, and with no limit on the calls of one caller."""
    return {
        "MEMORY_DATA_DIR": str(folder),
        "MEMORY_EMBEDDING_URL": embedding,
        "MEMORY_ALLOW_UNAUTHENTICATED_HTTP": "true",
        "MEMORY_CALLS_PER_SECOND_MAX": "0",
    }


def peer_settings(folder: Path, embedding: str) -> dict[str, str]:
    """The peer with its defaults, the update check off."""
    return {
        "CPERSONA_DB_PATH": str(folder / "cpersona.db"),
        "CPERSONA_UPDATE_CHECK": "false",
        "CPERSONA_EMBEDDING_MODE": "http",
        "CPERSONA_EMBEDDING_URL": f"{embedding}/embed",
    }


def await_ready(process: subprocess.Popen[bytes], method: str, url: str, body: bytes = b"") -> None:
    """Wait until that request is answered with 200. Raises RuntimeError when the process ends or it takes too long."""
    end = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"{url}: ended with status {process.returncode} before it was ready")
        with contextlib.suppress(httpx2.HTTPError):
            if httpx2.request(method, url, content=body, trust_env=False).status_code == httpx2.codes.OK:
                return
        time.sleep(0.1)
    raise RuntimeError(f"{url}: was not ready within {READY_SECONDS_MAX:g} s")
