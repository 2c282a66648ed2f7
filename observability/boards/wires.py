"""Who calls, over which wire, and what comes of it."""

from observability.boards.queries import MEMORY, OF_MEMORY, quantile, rate
from observability.panels import Board, Panel, Query, Row

CALLS = "memory_operations_total"
FAULTS = f'{OF_MEMORY},outcome!~"ok|cancelled"'


def failures(by: str, without: str) -> str:
    """Failed calls a second by these labels, and 0 for each value of `without` that has none."""
    return f"{rate(CALLS, FAULTS, by)} or on ({without}) 0 * {rate(CALLS, OF_MEMORY, without)}"


NOW = Row(
    "Now",
    (
        Panel(
            kind="number",
            title="Calls",
            description="Operations called a second.",
            unit="ops",
            queries=(Query(rate(CALLS, OF_MEMORY), "{{instance}}"),),
            starts="blue",
            width=6,
        ),
        Panel(
            kind="number",
            title="Failed calls",
            description="Share of the calls of five minutes that failed through no fault of the caller.",
            unit="percentunit",
            queries=(Query(f"instance:memory_operations_failed:ratio{{{OF_MEMORY}}}", "{{instance}}"),),
            steps=((0.01, "orange"), (0.05, "red")),
            width=6,
        ),
        Panel(
            kind="number",
            title="Open connections",
            description="MCP clients connected over SSE and stdio; streamable HTTP and REST keep none open.",
            unit="short",
            queries=(Query(f"sum by (instance) (memory_sessions{{{OF_MEMORY}}})", "{{instance}}"),),
            starts="blue",
            width=6,
        ),
        Panel(
            kind="number",
            title="Refused",
            description="Requests refused a second for their host, origin, token or size.",
            unit="reqps",
            queries=(Query(rate("memory_refusals_total", OF_MEMORY), "{{instance}}"),),
            steps=((0.1, "orange"), (1, "red")),
            width=6,
        ),
    ),
)
CALLED = Row(
    "Calls",
    (
        Panel(
            kind="lines",
            title="By operation",
            description="Operations called a second.",
            unit="ops",
            queries=(Query(rate(CALLS, OF_MEMORY, "operation"), "{{operation}}"),),
            stacked=True,
        ),
        Panel(
            kind="lines",
            title="By wire",
            description="mcp-http, mcp-sse and mcp-stdio are MCP; rest is plain HTTP.",
            unit="ops",
            queries=(Query(rate(CALLS, OF_MEMORY, "wire"), "{{wire}}"),),
            stacked=True,
        ),
        Panel(
            kind="lines",
            title="By outcome",
            description="ok, cancelled, or the kind of failure.",
            unit="ops",
            queries=(Query(rate(CALLS, OF_MEMORY, "outcome"), "{{outcome}}"),),
            stacked=True,
        ),
    ),
)
FAILED = Row(
    "What goes wrong",
    (
        Panel(
            kind="lines",
            title="Failures by operation and kind",
            description="invalid, denied, not_found, conflict and too_large are the caller's; overloaded is its limit.",
            unit="ops",
            queries=(Query(failures("operation, outcome", "operation"), "{{operation}} {{outcome}}"),),
            stacked=True,
        ),
        Panel(
            kind="lines",
            title="Failures by wire",
            description="Calls that ended neither well nor by being called off.",
            unit="ops",
            queries=(Query(failures("wire", "wire"), "{{wire}}"),),
            stacked=True,
        ),
        Panel(
            kind="lines",
            title="Refused before a call",
            description="unauthenticated: no or a wrong token. denied: its host or origin. too_large: its body.",
            unit="reqps",
            queries=(Query(rate("memory_refusals_total", OF_MEMORY, "outcome"), "{{outcome}}"),),
            steps=((1, "red"),),
            stacked=True,
        ),
    ),
)
OPEN = Row(
    "Time and connections",
    (
        Panel(
            kind="lines",
            title="Time by operation, median",
            description="Half of the calls take longer than this.",
            unit="s",
            queries=(Query(quantile(0.5, "memory_operation_seconds", OF_MEMORY, "operation"), "{{operation}}"),),
        ),
        Panel(
            kind="lines",
            title="Time by operation, p99",
            description="One call in a hundred takes longer than this.",
            unit="s",
            queries=(Query(quantile(0.99, "memory_operation_seconds", OF_MEMORY, "operation"), "{{operation}}"),),
            steps=((1, "red"),),
        ),
        Panel(
            kind="lines",
            title="Open connections",
            description="MCP clients that are connected, by wire.",
            unit="short",
            queries=(Query(f"sum by (wire) (memory_sessions{{{OF_MEMORY}}})", "{{wire}}"),),
            stacked=True,
        ),
    ),
)
BOARD = Board(
    uid="memory-wires",
    title="MCP and HTTP",
    description="Who calls, over which wire, and what comes of it.",
    variables=(MEMORY,),
    rows=(NOW, CALLED, FAILED, OPEN),
)
