"""Whether the memory server does well, on one page."""

from observability.boards.queries import MEMORY, OF_MEMORY, RECALLS, quantile, rate
from observability.panels import Board, Panel, Query, Row

STATE = Row(
    "Now",
    (
        Panel(
            kind="number",
            title="Answers",
            description="Whether Prometheus gets metrics from the server.",
            unit="none",
            queries=(Query(f'up{{{OF_MEMORY},job="memory"}}', "{{instance}}"),),
            starts="red",
            steps=((1, "green"),),
            words={"0": ("Down", "red"), "1": ("Up", "green")},
        ),
        Panel(
            kind="number",
            title="Calls",
            description="Operations called a second, over every wire.",
            unit="ops",
            queries=(Query(rate("memory_operations_total", OF_MEMORY), "{{instance}}"),),
            starts="blue",
        ),
        Panel(
            kind="number",
            title="Failed calls",
            description="Share of the calls of five minutes that failed through no fault of the caller.",
            unit="percentunit",
            queries=(Query(f"instance:memory_operations_failed:ratio{{{OF_MEMORY}}}", "{{instance}}"),),
            steps=((0.01, "orange"), (0.05, "red")),
        ),
        Panel(
            kind="number",
            title="Recall, p99",
            description="One recall in a hundred takes longer than this.",
            unit="s",
            queries=(Query(quantile(0.99, "memory_operation_seconds", f"{OF_MEMORY},{RECALLS}"), "{{instance}}"),),
            steps=((0.5, "orange"), (1, "red")),
        ),
        Panel(
            kind="number",
            title="Embedding",
            description="Whether recall has vectors; without them it answers from full text alone.",
            unit="none",
            queries=(Query(f"memory_embedding_degraded{{{OF_MEMORY}}}", "{{instance}}"),),
            steps=((1, "red"),),
            words={"0": ("Vectors", "green"), "1": ("Degraded", "red")},
        ),
        Panel(
            kind="number",
            title="Disk free",
            description="Share of the data folder's file system that may still be written.",
            unit="percentunit",
            queries=(Query(f"instance:memory_disk_free:ratio{{{OF_MEMORY}}}", "{{instance}}"),),
            starts="red",
            steps=((0.05, "orange"), (0.2, "green")),
        ),
    ),
)
CALLS = Row(
    "Calls",
    (
        Panel(
            kind="lines",
            title="Calls by operation",
            description="Operations called a second.",
            unit="ops",
            queries=(Query(rate("memory_operations_total", OF_MEMORY, "operation"), "{{operation}}"),),
            stacked=True,
        ),
        Panel(
            kind="lines",
            title="Time an operation takes, p99",
            description="One call in a hundred takes longer than this.",
            unit="s",
            queries=(Query(quantile(0.99, "memory_operation_seconds", OF_MEMORY, "operation"), "{{operation}}"),),
            steps=((1, "red"),),
        ),
        Panel(
            kind="lines",
            title="Calls by outcome",
            description="ok, cancelled, or the kind of failure.",
            unit="ops",
            queries=(Query(rate("memory_operations_total", OF_MEMORY, "outcome"), "{{outcome}}"),),
            stacked=True,
        ),
    ),
)
STORE = Row(
    "What is kept",
    (
        Panel(
            kind="lines",
            title="Rows",
            description="Rows there are, by kind.",
            unit="short",
            queries=(Query(f"memory_rows{{{OF_MEMORY}}}", "{{instance}} {{kind}}"),),
        ),
        Panel(
            kind="lines",
            title="Written",
            description="Effects written to the journal a second.",
            unit="wps",
            queries=(Query(f"rate(memory_journal_sequence{{{OF_MEMORY}}}[$__rate_interval])", "{{instance}}"),),
        ),
        Panel(
            kind="lines",
            title="Rows that wait for vectors",
            description="Rows without a vector of the present model; they are found by their words.",
            unit="short",
            queries=(Query(f"memory_rows_waiting_for_vectors{{{OF_MEMORY}}}", "{{instance}}"),),
            steps=((100, "orange"),),
        ),
    ),
)
DISK = Row(
    "Disk and process",
    (
        Panel(
            kind="lines",
            title="Size on disk",
            description="The database, and its write-ahead log, which checkpoints keep small.",
            unit="bytes",
            queries=(
                Query(f"memory_database_bytes{{{OF_MEMORY}}}", "{{instance}} database"),
                Query(f"memory_write_ahead_log_bytes{{{OF_MEMORY}}}", "{{instance}} log"),
            ),
        ),
        Panel(
            kind="lines",
            title="Disk",
            description="The data folder's file system: what is free, and how large it is.",
            unit="bytes",
            queries=(
                Query(f"memory_disk_free_bytes{{{OF_MEMORY}}}", "{{instance}} free"),
                Query(f"memory_disk_bytes{{{OF_MEMORY}}}", "{{instance}} size"),
            ),
        ),
        Panel(
            kind="lines",
            title="Memory of the process",
            description="Resident memory; vectors and words of the whole store are held in it.",
            unit="bytes",
            queries=(Query(f'process_resident_memory_bytes{{{OF_MEMORY},job="memory"}}', "{{instance}}"),),
        ),
        Panel(
            kind="lines",
            title="Processor",
            description="Cores kept busy by the process.",
            unit="none",
            queries=(
                Query(f'rate(process_cpu_seconds_total{{{OF_MEMORY},job="memory"}}[$__rate_interval])', "{{instance}}"),
            ),
        ),
        Panel(
            kind="lines",
            title="Open files",
            description="Descriptors the process has open: files and connections.",
            unit="short",
            queries=(Query(f'process_open_fds{{{OF_MEMORY},job="memory"}}', "{{instance}}"),),
        ),
        Panel(
            kind="lines",
            title="Running for",
            description="Time since the process started; it falls to nought with each restart.",
            unit="dtdurations",
            queries=(Query(f'time() - process_start_time_seconds{{{OF_MEMORY},job="memory"}}', "{{instance}}"),),
        ),
    ),
)
WORK = Row(
    "Background work",
    (
        Panel(
            kind="lines",
            title="Last round",
            description="Time since a round of background work ended.",
            unit="s",
            queries=(Query(f"memory_worker_age_seconds{{{OF_MEMORY}}}", "{{instance}}"),),
            steps=((900, "red"),),
        ),
        Panel(
            kind="lines",
            title="Failed steps",
            description="Background steps that failed, by step; each is tried again in the next round.",
            unit="short",
            queries=(
                Query(
                    f"sum by (step) (increase(memory_worker_failures_total{{{OF_MEMORY}}}[$__rate_interval]))",
                    "{{step}}",
                ),
            ),
            steps=((1, "orange"),),
        ),
        Panel(
            kind="lines",
            title="Erasure pending",
            description="1 while bytes of what was deleted may still be in the files.",
            unit="none",
            queries=(Query(f"memory_erasure_pending{{{OF_MEMORY}}}", "{{instance}}"),),
        ),
    ),
)
BOARD = Board(
    uid="memory-overview",
    title="Memory overview",
    description="Whether the memory server answers, how fast, what it holds, and what it takes of its machine.",
    variables=(MEMORY,),
    rows=(STATE, CALLS, STORE, DISK, WORK),
)
