"""What a store takes: bytes on disk by part, memory of the server's process, time of an upgrade.

`python -m bench.sizing` prints it; docs/guides/sizing.md tells it. Memories and questions are those of `bench.memory`.
"""

import argparse
import asyncio
import contextlib
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw
import httpx2
import msgspec

from bench.machine import machine
from bench.memory import corpus, filling, servers
from bench.memory.stub import FINGERPRINT
from memory_svc.app import DATABASE
from memory_svc.domain.memory import digest
from memory_svc.storage.migrate import migrations
from memory_svc.storage.sqlite.backup import copy
from memory_svc.storage.sqlite.engine import SqliteStorage

PACKAGES = ("agent-memory", "numpy", "apsw", "litestar", "uvicorn", "mcp")
PARTS = {
    "memories": "rows",
    "journal": "journal",
    "vectors": "vectors",
    **dict.fromkeys(("words", "pieces", "vocabulary", "windows", "corpora"), "words"),
}
SIZES = "SELECT name, sum(pgsize) FROM dbstat GROUP BY name"
OLD_MEMORY = (
    "INSERT INTO memories (agent, project, channel, msg_id, digest, content, source, source_id, timestamp, metadata,"
    " created_at, locked, revision) VALUES (?, '', '', '', ?, ?, '{}', '', ?, '{}', ?, 0, 1)"
)
OLD_VECTOR = "INSERT INTO vectors (document, number, revision, fingerprint, vector) VALUES (?, ?, 1, ?, ?)"


class Store(msgspec.Struct, frozen=True):
    """What one store takes: bytes on disk by part, megabytes of the process (ready, after recalls, at most)."""

    rows: int
    dimensions: int
    disk: dict[str, int]
    ready: float
    asked: float
    peak: float


class Upgrade(msgspec.Struct, frozen=True):
    """From the first schema to the newest, and what the copy alone takes: seconds by the clock and of the processor."""

    rows: int
    seconds: float
    cpu_seconds: float
    copy_seconds: float
    bytes_before: int
    bytes_after: int


def main(asked: argparse.Namespace) -> int:
    """Measure every store and the upgrade, and print both."""
    language = corpus.Language()
    texts = list(itertools.islice(corpus.memories(language), max(asked.rows)))
    questions = corpus.questions(language)
    stores = [
        measured(texts[:rows], questions, dimensions) for dimensions in asked.dimensions for rows in sorted(asked.rows)
    ]
    sys.stdout.write(report(stores, upgraded(texts)))
    return 0


def measured(texts: Sequence[str], questions: Sequence[str], dimensions: int) -> Store:
    """A store of these texts, and a server on it that was asked every question once."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        asyncio.run(filling.fill_ours(folder, texts, dimensions))
        disk = on_disk(folder / DATABASE)
        with servers.stub(folder, dimensions) as embedding, servers.ours(folder, embedding) as (process, url):
            ready, _ = resident(process)
            for question in questions:
                body = {"agent_id": corpus.AGENT, "query": question}
                httpx2.post(f"{url}/v1/recall", json=body, trust_env=False, timeout=60).raise_for_status()
            asked, peak = resident(process)
    return Store(len(texts), dimensions, disk, ready, asked, peak)


def on_disk(path: Path) -> dict[str, int]:
    """Bytes of each part of a database, indexes with what they are of."""
    found = dict.fromkeys([*PARTS.values(), "all"], 0)
    with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        for name, size in connection.execute(SIZES):
            table = str(name).removeprefix("sqlite_autoindex_").partition("_")[0]
            found[PARTS.get(table, "all")] += 0 if table not in PARTS else int(size)
            found["all"] += int(size)
    return found


def resident(process: int) -> tuple[float, float]:
    """Megabytes that a process has resident now, and the most it had (`proc_pid_status(5)`)."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    found = {key: value.split()[0] for key, _, value in (line.partition(":") for line in lines) if value.strip()}
    return int(found["VmRSS"]) * 1024 / 1e6, int(found["VmHWM"]) * 1024 / 1e6


def upgraded(texts: Sequence[str], dimensions: int = 384) -> Upgrade:
    """What bringing a store of the first schema to the newest takes."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, DATABASE)
        _old(path, texts, dimensions)
        before = path.stat().st_size
        began, cpu = time.perf_counter(), time.process_time()
        storage = SqliteStorage(path)
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
        asyncio.run(storage.close())
        with contextlib.closing(apsw.Connection(str(path))) as connection:
            began = time.perf_counter()
            copy(connection, path.with_name("copy"))
            copying = time.perf_counter() - began
        return Upgrade(len(texts), seconds, cpu_seconds, copying, before, path.stat().st_size)


def report(stores: Sequence[Store], upgrade: Upgrade) -> str:
    """Both tables, and the machine."""
    facts = [f"- {name}: {value}" for name, value in machine(PACKAGES, {}, ()).items()]
    return "\n".join([*facts, "", *_stores(stores), "", *_upgrade(upgrade), ""])


def _stores(stores: Sequence[Store]) -> Iterator[str]:
    names = list(dict.fromkeys([*PARTS.values(), "all"]))
    yield (
        "| memories | numbers a vector | "
        + " | ".join(f"{name}, bytes a memory" for name in names)
        + (" | MB ready | MB after 50 recalls | MB at most |")
    )
    yield "|--:" * (len(names) + 5) + "|"
    for each in stores:
        disk = " | ".join(f"{each.disk[name] / each.rows:,.0f}" for name in names)
        memory = f"{each.ready:.0f} | {each.asked:.0f} | {each.peak:.0f}"
        yield f"| {each.rows:,} | {each.dimensions} | {disk} | {memory} |"


def _upgrade(found: Upgrade) -> Iterator[str]:
    yield (
        f"From schema 1 to {migrations('sqlite')[-1][0]}, {found.rows:,} memories: {found.seconds:.1f} s"
        f" ({found.cpu_seconds:.1f} s of the processor), {found.bytes_before / 1e6:.0f} MB to"
        f" {found.bytes_after / 1e6:.0f} MB; a copy of the latter alone: {found.copy_seconds:.1f} s"
    )


def _old(path: Path, texts: Sequence[str], dimensions: int) -> None:
    """A database of the first schema with these texts."""
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(migrations("sqlite")[0][1])
        connection.execute("PRAGMA user_version = 1")
        with connection:
            for number, text in enumerate(texts):
                at = filling.instant(number)
                connection.execute(OLD_MEMORY, (corpus.AGENT, digest(text), text, at, at))
                document = connection.last_insert_rowid() << 4
                connection.execute(OLD_VECTOR, (document, number, FINGERPRINT, filling.packed(text, dimensions)))


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(prog="python -m bench.sizing", description=__doc__)
    options.add_argument("--rows", type=int, nargs="+", default=[2_000, 10_000], help="memories of the stores")
    options.add_argument("--dimensions", type=int, nargs="+", default=[384, 768], help="numbers of a vector")
    return options.parse_args()


if __name__ == "__main__":
    sys.exit(main(_options()))
