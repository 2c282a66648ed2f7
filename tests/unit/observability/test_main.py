"""The command line of the dashboards."""

import http.server
import json
import threading
from pathlib import Path

import pytest

from observability.__main__ import main
from observability.boards import ALL


def test_every_dashboard_is_written_into_a_folder(tmp_path: Path) -> None:
    assert main(["write", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {f"{board.uid}.json" for board in ALL}


def test_where_no_prometheus_answers_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "http://127.0.0.1:9"]) == 2
    assert "http://127.0.0.1:9: no Prometheus answers there" in capsys.readouterr().err


def test_what_cannot_be_understood_is_answered_with_what_can(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["draw"]) == 2
    assert "check ADDRESS" in capsys.readouterr().err


class Empty(http.server.BaseHTTPRequestHandler):
    """A Prometheus that knows nothing."""

    def do_GET(self) -> None:
        """Answer every question with nothing."""
        data = [] if "/label/" in self.path else {"resultType": "vector", "result": []}
        body = json.dumps({"status": "success", "data": data}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the tests' output to themselves."""


def test_every_panel_that_finds_nothing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Empty)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        assert main(["check", f"http://127.0.0.1:{server.server_address[1]}/"]) == 1
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    told = capsys.readouterr().out
    for board in ALL:
        assert f"{board.title}: $" in told
        for panel in (panel for row in board.rows for panel in row.panels):
            assert f"{board.title} / {panel.title}: no data" in told
