"""Real processes: both services with data folders of their own, on free ports, ended by their process id."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
READY_SECONDS = 60.0
STOP_SECONDS = 30.0
NO_HUB = "http://127.0.0.1:9"  # so that the packaged model is chosen on any machine, and nothing is downloaded
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "SYSTEMROOT", "SSL_CERT_FILE", "VIRTUAL_ENV")


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def environment(**settings: str) -> dict[str, str]:
    """What a process needs of ours, and these settings."""
    return {name: os.environ[name] for name in KEPT if name in os.environ} | {"HF_ENDPOINT": NO_HUB} | settings


class Process:
    """One service as a process, its log in a file."""

    def __init__(self, module: str, folder: Path, port: int, *, prefix: Sequence[str] = (), **settings: str) -> None:
        self.module, self.folder, self.port, self.settings = module, folder, port, settings
        self.prefix = prefix
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / f"{module}.log"
        folder.mkdir(parents=True, exist_ok=True)
        self.start()

    def start(self) -> None:
        """Start it, or start it again on the same data."""
        prefix = self.module.removesuffix("_svc").upper()
        settings = {f"{prefix}_DATA_DIR": str(self.folder), f"{prefix}_PORT": str(self.port)} | self.settings
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", self.module, "serve"],
                cwd=ROOT,
                start_new_session=bool(self.prefix),
                env=environment(**settings),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_until_ready(self) -> "Process":
        """Itself, once its readiness says yes."""
        ends = time.monotonic() + READY_SECONDS
        while time.monotonic() < ends:
            assert self.process.poll() is None, self.log.read_text()
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/readyz", timeout=2):
                return self
            time.sleep(0.05)
        raise AssertionError(self.log.read_text())

    def kill(self) -> None:
        """End it at once, whatever it does."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def kill_tree(self) -> None:
        """End it and what it was started with."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(STOP_SECONDS)

    def stop(self) -> int:
        """Ask it to end; its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(STOP_SECONDS)

    @property
    def token(self) -> str:
        """The bearer token of a memory server."""
        return (self.folder / "token").read_text().strip()

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The answer of an operation over REST, failures too."""
        request = urllib.request.Request(
            f"{self.url}/v1/{name}",
            data=json.dumps(arguments).encode(),
            headers={"Authorization": f"Bearer {self.token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                answer: dict[str, Any] = json.load(response)
                return answer
        except urllib.error.HTTPError as refused:
            failure: dict[str, Any] = json.load(refused)
            return failure

    def metric(self, name: str) -> float:
        """The value of a metric without labels."""
        return next(float(line.split()[1]) for line in self.exposition() if line.startswith(f"{name} "))

    def breaker(self) -> str:
        """The state of the breaker of a memory server."""
        begin = "memory_embedding_breaker{state="
        return next(
            line.split('"')[1] for line in self.exposition() if line.startswith(begin) and line.endswith(" 1.0")
        )

    def exposition(self) -> list[str]:
        """The lines of the metrics."""
        request = urllib.request.Request(f"{self.url}/metrics", headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=30) as response:
            lines: list[str] = response.read().decode().splitlines()
        return lines


@contextlib.contextmanager
def running(module: str, folder: Path, *, prefix: Sequence[str] = (), **settings: str) -> Iterator[Process]:
    """A service that is ready, until the block ends. `prefix`: a command that starts it."""
    process = Process(module, folder, free_port(), prefix=prefix, **settings)
    try:
        yield process.wait_until_ready()
    finally:
        if process.process.poll() is None:
            process.kill_tree() if prefix else process.kill()
