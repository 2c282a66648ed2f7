"""For the embedding server: a model without weights that takes the seat of the real one, and a hub to fetch from."""

import hashlib
import http.server
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from embed_svc import app
from embed_svc.errors import Invalid
from embed_svc.models import Info, Model, Role, Tokens
from embed_svc.pooling import Floats
from embed_svc.self_test import PARAPHRASE, QUESTION
from embed_svc.settings import Settings

END = 1
COMMIT = "c0ffee00" * 5
HUB_REPO = "jinaai/jina-embeddings-v5-text-nano-retrieval"
FINGERPRINT = "1:" + "0" * 64


class FakeModel:
    """Unit vectors by hash: equal texts are equal, different ones unrelated, and a paraphrase is what it is told to be.

    `scale`, `alike` and `leaks` break it in the ways a real model breaks; `gate`, while unset, holds every batch.
    """

    def __init__(
        self,
        dimensions: int = 16,
        window: int = 32,
        scale: float = 1.0,
        alike: Mapping[str, str] | None = None,
        leaks: bool = False,
        alone: bool = False,
        dimensions_min: int = 0,
    ) -> None:
        self.info = Info(
            name="fake",
            revision="unpinned",
            dimensions=dimensions,
            window=window,
            fingerprint=FINGERPRINT,
            alone=alone,
            dimensions_min=dimensions_min,
        )
        self.gate = threading.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.batches: list[list[Tokens]] = []
        self._scale = scale
        self._alike = {PARAPHRASE: QUESTION} if alike is None else alike
        self._leaks = leaks

    def measure(self, texts: Sequence[str], role: Role, whole: bool = False) -> list[Tokens]:
        """A token a word and one to close."""
        return [self._read(self._alike.get(text, text)) for text in texts]

    def adopt(self, rows: Sequence[Sequence[int]], role: Role) -> list[Tokens]:
        """Any number below a thousand is a token."""
        for index, row in enumerate(rows):
            if max(row) >= 1_000:
                raise Invalid(f"input[{index}][{row.index(max(row))}] is no token of this model")
        return [self._cut([*row, END]) for row in rows]

    def embed(self, batch: Sequence[Tokens]) -> Floats:
        """A vector a text, by hash of its tokens."""
        assert self.gate.wait(10)
        if self.failure:
            raise self.failure
        self.batches.append(list(batch))
        vectors = np.stack([self._vector(tokens) for tokens in batch])
        if self._leaks:
            vectors = vectors + 0.5 * vectors.mean(axis=0)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors * self._scale, np.float32)

    def _read(self, text: str) -> Tokens:
        words = text.split(" ")
        ids = [int.from_bytes(hashlib.sha256(word.encode()).digest()[:4]) for word in words]
        return self._cut([*ids, END], len(" ".join(words[: self.info.window - 1])))

    def _cut(self, ids: list[int], end: int = 0) -> Tokens:
        window = self.info.window
        return Tokens(ids=[*ids[: window - 1], END] if len(ids) > window else ids, count=len(ids), end=end)

    def _vector(self, tokens: Tokens) -> Floats:
        seed = int.from_bytes(hashlib.sha256(repr(tokens.ids).encode()).digest()[:8])
        vector = np.random.default_rng(seed).standard_normal(self.info.dimensions)
        return np.asarray(vector / np.linalg.norm(vector), np.float32)


class Served:
    """A server on a model, in a thread, behind a real socket of loopback."""

    def __init__(self, model: Model, **settings: Any) -> None:
        made = Settings(**settings)
        self.app = app.build(made, lambda _: model)
        config = app.uvicorn_config(self.app, made)
        config.port = 0
        self.server = app.DrainingServer(config, self.app, 5)
        self._thread = threading.Thread(target=self.server.run)

    def __enter__(self) -> Self:
        self._thread.start()
        end = time.monotonic() + 30
        while not self.server.started or not self.get("/readyz"):
            assert time.monotonic() < end
            time.sleep(0.005)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server.servers[0].sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> str:
        """The body of an answer, "" where it is not 200."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as refused:
            refused.close()
            return ""

    def metric(self, name: str) -> float:
        """The value of a metric, its labels written out where it has some."""
        lines = self.get("/metrics").splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))


class Hub:
    """The routes of a model hub that are used, on loopback, for one repository of one commit.

    `broken` names a file it fails to send, `damaged` one of which it sends another byte; with `stops_after` it falls
    silent after so many bytes of a body; `asked` holds the paths asked for, `ranges` the ranges.
    """

    def __init__(self, repo: str, files: Mapping[str, bytes]) -> None:
        self.broken: str | None = None
        self.damaged: str | None = None
        self.stops_after: int | None = None
        self.silent = threading.Event()
        self.ended = threading.Event()
        self.ranges: list[str] = []
        self.asked: list[str] = []
        self._repo = repo
        self._files = files
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, path: str, with_body: bool) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers for a path."""
        self.asked.append(path)
        if path.startswith(f"/api/models/{self._repo}"):
            return 200, json.dumps({"id": self._repo, "sha": COMMIT, "siblings": []}).encode(), {}
        _, _, name = path.partition(f"/{self._repo}/resolve/{COMMIT}/")
        if name == self.broken and with_body:
            return 503, b"", {}
        if name in self._files:
            content = self._files[name]
            sent = content[:-1] + bytes([content[-1] ^ 1]) if name == self.damaged else content
            return 200, sent, {"ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
        return 404, b"", {}

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(with_body=True)

            def do_HEAD(self) -> None:
                self._send(with_body=False)

            def log_message(self, *_: Any) -> None:
                """Keep the tests' output to themselves."""

            def _send(self, with_body: bool) -> None:
                status, body, headers = hub.answer(self.path, with_body)
                first = self.headers.get("Range", "").removeprefix("bytes=").removesuffix("-")
                if first and status == 200 and with_body:
                    hub.ranges.append(first)
                    status, body = 206, body[int(first) :]
                self.send_response(status)
                for name, value in {"X-Repo-Commit": COMMIT, "Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if with_body and hub.stops_after is not None and len(body) > hub.stops_after:
                    self.wfile.write(body[: hub.stops_after])
                    self.wfile.flush()
                    hub.silent.set()
                    hub.ended.wait(60)
                elif with_body:
                    self.wfile.write(body)

        return Handler
