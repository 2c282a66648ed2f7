"""Filling the databases with the same memories.

Ours is filled through its storage. The peer gets its first thousand through its own `store`, so that all it makes in
the background is made, and the rest from a backup file of its own format, vectors included: its `store` would take
twenty minutes for ten thousand.
"""

import base64
import datetime as dt
import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.memory.corpus import AGENT
from bench.memory.stub import DIMENSIONS, FINGERPRINT, of_text
from bench.memory.wires import Call
from memory_svc.app import DATABASE
from memory_svc.domain.change import PutMemory, Write
from memory_svc.domain.memory import Memory, Vector, utc
from memory_svc.storage.sqlite.engine import SqliteStorage

BATCH = 500
BEGIN = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
SOURCE = {"type": "Agent", "id": AGENT, "name": ""}


def instant(number: int) -> str:
    """When the memory of that number was stored: one every ten minutes."""
    return utc(BEGIN + dt.timedelta(minutes=10 * number))


def packed(text: str, dimensions: int = DIMENSIONS) -> bytes:
    """A text's vector, little-endian float32, of length 1."""
    vector = np.array(of_text(text, dimensions))
    unit: NDArray[np.float32] = (vector / np.linalg.norm(vector)).astype("<f4")
    return unit.tobytes()


def store_arguments(text: str, number: int) -> dict[str, Any]:
    """The arguments of `store`, the same for either server."""
    return {"agent_id": AGENT, "message": {"content": text, "source": SOURCE, "timestamp": instant(number)}}


async def fill_ours(folder: Path, texts: Iterable[str], dimensions: int = DIMENSIONS) -> None:
    """Put these memories, with their vectors, into a database in `folder`."""
    storage = SqliteStorage(folder / DATABASE)
    numbered = enumerate(texts)
    while batch := list(itertools.islice(numbered, BATCH)):
        changes = tuple(PutMemory(_memory(text, number)) for number, text in batch)
        vectors = {at: Vector(FINGERPRINT, packed(text, dimensions)) for at, (_, text) in enumerate(batch)}
        await storage.apply(Write("owner", "store", instant(batch[-1][0]), changes), vectors)
        await storage.upkeep.checkpoint()
    await storage.close()


async def fill_peer(call: Call, folder: Path, texts: Sequence[str], first: int, through_store: int) -> None:
    """Put these memories, numbered from `first`, into the peer: so many by `store`, the rest from a backup file."""
    numbered = list(enumerate(texts, start=first))
    for number, text in numbered[:through_store]:
        await call("store", store_arguments(text, number))
    if rest := numbered[through_store:]:
        file = folder / "backup.jsonl"
        lines = [{"_type": "header"}, *(_backup_line(text, number) for number, text in rest)]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        answer = await call("import_memories", {"input_path": str(file)})
        if answer.get("imported_memories") != len(rest):
            raise RuntimeError(f"the peer took {answer.get('imported_memories')} of {len(rest)} memories")


def _memory(text: str, number: int) -> Memory:
    return Memory(agent=AGENT, content=text, source=SOURCE, timestamp=instant(number), created_at=instant(number))


def _backup_line(text: str, number: int) -> dict[str, Any]:
    return {
        "_type": "memory",
        "agent_id": AGENT,
        "content": text,
        "source": SOURCE,
        "timestamp": instant(number),
        "created_at": instant(number).replace("T", " ")[:19],
        "embedding_b64": base64.b64encode(packed(text)).decode(),
    }
