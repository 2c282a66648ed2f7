"""The embedding server beside `cembedding`, on the same model files, in one run: `python -m bench.embed --help`.

Both answer the same requests, one server at a time, in rounds whose order alternates. What is compared is the processor
time of the server's process a text, which other work on the machine disturbs least, and texts a second by the clock.
"""

import argparse
import http.client
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from bench.embed import loads, report
from bench.embed.loads import Load
from bench.embed.report import Cell, Result, Sample
from bench.embed.servers import Running, Server, post, running
from bench.embed.subjects import SUBJECTS, Subject
from bench.machine import machine

COSINE_MIN = 0.999
_OURS = ("agent-memory", "numpy", "onnxruntime", "tokenizers", "httptools")
_PEER = ("cembedding", "numpy", "onnxruntime", "tokenizers")
_PROBES = 24
_ROOT = Path(__file__).parents[2]


class Void(Exception):
    """The two servers do not do the same work, so no figure is given."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison and write its results; return 0, or 1 where the run is void."""
    asked = _parser().parse_args(arguments)
    # So that a run that is ended ends the server it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    subject = SUBJECTS[asked.model](asked.cache, asked.peer_python)
    _say(f"{subject.name}: {subject.about}")
    facts = machine(_OURS, {"cembedding": asked.peer_python}, _PEER)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "servers.log")
        try:
            cosine = agreement(subject, log)
            _say(f"least cosine of a text's two vectors: {cosine:.6f}")
            cells: list[Cell] = []
            for threads in asked.threads:
                cells += compared(subject, threads, asked, log)
                report.write(asked.results, _result(subject, asked, facts, cosine, cells))
        except (Void, RuntimeError) as error:
            _say(f"VOID: {error}\n{_tail(log)}")
            return 1
    return 0


def agreement(subject: Subject, log: Path) -> float:
    """Return the least cosine between the two servers' vectors of the same texts, from the shortest to the longest.

    Raises Void where it is under 0.999: they do not run the same model in the same way.
    """
    mixed = next(load for load in subject.loads if not load.uniform)
    sent = _texts(subject, mixed, _PROBES)
    vectors = []
    for server in (subject.ours, subject.peer):
        with running(server, 0, log) as one:
            found = np.array(one.embed([server.prefix + text for text in sent]), np.float64)
            vectors.append(found / np.linalg.norm(found, axis=1, keepdims=True))
    cosine = float((vectors[0] * vectors[1]).sum(axis=1).min())
    if not cosine >= COSINE_MIN:
        raise Void(f"the servers' vectors of one text differ (cosine {cosine:.4f}, at least {COSINE_MIN} is wanted)")
    return cosine


def compared(subject: Subject, threads: int, asked: argparse.Namespace, log: Path) -> list[Cell]:
    """Return a cell for each load and number of clients, each with a sample a round from either server."""
    samples: dict[tuple[str, int, str], list[Sample]] = {}
    ready: dict[str, list[int]] = {"ours": [], "peer": []}
    for number in range(asked.rounds):
        sides = (("ours", subject.ours), ("peer", subject.peer))
        for side, server in sides if number % 2 == 0 else sides[::-1]:
            with running(server, threads, log) as one:
                ready[side].append(one.resident_bytes())
                for load, clients in _asked(subject, asked):
                    sample = measured(one, _bodies(subject, server, load, clients), clients, load.texts_a_request)
                    samples.setdefault((load.name, clients, side), []).append(sample)
                    _say(
                        f"threads {threads or 'all'} round {number + 1} {server.name:10} "
                        + _line(load, clients, sample)
                    )
    return [
        Cell(
            load=load.name,
            uniform=load.uniform,
            clients=clients,
            threads=threads,
            ours=samples[load.name, clients, "ours"],
            peer=samples[load.name, clients, "peer"],
            ours_ready_bytes=ready["ours"],
            peer_ready_bytes=ready["peer"],
        )
        for load, clients in _asked(subject, asked)
    ]


def measured(server: Running, bodies: Sequence[bytes], clients: int, texts_a_request: int) -> Sample:
    """Send the bodies in order from `clients` connections, each waiting for its answer before it sends the next.

    Raises RuntimeError where a request fails.
    """
    connections = [server.connection() for _ in range(clients)]
    for connection in connections:
        connection.connect()
    post(connections[0], bodies[0])
    waiting, lock, failures = iter(bodies), threading.Lock(), list[BaseException]()
    threads = [threading.Thread(target=_send, args=(connection, waiting, lock, failures)) for connection in connections]
    cpu, clock = server.cpu_seconds(), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall_seconds, cpu_seconds = time.perf_counter() - clock, server.cpu_seconds() - cpu
    for connection in connections:
        connection.close()
    if failures:
        raise RuntimeError(f"a request failed: {failures[0]}")
    texts = len(bodies) * texts_a_request
    return Sample(
        texts=texts, cpu_seconds=cpu_seconds, wall_seconds=wall_seconds, resident_bytes=server.resident_bytes()
    )


def _send(
    connection: http.client.HTTPConnection,
    waiting: Iterator[bytes],
    lock: threading.Lock,
    failures: list[BaseException],
) -> None:
    while not failures:
        with lock:
            body = next(waiting, None)
        if body is None:
            return
        try:
            post(connection, body)
        except (OSError, RuntimeError) as error:
            failures.append(error)


def _result(
    subject: Subject, asked: argparse.Namespace, facts: dict[str, str], cosine: float, cells: list[Cell]
) -> Result:
    return Result(
        model=subject.name,
        about=subject.about,
        files=subject.files,
        cosine_min=cosine,
        rounds=asked.rounds,
        command=report.command(asked.model, asked.threads, asked.clients, asked.rounds, asked.loads),
        measured_at=datetime.now(UTC).strftime("%Y-%m-%d"),
        machine=facts,
        cells=cells,
    )


def _asked(subject: Subject, asked: argparse.Namespace) -> list[tuple[Load, int]]:
    loads_asked = [load for load in subject.loads if not asked.loads or load.name in asked.loads]
    return [(load, count) for load in loads_asked for count in asked.clients]


def _texts(subject: Subject, load: Load, count: int) -> list[str]:
    return loads.texts(loads.lengths(load, count), loads.words(subject.tokenizer), subject.prefix_tokens)


def _bodies(subject: Subject, server: Server, load: Load, clients: int) -> list[bytes]:
    sent = [server.prefix + text for text in _texts(subject, load, load.sent(clients))]
    return loads.requests(sent, load.texts_a_request)


def _line(load: Load, clients: int, sample: Sample) -> str:
    return (
        f"{load.name:28} clients {clients:2} cpu {sample.cpu_milliseconds:8.2f} ms/text  "
        f"wall {sample.texts_a_second:8.2f} texts/s  resident {sample.resident_bytes / 1e6:6.0f} MB"
    )


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]) if log.exists() else ""


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.embed", description=__doc__)
    parser.add_argument("--model", choices=list(SUBJECTS), default=next(iter(SUBJECTS)))
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 0], help="0: all processors, as each takes them")
    parser.add_argument("--loads", nargs="+", default=[], help="names of loads, such as `uniform 16`; else all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=_ROOT / "bench" / "results")
    parser.add_argument("--cache", type=Path, default=_ROOT / ".cache" / "bench")
    parser.add_argument("--peer-python", type=Path, default=_ROOT / ".cache" / "cembedding-0.9.1" / "bin" / "python")
    return parser


if __name__ == "__main__":
    if not hasattr(os, "sched_setaffinity"):
        raise SystemExit("this comparison reads /proc and pins processors: it runs on Linux alone")
    sys.exit(main())
