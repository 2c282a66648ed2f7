"""Callers of the embedding server over real sockets: those that leave, that wait too long, that send nonsense."""

import asyncio
import base64
import contextlib
import itertools
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import openai
import pytest

from embed_svc.machine import resident_bytes
from tests.support.embed_model import FakeModel, Served

pytestmark = pytest.mark.e2e
TOKEN = "an-open-secret-0123456789"


@pytest.fixture
def model() -> Iterator[FakeModel]:
    made = FakeModel(dimensions_min=4)
    yield made
    made.gate.set()


@pytest.fixture
def served(model: FakeModel) -> Iterator[Served]:
    with Served(model, queue_texts_max=200, queue_tokens_max=2_000) as made:
        yield made
        model.gate.set()


def until(met: Callable[[], bool]) -> None:
    """Poll until it is so."""
    end = time.monotonic() + 20
    while not met():
        assert time.monotonic() < end
        time.sleep(0.005)


def post(served: Served, body: Any, path: str = "/embed", **headers: str) -> httpx2.Response:
    with httpx2.Client(trust_env=False, timeout=30) as client:
        return client.post(served.url + path, json=body, headers=headers)


def in_background(served: Served, body: Any) -> threading.Thread:
    thread = threading.Thread(target=post, args=(served, body))
    thread.start()
    return thread


def raw(body: bytes, path: str = "/embed") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body


@pytest.mark.parametrize("path", ["/embed", "/v1/embeddings"])
def test_a_caller_that_leaves_takes_its_waiting_texts_along(served: Served, model: FakeModel, path: str) -> None:
    model.gate.clear()
    held = in_background(served, {"texts": ["the first"]})
    until(lambda: served.metric("embed_queue_texts") == 1)
    field = "texts" if path == "/embed" else "input"
    with socket.create_connection(("127.0.0.1", served.port)) as caller:
        caller.sendall(raw(json.dumps({field: [f"gone {number}" for number in range(50)]}).encode(), path))
        until(lambda: served.metric("embed_queue_tokens") == 150)
    until(lambda: served.metric("embed_queue_tokens") == 0)
    until(lambda: served.metric("embed_queue_texts") == 1)
    model.gate.set()
    held.join(20)
    assert post(served, {"texts": ["the next"]}).status_code == 200
    ran = [tokens for batch in model.batches for tokens in batch]
    assert len(ran) == 2
    until(lambda: served.metric(f'embed_requests_total{{route="{path}",status="4xx"}}') == 1)


def test_a_deadline_is_kept_whatever_the_model_does(served: Served, model: FakeModel) -> None:
    model.gate.clear()
    started = time.monotonic()
    late = post(served, {"texts": ["too late"]}, **{"x-deadline-ms": "200"})
    assert 0.2 <= time.monotonic() - started < 5
    assert (late.status_code, late.json()["code"], late.json()["retry"]) == (503, "unavailable", True)


def test_tokenising_and_encoding_go_on_while_a_batch_runs(served: Served, model: FakeModel) -> None:
    assert post(served, {"texts": ["known before"]}).status_code == 200
    model.gate.clear()
    held = in_background(served, {"texts": ["holds the model"]})
    until(lambda: served.metric("embed_queue_texts") == 1)
    behind = in_background(served, {"texts": ["waits, tokenised already"]})
    until(lambda: served.metric("embed_queue_tokens") == 4)
    assert served.metric("embed_queue_age_seconds") > 0
    assert post(served, {"texts": ["counted"]}, "/count_tokens").status_code == 200
    assert post(served, {"texts": ["known before"]}).status_code == 200
    assert served.metric('embed_cache_total{outcome="hit"}') == 1
    model.gate.set()
    held.join(20)
    behind.join(20)


def test_a_queue_full_of_tokens_answers_429(served: Served, model: FakeModel) -> None:
    model.gate.clear()
    threads = [in_background(served, {"texts": ["holds"]})]
    until(lambda: served.metric("embed_queue_texts") == 1)
    threads.append(in_background(served, {"texts": ["word " * 31] * 60}))
    until(lambda: served.metric("embed_queue_tokens") == 60 * 32)
    refused = post(served, {"texts": ["word " * 31] * 3})
    assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
    assert "1920 of 2000 tokens wait" in refused.json()["error"]
    assert int(refused.headers["retry-after"]) >= 1
    model.gate.set()
    for thread in threads:
        thread.join(20)
    assert post(served, {"texts": ["word " * 31] * 60}).status_code == 200
    over = post(served, {"texts": ["another " * 31] * 63})
    assert (over.status_code, over.json()["code"]) == (413, "too_large")
    assert "2016 tokens, over 2000" in over.json()["error"]


def test_bodies_that_are_held_at_once_are_bounded(model: FakeModel) -> None:
    with Served(model, bodies_bytes_max=100_000) as served:
        model.gate.clear()
        threads = [in_background(served, {"texts": ["x" * 30_000]}) for _ in range(3)]
        until(lambda: served.metric("embed_queue_texts") == 3)
        refused = post(served, {"texts": ["y" * 30_000]})
        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
        model.gate.set()
        for thread in threads:
            thread.join(20)
        assert post(served, {"texts": ["y" * 30_000]}).status_code == 200


def test_after_a_failure_the_cache_does_not_make_the_model_look_sound(served: Served, model: FakeModel) -> None:
    before = post(served, {"texts": ["known"]}).json()
    model.failure = RuntimeError("broken")
    assert post(served, {"texts": ["known"]}).json() == before
    assert post(served, {"texts": ["new"]}).status_code == 500
    assert post(served, {"texts": ["known"]}).status_code == 500
    model.failure = None
    assert post(served, {"texts": ["known"]}).json() == before


def test_openais_library_works_against_it(served: Served) -> None:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0) as client:
        one = client.embeddings.create(model="text-embedding-3-small", input="hello")
        assert (one.object, one.model, one.data[0].index, one.usage.total_tokens) == ("list", "fake", 0, 2)
        many = client.embeddings.create(model="fake", input=["hello", "world"], encoding_format="float")
        np.testing.assert_allclose(many.data[0].embedding, one.data[0].embedding, rtol=1e-6)
        packed = client.embeddings.create(model="fake", input="world", encoding_format="base64")
        held: Any = packed.data[0].embedding
        np.testing.assert_array_equal(np.frombuffer(base64.b64decode(held), "<f4"), np.float32(many.data[1].embedding))
        assert len(client.embeddings.create(model="fake", input=[[5, 6], [7]]).data) == 2
        assert len(client.embeddings.create(model="fake", input=[5, 6]).data) == 1
        short = client.embeddings.create(model="fake", input="hello", dimensions=8).data[0].embedding
        np.testing.assert_allclose(np.linalg.norm(short), 1, atol=1e-6)
        assert len(short) == 8
        with pytest.raises(openai.BadRequestError, match=r"input\[0\]: expected `str` of length >= 1"):
            client.embeddings.create(model="fake", input=[""])
        with pytest.raises(openai.BadRequestError, match="another is served here"):
            client.embeddings.create(model="bge-m3", input="hello")


def test_openais_library_comes_again_when_told_to(served: Served, model: FakeModel) -> None:
    model.gate.clear()
    held = in_background(served, {"texts": ["x"] * 100})
    until(lambda: served.metric("embed_queue_texts") == 100)
    other = in_background(served, {"texts": ["y"] * 100})
    until(lambda: served.metric("embed_queue_texts") == 200)
    opened = threading.Timer(0.5, model.gate.set)
    opened.start()
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=5) as client:
        assert len(client.embeddings.create(model="fake", input="z").data) == 1
    assert served.metric('embed_requests_total{route="/v1/embeddings",status="4xx"}') >= 1
    for thread in (held, other, opened):
        thread.join(20)


def test_with_a_token_every_route_but_the_probes_asks_for_it(model: FakeModel, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    with Served(model, token_file=str(file)) as served, httpx2.Client(base_url=served.url, trust_env=False) as client:
        for probe in ("/livez", "/readyz", "/startupz"):
            assert client.get(probe).status_code == 200
        calls = [
            ("POST", "/embed"),
            ("POST", "/v1/embeddings"),
            ("POST", "/count_tokens"),
            ("GET", "/capabilities"),
            ("GET", "/metrics"),
            ("GET", "/schema/openapi.json"),
        ]
        for method, path in calls:
            for given in (None, "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", f"Bearer  x{TOKEN}", "Bearer \xe9"):
                headers = [] if given is None else [(b"authorization", given.encode("latin-1"))]
                refused = client.request(method, path, headers=headers, content=b"{")
                assert refused.status_code == 401, (path, given)
                assert refused.headers["www-authenticate"] == "Bearer"
                assert refused.json()["code"] == "unauthenticated"
                assert TOKEN not in refused.text
            ok = client.request(
                method,
                path,
                headers={"authorization": f"bearer {TOKEN}"},
                json={"input": "a"} if path == "/v1/embeddings" else {"texts": ["a"]},
            )
            assert ok.status_code == 200, ok.text
        with openai.OpenAI(base_url=f"{served.url}/v1", api_key=TOKEN, max_retries=0) as library:
            assert len(library.embeddings.create(model="fake", input="a").data) == 1


def test_nothing_sent_makes_it_crash_spin_or_grow(served: Served, model: FakeModel) -> None:
    chance = random.Random(11)
    valid = raw(json.dumps({"texts": ["a b", "c"]}).encode())
    assert post(served, {"texts": ["warm"]}).status_code == 200
    before = resident_bytes()
    for number in range(400):
        sent = bytearray(valid if number % 3 else chance.randbytes(chance.randrange(400)))
        for _ in range(chance.randrange(6)):
            if sent:
                sent[chance.randrange(len(sent))] = chance.randrange(256)
        del sent[chance.randrange(len(sent) + 1) :]
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as caller:
            caller.sendall(bytes(sent))
            if number % 4 == 0:
                caller.shutdown(socket.SHUT_WR)
                while caller.recv(65_536):
                    pass
    until(lambda: served.app.at_work == 0)
    assert served.metric("embed_queue_texts") == 0
    assert post(served, {"texts": ["still here"]}).status_code == 200
    assert resident_bytes() - before < 50e6
    started = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - started < 0.4


async def test_a_hundred_callers_at_once_get_their_own_in_order(served: Served) -> None:
    texts = [[f"caller {caller} text {number}" for number in range(1 + caller % 3)] for caller in range(100)]
    limits = httpx2.Limits(max_connections=100)
    async with httpx2.AsyncClient(base_url=served.url, trust_env=False, timeout=60, limits=limits) as client:

        async def ask(mine: list[str]) -> list[list[float]]:
            for _ in range(50):
                answer = await client.post("/embed", json={"texts": mine})
                if answer.status_code == 200:
                    return list(answer.json()["embeddings"])
                assert answer.status_code == 429
                await asyncio.sleep(0.05)
            raise AssertionError("never answered")

        together = await asyncio.gather(*(ask(mine) for mine in texts))
        alone = await ask(texts[98])
    assert together[98] == alone
    assert [len(rows) for rows in together] == [len(mine) for mine in texts]


@pytest.mark.parametrize(
    "begin",
    [
        b"GET /livez HTTP/1.1\r\nHost: x\r\nX: ",
        b"POST /embed HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX: ",
        b"POST /embed HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;x=",
    ],
    ids=["header", "trailer", "chunk extension"],
)
def test_what_has_no_end_and_is_no_body_is_cut_off(served: Served, begin: bytes) -> None:
    before = resident_bytes()
    with socket.create_connection(("127.0.0.1", served.port), 10) as caller:
        caller.sendall(begin)
        with contextlib.suppress(ConnectionError):
            for _ in range(10_000):
                caller.sendall(b"v" * 10_000)
            pytest.fail("a hundred megabytes were taken")
    assert resident_bytes() - before < 20e6
    assert post(served, {"texts": ["still here"]}).status_code == 200


def test_a_caller_that_asks_whether_to_send_its_body_is_told_to(served: Served) -> None:
    body = json.dumps({"texts": ["a"]}).encode()
    head, _, _ = raw(body).partition(b"\r\n\r\n")
    with socket.create_connection(("127.0.0.1", served.port), 10) as caller:
        caller.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
        assert caller.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        caller.sendall(body)
        assert caller.recv(65_536).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_body_in_pieces_is_answered_as_a_whole_one_is(served: Served) -> None:
    sent = raw(json.dumps({"texts": ["a b", "c"]}).encode())
    answers = []
    for cuts in ([], [20], [len(sent) - 9], [len(sent) - 30, len(sent) - 10, len(sent) - 1]):
        with socket.create_connection(("127.0.0.1", served.port), 10) as caller:
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for begin, end in itertools.pairwise([0, *cuts, len(sent)]):
                caller.sendall(sent[begin:end])
                time.sleep(0.02)
            head, _, body = caller.recv(65_536).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            answers.append(body)
    assert len(set(answers)) == 1


def test_requests_sent_without_waiting_are_answered_in_their_order(served: Served) -> None:
    sent = b"".join(raw(json.dumps({"texts": ["word"] * count}).encode(), "/count_tokens") for count in (1, 2, 3))
    with socket.create_connection(("127.0.0.1", served.port), 10) as caller, caller.makefile("rb") as reader:
        caller.sendall(sent)
        counts = []
        for _ in range(3):
            lines = list(itertools.takewhile(lambda line: line != b"\r\n", reader))
            length = next(int(line.split()[1]) for line in lines if line.startswith(b"content-length"))
            counts.append(len(json.loads(reader.read(length))["token_info"]))
    assert counts == [1, 2, 3]
