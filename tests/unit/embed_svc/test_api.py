"""The routes over the test client, a model without weights behind them."""

import base64
import json
import logging
import random
import string
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from embed_svc import api, failures, models, observe
from embed_svc.batching import Limits
from embed_svc.direct import Direct
from embed_svc.errors import PROBLEMS
from embed_svc.identity import identify
from embed_svc.observe import Observer
from embed_svc.service import Embedder, Readiness
from embed_svc.settings import Settings
from embed_svc.wire import Observed
from tests.support.embed_model import FINGERPRINT, FakeModel

SETTINGS = Settings(body_bytes_max=65_536, queue_texts_max=150)


class Server:
    """An application on a fake model, not ready until told."""

    def __init__(self, model: FakeModel | None = None, around: bool = True) -> None:
        """`around` the framework go ordinary requests; else it answers all."""
        self.model = model or FakeModel()
        self.observer = Observer(lambda: 12_345)
        self.readiness = Readiness(self.observer)
        self.embedder = Embedder(self.model, Limits(queue_texts_max=SETTINGS.queue_texts_max), self.observer)
        self.app: Litestar = api.create(SETTINGS, self.readiness, self.observer)
        served = Direct(self.app, self.readiness, SETTINGS.body_bytes_max) if around else self.app
        self.client: TestClient[Any] = TestClient(Observed(served, self.observer), raise_server_exceptions=False)

    def post(self, body: Any, path: str = "/embed", **headers: str) -> Any:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.post(path, content=content, headers={"content-type": "application/json", **headers})

    def series(self) -> set[str]:
        lines = self.client.get("/metrics").text.splitlines()
        return {line.rpartition(" ")[0] for line in lines if not line.startswith("#")}


@pytest.fixture(params=["around the framework", "through the framework"])
def loading(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server whose model is not there yet; whichever way a request goes, it is answered alike."""
    server = Server(around=request.param == "around the framework")
    with server.client:
        yield server
    server.model.gate.set()
    server.embedder.close()


@pytest.fixture
def server(loading: Server) -> Server:
    """A server that is ready."""
    loading.readiness.open(loading.embedder)
    return loading


def until(met: Callable[[], bool]) -> None:
    """Poll until it is so."""
    end = time.monotonic() + 10
    while not met():
        assert time.monotonic() < end


def failure(response: Any, status: int, code: str) -> str:
    """Assert the one shape of failures; return its text."""
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"ok", "error", "code", "retry"}
    assert (body["ok"], body["code"]) == (False, code)
    assert body["retry"] is (code in {"overloaded", "unavailable"})
    assert ("retry-after" in response.headers) is body["retry"]
    if isinstance(body["error"], dict):
        assert set(body["error"]) == {"message", "type", "param", "code"}
        assert body["error"]["code"] == code
        return str(body["error"]["message"])
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
        (
            b'{"texts": ["a", "b", ""]}',
            "texts[2]: expected `str` of length >= 1; send 1 to 100 texts, each a non-empty",
        ),
        (b'{"texts": ["a", "b\\u0000c"]}', "texts[1] holds a NUL character (U+0000): remove it"),
        (b'{"texts": ["a", "\\ud800"]}', "texts[1] holds half a surrogate pair"),
        (b'{"texts": ["\\ud83d\\ude00", "x\\udc00y"]}', "texts[1] holds half a surrogate pair"),
        (b'{"texts": ["a"], "input_type": "\\ud800"}', "holds half a surrogate pair"),
        (b'{"texts": ["a"], "input_type": "passage"}', "input_type: invalid enum value"),
        (b'{"texts": ["a"], "colour": 1}', "unknown field `colour`"),
        (b'{"texts": ["a"], "token_info": []}', "token_info: expected `bool`, got `array`; send true or false"),
        (b'{"texts": ["a"], "encoding_format": "hex"}', "encoding_format: invalid enum value"),
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


def test_token_info_tells_how_far_each_text_was_read(server: Server) -> None:
    texts = ["a b", " ".join("word" for _ in range(40))]
    body = server.post({"texts": texts, "token_info": True}).json()
    assert set(body) == {"embeddings", "dimensions", "fingerprint", "token_info"}
    assert body["token_info"] == [
        {"count": 3, "window": 32, "truncated": False, "window_end_char": 3},
        {"count": 41, "window": 32, "truncated": True, "window_end_char": 31 * 5 - 1},
    ]
    assert server.post({"texts": texts}, "/count_tokens").json() == {"token_info": body["token_info"]}


def test_every_route_tells_which_texts_were_cut(server: Server) -> None:
    long, short = "word " * 40, "word"
    for path, field in (("/embed", "texts"), ("/v1/embeddings", "input")):
        assert server.post({field: [long, short, long, long]}, path).headers["x-embed-truncated"] == "0,2-3"
        assert "x-embed-truncated" not in server.post({field: [short]}, path).headers


def test_counting_runs_no_model(server: Server) -> None:
    assert server.post({"texts": ["a", "b c"]}, "/count_tokens").status_code == 200
    assert server.model.batches == []
    assert "texts[1]: expected `str` of length >= 1" in failure(
        server.post({"texts": ["a", ""]}, "/count_tokens"), 400, "invalid"
    )


def test_base64_holds_the_same_numbers(server: Server) -> None:
    plain = server.post({"texts": ["one", "two"]}).json()
    packed = server.post({"texts": ["one", "two"], "encoding_format": "base64"}).json()
    assert {**packed, "embeddings": None} == {**plain, "embeddings": None}
    rows = [np.frombuffer(base64.b64decode(row), "<f4") for row in packed["embeddings"]]
    np.testing.assert_array_equal(rows, np.array(plain["embeddings"], np.float32))


@pytest.mark.parametrize("given", ["one", ["one"], [7, 8], [[7, 8]]])
def test_openais_route_takes_every_kind_of_input(server: Server, given: Any) -> None:
    body = server.post({"input": given, "model": "text-embedding-3-small", "user": "u"}, "/v1/embeddings").json()
    assert set(body) == {"object", "data", "model", "usage"}
    (one,) = body["data"]
    assert (body["object"], one["object"], one["index"], body["model"]) == ("list", "embedding", 0, "fake")
    assert len(one["embedding"]) == 16
    tokens = 2 if isinstance(given, str) or given == ["one"] else 3
    assert body["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


def test_openais_route_gives_what_the_other_route_gives(server: Server) -> None:
    texts = ["one", "two", "three"]
    ours = server.post({"texts": texts}).json()["embeddings"]
    theirs = server.post({"input": texts}, "/v1/embeddings").json()["data"]
    assert [one["embedding"] for one in theirs] == ours
    assert [one["index"] for one in theirs] == [0, 1, 2]
    packed = server.post({"input": "two", "encoding_format": "base64"}, "/v1/embeddings").json()["data"][0]
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(packed["embedding"]), "<f4"), np.float32(ours[1]))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"input": []}, "input: expected `array` of length >= 1"),
        ({"input": ["x"] * 2_049}, "input: there are 2049"),
        ({"input": ""}, "input: expected `str` of length >= 1; send a text, or a list"),
        ({"input": ["a", ""]}, "input[1]: expected `str` of length >= 1"),
        ({"input": ["a\0"]}, "input[0] holds a NUL"),
        ({"input": ["a", 1]}, "input[1] is of another kind"),
        ({"input": [1, "a"]}, "input[1] is of another kind"),
        ({"input": [[1], []]}, "input[1]: expected `array` of length >= 1"),
        ({"input": [[1], [-1]]}, "input[1][0]: expected `int` >= 0"),
        ({"input": [[1], [2_000]]}, "input[1][0] is no token"),
        ({"input": None}, "input: expected"),
        ({"input": [1.5]}, "input[0]: expected"),
        ({"input": [True]}, "input[0]: expected"),
        ({}, "missing required field `input`"),
        ({"input": "a", "model": "bge-m3"}, "model: another is served here, fake"),
        ({"input": "a", "model": 3}, "model: expected `str`"),
        ({"input": "a", "dimensions": 8}, "dimensions: fake gives 16 and is not made to be cut"),
        ({"input": "a", "dimensions": 0}, "dimensions: expected `int` >= 1"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format: invalid enum value"),
    ],
)
def test_what_openais_route_cannot_take_is_refused_by_index_and_field(
    server: Server, body: dict[str, Any], said: str
) -> None:
    assert said in failure(server.post(body, "/v1/embeddings"), 400, "invalid")
    assert server.model.batches == []


def test_vectors_are_cut_and_scaled_again_where_the_model_is_made_for_it() -> None:
    made = Server(FakeModel(dimensions_min=4))
    made.readiness.open(made.embedder)
    with made.client:
        whole = np.array(made.post({"input": "one"}, "/v1/embeddings").json()["data"][0]["embedding"])
        short = np.array(made.post({"input": "one", "dimensions": 8}, "/v1/embeddings").json()["data"][0]["embedding"])
        np.testing.assert_allclose(short, whole[:8] / np.linalg.norm(whole[:8]), atol=1e-6)
        said = failure(made.post({"input": "one", "dimensions": 3}, "/v1/embeddings"), 400, "invalid")
        assert said == "dimensions: fake can give 4 to 16"
    made.embedder.close()


def test_capabilities_tell_who_embeds_and_what_is_not_known(server: Server) -> None:
    nothing = server.client.get("/capabilities").json()
    assert nothing["fingerprint"] is None
    assert "model" in nothing["incomplete"]
    server.readiness.declare(identify(models.FALLBACK, "1", "[SEP]", {"graph": "aa", "tokenizer": "bb"}))
    known = server.client.get("/capabilities").json()
    assert known["incomplete"] == []
    assert known["fingerprint"].startswith("1:")
    assert known["identity"] == {
        "provider": "onnx",
        "model": "all-MiniLM-L6-v2",
        "revision": "1",
        "dimensions": 384,
        "window": 256,
        "pooling": "mean",
        "prefixes": {"query": "", "document": ""},
        "eos": "[SEP]",
        "precision": "int8",
        "normalized": True,
        "digests": {"graph": "aa", "tokenizer": "bb"},
    }


def test_without_a_fingerprint_vectors_say_so() -> None:
    model = FakeModel()
    model.info = msgspec.structs.replace(model.info, fingerprint=None)
    made = Server(model)
    made.readiness.open(made.embedder)
    with made.client:
        assert made.post({"texts": ["one"]}).json()["fingerprint"] is None
        assert made.client.get("/readyz").json()["fingerprint"] is None
    made.embedder.close()


@pytest.mark.parametrize("given", ["", "soon", "-1", "1.5", "86400001", "9" * 400, "١"])
def test_a_deadline_that_is_no_number_is_refused(server: Server, given: str) -> None:
    headers = [(b"x-deadline-ms", given.encode())]
    response = server.client.post("/embed", content=b'{"texts": ["a"]}', headers=headers)
    assert "x-deadline-ms: send whole milliseconds" in failure(response, 400, "invalid")


def test_a_deadline_that_passes_is_answered_and_its_work_is_dropped(server: Server) -> None:
    server.model.gate.clear()
    held = threading.Thread(target=server.post, args=({"texts": ["x"]},))
    held.start()
    until(lambda: "embed_queue_texts 1.0" in server.client.get("/metrics").text)
    late = server.post({"texts": ["too late"]}, **{"x-deadline-ms": "50"})
    assert "deadline of 50 ms has passed" in failure(late, 503, "unavailable")
    assert "embed_queue_texts 1.0" in server.client.get("/metrics").text
    assert "embed_queue_tokens 0.0" in server.client.get("/metrics").text
    server.model.gate.set()
    held.join(10)
    assert server.post({"texts": ["in time"]}, **{"x-deadline-ms": "10000"}).status_code == 200
    assert len(server.model.batches) == 2


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
    assert {problem.kind for problem in PROBLEMS} == set(failures.STATUS)
    assert msgspec.json.schema(failures.Failure)["$defs"]["Failure"]["properties"]["code"]["enum"] == sorted(
        failures.STATUS
    )
