"""A stand-in for an embedding server: `python -m bench.memory.stub PORT DIMENSIONS`.

A text's vector is the normalised sum of one random vector a word, seeded by the word, so that texts that share words
are near each other. It answers `POST /embed` of both servers; in a process of its own its time counts for neither.
"""

import json
import re
import sys
import zlib
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIMENSIONS = 768
FINGERPRINT = "words"
_DIGITS = 8


@lru_cache(maxsize=200_000)
def of_word(word: str, dimensions: int = DIMENSIONS) -> NDArray[np.float32]:
    """A random vector that depends on the word alone."""
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(dimensions, np.float32)


def of_text(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """A text's vector, of length 1."""
    words = re.findall(r"\w+", text.lower()) or [""]
    total = np.sum([of_word(word, dimensions) for word in words], axis=0, dtype=float)
    vector: list[float] = np.round(total / np.linalg.norm(total), _DIGITS).tolist()
    return vector


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    dimensions = DIMENSIONS

    def do_GET(self) -> None:
        """Nothing is to be got here."""
        self.send_error(404)

    def do_POST(self) -> None:
        """The vectors of `texts`, at `/embed` alone."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/embed":
            self.send_error(404)
            return
        vectors = [of_text(text, self.dimensions) for text in json.loads(body)["texts"]]
        answer = json.dumps({"embeddings": vectors, "dimensions": self.dimensions, "fingerprint": FINGERPRINT}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing."""


if __name__ == "__main__":
    handler = type("Handler", (_Handler,), {"dimensions": int(sys.argv[2])})
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), handler).serve_forever()
