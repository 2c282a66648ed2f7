"""Durable writes of `Storage.apply` in this process: `python -m bench.memory.writes FOLDER CALLERS WRITES`.

Prints how many writes a second there were, by the clock. Run under `strace` it shows what a slower disk does.
"""

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.memory.corpus import AGENT, Language, memories
from bench.memory.filling import instant, packed
from bench.memory.stub import FINGERPRINT
from memory_svc.app import DATABASE
from memory_svc.domain.change import PutMemory, Write
from memory_svc.domain.memory import Memory, Vector
from memory_svc.storage.sqlite.engine import SqliteStorage


async def rate(folder: Path, callers: int, count: int) -> float:
    """Writes a second, each of one memory with its vector, each on disk before its caller goes on."""
    texts = list(itertools.islice(memories(Language()), count))
    made = [(_write(text), {0: Vector(FINGERPRINT, packed(text))}) for text in texts]
    storage = SqliteStorage(folder / DATABASE)
    waiting = iter(made)
    begin = time.perf_counter()
    await asyncio.gather(*(_caller(storage, waiting) for _ in range(callers)))
    seconds = time.perf_counter() - begin
    await storage.close()
    return count / seconds


async def _caller(storage: SqliteStorage, waiting: Iterator[tuple[Write, dict[int, Vector]]]) -> None:
    for write, vectors in waiting:
        await storage.apply(write, vectors)


def _write(text: str) -> Write:
    memory = Memory(agent=AGENT, content=text, timestamp=instant(0), created_at=instant(0))
    return Write("owner", "store", instant(0), (PutMemory(memory),))


if __name__ == "__main__":
    found = asyncio.run(rate(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
    sys.stdout.write(json.dumps(found))
