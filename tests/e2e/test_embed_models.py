"""Models of one's own as processes: pooling, prefixes and window on tiny graphs, files that change, and leaving."""

import json
import shutil
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers

from embed_svc.self_test import PARAPHRASE, QUESTION, STRANGER
from tests.support.processes import Process, free_port, running

pytestmark = pytest.mark.e2e
DIMENSIONS = 32
SECONDS_MAX = 60


def write_model(folder: Path, seed: int = 11, external: bool = False, **declared: Any) -> Path:
    """A graph of one row a token that knows the self-test's words, its tokenizer and its model.toml."""
    folder.mkdir(parents=True, exist_ok=True)
    kin = f"q: {QUESTION} d: {PARAPHRASE}".split()
    words = ["[PAD]", "[EOS]", "[UNK]", *dict.fromkeys([*kin, *STRANGER.split()])]
    table = np.random.default_rng(seed).standard_normal((len(words), DIMENSIONS)).astype(np.float32)
    table[[words.index(word) for word in kin]] += 2
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "[EOS]", "pad_token": "[PAD]", "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    names = ("input_ids", "attention_mask")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])],
        "tiny",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "t"]) for name in names],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["n", "t", DIMENSIONS])],
        [numpy_helper.from_array(table, "table")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    if external:
        onnx.save(made, folder / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    else:
        onnx.save(made, folder / "model.onnx")
    lines = {"name": "mine", "dimensions": DIMENSIONS, "window": 16, "pooling": "mean", "precision": "fp32"} | {
        "query_prefix": "q: ",
        "document_prefix": "d: ",
    }
    told = {name: value for name, value in (lines | declared).items() if value is not None}
    (folder / "model.toml").write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in told.items()))
    return folder


def ask(server: Process, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and body of an answer."""
    request = urllib.request.Request(server.url + path, data=None if body is None else json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def reason(server: Process, said: str) -> str:
    """What /readyz tells, once it holds this."""
    end = time.monotonic() + SECONDS_MAX
    while True:
        assert server.process.poll() is None, server.log.read_text()
        assert time.monotonic() < end, server.log.read_text()
        try:
            told = str(ask(server, "/readyz")[1].get("error", ""))
        except (ConnectionError, urllib.error.URLError):
            told = ""
        if said in told:
            return told
        time.sleep(0.05)


def refused(data: Path, said: str, **settings: str) -> str:
    """Start a server that must not become ready; what it tells."""
    server = Process("embed_svc", data, free_port(), **settings)
    try:
        told = reason(server, said)
        assert ask(server, "/embed", {"texts": ["a"]})[0] == 503
        return told
    finally:
        assert server.stop() == 0
        assert "Traceback" not in server.log.read_text()


def test_a_folder_of_ones_own_is_served_by_what_its_model_toml_says(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "mine", external=True, dimensions_min=8)
    with running("embed_svc", tmp_path / "data", EMBED_MODEL=str(folder)) as server:
        _, who = ask(server, "/capabilities")
        assert who["incomplete"] == []
        identity = who["identity"]
        assert (identity["model"], identity["eos"], identity["window"]) == ("mine", "[EOS]", 16)
        assert identity["prefixes"] == {"query": "q: ", "document": "d: "}
        assert identity["revision"].startswith("sha256:")
        assert set(identity["digests"]) == {"graph", "tokenizer", "tokenizer_config", "weights.bin"}
        words = STRANGER.split()
        _, answer = ask(server, "/embed", {"texts": [STRANGER, STRANGER + " password" * 20], "token_info": True})
        assert answer["fingerprint"] == who["fingerprint"]
        assert answer["token_info"] == [
            {"count": len(words) + 2, "window": 16, "truncated": False, "window_end_char": len(STRANGER)},
            {
                "count": len(words) + 22,
                "window": 16,
                "truncated": True,
                "window_end_char": len(STRANGER) + 9 * (14 - len(words)),
            },
        ]
        _, short = ask(server, "/v1/embeddings", {"input": STRANGER, "dimensions": 8})
        whole = np.array(answer["embeddings"][0][:8])
        np.testing.assert_allclose(short["data"][0]["embedding"], whole / np.linalg.norm(whole), atol=1e-5)
    # From the record, without being named again.
    with running("embed_svc", tmp_path / "data") as again:
        assert ask(again, "/capabilities")[1] == who


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_pooling_and_roles_make_other_vectors_and_other_fingerprints(tmp_path: Path, pooling: str) -> None:
    # Alone, the last token is the end token whatever the text: only a graph that mixes tokens would pass.
    if pooling != "mean":
        told = refused(
            tmp_path / "data",
            "the self-test of mine failed",
            EMBED_MODEL=str(write_model(tmp_path / "m", pooling=pooling)),
        )
        assert "pooling, prefixes or files are wrong" in told
        return
    with running("embed_svc", tmp_path / "data", EMBED_MODEL=str(write_model(tmp_path / "m"))) as server:
        document, query = (
            np.array(ask(server, "/embed", {"texts": ["password"], "input_type": role})[1]["embeddings"][0])
            for role in ("document", "query")
        )
        assert document @ query < 0.9999


def test_what_its_owner_does_not_tell_is_named_and_the_fingerprint_is_null(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "mine", precision=None)
    with running("embed_svc", tmp_path / "data", EMBED_MODEL=str(folder)) as server:
        _, who = ask(server, "/capabilities")
        assert (who["incomplete"], who["fingerprint"]) == (["precision"], None)
        assert ask(server, "/embed", {"texts": ["a"]})[1]["fingerprint"] is None


def test_files_that_are_missing_truncated_or_changed_are_never_served(tmp_path: Path) -> None:
    folder, data = write_model(tmp_path / "mine"), tmp_path / "data"
    with running("embed_svc", data, EMBED_MODEL=str(folder)):
        pass
    graph = (folder / "model.onnx").read_bytes()
    (folder / "model.onnx").unlink()
    assert "model.onnx of mine is not in" in refused(data, "put it there")
    (folder / "model.onnx").write_bytes(graph[: len(graph) // 2])
    assert "model.onnx is no graph" in refused(data, "no graph that ONNX Runtime can load")
    write_model(folder, seed=12)
    told = refused(data, "are not those")
    assert str(data / "model.json") in told
    (folder / "model.onnx").write_bytes(graph)
    (folder / "tokenizer.json").write_text("{")
    refused(data, "could not be loaded")
    write_model(folder)
    with running("embed_svc", data):
        pass


def test_vectors_that_move_though_no_file_has_are_not_served_until_their_owner_consents(tmp_path: Path) -> None:
    folder, data = write_model(tmp_path / "mine"), tmp_path / "data"
    with running("embed_svc", data, EMBED_MODEL=str(folder)) as server:
        before = ask(server, "/capabilities")[1]["fingerprint"]
    kept = json.loads((data / "reference.json").read_text())
    kept["vectors"].reverse()
    (data / "reference.json").write_text(json.dumps(kept))
    assert before in refused(data, "its vectors have moved")
    with running("embed_svc", data, EMBED_MODEL=str(folder), EMBED_MODEL_REPLACES=before) as server:
        after = ask(server, "/capabilities")[1]["fingerprint"]
    assert after not in (None, before)
    with running("embed_svc", data, EMBED_MODEL=str(folder), EMBED_MODEL_REPLACES=before) as server:
        assert ask(server, "/capabilities")[1]["fingerprint"] == after


def test_told_to_stop_it_answers_what_is_at_work_refuses_what_comes_and_leaves(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "mine")
    with running("embed_svc", tmp_path / "data", EMBED_MODEL=str(folder)) as server:
        slow = socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS_MAX)
        body = json.dumps({"texts": ["a"]}).encode()
        head = f"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        slow.sendall(head + body[:5])
        at_work: list[Any] = []
        thread = threading.Thread(
            target=lambda: at_work.append(ask(server, "/embed", {"texts": ["b " * 15_000] * 100}))
        )
        thread.start()
        end = time.monotonic() + SECONDS_MAX
        while "embed_queue_texts 100.0" not in metrics(server) and time.monotonic() < end:
            time.sleep(0.001)
        server.process.send_signal(signal.SIGTERM)
        assert "the server is stopping" in reason(server, "stopping")
        status, answer = ask(server, "/embed", {"texts": ["late"]})
        assert (status, answer["retry"]) == (503, True)
        assert ask(server, "/livez")[0] == 200
        slow.sendall(body[5:])
        assert b"503" in slow.recv(100)
        slow.close()
        thread.join(SECONDS_MAX)
        assert server.process.wait(SECONDS_MAX) == 0
        assert [status for status, _ in at_work] == [200]
        assert "Traceback" not in server.log.read_text()


def metrics(server: Process) -> str:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_a_token_guards_the_process_and_is_never_written_anywhere(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "mine")
    file = tmp_path / "token"
    file.write_text("a-token-of-some-length-42\n")
    with running("embed_svc", tmp_path / "data", EMBED_MODEL=str(folder), EMBED_TOKEN_FILE=str(file)) as server:
        assert ask(server, "/embed", {"texts": ["a"]})[0] == 401
        assert "a-token-of-some-length-42" not in server.log.read_text()
    for content in (None, "short"):
        if content is None:
            file.unlink()
        else:
            file.write_text(content)
        failed = Process("embed_svc", tmp_path / "data", free_port(), EMBED_TOKEN_FILE=str(file))
        assert failed.process.wait(SECONDS_MAX) == 2
        assert "EMBED_TOKEN_FILE" in failed.log.read_text()
    shutil.rmtree(tmp_path / "data")
