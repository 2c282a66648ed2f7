"""The gate before every route, asked directly."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest

from memory_svc.errors import Invalid
from memory_svc.observe import Metrics
from memory_svc.transports.caller import caller_of
from memory_svc.transports.guard import Guard, Message, Receive, Scope, Send
from tests.support.toy_server import TOKEN, settings_for

BEARER = f"Bearer {TOKEN}"


class Asked:
    """What came of one request: the answer's status, headers and body, and what the app behind the guard saw."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.seen: Scope | None = None
        self.seen_body = b""

    @property
    def error(self) -> dict[str, Any]:
        """The failure in the answer."""
        body: dict[str, Any] = json.loads(self.body)
        return body.get("error", {}).get("data", body) if isinstance(body.get("error"), dict) else body

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stands behind the guard and says yes."""
        self.seen = scope
        self.seen_body = (await receive()).get("body", b"")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"yes"})

    async def send(self, message: Message) -> None:
        """Take the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        self.body += message.get("body", b"")


def ask(
    path: str = "/v1/add",
    headers: dict[str, str] | Iterable[tuple[str, str]] = (),
    *,
    parts: Iterable[bytes] = (b"",),
    method: str = "POST",
    metrics: Metrics | None = None,
    **settings: Any,
) -> Asked:
    """Ask the guard of a server with these settings; a good Host and the token are sent unless headers differ."""
    asked = Asked()
    given = {"host": "localhost:8402", "authorization": BEARER} | dict(headers)
    raw = [(name.encode(), value.encode("latin-1")) for name, value in given.items() if value]
    messages: list[Message] = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages[-1]["more_body"] = False

    async def receive() -> Message:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    scope = {"type": "http", "method": method, "path": path, "headers": raw}
    asyncio.run(Guard(asked.app, settings_for(**settings), TOKEN, metrics or Metrics())(scope, receive, asked.send))
    return asked


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8402", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8402", "LOCALHOST:80", "localhost \t"],
)
def test_a_loopback_host_is_let_in_with_any_port_or_none(host: str) -> None:
    assert ask(headers={"host": host}).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8402",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example@localhost",
        "localhost:8402:1",
        "localhost,evil.example",
        "10.0.0.5:8402",
        "::1",
        "[::1",
        "*",
    ],
)
def test_any_other_host_is_misdirected(host: str) -> None:
    asked = ask(headers={"host": host})
    assert asked.status == 421
    assert asked.error["code"] == "denied"
    assert "MEMORY_ALLOWED_HOSTS" in asked.error["error"]
    assert asked.seen is None


@pytest.mark.parametrize(
    ("allowed", "host", "status"),
    [
        ("memory.example", "memory.example", 200),
        ("memory.example", "MEMORY.example:443", 200),
        ("memory.example:443", "memory.example:443", 200),
        ("memory.example:443", "memory.example:80", 421),
        ("a.example , memory.example", "memory.example", 200),
        ("memory.example", "sub.memory.example", 421),
        ("*", "whatever.example", 200),
    ],
)
def test_a_host_that_the_settings_name_is_let_in(allowed: str, host: str, status: int) -> None:
    assert ask(headers={"host": host}, allowed_hosts=allowed).status == status


@pytest.mark.parametrize(
    "origin", ["", "http://localhost", "http://127.0.0.1:3000", "https://[::1]:1", "https://a.example"]
)
def test_a_program_and_a_page_of_this_machine_or_of_the_settings_may_call(origin: str) -> None:
    assert ask(headers={"origin": origin}, allowed_origins="https://A.example").status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "https://evil.example",
        "http://localhost.evil.example",
        "http://evil.example:80",
        "file://localhost",
        "http://a.example",
        "https://a.example:8443",
        "localhost",
    ],
)
def test_a_page_of_anywhere_else_may_not_call(origin: str) -> None:
    asked = ask(headers={"origin": origin}, allowed_origins="https://a.example")
    assert asked.status == 403
    assert asked.error["code"] == "denied"
    assert asked.seen is None


@pytest.mark.parametrize("header", ["", "Bearer wrong", "Basic abc", TOKEN, "Bearer wröng"])
@pytest.mark.parametrize("path", ["/v1/add", "/mcp", "/mcp/", "/metrics", "/openapi.json", "/nowhere", "/livez/x", "/"])
def test_without_the_token_no_route_is_reached(path: str, header: str) -> None:
    asked = ask(path, {"authorization": header})
    assert asked.status == 401
    assert asked.headers["www-authenticate"] == "Bearer"
    assert asked.error["code"] == "unauthenticated"
    assert asked.seen is None
    assert TOKEN.encode() not in asked.body


def test_callers_of_mcp_get_the_failure_inside_an_error_of_json_rpc() -> None:
    body = json.loads(ask("/mcp", {"authorization": ""}).body)
    assert (body["jsonrpc"], body["id"], body["error"]["code"]) == ("2.0", None, -32001)
    assert body["error"]["data"]["ok"] is False


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/startupz"])
def test_health_needs_no_token_and_may_be_asked_for_by_address_but_not_by_a_strange_name(path: str) -> None:
    assert ask(path, {"authorization": ""}).status == 200
    assert ask(path, {"authorization": "", "host": "10.0.0.5:8402"}).status == 200
    assert ask(path, {"authorization": "", "host": "[fd00::5]:8402"}).status == 200
    assert ask(path, {"authorization": "", "host": "evil.example"}).status == 421


def test_the_setting_that_says_so_lets_everyone_in_but_still_checks_host_and_origin() -> None:
    assert ask(headers={"authorization": ""}, allow_unauthenticated_http=True).status == 200
    assert ask(headers={"authorization": "Bearer wrong"}, allow_unauthenticated_http=True).status == 200
    assert ask(headers={"origin": "http://evil.example"}, allow_unauthenticated_http=True).status == 403
    assert ask(headers={"host": "evil.example"}, allow_unauthenticated_http=True).status == 421


def test_a_body_up_to_the_limit_comes_through_whole_and_a_larger_one_is_refused_by_its_declared_length() -> None:
    whole = ask(parts=[b"a" * 600, b"b" * 400], body_bytes_max=1000)
    assert (whole.status, whole.seen_body) == (200, b"a" * 600 + b"b" * 400)
    asked = ask(headers={"content-length": "1001"}, parts=[b""], body_bytes_max=1000)
    assert asked.status == 413
    assert asked.error["code"] == "too_large"
    assert asked.error["limit_bytes"] == 1000
    assert "1000 bytes" in asked.error["error"]


@pytest.mark.parametrize("declared", ["", "5", "x"])
def test_a_body_that_hides_its_length_is_counted_while_it_comes(declared: str) -> None:
    asked = ask(headers={"content-length": declared}, parts=[b"a" * 600, b"b" * 401], body_bytes_max=1000)
    assert asked.status == 413
    assert asked.seen is None


def test_of_a_body_that_came_whole_no_more_is_waited_for() -> None:
    asked, waited = Asked(), []
    messages: list[Message] = [{"type": "http.request", "body": b"a" * 1001, "more_body": False}]

    async def receive() -> Message:
        waited.append(not messages)
        return messages.pop() if messages else {"type": "http.disconnect"}

    headers = [(b"host", b"localhost"), (b"authorization", BEARER.encode())]
    scope = {"type": "http", "method": "POST", "path": "/v1/add", "headers": headers}
    guard = Guard(asked.app, settings_for(body_bytes_max=1000), TOKEN, Metrics())
    asyncio.run(guard(scope, receive, asked.send))
    assert (asked.status, waited) == (413, [False])


def test_a_client_that_leaves_before_its_body_ends_gets_no_answer_and_is_no_fault() -> None:
    asked = Asked()

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    headers = [(b"host", b"localhost"), (b"authorization", BEARER.encode())]
    scope = {"type": "http", "method": "POST", "path": "/v1/add", "headers": headers}
    asyncio.run(Guard(asked.app, settings_for(), TOKEN, Metrics())(scope, receive, asked.send))
    assert (asked.status, asked.seen) == (0, None)


@pytest.mark.parametrize(
    ("headers", "parts", "outcome"),
    [
        ({"authorization": "Bearer wrong"}, (b"",), "unauthenticated"),
        ({"host": "elsewhere.example"}, (b"",), "denied"),
        ({}, (b"x" * 50_001,), "too_large"),
    ],
)
def test_what_is_refused_is_counted_by_outcome(headers: dict[str, str], parts: tuple[bytes], outcome: str) -> None:
    metrics = Metrics()
    told = {"outcome": outcome}
    assert metrics.registry.get_sample_value("memory_refusals_total", told) == 0
    ask(headers=headers, parts=parts, metrics=metrics, body_bytes_max=50_000)
    assert metrics.registry.get_sample_value("memory_refusals_total", told) == 1


def test_the_request_id_is_in_the_header_of_every_answer_and_in_every_failure() -> None:
    assert ask(headers={"x-request-id": "my-id"}).headers["x-request-id"] == "my-id"
    refused = ask(headers={"x-request-id": "my-id", "authorization": ""})
    assert refused.headers["x-request-id"] == refused.error["request_id"] == "my-id"
    assert ask(headers={"x-request-id": "not sane"}).headers["x-request-id"] != "not sane"


def test_the_app_behind_gets_the_caller_and_header_values_without_space_around() -> None:
    asked = ask(headers={"x-request-id": "my-id \t", "mcp-method": "tools/call \t "})
    assert asked.seen is not None
    assert dict(asked.seen["headers"])[b"mcp-method"] == b"tools/call"
    assert caller_of(asked.seen).request_id == "my-id"
    assert caller_of(asked.seen).principal.name == "owner"


def test_a_token_in_the_address_is_none() -> None:
    asked = Asked()

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    query = f"token={TOKEN}&access_token={TOKEN}".encode()
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/metrics",
        "query_string": query,
        "headers": [(b"host", b"localhost")],
    }
    asyncio.run(Guard(asked.app, settings_for(), TOKEN, Metrics())(scope, receive, asked.send))
    assert asked.status == 401


PAGE = "https://app.example:8443"
PREFLIGHT = {
    "origin": PAGE,
    "authorization": "",
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization, content-type,mcp-protocol-version",
}


def test_a_listed_page_may_ask_without_a_token_whether_it_may_call() -> None:
    for path in ("/mcp", "/messages", "/v1/add"):
        asked = ask(path, PREFLIGHT, method="OPTIONS", cors_origins=f"https://b.example, {PAGE}")
        assert (asked.status, asked.body, asked.seen) == (204, b"", None)
        assert asked.headers["access-control-allow-origin"] == PAGE
        assert asked.headers["access-control-allow-headers"] == PREFLIGHT["access-control-request-headers"]
        assert "POST" in asked.headers["access-control-allow-methods"]
        assert asked.headers["vary"] == "Origin"


def test_a_listed_page_may_call_and_read_the_answer_and_what_is_refused() -> None:
    answered = ask("/mcp", {"origin": PAGE}, cors_origins=PAGE)
    refused = ask("/mcp", {"origin": PAGE, "authorization": "Bearer wrong"}, cors_origins=PAGE)
    assert (answered.status, refused.status) == (200, 401)
    for each in (answered, refused):
        assert each.headers["access-control-allow-origin"] == PAGE
        assert "Mcp-Session-Id" in each.headers["access-control-expose-headers"]
        assert "X-Request-Id" in each.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in each.headers


@pytest.mark.parametrize("settings", [{}, {"allowed_origins": PAGE}, {"cors_origins": "https://b.example"}])
def test_a_page_that_is_not_listed_may_neither_ask_nor_read(settings: dict[str, Any]) -> None:
    asked = ask("/mcp", PREFLIGHT, method="OPTIONS", **settings)
    assert asked.status == (401 if "allowed_origins" in settings else 403)
    assert "access-control-allow-origin" not in asked.headers
    read = ask("/mcp", {"origin": "http://localhost:3000"}, **settings)
    assert read.status == 200
    assert "access-control-allow-origin" not in read.headers


def test_answers_differ_by_origin_only_where_some_page_is_listed() -> None:
    assert ask().headers.get("vary") is None
    assert ask(cors_origins=PAGE).headers["vary"] == "Origin"


def test_names_of_headers_that_are_none_are_not_repeated() -> None:
    strange = {**PREFLIGHT, "access-control-request-headers": "x\x01y"}
    assert "access-control-allow-headers" not in ask(headers=strange, method="OPTIONS", cors_origins=PAGE).headers


def test_options_that_are_no_preflight_need_the_token() -> None:
    bare = {"origin": PAGE, "authorization": ""}
    assert ask(headers=bare, method="OPTIONS", cors_origins=PAGE).status == 401


@pytest.mark.parametrize("names", ["*", "app.example", "https://app.example/", "https://a.example;https://b.example/x"])
def test_what_is_no_origin_stops_the_start(names: str) -> None:
    with pytest.raises(Invalid, match="MEMORY_CORS_ORIGINS"):
        ask(cors_origins=names)
