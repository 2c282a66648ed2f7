"""The routes over the test client, a model without weights behind them."""

import json
import logging
import random
import string
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from embed_svc import api, observe
from embed_svc.batching import Limits
from embed_svc.errors import PROBLEMS
from embed_svc.observe import Observer
from embed_svc.service import Embedder, Readiness
from embed_svc.settings import Settings
from embed_svc.wire import Observed
from tests.support.embed_model import FINGERPRINT, FakeModel

SETTINGS = Settings(body_bytes_max=65_536, queue_texts_max=150)


class Server:
    """An application on a fake model, not ready until told."""

    def __init__(self) -> None:
        self.model = FakeModel()
        self.observer = Observer(lambda: 12_345)
        self.readiness = Readiness(self.observer)
        self.embedder = Embedder(self.model, Limits(queue_texts_max=SETTINGS.queue_texts_max), self.observer)
        self.app: Litestar = api.create(SETTINGS, self.readiness, self.observer)
        self.client: TestClient[Any] = TestClient(Observed(self.app, self.observer), raise_server_exceptions=False)

    def post(self, body: Any, **headers: str) -> Any:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.post("/embed", content=content, headers={"content-type": "application/json", **headers})

    def series(self) -> set[str]:
        lines = self.client.get("/metrics").text.splitlines()
        return {line.rpartition(" ")[0] for line in lines if not line.startswith("#")}


@pytest.fixture
def loading() -> Iterator[Server]:
    """A server whose model is not there yet."""
    server = Server()
    with server.client:
        yield server
    server.model.gate.set()
    server.embedder.close()


@pytest.fixture
def server(loading: Server) -> Server:
    """A server that is ready."""
    loading.readiness.open(loading.embedder)
    return loading


def failure(response: Any, status: int, code: str) -> str:
    """Assert the one shape of failures; return its text."""
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"ok", "error", "code", "retry"}
    assert (body["ok"], body["code"]) == (False, code)
    assert body["retry"] is (code in {"overloaded", "unavailable"})
    assert ("retry-after" in response.headers) is body["retry"]
    return str(body["error"])


def test_texts_come_back_as_unit_vectors_with_their_identity(server: Server) -> None:
    response = server.post({"texts": ["one", "two", "one"]})
    assert response.status_code == 200
    body = response.json()
    assert set(body) == {"embeddings", "dimensions", "fingerprint"}
    assert (body["dimensions"], body["fingerprint"]) == (16, FINGERPRINT)
    assert body["embeddings"][0] == body["embeddings"][2] != body["embeddings"][1]
    np.testing.assert_allclose(np.linalg.norm(body["embeddings"], axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("role", ["document", "query"])
def test_both_roles_are_taken(server: Server, role: str) -> None:
    assert server.post({"texts": ["one"], "input_type": role}).status_code == 200


def test_a_hundred_texts_are_taken_in_order(server: Server) -> None:
    texts = [f"{'long ' * (index % 5)}{index}" for index in range(100)]
    together = server.post({"texts": texts}).json()["embeddings"]
    assert together[57] == server.post({"texts": [texts[57]]}).json()["embeddings"][0]


def test_scripts_emoji_and_controls_other_than_nul_are_texts(server: Server) -> None:
    assert server.post({"texts": ["日本語", "👩‍👩‍👧", "\t\n", " ", "\u202e", "\x7f", "a\u0300"]}).status_code == 200


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"texts": []}', "texts: expected `array` of length >= 1; send 1 to 100 texts"),
        (json.dumps({"texts": ["x"] * 101}).encode(), "texts: expected `array` of length <= 100"),
        (b'{"texts": "x"}', "texts: expected `array`, got `str`; send 1 to 100"),
        (b'{"texts": ["a", 5]}', "texts[1]: expected `str`, got `int`"),
        (b'{"texts": ["a", null]}', "texts[1]: expected `str`, got `null`"),
        (b'{"texts": ["a", "b", ""]}', "texts[2] is empty"),
        (b'{"texts": ["a", "b\\u0000c"]}', "texts[1] holds a NUL character (U+0000): remove it"),
        (b'{"texts": ["a", "\\ud800"]}', "texts[1] holds half a surrogate pair"),
        (b'{"texts": ["\\ud83d\\ude00", "x\\udc00y"]}', "texts[1] holds half a surrogate pair"),
        (b'{"texts": ["a"], "input_type": "\\ud800"}', "holds half a surrogate pair"),
        (b'{"texts": ["a"], "input_type": "passage"}', "input_type: invalid enum value"),
        (b'{"texts": ["a"], "colour": 1}', "unknown field `colour`"),
        (b'{"input_type": "query"}', "missing required field `texts`"),
        (b"[]", "the body: expected `object`, got `array`"),
        (b"", "send a JSON object in UTF-8"),
        (b"nonsense", "the body is not JSON"),
        (b'{"texts": ["a"', "the body is not JSON"),
        (b'{"texts": [NaN]}', "the body is not JSON"),
        (b'{"texts": ["\xff"]}', "the body is not UTF-8 (byte 12)"),
        ('{"texts": ["a"]}'.encode("utf-16"), "the body is not UTF-8"),
        (b'{"texts": ["\xed\xa0\x80"]}', "the body is not UTF-8"),
        (b"[" * 60_000, "nested too deep"),
        (b'{"texts": [' + b"9" * 5_000 + b"]}", "the body is not JSON: integer value out of range"),
        (b'{"texts": [1e999]}', "the body is not JSON: number out of range"),
    ],
)
def test_what_cannot_be_embedded_is_refused_by_index_field_and_remedy(server: Server, body: bytes, said: str) -> None:
    assert said in failure(server.post(body), 400, "invalid")
    assert server.model.batches == []


def test_a_refusal_never_repeats_a_long_input(server: Server) -> None:
    secret = "s3cret" * 1_000
    assert len(failure(server.post({"texts": ["a"], secret: 1}), 400, "invalid")) < 500


def test_any_bytes_get_an_answer_of_the_one_shape(server: Server) -> None:
    chance = random.Random(3)
    pieces = [b'{"texts":', b"[", b"]", b'"', b"\\ud8", b"\\u0000", b"\xff", b"a", b",", b"}", b"null", b"1"]
    for _ in range(300):
        body = b"".join(chance.choices(pieces, k=chance.randrange(12)))
        response = server.post(body)
        assert response.status_code in {200, 400}, body
        assert response.status_code == 200 or failure(response, 400, "invalid")


def test_a_body_over_the_limit_is_refused_naming_it(server: Server) -> None:
    said = failure(server.post({"texts": ["x" * 70_000]}), 413, "too_large")
    assert "65536 bytes" in said
    assert "EMBED_BODY_BYTES_MAX" in said


def test_a_body_in_pieces_over_the_limit_is_refused_too(server: Server) -> None:
    pieces = (b"x" * 10_000 for _ in range(8))
    failure(server.client.post("/embed", content=pieces), 413, "too_large")


def test_a_full_queue_answers_429_and_says_when_to_come_again(server: Server) -> None:
    server.model.gate.clear()
    held = threading.Thread(target=server.post, args=({"texts": ["x"] * 100},))
    held.start()
    text = ""
    for _ in range(500):
        text = server.client.get("/metrics").text
        if "embed_queue_texts 100.0" in text:
            break
    assert "embed_queue_texts 100.0" in text
    response = server.post({"texts": ["y"] * 51})
    assert "100 of 150 texts wait" in failure(response, 429, "overloaded")
    assert int(response.headers["retry-after"]) >= 1
    server.model.gate.set()
    held.join(10)
    assert server.post({"texts": ["y"] * 51}).status_code == 200


def test_while_the_model_loads_embedding_is_refused_with_the_reason_and_retry(loading: Server) -> None:
    loading.readiness.close("fetching onnx/model.onnx")
    assert "fetching onnx/model.onnx" in failure(loading.post({"texts": ["a"]}), 503, "unavailable")
    assert "fetching onnx/model.onnx" in failure(loading.client.get("/readyz"), 503, "unavailable")
    assert "fetching onnx/model.onnx" in failure(loading.client.get("/startupz"), 503, "unavailable")
    assert loading.client.get("/livez").json() == {"ok": True}


def test_a_ready_server_says_who_it_is(server: Server) -> None:
    assert server.client.get("/readyz").json() == {
        "ok": True,
        "model": "fake",
        "revision": "unpinned",
        "dimensions": 16,
        "fingerprint": FINGERPRINT,
    }
    assert server.client.get("/startupz").json() == {"ok": True}


def test_a_started_server_that_stops_being_ready_stays_started(server: Server) -> None:
    server.readiness.close("the server is stopping")
    assert server.client.get("/startupz").status_code == 200
    failure(server.client.get("/readyz"), 503, "unavailable")


def test_what_goes_wrong_inside_is_hidden_from_the_caller_and_logged_without_text(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.model.failure = RuntimeError("s3cret text of a caller")
    with caplog.at_level(logging.INFO, "embed_svc"):
        response = server.post({"texts": ["a s3cret"]})
    said = failure(response, 500, "internal")
    assert "s3cret" not in said
    logged = [record for record in caplog.records if record.message == "request failed"]
    assert len(logged) == 1
    fields = logged[0].__dict__["fields"]
    assert fields["error"] == "RuntimeError"
    assert fields["request_id"] == response.headers["x-request-id"]
    assert "s3cret" not in str([record.__dict__ for record in caplog.records])
    server.model.failure = None
    assert server.post({"texts": ["a"]}).status_code == 200


def test_unknown_routes_and_methods_have_the_same_shape(server: Server) -> None:
    assert "no such route" in failure(server.client.get("/nowhere"), 404, "not_found")
    response = server.client.get("/embed")
    assert "does not take this method" in failure(response, 405, "invalid")
    assert "POST" in response.headers["allow"]


def test_a_request_keeps_its_plain_id_and_gets_one_otherwise(server: Server) -> None:
    assert server.post({"texts": ["a"]}, **{"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    for odd in ("a b", "x" * 65, 'a"', ""):
        given = server.post({"texts": ["a"]}, **{"x-request-id": odd}).headers["x-request-id"]
        assert given != odd
        assert len(given) == 32


def test_every_request_is_logged_once_without_its_text_and_probes_are_not(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "embed_svc"):
        server.post({"texts": ["a s3cret", "another"]})
        for probe in ("/livez", "/readyz", "/startupz", "/metrics"):
            server.client.get(probe)
    (record,) = [record for record in caplog.records if record.message == "request"]
    fields = record.__dict__["fields"]
    assert (fields["route"], fields["status"], fields["texts"], fields["truncated"]) == ("/embed", 200, 2, 0)
    assert "s3cret" not in str(record.__dict__)


def test_the_openapi_document_is_plain_json_and_no_page_loads_anything(server: Server) -> None:
    document = server.client.get("/schema/openapi.json").json()
    assert set(document["paths"]) == set(observe.ROUTES) - {observe.UNMATCHED, "/schema/openapi.json"}
    operation = document["paths"]["/embed"]["post"]
    assert {"200", "400", "413", "429", "500", "503"} <= set(operation["responses"])
    assert document["components"]["schemas"]["EmbedRequest"]["properties"]["texts"]["maxItems"] == 100
    for page in ("/schema", "/schema/swagger", "/schema/redoc", "/docs", "/schema/elements"):
        assert "<script" not in server.client.get(page).text


def test_metrics_know_every_route_and_count_what_ran(server: Server) -> None:
    server.post({"texts": ["a b", "c"]})
    text = server.client.get("/metrics").text
    assert 'embed_requests_total{route="/embed",status="2xx"} 1.0' in text
    assert "embed_texts_total 2.0" in text
    assert "embed_tokens_total 5.0" in text
    assert "embed_resident_bytes 12345.0" in text
    assert "embed_batch_tokens_count 1.0" in text or "embed_batch_tokens_count 2.0" in text
    routes = {route.path for route in server.app.routes}
    assert {route for route in routes if "." in route or not route.startswith("/schema")} == (
        set(observe.ROUTES) - {observe.UNMATCHED}
    )


def test_no_request_whatever_adds_a_series(server: Server) -> None:
    before = server.series()
    chance = random.Random(5)
    for _ in range(1_000):
        path = "/" + "".join(chance.choices(string.ascii_letters + "/%20?=", k=chance.randrange(1, 20)))
        server.client.request(chance.choice(["GET", "POST", "PUT", "BREW"]), path, headers={"x-odd": path})
    server.post({"texts": ["a"]})
    server.post(b"nonsense")
    assert server.series() == before
    assert 'route="unmatched",status="4xx"' in server.client.get("/metrics").text


def test_every_kind_of_failure_has_a_status() -> None:
    assert {problem.kind for problem in PROBLEMS} == set(api.STATUS)
    assert msgspec.json.schema(api.Failure)["$defs"]["Failure"]["properties"]["code"]["enum"] == sorted(api.STATUS)
