"""The app over a real connection: REST, health, metrics, and the answers of the framework itself."""

import json
import logging
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.support.toy_server import BODY_BYTES_MAX, TOKEN, running, settings_for, told, toy_catalogue

FAILURE_KEYS = ["ok", "error", "code", "retry"]


def exchange(url: str, request: bytes) -> bytes:
    """What the server answers to these bytes, up to the end of the connection."""
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), timeout=10) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_an_operation_answers_200_with_compact_json_in_utf_8(client: httpx2.Client) -> None:
    answer = client.post("/v1/add", json={"text": "é"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.content == '{"result":"stored","text":"é","count":1,"metadata":{}}'.encode()


@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded", "text/plain", ""])
def test_a_body_is_json_whatever_it_is_called(client: httpx2.Client, content_type: str) -> None:
    answer = client.post("/v1/add", content=b'{"text": "a"}', headers={"Content-Type": content_type})
    assert answer.status_code == 200


def test_no_body_stands_for_no_arguments_and_the_circumstances_are_told_in_headers(client: httpx2.Client) -> None:
    headers = {"X-Request-Id": "my-id", "Idempotency-Key": "k1", "X-Time-Zone": "Asia/Tokyo"}
    assert client.post("/v1/circumstances", headers=headers).json() == {
        "wire": "rest",
        "principal": "owner",
        "request_id": "my-id",
        "idempotency_key": "k1",
        "zone": "Asia/Tokyo",
    }


def test_a_caller_says_how_long_it_waits(client: httpx2.Client) -> None:
    answer = client.post("/v1/wait", json={"seconds": 30}, headers={"X-Deadline-Ms": "50"})
    assert answer.status_code == 503
    assert "wait took longer than 0.05 s" in answer.json()["error"]


@pytest.mark.parametrize("milliseconds", ["0", "-5", "1.5", "soon", "1e3", "9" * 10])
def test_a_deadline_that_is_none_is_named(client: httpx2.Client, milliseconds: str) -> None:
    answer = client.post("/v1/add", json={"text": "a"}, headers={"X-Deadline-Ms": milliseconds})
    assert answer.status_code == 400
    assert "deadline: expected whole milliseconds" in answer.json()["error"]


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'"text"',
        b"5",
        b"null",
        b"{",
        b'{"text": "a"} x',
        b'{"text": "\xff"}',
        b'{"text": "\\ud800"}',
        b'{"text": NaN}',
        b'{"count": 1e400}',
        b"[" * 10_000,
        b"\xef\xbb\xbf{}",
    ],
)
def test_a_body_that_is_no_json_object_is_invalid(client: httpx2.Client, body: bytes) -> None:
    answer = client.post("/v1/add", content=body)
    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid"
    assert answer.json()["error"].startswith("body:")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "text: is required"),
        ({"text": 5}, "text: "),
        ({"text": "a\0"}, "NUL"),
        ({"text": "a", "count": 5.5}, "count: "),
        ({"text": "a", "count": "5"}, "count: "),
        ({"text": "a", "metadata": {"k": ["\0"]}}, "metadata.k[0]: "),
    ],
)
def test_arguments_that_do_not_fit_are_named(client: httpx2.Client, arguments: dict[str, Any], words: str) -> None:
    answer = client.post("/v1/add", json=arguments)
    assert answer.status_code == 400
    assert words in answer.json()["error"]


def test_a_whole_number_may_be_written_with_a_fraction_and_free_data_stays_as_it_is(client: httpx2.Client) -> None:
    answer = client.post("/v1/add", content=b'{"text":"a","count":5.0,"metadata":{"n":5.0}}')
    assert answer.content == b'{"result":"stored","text":"a","count":5,"metadata":{"n":5.0}}'


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("invalid", 400),
        ("denied", 403),
        ("not_found", 404),
        ("conflict", 409),
        ("too_large", 413),
        ("overloaded", 429),
        ("unavailable", 503),
        ("internal", 500),
    ],
)
def test_a_failure_has_the_status_of_its_kind(client: httpx2.Client, kind: str, status: int) -> None:
    answer = client.post("/v1/fail", json={"kind": kind})
    assert answer.status_code == status
    assert answer.json()["code"] == kind
    assert list(answer.json())[:4] == FAILURE_KEYS
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert answer.headers.get("retry-after") == ("2" if kind == "overloaded" else None)


def test_a_fault_hides_its_text_from_the_caller_and_logs_it(
    client: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    answer = client.post("/v1/fail", json={"kind": "internal"})
    assert "tomato" not in answer.text
    assert "tomato" in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "/v1/nothing", 404, "not_found"),
        ("POST", "/v1/", 404, "not_found"),
        ("POST", "/v1/add/more", 404, "not_found"),
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v1/add", 405, "invalid"),
        ("POST", "/metrics", 405, "invalid"),
        ("DELETE", "/livez", 405, "invalid"),
        ("GET", "/schema", 404, "not_found"),
        ("GET", "/docs", 404, "not_found"),
        ("GET", "/..%2f..%2fetc/passwd", 404, "not_found"),
    ],
)
def test_what_the_framework_refuses_has_the_same_body(
    client: httpx2.Client, method: str, path: str, status: int, code: str
) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    assert list(answer.json()) == [*FAILURE_KEYS, "request_id"]
    assert answer.json()["code"] == code
    assert ("allow" in answer.headers) == (status == 405)


def test_the_token_opens_everything_and_nothing_but_health_is_open_without_it(url: str) -> None:
    with httpx2.Client(base_url=url) as stranger:
        assert [stranger.get(path).status_code for path in ("/livez", "/readyz", "/startupz")] == [200, 200, 200]
        for path in ("/metrics", "/openapi.json", "/mcp", "/nowhere"):
            assert stranger.get(path).status_code == 401
        assert stranger.post("/v1/add", json={"text": "a"}).status_code == 401
        assert stranger.get(f"/metrics?token={TOKEN}").status_code == 401


def test_a_strange_host_and_a_strange_origin_are_refused_on_every_wire(client: httpx2.Client) -> None:
    for path in ("/mcp", "/v1/add", "/metrics"):
        assert client.post(path, headers={"Host": "evil.example"}).status_code == 421
        assert client.post(path, headers={"Origin": "https://evil.example"}).status_code == 403
    assert client.get("/metrics", headers={"Host": "memory.example", "Origin": "https://a.example"}).status_code == 200


def pieces(size: int) -> Iterator[bytes]:
    """So many bytes of spaces in pieces, which are sent without a length."""
    for _ in range(0, size, 1000):
        yield b" " * 1000


@pytest.mark.parametrize("path", ["/v1/circumstances", "/mcp", "/nowhere"])
def test_a_body_over_the_limit_is_refused_whether_or_not_its_length_is_declared(
    client: httpx2.Client, path: str
) -> None:
    for content in (b" " * (BODY_BYTES_MAX + 1), pieces(BODY_BYTES_MAX + 1000)):
        answer = client.post(path, content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code == 413
        assert str(BODY_BYTES_MAX) in answer.text
    assert client.post("/v1/circumstances", content=pieces(BODY_BYTES_MAX)).status_code == 200


def test_metrics_are_told_in_the_text_format_and_random_paths_add_no_series(client: httpx2.Client) -> None:
    def series() -> set[str]:
        answer = client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        return {line.rpartition(" ")[0] for line in answer.text.splitlines() if not line.startswith("#")}

    client.post("/v1/add", json={"text": "a"})
    before = series()
    assert any('operation="add",outcome="ok",wire="rest"' in line for line in before)
    for number in range(500):
        client.get(f"/random/{number}")
        client.post(f"/v1/random{number}")
    assert series() == before


def test_the_document_of_all_operations_is_served(client: httpx2.Client) -> None:
    assert client.get("/openapi.json").json()["openapi"] == "3.1.0"


def test_readiness_says_what_is_in_the_way_while_the_server_lives() -> None:
    async def not_ready() -> str | None:
        return "the database is being migrated"

    settings = settings_for()
    with running(toy_catalogue(settings), settings, ready=not_ready) as url:
        answer = httpx2.get(f"{url}/readyz")
        assert httpx2.get(f"{url}/livez").status_code == 200
    assert answer.status_code == 503
    assert (answer.json()["error"], answer.json()["retry"]) == ("the database is being migrated", True)


def test_background_work_begins_before_the_first_answer_and_ends_after_the_last(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = settings_for()
    caplog.set_level(logging.INFO, "memory_svc")
    with running(toy_catalogue(settings), settings, background=[told()]) as url:
        httpx2.get(f"{url}/livez")
    events = [record.message for record in caplog.records if record.name == "memory_svc"]
    assert events == ["background began", "listening", "stopping", "background ended"]


def test_without_the_token_where_the_settings_allow_it() -> None:
    settings = settings_for(allow_unauthenticated_http=True)
    with running(toy_catalogue(settings), settings) as url:
        assert httpx2.post(f"{url}/v1/add", json={"text": "a"}).status_code == 200
        assert httpx2.get(f"{url}/metrics").status_code == 200


def test_bytes_that_are_no_http_do_not_hurt(url: str, client: httpx2.Client) -> None:
    assert exchange(url, b"\x16\x03\x01 nonsense\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert client.get("/livez").json() == {"ok": True}


def test_the_same_failure_is_told_in_the_same_words_over_rest_and_mcp(client: httpx2.Client) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    headers = {"Accept": "application/json, text/event-stream", "X-Request-Id": "same"}
    for kind in ("invalid", "denied", "not_found", "conflict", "too_large", "overloaded", "unavailable", "internal"):
        arguments = {"kind": kind}
        over_rest = client.post("/v1/fail", json=arguments, headers=headers).json()
        message = {**request, "params": {"name": "fail", "arguments": arguments}}
        events = client.post("/mcp", json=message, headers=headers).text
        data = next(line.removeprefix("data: ") for line in events.splitlines() if line.startswith("data: {"))
        result = json.loads(data)["result"]
        assert result["isError"] is True
        assert json.loads(result["content"][0]["text"]) == over_rest


def test_a_client_that_sends_its_whole_body_first_still_reads_why_it_was_refused(url: str) -> None:
    body = b'"' + b"x" * 12_000_000 + b'"'
    request = urllib.request.Request(f"{url}/v1/add", data=body, headers={"Authorization": f"Bearer {TOKEN}"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=20)
    assert refused.value.code == 413
    assert json.loads(refused.value.read())["code"] == "too_large"
