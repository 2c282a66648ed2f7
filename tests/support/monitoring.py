"""Real Prometheus and Alertmanager on the committed configuration with shortened times, and a receiver of alerts."""

import contextlib
import http.server
import json
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from tests.support.installed import debian
from tests.support.processes import ROOT, Process, free_port

COMMITTED = ROOT / "observability"
READY_SECONDS = 30.0
SHORTER = {
    "scrape_interval: 15s": "scrape_interval: 1s",
    "evaluation_interval: 15s": "evaluation_interval: 1s",
    "for: 1m\n": "for: 8s\n",
    "for: 2m\n": "for: 4s\n",
    "for: 15m\n": "for: 12s\n",
    "group_wait: 30s": "group_wait: 1s",
    "group_wait: 10s": "group_wait: 1s",
    "group_interval: 5m": "group_interval: 1s",
}


class Receiver:
    """Takes what Alertmanager sends; `told` holds (status, name of the alert, labels and annotations) in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, dict[str, Any]]] = []
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/alerts"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def has(self, status: str, alert: str) -> bool:
        """Whether this was told."""
        return any((status, alert) == (each[0], each[1]) for each in self.told)

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        told = self.told

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                told.extend((each["status"], each["labels"]["alertname"], each) for each in body["alerts"])
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Keep the tests' output to themselves."""

        return Handler


class Prometheus:
    """A running one, to be asked."""

    def __init__(self, url: str) -> None:
        self.url = url

    def values(self, expression: str) -> list[float]:
        """What the expression gives now, a number for each series."""
        asked = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{asked}", timeout=10) as response:
            return [float(each["value"][1]) for each in json.load(response)["data"]["result"]]

    def firing(self) -> set[str]:
        """The alerts that fire now."""
        with urllib.request.urlopen(f"{self.url}/api/v1/alerts", timeout=10) as response:
            alerts = json.load(response)["data"]["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}


@contextlib.contextmanager
def alertmanager(folder: Path, receiver: str) -> Iterator[str]:
    """The address of an Alertmanager that tells this receiver."""
    written = folder / "alertmanager.yml"
    folder.mkdir()
    values = SHORTER | {"http://alert-receiver:8080/alerts": receiver}
    written.write_text(replaced((COMMITTED / "alertmanager" / "alertmanager.yml").read_text(), values))
    command = [debian("prometheus-alertmanager", "prometheus-alertmanager"), f"--config.file={written}"]
    port = free_port()
    arguments = [f"--storage.path={folder}", "--cluster.listen-address=", f"--web.listen-address=127.0.0.1:{port}"]
    with _started([*command, *arguments], folder / "log", f"http://127.0.0.1:{port}/-/ready"):
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def prometheus(folder: Path, memory: Process, embed: Process, alerts: str, embed_token: str) -> Iterator[Prometheus]:
    """A Prometheus that watches both services every second and sends alerts to that Alertmanager."""
    port = free_port()
    shutil.copytree(COMMITTED / "prometheus", folder)
    addresses = {
        "memory:8402": f"127.0.0.1:{memory.port}",
        "embed:8401": f"127.0.0.1:{embed.port}",
        "alertmanager:9093": alerts,
        "localhost:9090": f"127.0.0.1:{port}",
    }
    for path in (folder / "prometheus.yml", *(folder / "rules").iterdir()):
        path.write_text(replaced(path.read_text(), SHORTER | addresses))
    (folder / "secrets").mkdir()
    (folder / "secrets" / "memory_token").write_text(memory.token)
    (folder / "secrets" / "embed_token").write_text(embed_token)
    command = [debian("prometheus", "prometheus"), f"--config.file={folder / 'prometheus.yml'}"]
    arguments = [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    with _started([*command, *arguments], folder / "log", f"http://127.0.0.1:{port}/-/ready"):
        yield Prometheus(f"http://127.0.0.1:{port}")


@contextlib.contextmanager
def _started(command: list[str], log: Path, ready: str) -> Iterator[None]:
    """A process that answers at `ready`, until the block ends."""
    with log.open("wb") as written:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=written, stderr=written)
    try:
        ends = time.monotonic() + READY_SECONDS
        while not _answers(ready):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < ends, log.read_text()
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait(10)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except OSError:
        return False


def replaced(text: str, values: Mapping[str, str]) -> str:
    """The text with each of these in place of what it stands for."""
    for before, after in values.items():
        text = text.replace(before, after)
    return text
