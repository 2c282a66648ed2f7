"""How fast this machine embeds with the chosen model, beside how fast it multiplies matrices: `embed-svc bench`.

In one process and without HTTP: texts go through the Embedder that serves, which reads, batches and runs them.
"""

import asyncio
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import msgspec

from embed_svc import choice, cost, files, machine, models, observe
from embed_svc.batching import Limits
from embed_svc.cost import Cost
from embed_svc.errors import Invalid, Unavailable
from embed_svc.loading import obtain_model
from embed_svc.models import Info, Model, Role, Tokens
from embed_svc.observe import Observer
from embed_svc.pooling import Floats
from embed_svc.service import Embedder
from embed_svc.settings import AUTO, Settings

_CALLERS = 8
_UNIFORM = (16, 128)
_SHORTEST = 8
_SEED = 7
_WORDS = (
    *("time", "year", "people", "way", "day", "man", "thing", "life", "child", "world", "school", "state", "family"),
    *("group", "country", "hand", "part", "place", "case", "week", "company", "system", "program", "question", "work"),
    *(
        "number",
        "night",
        "point",
        "home",
        "water",
        "room",
        "mother",
        "area",
        "money",
        "story",
        "fact",
        "month",
        "right",
    ),
    *(
        "book",
        "eye",
        "job",
        "word",
        "business",
        "side",
        "kind",
        "head",
        "house",
        "service",
        "friend",
        "father",
        "power",
    ),
    *("hour", "game", "line", "end", "law", "car", "city", "name", "team", "minute", "idea", "body", "information"),
)
_PRODUCT_SECONDS_MAX = 120
# In a process of its own: a numeric library reads how many threads to use, and for which processor, when it is loaded.
_PRODUCT = """
import os, sys, time
for name in ("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.putenv(name, sys.argv[1])
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.unsetenv(name)
import numpy
size = int(sys.argv[2])
left, right = numpy.random.default_rng(0).standard_normal((2, size, size), numpy.float32)
answer = left @ right
best = 0.0
for _ in range(10):
    started = time.process_time()
    for _ in range(int(sys.argv[3])):
        numpy.matmul(left, right, out=answer)
    best = max(best, int(sys.argv[3]) * 2 * size**3 / max(time.process_time() - started, 1e-9))
print(best)
"""


class Load(msgspec.Struct, frozen=True):
    """Texts of `shortest` to `longest` tokens, log-uniform between."""

    name: str
    shortest: int
    longest: int


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one load came to. Rates are by the clock and by processor time, which other work disturbs less.

    `padding` is the share of the tokens run that filled rows up. Operations count real tokens alone, so that padding
    lowers `share`, which is of the matrix product's rate.
    """

    load: str
    texts: int
    texts_a_second: float
    texts_a_cpu_second: float
    tokens_a_second: float
    tokens_a_cpu_second: float
    padding: float
    gigaflops_a_cpu_second: float
    share: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One run: the model, the threads of both the model and the matrix product, that product's rate, a row a load."""

    model: str
    fingerprint: str | None
    threads: int
    product_gigaflops_a_cpu_second: float
    rows: list[Row]

    def table(self) -> str:
        """Return the report as lines of text."""
        heads = (
            "load, tokens",
            "texts/s",
            "texts/CPU s",
            "tokens/s",
            "tokens/CPU s",
            "padding",
            "GFLOP/CPU s",
            "share",
        )
        lines = [
            f"{self.model} on {self.threads} thread{'s' * (self.threads > 1)}; single-precision matrix product "
            f"{self.product_gigaflops_a_cpu_second:.1f} GFLOP a CPU second",
            f"{heads[0]:18}" + "".join(f"{head:>14}" for head in heads[1:]),
        ]
        for row in self.rows:
            cells = (
                f"{row.texts_a_second:.1f}",
                f"{row.texts_a_cpu_second:.1f}",
                f"{row.tokens_a_second:.0f}",
                f"{row.tokens_a_cpu_second:.0f}",
                f"{row.padding:.1%}",
                f"{row.gigaflops_a_cpu_second:.1f}",
                f"{row.share:.0%}",
            )
            lines.append(f"{row.load:18}" + "".join(f"{cell:>14}" for cell in cells))
        return "\n".join(lines) + "\n"


class Counted:
    """A model that counts what it runs: tokens, tokens with padding, floating-point operations."""

    def __init__(self, model: Model, costs: Cost) -> None:
        self._model = model
        self._costs = costs
        self.tokens = self.area = self.operations = 0

    @property
    def info(self) -> Info:
        """Who it is."""
        return self._model.info

    def measure(self, texts: Sequence[str], role: Role, whole: bool = False) -> list[Tokens]:
        """Tokenise, uncounted."""
        return self._model.measure(texts, role, whole)

    def adopt(self, rows: Sequence[Sequence[int]], role: Role) -> list[Tokens]:
        """Take token ids, uncounted."""
        return self._model.adopt(rows, role)

    def embed(self, batch: Sequence[Tokens]) -> Floats:
        """Run a batch and count it."""
        lengths = [len(tokens.ids) for tokens in batch]
        self.tokens += sum(lengths)
        self.area += max(lengths) * len(lengths)
        self.operations += sum(map(self._costs.operations, lengths))
        return self._model.embed(batch)


def run(settings: Settings, seconds: float) -> Report:
    """Measure the recorded model, else the one EMBED_MODEL names, else the packaged one; nothing new is recorded.

    Each load takes `seconds` and what is then still under way. Raises Invalid or Unavailable where the model cannot be
    had.
    """
    if choice.read(Path(settings.data_dir, choice.RECORD_NAME)):
        return _run(settings, seconds)
    name = models.FALLBACK.name if settings.model == AUTO else settings.model
    with tempfile.TemporaryDirectory() as folder:
        return _run(msgspec.structs.replace(settings, data_dir=folder, model=name), seconds)


def as_json(report: Report) -> str:
    """Return the report as JSON."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"


def measured(model: Model, costs: Cost, limits: Limits, seconds: float, product: float) -> list[Row]:
    """Return a row for each load; `product` is the matrix product's rate, in operations a CPU second."""
    rows = []
    for load in loads(model.info.window):
        counted = Counted(model, costs)
        embedder = Embedder(counted, limits, Observer(machine.resident_bytes))
        try:
            sent, wall_seconds, cpu_seconds = asyncio.run(_send(embedder, texts(model, load), _callers(load), seconds))
        finally:
            embedder.close()
        rate = counted.operations / cpu_seconds
        rows.append(
            Row(
                load=load.name,
                texts=sent,
                texts_a_second=sent / wall_seconds,
                texts_a_cpu_second=sent / cpu_seconds,
                tokens_a_second=counted.tokens / wall_seconds,
                tokens_a_cpu_second=counted.tokens / cpu_seconds,
                padding=1 - counted.tokens / counted.area,
                gigaflops_a_cpu_second=rate / 1e9,
                share=rate / product,
            )
        )
    return rows


def loads(window: int) -> list[Load]:
    """Return the loads for a window: each length alone, the window itself, and all lengths mixed."""
    uniform = [tokens for tokens in _UNIFORM if tokens < window] + [window]
    shortest = min(_SHORTEST, window)
    return [
        *(Load(f"uniform {tokens}", tokens, tokens) for tokens in uniform),
        Load(f"mixed {shortest} to {window}", shortest, window),
    ]


def texts(model: Model, load: Load) -> Iterator[str]:
    """Yield texts of a load without end, each of the very number of tokens that is drawn for it.

    Raises Invalid where the tokenizer has none of the plain words that they are made of.
    """
    first, *counts = (len(tokens.ids) for tokens in model.measure(["time", *(f"time {w}" for w in _WORDS)], "document"))
    words = [word for word, count in zip(_WORDS, counts, strict=True) if count == first + 1]
    if not words:
        raise Invalid(f"the tokenizer of {model.info.name} has no word of plain English: nothing to measure it with")
    (pair,) = model.measure([f"{words[0]} {words[0]}"], "document")
    around, random = len(pair.ids) - 2, Random(_SEED)
    spread = math.log(load.longest / load.shortest)
    while True:
        tokens = round(load.shortest * math.exp(spread * random.random()))
        yield " ".join(random.choices(words, k=max(1, tokens - around)))


def product_rate(threads: int, size: int = 1_024, repeats: int = 3) -> float:
    """Return the best rate of numpy's single-precision matrix product here, in operations a CPU second.

    Raises Unavailable where it cannot be measured.
    """
    command = [sys.executable, "-c", _PRODUCT, str(threads), str(size), str(repeats)]
    try:
        answer = subprocess.run(command, capture_output=True, check=True, timeout=_PRODUCT_SECONDS_MAX)
        return float(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise Unavailable(f"the rate of a matrix product could not be measured ({type(error).__name__})") from error


def _run(settings: Settings, seconds: float) -> Report:
    model = obtain_model(settings, lambda step: observe.say("debug", step), lambda _: None)
    record = choice.read(Path(settings.data_dir, choice.RECORD_NAME))
    revision = record.revision if record else None
    found = files.obtain(models.named(model.info.name), revision, Path(settings.data_dir), lambda _: None)
    threads = settings.threads or machine.processors()
    product = product_rate(threads)
    limits = Limits(tokens_max=settings.batch_tokens_max, queue_texts_max=settings.queue_texts_max)
    rows = measured(model, cost.read(found.graph, model.info.dimensions), limits, seconds, product)
    return Report(
        model=model.info.name,
        fingerprint=model.info.fingerprint,
        threads=threads,
        product_gigaflops_a_cpu_second=product / 1e9,
        rows=rows,
    )


def _callers(load: Load) -> int:
    """Return how many callers wait for an answer at a time: one where each text is too long to share a batch."""
    return _CALLERS if load.shortest < 1_024 else 1


async def _send(embedder: Embedder, waiting: Iterator[str], callers: int, seconds: float) -> tuple[int, float, float]:
    """Send texts, one a caller and call, for so long; return how many, and the seconds by clock and processor."""
    sent = 0
    end = time.perf_counter() + seconds

    async def call() -> None:
        nonlocal sent
        while True:
            await embedder.embed([next(waiting)], "document")
            sent += 1
            if time.perf_counter() >= end:
                return

    clock, processor = time.perf_counter(), time.process_time()
    await asyncio.gather(*(call() for _ in range(callers)))
    return sent, time.perf_counter() - clock, time.process_time() - processor
