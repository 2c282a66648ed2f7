"""What a run found, as JSON and as a page of tables."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec

BASE = "ours, POST /v1"


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One round of calls: milliseconds of the server's processor and of the clock, and rows answered, a call."""

    cpu: float
    wall: float
    calls: int
    rows: float = 0.0


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One operation on so many memories by so many callers at once: a sample a round, by server."""

    operation: str
    memories: int
    callers: int
    samples: dict[str, list[Sample]]

    def cpu(self, server: str) -> float:
        """The median over the rounds."""
        return median(sample.cpu for sample in self.samples[server])

    def wall(self, server: str) -> float:
        """The median over the rounds."""
        return median(sample.wall for sample in self.samples[server])

    def ratio(self, dear: str, cheap: str) -> float:
        """How many times the processor time of `cheap` is that of `dear`: the median of the rounds' ratios."""
        pairs = zip(self.samples[dear], self.samples[cheap], strict=True)
        return median(one.cpu / max(other.cpu, 1e-9) for one, other in pairs)


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One recall over POST /v1 by stage, in milliseconds of the processor; total: of the whole process."""

    memories: int
    stages: dict[str, float]
    total: float

    @property
    def rest(self) -> float:
        """What lies outside the stages: HTTP, the guard, routing, the log line, handing over to a thread and back."""
        return self.total - sum(self.stages.values())

    @property
    def without_embedding(self) -> float:
        """Without asking for the query's vector and reading it."""
        return self.total - self.stages["embed"]


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Durable writes a second by the clock, by number of callers."""

    what: str
    by_callers: dict[str, float]

    @property
    def gain(self) -> float:
        """Many callers against one."""
        rates = list(self.by_callers.values())
        return rates[-1] / rates[0]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    command: str
    measured_at: str
    rounds: int
    machine: dict[str, str]
    cells: list[Cell]
    profiles: list[Profile]
    rates: list[Rates]
    remarks: list[str]


def write(folder: Path, result: Result) -> str:
    """Write `memory.json` and `memory.md`; the page."""
    folder.mkdir(parents=True, exist_ok=True)
    page = markdown(result)
    (folder / "memory.json").write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    (folder / "memory.md").write_text(page, encoding="utf-8")
    return page


def markdown(result: Result) -> str:
    """The page: a table an operation and size, the stages of a recall, writes a second."""
    head = (
        "# memory-svc beside cpersona\n\n"
        f"Written by `make bench`: `{result.command}`, {result.measured_at}; every sample is in `memory.json`. CPU: "
        "processor time of the server's process and its children, a call, in user and system mode. Wall: by the clock, "
        f"the client on the same machine. Medians of {result.rounds} rounds in which the servers take turns; × is the "
        "median of the rounds' ratios of CPU: how many times what this server takes the other one takes."
    )
    facts = "\n".join(f"- {name}: {value}" for name, value in result.machine.items())
    remarks = "\n".join(f"- {remark}" for remark in result.remarks)
    cells = [_cell(cell) for cell in result.cells]
    return "\n\n".join([head, facts, remarks, *cells, profiles(result.profiles), _rates(result.rates)]) + "\n"


def profiles(found: Sequence[Profile]) -> str:
    """The table of stages, a column a size."""
    stages = [*found[0].stages] if found else []
    rows: Mapping[str, Iterable[float]] = {
        **{stage: [each.stages[stage] for each in found] for stage in stages},
        "HTTP and the rest": [each.rest for each in found],
        "**all**": [each.total for each in found],
        "**without the query's embedding**": [each.without_embedding for each in found],
    }
    lines = [
        "## One recall over POST /v1 by stage, CPU ms",
        "",
        "| stage | " + " | ".join(f"{each.memories:,}" for each in found) + " |",
        "|---|" + "--:|" * len(found),
        *("| " + " | ".join([name, *(f"{value:.2f}" for value in values)]) + " |" for name, values in rows.items()),
    ]
    return "\n".join(lines)


def _cell(cell: Cell) -> str:
    servers = list(cell.samples)
    peers = [server for server in servers if not server.startswith("ours")]
    callers = "one caller" if cell.callers == 1 else f"{cell.callers} callers at once"
    lines = [
        f"## {cell.operation} at {cell.memories:,} memories, {callers}",
        "",
        "| server and wire | CPU ms | of the rounds | wall ms | rows | "
        + " | ".join(f"× {one}" for one in peers)
        + " |",
        "|---|--:|--:|--:|--:|" + "--:|" * len(peers),
    ]
    for server in servers:
        rounds = [sample.cpu for sample in cell.samples[server]]
        times = [f"**{cell.ratio(peer, server):.1f}**" if server not in peers else "" for peer in peers]
        values = [server, f"{cell.cpu(server):.2f}", f"{min(rounds):.2f} to {max(rounds):.2f}"]
        rows = f"{cell.samples[server][0].rows:.1f}" if cell.operation == "recall" else ""
        lines.append("| " + " | ".join([*values, f"{cell.wall(server):.1f}", rows, *times]) + " |")
    return "\n".join(lines)


def _rates(found: Sequence[Rates]) -> str:
    lines = [
        "## Durable writes a second, by the clock",
        "",
        "| what | one caller | 32 callers | × |",
        "|---|--:|--:|--:|",
    ]
    for each in found:
        numbers = [f"{rate:,.0f}" for rate in each.by_callers.values()]
        lines.append("| " + " | ".join([each.what, *numbers, f"**{each.gain:.1f}**"]) + " |")
    return "\n".join(lines)
