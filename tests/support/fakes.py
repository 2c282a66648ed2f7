"""Stand-ins for what lies outside: a clock, and an embedding server whose vectors come from the words of a text."""

import asyncio
import datetime as dt
import hashlib
import json
import math

import httpx2

DIMENSIONS = 64


class Clock:
    """An instant that moves on by a millisecond each time it is read."""

    def __init__(self, start: str = "2026-03-01T00:00:00+00:00") -> None:
        self.now = dt.datetime.fromisoformat(start)

    def __call__(self) -> dt.datetime:
        self.now += dt.timedelta(milliseconds=1)
        return self.now


def bag_of_words(text: str) -> list[float]:
    """A unit vector that is near that of a text with the same words."""
    values = [0.0] * DIMENSIONS
    for word in text.lower().split():
        head = hashlib.sha256(word.encode()).digest()
        values[head[0] % DIMENSIONS] += 1.0 if head[1] % 2 else -1.0
    norm = math.sqrt(sum(value * value for value in values)) or 1.0
    return [value / norm for value in values] if any(values) else [1.0] + [0.0] * (DIMENSIONS - 1)


class EmbeddingServer(httpx2.AsyncBaseTransport):
    """Answers as an embedding server does. What is wrong with it is set by `fault`.

    fault: "" | "refuse" | "hang" | "status" | "garbage" | "zero" | "count" | "nan" | "dimension"
    """

    def __init__(self) -> None:
        self.fault = ""
        self.fingerprint: str | None = "1:fake"
        self.asked: list[tuple[str, list[str]]] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(await request.aread())
        self.asked.append((body["input_type"], body["texts"]))
        if self.fault == "refuse":
            raise httpx2.ConnectError("refused")
        if self.fault == "hang":
            await asyncio.sleep(3600)
        if self.fault == "status":
            return httpx2.Response(503, json={"ok": False})
        if self.fault == "garbage":
            return httpx2.Response(200, content=b"<html>")
        vectors = [bag_of_words(text) for text in body["texts"]]
        if self.fault == "zero":
            vectors = [[0.0] * DIMENSIONS for _ in vectors]
        if self.fault == "nan":
            return httpx2.Response(200, content=b'{"embeddings":[[NaN]],"dimensions":1}')
        if self.fault == "count":
            vectors = vectors[1:]
        dimensions = DIMENSIONS + 1 if self.fault == "dimension" else DIMENSIONS
        answer = {"embeddings": vectors, "dimensions": dimensions, "fingerprint": self.fingerprint}
        return httpx2.Response(200, json=answer)
