"""Stand-ins for what lies outside: a clock, and an embedding server whose vectors come from the words of a text."""

import asyncio
import datetime as dt
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

DIMENSIONS = 64


class Clock:
    """An instant that moves on by a millisecond each time it is read."""

    def __init__(self, start: str = "2026-03-01T00:00:00+00:00") -> None:
        self.now = dt.datetime.fromisoformat(start)

    def __call__(self) -> dt.datetime:
        self.now += dt.timedelta(milliseconds=1)
        return self.now


def bag_of_words(text: str, words: Callable[[str], list[str]] = str.split) -> list[float]:
    """A unit vector that is near that of a text with the same words. words: how a text is cut into them."""
    values = [0.0] * DIMENSIONS
    for word in words(text.lower()):
        head = hashlib.sha256(word.encode()).digest()
        values[head[0] % DIMENSIONS] += 1.0 if head[1] % 2 else -1.0
    norm = math.sqrt(sum(value * value for value in values)) or 1.0
    return [value / norm for value in values] if any(values) else [1.0] + [0.0] * (DIMENSIONS - 1)


class EmbeddingServer:
    """Answers as an embedding server does. What is wrong with it is set by `fault`.

    fault: "" | "refuse" | "hang" | "slow" | "status" | "busy" | "garbage" | "zero" | "long" | "count" | "nan" |
    "dimension" | "other_dimension". unreadable: a text of which it makes no sound vector. words: how texts are cut.
    alike: texts that have the vector of another. window: how many words it reads of a text, 0 = all. tells_window:
    whether it says so. carried: the headers beside the usual ones that each request came with.
    """

    def __init__(self) -> None:
        self.fault = ""
        self.fingerprint: str | None = "1:fake"
        self.unreadable = "\0"
        self.words: Callable[[str], list[str]] = str.split
        self.alike: dict[str, str] = {}
        self.window = 0
        self.tells_window = True
        self.asked: list[tuple[str, list[str]]] = []
        self.carried: list[Mapping[str, str]] = []

    async def __call__(self, request: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        body = json.loads(request)
        self.asked.append((body["input_type"], body["texts"]))
        self.carried.append(headers)
        if self.fault == "refuse":
            raise ConnectionRefusedError("refused")
        await asyncio.sleep({"hang": 3600, "slow": 0.4}.get(self.fault, 0))
        plain = {
            "busy": (429, b'{"ok":false}'),
            "status": (503, b'{"ok":false}'),
            "garbage": (200, b"<html>"),
            "nan": (200, b'{"embeddings":[[NaN]],"dimensions":1}'),
        }
        return plain.get(self.fault) or (200, json.dumps(self._answer(body)).encode())

    def _answer(self, body: dict[str, Any]) -> dict[str, object]:
        texts = body["texts"]
        ends = [self._end(text) for text in texts]
        read = [self.alike.get(text, text[:end]) for text, end in zip(texts, ends, strict=True)]
        vectors = [bag_of_words(text, self.words) for text in read]
        bent = {
            "zero": [[0.0] * DIMENSIONS for _ in vectors],
            "long": [[2.0 * value for value in vector] for vector in vectors],
            "other_dimension": [[*vector, 0.0] for vector in vectors],
            "count": vectors[1:],
        }
        spoiled = [
            [0.0] * DIMENSIONS if self.unreadable in text[:end] else each
            for text, end, each in zip(texts, ends, vectors, strict=True)
        ]
        is_longer = self.fault in ("dimension", "other_dimension")
        told = [{"truncated": end < len(text), "window_end_char": end} for text, end in zip(texts, ends, strict=True)]
        return {
            "embeddings": bent.get(self.fault, spoiled),
            "dimensions": DIMENSIONS + is_longer,
            "fingerprint": self.fingerprint,
            **({"token_info": told} if body.get("token_info") and self.tells_window else {}),
        }

    def _end(self, text: str) -> int:
        """How many characters of a text it reads."""
        ends = [match.end() for match in re.finditer(r"\S+", text)]
        return ends[self.window - 1] if 0 < self.window < len(ends) else len(text)
