"""How fast recall is, where its time goes, and how often it finds something to say."""

from observability.boards.queries import MEMORY, OF_MEMORY, RECALLS, mean, quantile, quantiles, rate
from observability.panels import Board, Panel, Query, Row

OF_RECALLS = f"{OF_MEMORY},{RECALLS}"
GATE = "memory_recall_gate_total"
HELD_BACK = f'{OF_MEMORY},outcome="nothing_clears"'
NOW = Row(
    "Now",
    (
        Panel(
            kind="number",
            title="Recalls",
            description="Recalls a second.",
            unit="ops",
            queries=(Query(rate("memory_operations_total", OF_RECALLS), "{{instance}}"),),
            starts="blue",
        ),
        Panel(
            kind="number",
            title="Median",
            description="Half of the recalls take longer than this.",
            unit="s",
            queries=(Query(quantile(0.5, "memory_operation_seconds", OF_RECALLS), "{{instance}}"),),
            steps=((0.1, "orange"), (0.5, "red")),
        ),
        Panel(
            kind="number",
            title="p99",
            description="One recall in a hundred takes longer than this.",
            unit="s",
            queries=(Query(quantile(0.99, "memory_operation_seconds", OF_RECALLS), "{{instance}}"),),
            steps=((0.5, "orange"), (1, "red")),
        ),
        Panel(
            kind="number",
            title="Without vectors",
            description="Share of the recalls of five minutes that were answered from full text alone.",
            unit="percentunit",
            queries=(Query(f"instance:memory_fallback_recalls:ratio{{{OF_MEMORY}}}", "{{instance}}"),),
            steps=((0.01, "orange"), (0.5, "red")),
        ),
        Panel(
            kind="number",
            title="Answered with nothing",
            description="Share of the judged recalls where the gate found that nothing speaks to the query.",
            unit="percentunit",
            queries=(
                Query(
                    f"({rate(GATE, HELD_BACK)} or 0 * {rate(GATE, OF_MEMORY)}) / ({rate(GATE, OF_MEMORY)} > 0)",
                    "{{instance}}",
                ),
            ),
            steps=((0.5, "orange"), (0.9, "red")),
        ),
        Panel(
            kind="number",
            title="Calibrations",
            description="Calibrations of the gate in the time shown; each follows a change of an agent's memories.",
            unit="short",
            queries=(Query(f"increase(memory_calibrations_total{{{OF_MEMORY}}}[$__range])", "{{instance}}"),),
            starts="blue",
        ),
    ),
)
TIME = Row(
    "Time",
    (
        Panel(
            kind="lines",
            title="Time a recall takes",
            description="Half, and all but one in a hundred, of the recalls are faster.",
            unit="s",
            queries=quantiles("memory_operation_seconds", OF_RECALLS),
            steps=((1, "red"),),
            width=12,
        ),
        Panel(
            kind="heat",
            title="Recalls by the time they took",
            description="Each cell: how many recalls took so long in that while.",
            unit="s",
            queries=(
                Query(
                    f"sum by (le) (increase(memory_operation_seconds_bucket{{{OF_RECALLS}}}[$__rate_interval]))",
                    "{{le}}",
                ),
            ),
            width=12,
        ),
    ),
)
STAGES = Row(
    "Stages",
    (
        Panel(
            kind="lines",
            title="Where the time goes",
            description="Mean time of each stage: embed asks for the query's vector, candidates searches, fuse ranks.",
            unit="s",
            queries=(Query(mean("memory_recall_stage_seconds", OF_MEMORY, "stage"), "{{stage}}"),),
            stacked=True,
        ),
        Panel(
            kind="lines",
            title="Stages, median",
            description="Half of the recalls spend less in that stage.",
            unit="s",
            queries=(Query(quantile(0.5, "memory_recall_stage_seconds", OF_MEMORY, "stage"), "{{stage}}"),),
        ),
        Panel(
            kind="lines",
            title="Stages, p99",
            description="All but one in a hundred recalls spend less in that stage.",
            unit="s",
            queries=(Query(quantile(0.99, "memory_recall_stage_seconds", OF_MEMORY, "stage"), "{{stage}}"),),
            steps=((1, "red"),),
        ),
    ),
)
QUALITY = Row(
    "Quality",
    (
        Panel(
            kind="lines",
            title="Canary",
            description="Worst rank at which known rows were found, by sort of question: 1 is right, 31 not found.",
            unit="none",
            queries=(Query(f"memory_canary_rank{{{OF_MEMORY}}}", "{{instance}} {{probe}}"),),
            steps=((2, "red"),),
            width=12,
        ),
        Panel(
            kind="lines",
            title="The canary was asked",
            description="Time since known rows were asked for; MEMORY_CANARY_SECONDS says how often.",
            unit="s",
            queries=(Query(f"memory_canary_age_seconds{{{OF_MEMORY}}}", "{{instance}}"),),
            steps=((7200, "red"),),
            width=12,
        ),
        Panel(
            kind="lines",
            title="What the gate decided",
            description="Recalls a second by the gate's outcome; nothing_clears: recall answered nothing.",
            unit="ops",
            queries=(Query(rate(GATE, OF_MEMORY, "outcome"), "{{outcome}}"),),
            stacked=True,
        ),
        Panel(
            kind="lines",
            title="Recalls with and without vectors",
            description="All recalls a second, and those answered from full text alone, which find fewer paraphrases.",
            unit="ops",
            queries=(
                Query(rate("memory_operations_total", OF_RECALLS), "{{instance}} all"),
                Query(rate("memory_fallback_recalls_total", OF_MEMORY), "{{instance}} without vectors"),
            ),
        ),
        Panel(
            kind="lines",
            title="Rows that vectors do not find yet",
            description="Rows without a vector of the present model; they are found by their words.",
            unit="short",
            queries=(Query(f"memory_rows_waiting_for_vectors{{{OF_MEMORY}}}", "{{instance}}"),),
            steps=((100, "orange"),),
        ),
    ),
)
BOARD = Board(
    uid="memory-recall",
    title="Recall quality and latency by stage",
    description="How fast recall is, where its time goes, and how often it finds something to say.",
    variables=(MEMORY,),
    rows=(NOW, TIME, STAGES, QUALITY),
)
