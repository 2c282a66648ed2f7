"""The server as a whole over a model that is long in coming, fails, or recovers."""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

from embed_svc import app, choice, loading, self_test
from embed_svc.errors import Invalid, Unavailable
from embed_svc.models import MINILM, Model
from embed_svc.observe import Observer
from embed_svc.service import Readiness
from embed_svc.settings import Settings
from tests.support.embed_model import FakeModel

SECONDS_MAX = 10


@contextmanager
def running(obtain: app.Obtain, **settings: Any) -> Iterator[TestClient[Any]]:
    with TestClient(app.build(Settings(**settings), obtain), raise_server_exceptions=False) as client:
        yield client


def until(met: Callable[[], bool]) -> None:
    """Poll until it is so."""
    end = time.monotonic() + SECONDS_MAX
    while not met():
        assert time.monotonic() < end
        time.sleep(0.01)


def reason(client: TestClient[Any]) -> str:
    response = client.get("/readyz")
    return "" if response.status_code == 200 else str(response.json()["error"])


def test_it_listens_at_once_and_serves_when_the_model_has_come() -> None:
    come = threading.Event()

    def obtain(say: app.Say) -> Model:
        say("fetching onnx/model.onnx")
        assert come.wait(SECONDS_MAX)
        return FakeModel()

    with running(obtain) as client:
        assert client.get("/livez").status_code == 200
        until(lambda: reason(client) == "not ready: fetching onnx/model.onnx")
        assert client.get("/startupz").status_code == 503
        refused = client.post("/embed", json={"texts": ["a"]})
        assert (refused.status_code, refused.json()["retry"]) == (503, True)
        come.set()
        until(lambda: reason(client) == "")
        assert client.get("/startupz").status_code == 200
        assert client.post("/embed", json={"texts": ["a"]}).status_code == 200
        assert "embed_model_ready 1.0" in client.get("/metrics").text
        lines = client.get("/metrics").text.splitlines()
        (resident,) = [line for line in lines if line.startswith("embed_resident_bytes ")]
        assert float(resident.split()[1]) > 1e6


def test_what_may_pass_is_tried_again_until_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_RETRY_SECONDS", (0.01,))
    tries: list[int] = []

    def obtain(_: app.Say) -> Model:
        tries.append(1)
        if len(tries) < 4:
            raise Unavailable("onnx/model.onnx could not be fetched")
        return FakeModel()

    with running(obtain) as client:
        until(lambda: reason(client) == "")
    assert len(tries) == 4


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (Invalid("the files of x are not those that model.json records"), "not those that model.json records"),
        (MemoryError("8192 bytes at /secret"), "could not be loaded (MemoryError); the log has the details"),
    ],
)
def test_what_will_not_pass_is_told_and_not_tried_again(failure: Exception, said: str) -> None:
    tries: list[int] = []

    def obtain(_: app.Say) -> Model:
        tries.append(1)
        raise failure

    with running(obtain) as client:
        until(lambda: said in reason(client))
        assert "/secret" not in reason(client)
        assert client.get("/livez").status_code == 200
        time.sleep(0.05)
    assert tries == [1]


def test_a_model_that_fails_its_self_test_never_serves() -> None:
    def obtain(_: app.Say) -> Model:
        model = FakeModel(scale=3)
        self_test.self_test(model)
        return model

    with running(obtain) as client:
        until(lambda: "length 3.0000 instead of 1" in reason(client))
        assert client.post("/embed", json={"texts": ["a"]}).status_code == 503


def test_the_self_test_is_repeated_and_a_model_that_fails_it_serves_no_more_until_it_passes() -> None:
    model = FakeModel()
    with running(lambda _: model, self_test_seconds=1) as client:
        until(lambda: reason(client) == "")
        model.failure = RuntimeError("the processor is on fire")
        until(lambda: "the self-test failed (RuntimeError)" in reason(client))
        assert client.post("/embed", json={"texts": ["a"]}).status_code == 503
        assert client.get("/startupz").status_code == 200
        assert age(client) >= 1
        model.failure = None
        until(lambda: reason(client) == "")
        assert client.post("/embed", json={"texts": ["a"]}).status_code == 200
        assert age(client) < 1


def age(client: TestClient[Any]) -> float:
    lines = client.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("embed_self_test_age_seconds "))


def test_before_a_model_has_come_the_age_of_its_self_test_is_negative_and_nothing_is_known_of_it() -> None:
    def obtain(_: app.Say) -> Model:
        raise Unavailable("nothing there")

    with running(obtain) as client:
        until(lambda: "nothing there" in reason(client))
        assert age(client) == -1
        assert client.get("/capabilities").json()["fingerprint"] is None


def test_stopping_while_waiting_for_the_next_try_is_quick() -> None:
    def obtain(_: app.Say) -> Model:
        raise Unavailable("nothing there")

    with running(obtain) as client:
        until(lambda: "nothing there" in reason(client))
        started = time.monotonic()
    assert time.monotonic() - started < 2


def test_a_start_against_the_record_is_refused_before_anything_listens(tmp_path: Path) -> None:
    choice.keep(tmp_path / choice.RECORD_NAME, choice.new_record(MINILM.name, "test"))
    settings = Settings(data_dir=str(tmp_path), model="bge-m3", port=0)
    with pytest.raises(Invalid, match="EMBED_MODEL_REPLACES=all-MiniLM-L6-v2"):
        app.serve(settings)


def test_what_loading_has_made_is_not_looked_through_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "obtain_model", lambda *_: FakeModel())
    observer = Observer(lambda: 0)
    try:
        app._obtain(Settings(), lambda _: None, Readiness(observer))
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
