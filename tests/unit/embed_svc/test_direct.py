"""Which requests go around the framework, and that it gets every other one as it came."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from embed_svc.batching import Limits
from embed_svc.direct import Direct
from embed_svc.guard import Token
from embed_svc.observe import Observer
from embed_svc.service import Embedder, Readiness
from tests.support.embed_model import FakeModel

BODY = json.dumps({"texts": ["one"]}).encode()
WHOLE = ({"type": "http.request", "body": BODY, "more_body": False},)
TOKEN = b"0123456789abcdef"


class Framework:
    """Stands in its place: takes note of what it is given."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Receive to the end of the body."""
        while True:
            self.given.append(await receive())
            if not self.given[-1].get("more_body"):
                return


class Asked:
    """What was sent, and what the framework was given of it."""

    def __init__(self, sent: list[Any], given: list[Any]) -> None:
        self.sent = sent
        self.given = given


@pytest.fixture
def readiness() -> Iterator[Readiness]:
    observer = Observer(lambda: 0)
    embedder = Embedder(FakeModel(), Limits(), observer)
    made = Readiness(observer)
    made.open(embedder)
    yield made
    embedder.close()


def ask(
    readiness: Readiness,
    messages: Any = WHOLE,
    path: str = "/embed",
    method: str = "POST",
    headers: Any = ((b"content-length", b"18"),),
    token: Token | None = None,
) -> Asked:
    """Send one request."""
    framework, sent, waiting = Framework(), list[Any](), list(messages)

    async def receive() -> Any:
        return waiting.pop(0) if waiting else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": list(headers)}
    asyncio.run(Direct(framework, readiness, 1_000, token)(scope, receive, send))
    return Asked(sent, framework.given)


def test_a_whole_body_that_the_route_takes_never_reaches_the_framework(readiness: Readiness) -> None:
    asked = ask(readiness)
    assert asked.given == []
    start, body = asked.sent
    assert start["status"] == 200
    assert dict(start["headers"]) == {
        b"content-type": b"application/json",
        b"content-length": str(len(body["body"])).encode(),
    }
    assert len(json.loads(body["body"])["embeddings"]) == 1


@pytest.mark.parametrize(
    ("messages", "asked"),
    [
        (WHOLE, {"method": "PUT"}),
        (WHOLE, {"path": "/embed/"}),
        (WHOLE, {"path": "/capabilities"}),
        (WHOLE, {"headers": ()}),
        (WHOLE, {"headers": ((b"content-length", b"1001"),)}),
        (WHOLE, {"headers": ((b"content-length", b"18"), (b"x-deadline-ms", b"1"), (b"x-deadline-ms", b"2"))}),
        (WHOLE, {"token": Token(TOKEN.decode())}),
        (
            ({"type": "http.request", "body": BODY[:5], "more_body": True}, {"type": "http.request", "body": BODY[5:]}),
            {},
        ),
        (({"type": "http.request", "body": b'{"texts": []}'},), {}),
        (({"type": "http.request", "body": b"nonsense"},), {}),
        (({"type": "http.disconnect"},), {}),
    ],
)
def test_whatever_is_odd_is_the_frameworks_as_it_came(readiness: Readiness, messages: Any, asked: Any) -> None:
    found = ask(readiness, messages, **asked)
    assert found.sent == []
    assert found.given == list(messages)


def test_with_its_token_a_request_is_ordinary(readiness: Readiness) -> None:
    headers = ((b"content-length", b"18"), (b"authorization", b"Bearer " + TOKEN))
    assert ask(readiness, headers=headers, token=Token(TOKEN.decode())).sent[0]["status"] == 200


def test_what_cannot_be_done_is_answered_as_the_framework_would(readiness: Readiness) -> None:
    readiness.close("the model is loading")
    start, body = ask(readiness).sent
    assert start["status"] == 503
    assert (b"retry-after", b"2") in start["headers"]
    assert json.loads(body["body"])["error"] == "not ready: the model is loading"
