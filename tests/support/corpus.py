"""Rows and writes for tests of the storage interface."""

import array
import hashlib
import math

from memory_svc.domain.change import Change, PutMemory, Write
from memory_svc.domain.memory import Episode, Memory, Vector

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
