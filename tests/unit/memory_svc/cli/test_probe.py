"""What a container asks its own server."""

import http.server
import threading
from collections.abc import Iterator

import pytest

from memory_svc.__main__ import main


class Answering(http.server.BaseHTTPRequestHandler):
    """Well at /livez; not ready, and says why; answers nonsense at /startupz."""

    def do_GET(self) -> None:
        status, body = {
            "/livez": (200, b"{}"),
            "/readyz": (503, b'{"error": "the database does not answer"}'),
        }.get(self.path, (500, b"\xff"))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a server, named by the settings; it is bound everywhere, and a proxy is set that nothing answers."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever).start()
        monkeypatch.setenv("MEMORY_HOST", "0.0.0.0")
        monkeypatch.setenv("MEMORY_PORT", str(server.server_port))
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        yield server.server_port
        server.shutdown()


def test_a_server_that_is_well_passes(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "livez"]) == 0
    assert capsys.readouterr().err == ""


def test_one_that_is_not_ready_says_why(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe"]) == 1
    assert capsys.readouterr().err == "memory-svc: the database does not answer\n"


def test_one_that_answers_nonsense_fails(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "startupz"]) == 1
    assert capsys.readouterr().err == "memory-svc: status 500\n"


def test_one_that_is_not_there_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MEMORY_PORT", "9")
    assert main(["probe"]) == 1
    assert capsys.readouterr().err.startswith("memory-svc: nothing answers at http://127.0.0.1:9: ")


def test_any_free_port_cannot_be_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MEMORY_PORT", "0")
    assert main(["probe"]) == 2
    assert "MEMORY_PORT: 0" in capsys.readouterr().err
