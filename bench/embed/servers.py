"""Starting and ending the servers that are compared, one at a time, and what the system says of their processes."""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

READY_SECONDS_MAX = 120.0
_STOP_SECONDS_MAX = 30.0
_CALL_SECONDS_MAX = 300.0
# All that a measured process inherits: above all nothing that tunes a numeric library.
_KEPT = ("PATH", "HOME", "LANG", "TMPDIR")


class Server(msgspec.Struct, frozen=True):
    """How a server is started: its command, its settings, the route that answers 200 once it can embed."""

    name: str
    command: tuple[str, ...]
    settings: dict[str, str]
    port_setting: str
    threads_setting: str
    ready: str
    prefix: str = ""


class Running:
    """A server that answers, on loopback."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.port = port
        self._process = process

    def cpu_seconds(self) -> float:
        """Return the processor time of all its threads so far, in user and system mode (`proc_pid_stat(5)`)."""
        fields = self._stat().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Return what of it is in memory."""
        return int(self._stat().rpartition(")")[2].split()[21]) * os.sysconf("SC_PAGE_SIZE")

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors of texts. Raises RuntimeError where it refuses."""
        connection = self.connection()
        try:
            answer: dict[str, Any] = json.loads(post(connection, json.dumps({"texts": list(texts)}).encode()))
        finally:
            connection.close()
        vectors: list[list[float]] = answer["embeddings"]
        return vectors

    def connection(self) -> http.client.HTTPConnection:
        """Return a connection that is kept open from request to request."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=_CALL_SECONDS_MAX)

    def _stat(self) -> str:
        return Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8")


def post(connection: http.client.HTTPConnection, body: bytes) -> bytes:
    """Return the answer of `POST /embed`. Raises RuntimeError where it is not 200."""
    connection.request("POST", "/embed", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    content = response.read()
    if response.status != 200:
        raise RuntimeError(f"the server answered {response.status}: {content[:200]!r}")
    return content


@contextlib.contextmanager
def running(server: Server, threads: int, log: Path) -> Iterator[Running]:
    """Start a server and end it again.

    With `threads` it is held to as many processors, the first of those allowed, and told to use as many threads; with
    0 it may use all and takes what it takes by itself.
    """
    port = _free_port()
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment |= server.settings | {server.port_setting: str(port)}
    if threads:
        environment[server.threads_setting] = str(threads)
    with log.open("ab") as output:
        # A pipe that stays open: a server that also speaks over standard input ends when that closes.
        process = subprocess.Popen(
            server.command, env=environment, stdin=subprocess.PIPE, stdout=output, stderr=output, cwd=log.parent
        )
    try:
        if threads:
            os.sched_setaffinity(process.pid, sorted(os.sched_getaffinity(0))[:threads])
        _await(process, port, server)
        yield Running(process, port)
    finally:
        _end(process)


def _await(process: subprocess.Popen[bytes], port: int, server: Server) -> None:
    end = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"{server.name} ended with status {process.returncode} before it was ready")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", server.ready)
            if connection.getresponse().status == 200:
                return
        connection.close()
        time.sleep(0.1)
    raise RuntimeError(f"{server.name} was not ready within {READY_SECONDS_MAX:g} s")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    if process.stdin:
        process.stdin.close()
    try:
        process.wait(_STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP_SECONDS_MAX)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
