"""The embedding server as a process, on the model that the package index carries; no network but loopback."""

import concurrent.futures
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers

from embed_svc.self_test import PARAPHRASE, QUESTION, STRANGER
from tests.support.embed_model import COMMIT, HUB_REPO, Hub

pytestmark = [pytest.mark.e2e, pytest.mark.model]

MODEL = "all-MiniLM-L6-v2"
SECONDS_MAX = 60


class Process:
    """A server process: its port, its folder, its log; unset settings are as shipped."""

    def __init__(self, data_dir: Path, log: Path, **settings: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = log
        # Where no hub may be asked the packaged model is chosen, on any machine.
        hub = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(data_dir.parent / "hub")}
        chosen = {"EMBED_PORT": str(self.port), "EMBED_DATA_DIR": str(data_dir)} | hub | settings
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("EMBED_", "HF_"))}
        self.out = log.with_suffix(".out")
        with log.open("ab") as stderr, self.out.open("ab") as stdout:
            self.popen = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "embed_svc", "serve"],
                env=inherited | chosen,
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
            )

    def call(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS_MAX)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        return response.status, json.loads(content) if content[:1] == b"{" else content.decode()

    def embed(self, texts: list[str], role: str = "document") -> Any:
        status, body = self.call("POST", "/embed", json.dumps({"texts": texts, "input_type": role}).encode())
        assert status == 200, body
        return np.array(body["embeddings"], np.float32)

    def until(self, path: str) -> Any:
        """Poll until the route answers 200; return its body."""
        end = time.monotonic() + SECONDS_MAX
        while True:
            assert self.popen.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            try:
                status, body = self.call("GET", path)
            except ConnectionError:
                status, body = 0, None
            if status == 200:
                return body
            time.sleep(0.02)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def until_not_ready(self, reason: str) -> None:
        """Poll until /readyz tells this reason."""
        end = time.monotonic() + SECONDS_MAX
        while reason not in str(self.call("GET", "/readyz")[1]):
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; return its exit status."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        return self.popen.wait(SECONDS_MAX)

    def end(self) -> None:
        """Stop it if it runs; standard output was left alone."""
        self.stop()
        assert self.popen.stdin is not None
        self.popen.stdin.close()
        assert self.out.read_bytes() == b""


class Host:
    """Starts servers on one data folder and ends every one it started."""

    def __init__(self, folder: Path) -> None:
        self.data_dir = folder / "data"
        self.record_file = self.data_dir / "model.json"
        self._folder = folder
        self._started: list[Process] = []

    def start(self, **settings: str) -> Process:
        process = Process(self.data_dir, self._folder / f"log{len(self._started)}", **settings)
        self._started.append(process)
        return process

    def record(self) -> Any:
        return json.loads(self.record_file.read_bytes())

    def end(self) -> None:
        for process in self._started:
            process.end()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.end()


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One ready server for the tests that only ask it."""
    made = Host(tmp_path_factory.mktemp("ready"))
    process = made.start()
    process.until("/readyz")
    yield process
    made.end()


def test_a_paraphrase_is_nearer_than_a_stranger_and_every_vector_has_length_one(ready: Process) -> None:
    question = ready.embed(["How can I speed up my database queries?"], "query")
    near, far = ready.embed(["Add an index on the columns you filter by.", "The cat slept on the warm windowsill."])
    np.testing.assert_allclose(np.linalg.norm([question[0], near, far], axis=1), 1, atol=1e-5)
    assert question.shape == (1, 384)
    assert float(question[0] @ near) > float(question[0] @ far) + 0.1


def test_a_vector_does_not_depend_on_its_batch_mates(ready: Process) -> None:
    words = Path(__file__).read_text().split()
    texts = [" ".join(words[index : index + 1 + index * 2 % 90]) for index in range(40)]
    together = ready.embed(texts)
    alone = np.concatenate([ready.embed([text]) for text in texts])
    assert (together * alone).sum(axis=1).min() >= 0.9999


def test_callers_at_once_get_what_they_get_alone(ready: Process) -> None:
    texts = [f"caller {index} asks about subject number {index * index}" for index in range(24)]
    alone = np.concatenate([ready.embed([text]) for text in texts])
    with concurrent.futures.ThreadPoolExecutor(8) as callers:
        together = np.concatenate(list(callers.map(lambda text: ready.embed([text]), texts)))
    assert (together * alone).sum(axis=1).min() >= 0.9999


def test_text_beyond_the_window_changes_nothing_and_is_counted(ready: Process) -> None:
    words = "apple river stone cloud " * 100
    one, other = ready.embed([words + "first ending", words + "second ending entirely"])
    np.testing.assert_array_equal(one, other)
    _, metrics = ready.call("GET", "/metrics")
    assert "embed_truncated_total 2.0" in metrics


def test_a_text_of_any_length_is_cut_alike_on_every_route(ready: Process) -> None:
    text = "apple river stone cloud " * 1_334 + "endings"
    assert len(text) > 31_999
    _, ours = ready.call("POST", "/embed", json.dumps({"texts": ["short", text], "token_info": True}).encode())
    _, theirs = ready.call("POST", "/v1/embeddings", json.dumps({"input": ["short", text]}).encode())
    _, counted = ready.call("POST", "/count_tokens", json.dumps({"texts": ["short", text]}).encode())
    assert counted["token_info"] == ours["token_info"]
    told = ours["token_info"][1]
    assert (told["truncated"], told["window"]) == (True, 256)
    (up_to,) = ready.embed([text[: told["window_end_char"]]])
    np.testing.assert_allclose(ours["embeddings"][1], up_to, atol=1e-6)
    np.testing.assert_allclose(theirs["data"][1]["embedding"], up_to, atol=1e-6)
    assert theirs["usage"]["total_tokens"] == 256 + ours["token_info"][0]["count"]


def test_a_body_over_the_limit_is_answered_over_a_real_connection(ready: Process) -> None:
    status, body = ready.call("POST", "/embed", json.dumps({"texts": ["x" * 5_000_000]}).encode())
    assert (status, body["code"]) == (413, "too_large")
    assert "4194304 bytes" in body["error"]


def test_half_a_surrogate_pair_and_nul_are_refused_and_the_server_goes_on(ready: Process) -> None:
    for body in (b'{"texts": ["a", "\\ud800"]}', b'{"texts": ["a", "\\u0000"]}'):
        status, answer = ready.call("POST", "/embed", body)
        assert (status, answer["code"]) == (400, "invalid")
        assert "texts[1]" in answer["error"]
    assert len(ready.embed(["still here"])) == 1


def test_the_log_is_json_on_stderr_and_holds_no_text(ready: Process) -> None:
    ready.embed(["s3cret words"])
    requests = [line for line in ready.lines() if line["event"] == "request"]
    assert requests
    assert all(line["request_id"] for line in requests)
    assert "s3cret" not in ready.log.read_text()


def test_the_first_start_says_its_choice_aloud_and_writes_it_down(host: Host) -> None:
    process = host.start()
    who = process.until("/readyz")
    record = host.record()
    assert (record["model"], record["fingerprint"]) == (MODEL, who["fingerprint"])
    assert record["revision"] == who["revision"]
    assert "cannot be had: the model hub cannot be reached" in record["reason"]
    (said,) = [line for line in process.lines() if line["event"] == "model chosen"]
    assert said["level"] == "warning"
    assert (said["model"], said["licence"], said["record"]) == (MODEL, "Apache-2.0", str(host.record_file))
    assert "EMBED_MODEL_REPLACES" in said["otherwise"]


def test_a_restart_keeps_the_recorded_choice_and_the_vectors(host: Host) -> None:
    first = host.start()
    first.until("/readyz")
    before, record = first.embed(["the same text"]), host.record()
    assert first.stop() == 0
    second = host.start()
    second.until("/readyz")
    np.testing.assert_array_equal(second.embed(["the same text"]), before)
    assert host.record() == record
    assert [line["level"] for line in second.lines() if line["event"] == "model recorded"] == ["info"]
    assert not [line for line in second.lines() if line["event"] == "model chosen"]


def test_a_setting_against_the_record_stops_the_start_with_the_remedy(host: Host) -> None:
    first = host.start()
    first.until("/readyz")
    first.stop()
    second = host.start(EMBED_MODEL="bge-m3")
    assert second.popen.wait(SECONDS_MAX) == 2
    said = second.log.read_text()
    assert str(host.record_file) in said
    assert f"EMBED_MODEL_REPLACES={MODEL}" in said
    assert "Traceback" not in said
    assert host.record()["model"] == MODEL


def test_changed_files_are_not_served_and_no_other_model_stands_in(host: Host) -> None:
    first = host.start()
    first.until("/readyz")
    first.stop()
    record = host.record()
    host.record_file.write_text(json.dumps(record | {"fingerprint": "1:" + "0" * 64}))
    second = host.start()
    second.until("/livez")
    second.until_not_ready("are not those")
    status, body = second.call("GET", "/readyz")
    assert status == 503
    assert str(host.record_file) in body["error"]
    assert second.call("POST", "/embed", b'{"texts": ["a"]}')[0] == 503
    assert second.stop() == 0


def test_a_recorded_model_that_cannot_be_fetched_is_waited_for_and_not_replaced(host: Host) -> None:
    process = host.start(EMBED_MODEL="jina-embeddings-v5-text-nano-retrieval")
    process.until("/livez")
    process.until_not_ready("cannot be fetched")
    assert host.record()["model"] == "jina-embeddings-v5-text-nano-retrieval"
    assert host.record()["fingerprint"] is None
    assert process.stop() == 0
    again = host.start()
    again.until("/livez")
    again.until_not_ready("cannot be fetched")
    assert host.record()["model"] == "jina-embeddings-v5-text-nano-retrieval"


@pytest.fixture
def default_model(tmp_path: Path) -> dict[str, bytes]:
    """Files named and shaped like the default model's, weights beside the graph, that know the self-test's words."""
    kin, strange = f"Query: {QUESTION} Document: {PARAPHRASE}".split(), STRANGER.split()
    words = ["[PAD]", "[EOS]", "[UNK]", *dict.fromkeys(kin + strange)]
    table = np.random.default_rng(11).standard_normal((len(words), 768)).astype(np.float32)
    table[[words.index(word) for word in kin]] += 3
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["hidden"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["weights"]),
        helper.make_node("Mul", ["hidden", "weights"], ["real"]),
        helper.make_node("ReduceSum", ["real", "tokens"], ["sentence_embedding"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "t"])
            for name in ("input_ids", "attention_mask")
        ],
        [helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["n", 768])],
        [
            numpy_helper.from_array(table, "table"),
            numpy_helper.from_array(np.array([2]), "last"),
            numpy_helper.from_array(np.array([1]), "tokens"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location="model.onnx_data")
    return {
        "onnx/model.onnx": (tmp_path / "model.onnx").read_bytes(),
        "onnx/model.onnx_data": (tmp_path / "model.onnx_data").read_bytes(),
        "tokenizer.json": tokenizer.to_str().encode(),
        "tokenizer_config.json": b'{"eos_token": "[EOS]", "tokenizer_class": "PreTrainedTokenizerFast"}',
    }


def test_where_a_hub_answers_the_default_model_is_fetched_recorded_and_kept_without_the_hub(
    host: Host, default_model: dict[str, bytes]
) -> None:
    with Hub(HUB_REPO, default_model) as hub:
        first = host.start(HF_ENDPOINT=hub.address)
        who = first.until("/readyz")
        vectors = first.embed([STRANGER])
        assert first.stop() == 0
    record = host.record()
    assert (record["model"], record["revision"]) == ("jina-embeddings-v5-text-nano-retrieval", COMMIT)
    assert record["fingerprint"] == who["fingerprint"]
    (said,) = [line for line in first.lines() if line["event"] == "model chosen"]
    assert said["licence"].startswith("CC BY-NC 4.0")
    assert vectors.shape == (1, 768)
    second = host.start()
    assert second.until("/readyz") == who
    np.testing.assert_array_equal(second.embed([STRANGER]), vectors)


def test_a_download_that_breaks_off_is_told_and_leads_to_no_other_model(
    host: Host, default_model: dict[str, bytes]
) -> None:
    with Hub(HUB_REPO, default_model) as hub:
        hub.broken = "onnx/model.onnx_data"
        first = host.start(HF_ENDPOINT=hub.address)
        first.until("/livez")
        first.until_not_ready("onnx/model.onnx_data of jina-embeddings-v5-text-nano-retrieval could not be fetched")
        assert host.record()["fingerprint"] is None
        first.stop()
        hub.broken = None
        second = host.start(HF_ENDPOINT=hub.address)
        assert second.until("/readyz")["model"] == host.record()["model"] == "jina-embeddings-v5-text-nano-retrieval"


def test_killed_between_choice_and_first_vector_it_goes_on_from_the_record(host: Host) -> None:
    first = host.start()
    end = time.monotonic() + SECONDS_MAX
    while not host.record_file.exists():
        assert time.monotonic() < end
    first.popen.kill()
    first.popen.wait(SECONDS_MAX)
    assert host.record()["model"] == MODEL
    second = host.start()
    assert second.until("/readyz")["fingerprint"] == host.record()["fingerprint"]


def test_closing_standard_input_does_not_stop_it(ready: Process) -> None:
    assert ready.popen.stdin is not None
    ready.popen.stdin.close()
    for _ in range(20):
        assert len(ready.embed(["still here"])) == 1
    assert ready.popen.poll() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_answers_what_is_in_flight_and_leaves_quietly(host: Host, number: int) -> None:
    process = host.start()
    process.until("/readyz")
    texts = ["a text of some length, again and again and again " * 8] * 60
    with concurrent.futures.ThreadPoolExecutor(1) as caller:
        in_flight = caller.submit(process.embed, texts)
        end = time.monotonic() + SECONDS_MAX
        while "embed_queue_texts 60.0" not in process.call("GET", "/metrics")[1]:
            assert time.monotonic() < end
        assert process.stop(number) == 0
        assert in_flight.result(SECONDS_MAX).shape == (60, 384)
    assert "Traceback" not in process.log.read_text()


def test_told_to_stop_while_a_silent_hub_is_asked_it_leaves_soon(host: Host) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        process = host.start(HF_ENDPOINT=f"http://127.0.0.1:{silent.getsockname()[1]}")
        process.until("/livez")
        process.until_not_ready("choosing the model")
        started = time.monotonic()
        assert process.stop() == 0
    assert time.monotonic() - started < 10
    assert "Traceback" not in process.log.read_text()
    assert not host.record_file.exists() or host.record()["model"] == MODEL


def test_a_bad_setting_stops_the_start_by_name(host: Host) -> None:
    process = host.start(EMBED_QUEUE_TEXT_MAX="5")
    assert process.popen.wait(SECONDS_MAX) == 2
    assert "EMBED_QUEUE_TEXTS_MAX" in process.log.read_text()
    assert not host.data_dir.exists()


def test_nothing_is_written_outside_the_data_folder_so_no_library_keeps_a_diary(host: Host, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    server = host.start(HOME=str(home), XDG_CACHE_HOME="")
    server.until("/readyz")
    assert server.embed(["one"]).shape == (1, 384)
    assert server.stop() == 0
    assert list(home.rglob("*")) == []
