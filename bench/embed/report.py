"""What a comparison found, as JSON with every sample and as a Markdown table of medians."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec


class Sample(msgspec.Struct, frozen=True):
    """One load sent once to one server."""

    texts: int
    cpu_seconds: float
    wall_seconds: float
    resident_bytes: int

    @property
    def cpu_milliseconds(self) -> float:
        """Processor time of the server a text."""
        return self.cpu_seconds / self.texts * 1e3

    @property
    def texts_a_second(self) -> float:
        """Texts by the clock."""
        return self.texts / self.wall_seconds


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One load with one number of clients and threads: a sample a round of either server, in the order of the rounds.

    `threads` 0 means that each server took what it takes by itself. Resident sizes when ready are by round too.
    """

    load: str
    uniform: bool
    clients: int
    threads: int
    ours: list[Sample]
    peer: list[Sample]
    ours_ready_bytes: list[int]
    peer_ready_bytes: list[int]

    @property
    def cpu_ratio(self) -> float:
        """Median over the rounds of the peer's processor time a text to ours: above 1, ours needs less."""
        pairs = zip(self.ours, self.peer, strict=True)
        return median(peer.cpu_milliseconds / ours.cpu_milliseconds for ours, peer in pairs)

    @property
    def wall_ratio(self) -> float:
        """Median over the rounds of our texts a second to the peer's: above 1, ours answers more."""
        return median(
            ours.texts_a_second / peer.texts_a_second for ours, peer in zip(self.ours, self.peer, strict=True)
        )


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run on one model."""

    model: str
    about: str
    files: dict[str, str]
    cosine_min: float
    rounds: int
    command: str
    measured_at: str
    machine: dict[str, str]
    cells: list[Cell]


def command(model: str, threads: Sequence[int], clients: Sequence[int], rounds: int, loads: Sequence[str] = ()) -> str:
    """Return the command line that repeats a run."""
    return (
        f"python -m bench.embed --model {model} --threads {' '.join(map(str, threads))} "
        f"--clients {' '.join(map(str, clients))} --rounds {rounds}"
        + (f" --loads {shlex.join(loads)}" if loads else "")
    )


def write(folder: Path, result: Result) -> None:
    """Put a run in place of the last one of the same command in `embed.json`; write `embed.md` from all there are."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "embed.json"
    kept = msgspec.json.decode(file.read_bytes(), type=list[Result]) if file.exists() else []
    results = sorted([*(one for one in kept if one.command != result.command), result], key=lambda one: one.command)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    (folder / "embed.md").write_text(markdown(results), encoding="utf-8")


def markdown(results: Sequence[Result]) -> str:
    """Return the page: a section a model, a table a number of threads."""
    head = (
        "# embed-svc beside cembedding\n\n"
        "Written by `make bench-embed`; every sample is in `embed.json`. Medians over the rounds; a ratio is the\n"
        "median of the rounds' ratios, and above 1 ours is ahead. CPU: processor time of the server's process a text.\n"
        "Texts a second: by the clock, the client on the same machine. Resident: after the load, the largest of the\n"
        "rounds. `8 a request`: each request holds 8 texts, else one."
    )
    return "\n\n".join([head, *(_section(result) for result in results)]) + "\n"


def _section(result: Result) -> str:
    facts = [
        f"{result.about}. Both servers loaded the same files; the least cosine between their vectors of one text was "
        f"{result.cosine_min:.6f}. {result.rounds} rounds on {result.measured_at}.",
        f"`{result.command}`",
        "\n".join(f"- {name}: {value}" for name, value in result.machine.items()),
        "\n".join(f"- `{name}` SHA-256 `{digest}`" for name, digest in result.files.items()),
    ]
    tables = [_table(result, threads) for threads in dict.fromkeys(cell.threads for cell in result.cells)]
    return "\n\n".join([f"## {result.model}", *facts, *tables])


def _table(result: Result, threads: int) -> str:
    cells = [cell for cell in result.cells if cell.threads == threads]
    title = (
        f"{threads} thread{'s' if threads > 1 else ''}, pinned" if threads else "all processors, threads as each takes"
    )
    first = cells[0]
    ready = (
        f"Resident when ready: ours {_megabytes(first.ours_ready_bytes)}, peer {_megabytes(first.peer_ready_bytes)} MB."
    )
    rows = [
        "| load, tokens | clients | CPU ms a text: ours | peer | ratio | texts a second: ours | peer | ratio | "
        "resident MB: ours | peer |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
        *(_row(cell) for cell in cells),
    ]
    return f"### {title}\n\n{ready}\n\n" + "\n".join(rows)


def _row(cell: Cell) -> str:
    cpu = [f"{median(one.cpu_milliseconds for one in side):.2f}" for side in (cell.ours, cell.peer)]
    wall = [f"{median(one.texts_a_second for one in side):.1f}" for side in (cell.ours, cell.peer)]
    resident = [_megabytes([one.resident_bytes for one in side]) for side in (cell.ours, cell.peer)]
    values = (
        cell.load, str(cell.clients), *cpu, f"**{cell.cpu_ratio:.2f}**", *wall, f"{cell.wall_ratio:.2f}", *resident
    )  # fmt: skip
    return "| " + " | ".join(values) + " |"


def _megabytes(sizes: Sequence[int]) -> str:
    return f"{max(sizes) / 1e6:,.0f}"
