"""Metrics of one server at a time, log lines that are JSON."""

import io
import json
import logging
import sys

import pytest

from embed_svc import observe
from embed_svc.observe import METRICS, Observer


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What the configured logging writes."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    observe.configure_logging("info")
    return written


def test_two_servers_in_one_process_share_no_metric() -> None:
    one, other = Observer(lambda: 1), Observer(lambda: 2)
    one.embedded(10, 2, 1)
    assert b"embed_texts_total 2.0" in one.exposition()
    assert b"embed_texts_total 0.0" in other.exposition()


def test_every_declared_metric_is_exposed_before_anything_happened() -> None:
    exposed = Observer(lambda: 1).exposition().decode()
    for metric in METRICS:
        assert f"# TYPE {metric.name.removesuffix('_total')}" in exposed or f"# TYPE {metric.name}" in exposed
        assert metric.help in exposed


def test_a_batch_tells_its_area_and_its_padding() -> None:
    observer = Observer(lambda: 1)
    observer.batch([10, 10, 5], 0.01)
    exposed = observer.exposition().decode()
    assert "embed_batch_tokens_sum 30.0" in exposed
    assert "embed_batch_padding_ratio_sum 0.1666" in exposed


@pytest.mark.parametrize(("status", "label"), [(200, "2xx"), (101, "2xx"), (404, "4xx"), (599, "5xx"), (999, "5xx")])
def test_any_status_falls_in_a_declared_class(status: int, label: str) -> None:
    observer = Observer(lambda: 1)
    observer.request("/embed", status, 0.1, {})
    assert f'embed_requests_total{{route="/embed",status="{label}"}} 1.0' in observer.exposition().decode()


def test_every_line_is_json_with_its_fields(stderr: io.StringIO) -> None:
    observe.say("warning", "model chosen", model="x", megabytes=23)
    logging.getLogger("another.package").warning("plain %s", "words")
    first, second = map(json.loads, stderr.getvalue().splitlines())
    assert (first["level"], first["event"], first["model"], first["megabytes"]) == ("warning", "model chosen", "x", 23)
    assert (second["logger"], second["event"]) == ("another.package", "plain words")


def test_levels_below_the_set_one_and_chatty_libraries_are_silent(stderr: io.StringIO) -> None:
    observe.say("debug", "details")
    logging.getLogger("httpx2").info("HTTP Request: GET somewhere")
    assert stderr.getvalue() == ""


def test_a_logged_trace_stays_on_one_line(stderr: io.StringIO) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("lib").exception("it failed")
    (line,) = stderr.getvalue().splitlines()
    assert "ValueError: broken" in json.loads(line)["trace"]


def test_an_unexpected_failure_is_logged_by_type_and_place_without_its_message(stderr: io.StringIO) -> None:
    try:
        raise KeyError("s3cret")
    except KeyError as error:
        observe.failed("request failed", error, request_id="r1")
    line = json.loads(stderr.getvalue())
    assert (line["error"], line["request_id"]) == ("KeyError", "r1")
    assert "test_observe.py" in line["frames"][0]
    assert "s3cret" not in stderr.getvalue()
