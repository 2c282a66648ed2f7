"""The memory server beside `cpersona`, in one run: `python -m bench.memory --help`.

All servers get the same memories, the same questions and the same stand-in for an embedding server. They run side by
side, each on a database of its own, and are asked in turn.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import httpx2

from bench.machine import machine
from bench.memory import corpus, filling, report, servers, staged, wires
from bench.memory.report import BASE, Cell, Profile, Rates, Result, Sample
from bench.memory.wires import Wire

PEERS = ("2.6.14", "2.5.12")
OUR_PACKAGES = ("agent-memory", "mcp", "litestar", "uvicorn", "msgspec", "numpy", "apsw")
PEER_PACKAGES = ("cpersona", "mcp", "numpy", "aiosqlite")
LIMIT = 10
THROUGH_STORE = 1_000
LARGE = 100_000
MANY = 32
SYNC_MICROSECONDS = 20_000
REMARKS = (
    "Compared: the same call of the same operation, `recall` with limit 10 and `store` of one memory. Ours over its"
    " three wires, the peer over stdio, its default.",
    "The processor time of a call contains the server's side of asking for a vector; making the vector does not count:"
    " the stand-in is a process of its own.",
    "The peer runs with its defaults, the update check off, and is started anew on the filled database, so that it has"
    " calibrated itself. Its first thousand memories were given to its `store`, the others to its `import_memories` as"
    " a backup with their vectors. Ours was filled through its storage.",
    "Memories: 12 to 40 words by Zipf's law over 4,000 words; questions: 50 of 6 to 12 words by the same law; one"
    " agent; 768 dimensions.",
)


async def main(asked: argparse.Namespace) -> int:
    """Run the comparison and write its results."""
    sizes = sorted(asked.sizes)
    language = corpus.Language()
    texts = list(itertools.islice(corpus.memories(language), sizes[-1] + 20_000))
    questions = corpus.questions(language)
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with servers.stub(folder) as embedding:
            bases = await _filled(folder, embedding, texts, sizes, asked)
            for size in sizes:
                _say(f"{size:,} memories: recall and store")
                async with _all(folder / f"run-{size}", bases, size, embedding, asked) as running:
                    cells += await compared(running, size, questions, iter(texts[size:]), asked.rounds)
            stage_sizes = [*sizes, *([LARGE] if asked.large else [])]
            profiles = [await profiled(folder, embedding, size, questions) for size in stage_sizes]
            rates = [*in_process(folder), *await over_http(folder, embedding)]
    result = Result(
        command=" ".join(["python -m bench.memory", *sys.argv[1:]]),
        measured_at=datetime.now(UTC).strftime("%Y-%m-%d"),
        rounds=asked.rounds,
        machine=machine(
            OUR_PACKAGES, {version: _python(asked.cache, version) for version in asked.peers}, PEER_PACKAGES
        ),
        cells=cells,
        profiles=profiles,
        rates=rates,
        remarks=list(REMARKS),
    )
    sys.stdout.write(report.write(asked.results, result))
    return 0


async def compared(
    running: Sequence[Wire], size: int, questions: Sequence[str], fresh: Iterator[str], rounds: int
) -> list[Cell]:
    """Recalls, then stores of one caller and of eight, each in rounds in which the servers take turns."""
    numbered = zip(itertools.count(size), fresh, strict=False)
    asks = [("recall", {"agent_id": corpus.AGENT, "query": question, "limit": LIMIT}) for question in questions]
    for wire in running:
        await measured(wire, asks[:10], 1)
    plans = {"recall": (1, 50, 50), "store": (1, 100, 20), "store of eight": (8, 200, 40)}
    cells: list[Cell] = []
    for name, (callers, ours, peers) in plans.items():
        samples: dict[str, list[Sample]] = {wire.name: [] for wire in running}
        for number in range(rounds):
            for wire in running if number % 2 == 0 else running[::-1]:
                count = ours if wire.name.startswith("ours") else peers
                stores = [
                    ("store", filling.store_arguments(text, at)) for at, text in itertools.islice(numbered, count)
                ]
                samples[wire.name].append(await measured(wire, asks if name == "recall" else stores, callers))
        cells.append(Cell(operation=name.partition(" ")[0], memories=size, callers=callers, samples=samples))
        _say(f"  {name}: " + ", ".join(f"{each} {cells[-1].cpu(each):.2f}" for each in samples) + " CPU ms")
    return cells


async def measured(wire: Wire, calls: Sequence[tuple[str, dict[str, Any]]], callers: int) -> Sample:
    """What these calls took, made by so many callers of whom each waits for its answer before it goes on."""
    waiting, walls, rows = iter(calls), list[float](), 0

    async def caller() -> None:
        nonlocal rows
        for operation, arguments in waiting:
            begin = time.perf_counter()
            answer = await wire.call(operation, arguments)
            walls.append((time.perf_counter() - begin) * 1000)
            rows += len(answer.get("messages", ""))
            if "messages" not in answer and answer.get("result") != "stored":
                raise RuntimeError(f"{wire.name}: {operation} did nothing: {str(answer)[:300]}")

    cpu = wire.cpu_seconds()
    await asyncio.gather(*(caller() for _ in range(callers)))
    milliseconds = (wire.cpu_seconds() - cpu) / len(calls) * 1000
    return Sample(cpu=milliseconds, wall=median(walls), calls=len(calls), rows=rows / len(calls))


async def profiled(folder: Path, embedding: str, size: int, questions: Sequence[str]) -> Profile:
    """A recall over POST /v1 by stage, on a server with a stopwatch at each."""
    _say(f"{size:,} memories: stages of a recall")
    place = folder / f"stages-{size}"
    place.mkdir()
    if size == LARGE:
        await filling.fill_ours(place, itertools.islice(corpus.memories(corpus.Language()), size))
    else:
        shutil.copytree(folder / f"ours-{size}", place, dirs_exist_ok=True)
    calls = [("recall", {"agent_id": corpus.AGENT, "query": each, "limit": LIMIT}) for each in questions]
    with servers.ours(place, embedding, "bench.memory.staged") as (process, address):
        async with wires.rest(BASE, process, address) as wire:
            await measured(wire, calls[:10], 1)
            os.kill(process, signal.SIGUSR1)
            sample = await measured(wire, calls * 4, 1)
    found = json.loads((place / staged.FILE).read_bytes())["milliseconds"]
    stages = {stage: found.get(stage, 0.0) / sample.calls for stage in staged.STAGES}
    return Profile(memories=size, stages=stages, total=sample.cpu)


def in_process(folder: Path) -> list[Rates]:
    """Writes of `Storage.apply`, on this disk and on one on which a sync takes 20 ms more."""
    found = []
    for what, prefix, counts in _disks():
        rates = {}
        for callers, count in zip((1, MANY), counts, strict=True):
            place = Path(tempfile.mkdtemp(dir=folder))
            command = [*prefix, sys.executable, "-m", "bench.memory.writes", str(place), str(callers), str(count)]
            ran = subprocess.run(command, cwd=servers.ROOT, capture_output=True, check=True, timeout=300)
            rates[str(callers)] = float(json.loads(ran.stdout))
        found.append(Rates(what=f"`Storage.apply` in process, {what}", by_callers=rates))
    return found


async def over_http(folder: Path, embedding: str) -> list[Rates]:
    """Stores over POST /v1, on this disk and on one on which a sync takes 20 ms more."""
    found = []
    for what, prefix, counts in _disks():
        rates = {}
        texts = enumerate(corpus.memories(corpus.Language()))
        place = Path(tempfile.mkdtemp(dir=folder))
        with servers.ours(place, embedding, prefix=prefix) as (process, address):
            async with wires.rest(BASE, process, address) as wire:
                for callers, count in zip((1, MANY), counts, strict=True):
                    calls = [("store", filling.store_arguments(*each[::-1])) for each in itertools.islice(texts, count)]
                    begin = time.perf_counter()
                    await measured(wire, calls, callers)
                    rates[str(callers)] = count / (time.perf_counter() - begin)
        found.append(Rates(what=f"POST /v1/store, {what}", by_callers=rates))
    return found


def _disks() -> list[tuple[str, list[str], tuple[int, int]]]:
    """Names of disks, what to start a process with to have it, and how many writes of one and of many callers."""
    disks: list[tuple[str, list[str], tuple[int, int]]] = [("this disk", [], (200, 2000))]
    if shutil.which("strace"):
        tracing = ["-e", "trace=fdatasync,fsync", "-e", f"inject=fdatasync,fsync:delay_exit={SYNC_MICROSECONDS}"]
        disks.append(
            (
                "each sync 20 ms longer",
                ["strace", "-D", "--seccomp-bpf", "-f", "-qq", "-o", os.devnull, *tracing],
                (50, 1000),
            )
        )
    return disks


async def _filled(
    folder: Path, embedding: str, texts: Sequence[str], sizes: Sequence[int], asked: argparse.Namespace
) -> list[str]:
    """Fill a folder a server and size, each beginning from the one of the size below; the names of the servers."""
    for below, size in itertools.pairwise([0, *sizes]):
        _say(f"{size:,} memories: filling")
        place = folder / f"ours-{size}"
        place.mkdir()
        await filling.fill_ours(place, texts[:size])
        for version in asked.peers:
            place = folder / f"{version}-{size}"
            place.mkdir()
            if below:
                shutil.copytree(folder / f"{version}-{below}", place, dirs_exist_ok=True)
            async with wires.peer_stdio(version, _python(asked.cache, version), place, embedding) as wire:
                through_store = max(0, min(size, THROUGH_STORE) - below)
                await filling.fill_peer(wire.call, place, texts[below:size], below, through_store)
                await wire.settled()
    return ["ours", *asked.peers]


@contextlib.asynccontextmanager
async def _all(
    folder: Path, bases: Sequence[str], size: int, embedding: str, asked: argparse.Namespace
) -> AsyncIterator[list[Wire]]:
    """Every server on a copy of what it was filled with, started anew and at rest."""
    for name in (*bases, "ours-stdio"):
        shutil.copytree(folder.parent / f"{name.removesuffix('-stdio')}-{size}", folder / name)
    async with contextlib.AsyncExitStack() as stack:
        process, address = stack.enter_context(servers.ours(folder / "ours", embedding))
        running = [
            await stack.enter_async_context(wires.rest(BASE, process, address)),
            await stack.enter_async_context(wires.mcp_http("ours, MCP over HTTP", process, address)),
            await stack.enter_async_context(wires.our_stdio("ours, MCP over stdio", folder / "ours-stdio", embedding)),
        ]
        for version in asked.peers:
            peer = wires.peer_stdio(f"cpersona {version}", _python(asked.cache, version), folder / version, embedding)
            running.append(await stack.enter_async_context(peer))
        for wire in running:
            await wire.settled()
        yield running


def _python(cache: Path, version: str) -> Path:
    return cache / f"cpersona-{version}" / "bin" / "python"


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000], help="memories")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--large", action="store_true", help=f"stages of a recall at {LARGE:,} memories too")
    parser.add_argument("--results", type=Path, default=servers.ROOT / "bench" / "results")
    parser.add_argument("--cache", type=Path, default=servers.ROOT / ".cache")
    return parser


if __name__ == "__main__":
    if not Path("/proc/self/stat").exists():
        raise SystemExit("this comparison reads /proc: it runs on Linux alone")
    try:
        sys.exit(asyncio.run(main(_parser().parse_args())))
    except (RuntimeError, httpx2.HTTPError) as error:
        raise SystemExit(f"VOID: {error}") from error
