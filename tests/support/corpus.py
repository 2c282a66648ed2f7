"""Rows and writes for tests of the storage interface."""

import array
import hashlib
import math
from collections.abc import Mapping
from typing import NamedTuple

from memory_svc.domain.change import Change, PutMemory, Write
from memory_svc.domain.memory import Episode, Memory, Ref, Row, Vector
from memory_svc.domain.recall.fusion import Hits
from memory_svc.domain.scope import Scope
from memory_svc.storage.interface import Candidates, Query, Storage

NOW = "2026-03-01T00:00:00+00:00"


def memory(content: str, *, agent: str = "a", **fields: object) -> Memory:
    """A memory of agent a."""
    return Memory(agent=agent, content=content, timestamp=NOW, created_at=NOW, **fields)


def episode(summary: str, *, agent: str = "a", **fields: object) -> Episode:
    """An episode of agent a."""
    return Episode(agent=agent, summary=summary, created_at=NOW, **fields)


def write(*changes: Change, **fields: object) -> Write:
    """One Write of these changes."""
    return Write(principal="owner", operation="test", now=NOW, changes=changes, **fields)


def put(content: str, **fields: object) -> Write:
    """A Write that stores one memory."""
    return write(PutMemory(memory(content, **fields)))


def vector(seed: str, fingerprint: str = "f1", dimensions: int = 32) -> Vector:
    """A unit vector that depends on the seed alone."""
    raw = [byte - 127.5 for byte in hashlib.shake_256(seed.encode()).digest(dimensions)]
    norm = math.sqrt(sum(value * value for value in raw))
    return Vector(fingerprint, array.array("f", [value / norm for value in raw]).tobytes())


class Hit(NamedTuple):
    """A row of an arm."""

    ref: Ref
    score: float


class Found(NamedTuple):
    """Every arm's rows, best first, and the rows themselves."""

    vectors: list[Hit]
    words: list[Hit]
    episodes: list[Hit]
    rows: Mapping[Ref, Row]


async def candidates(storage: Storage, scope: Scope, query: Query) -> Found:
    """The candidates as they are in the snapshot."""

    def read(found: Candidates) -> Found:
        vectors, words, episodes = map(_hits, (found.vectors, found.words, found.episodes))
        return Found(vectors, words, episodes, found.rows([hit.ref for hit in (*vectors, *words, *episodes)]))

    return await storage.search.candidates(scope, query, read)


def _hits(hits: Hits) -> list[Hit]:
    return [Hit(Ref.of_document(document), score) for document, score in hits]
