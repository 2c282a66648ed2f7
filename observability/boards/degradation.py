"""An outage of the embedding server at a glance: whether, since when, what it costs, and how it mends."""

from observability.boards.queries import EMBED, MEMORY, OF_EMBED, OF_MEMORY, RECALLS, quantiles, rate
from observability.panels import Board, Panel, Query, Row

BREAKER = (
    f'max by (instance) (memory_embedding_breaker{{{OF_MEMORY},state="half_open"}}'
    f' + ignoring(state) 2 * memory_embedding_breaker{{{OF_MEMORY},state="open"}})'
)
BREAKER_WORDS = {"0": ("Closed", "green"), "1": ("Half open", "orange"), "2": ("Open", "red")}
DEGRADED_WORDS = {"0": ("Vectors", "green"), "1": ("Degraded", "red")}
NOW = Row(
    "Now",
    (
        Panel(
            kind="number",
            title="Recall has",
            description="Vectors, or full text alone while the embedding server gives none.",
            unit="none",
            queries=(Query(f"memory_embedding_degraded{{{OF_MEMORY}}}", "{{instance}}"),),
            steps=((1, "red"),),
            words=DEGRADED_WORDS,
        ),
        Panel(
            kind="number",
            title="Degraded since",
            description="When the present degradation began; this very moment where there is none.",
            unit="dateTimeFromNow",
            queries=(Query(f"1000 * (time() - memory_embedding_degraded_seconds{{{OF_MEMORY}}})", "{{instance}}"),),
            starts="blue",
        ),
        Panel(
            kind="number",
            title="Degraded for",
            description="How long the present degradation has lasted, 0 where there is none.",
            unit="dtdurations",
            queries=(Query(f"memory_embedding_degraded_seconds{{{OF_MEMORY}}}", "{{instance}}"),),
            steps=((1, "orange"), (900, "red")),
        ),
        Panel(
            kind="number",
            title="Breaker",
            description="Closed: the server is asked. Open: nobody waits for it. Half open: a probe is under way.",
            unit="none",
            queries=(Query(BREAKER, "{{instance}}"),),
            steps=((1, "orange"), (2, "red")),
            words=BREAKER_WORDS,
        ),
        Panel(
            kind="number",
            title="Recalls without vectors",
            description="Share of the recalls of five minutes that were answered from full text alone.",
            unit="percentunit",
            queries=(Query(f"instance:memory_fallback_recalls:ratio{{{OF_MEMORY}}}", "{{instance}}"),),
            steps=((0.01, "orange"), (0.5, "red")),
        ),
        Panel(
            kind="number",
            title="Rows that wait",
            description="Rows without a vector of the present model; this drains once the server answers.",
            unit="short",
            queries=(Query(f"memory_rows_waiting_for_vectors{{{OF_MEMORY}}}", "{{instance}}"),),
            steps=((1, "orange"), (100, "red")),
        ),
    ),
)
COURSE = Row(
    "How it went",
    (
        Panel(
            kind="states",
            title="Recall had",
            description="Vectors, or full text alone.",
            unit="none",
            queries=(Query(f"memory_embedding_degraded{{{OF_MEMORY}}}", "{{instance}}"),),
            steps=((1, "red"),),
            words=DEGRADED_WORDS,
        ),
        Panel(
            kind="states",
            title="Breaker",
            description="Whether the embedding server was asked.",
            unit="none",
            queries=(Query(BREAKER, "{{instance}}"),),
            steps=((1, "orange"), (2, "red")),
            words=BREAKER_WORDS,
        ),
    ),
)
COST = Row(
    "What it costs, and how it mends",
    (
        Panel(
            kind="lines",
            title="Recalls with and without vectors",
            description="All recalls a second, and those answered from full text alone.",
            unit="ops",
            queries=(
                Query(rate("memory_operations_total", f"{OF_MEMORY},{RECALLS}"), "{{instance}} all"),
                Query(rate("memory_fallback_recalls_total", OF_MEMORY), "{{instance}} without vectors"),
            ),
        ),
        Panel(
            kind="lines",
            title="Rows that wait for vectors",
            description="They rise while the server is away and drain once it answers.",
            unit="short",
            queries=(Query(f"memory_rows_waiting_for_vectors{{{OF_MEMORY}}}", "{{instance}}"),),
            steps=((100, "orange"),),
        ),
        Panel(
            kind="lines",
            title="Rows that got their vectors",
            description="How fast the waiting rows become fewer, a second; 0 while they become more.",
            unit="cps",
            queries=(
                Query(
                    f"clamp_min(-deriv(memory_rows_waiting_for_vectors{{{OF_MEMORY}}}[$__rate_interval]), 0)",
                    "{{instance}}",
                ),
            ),
        ),
    ),
)
CAUSE = Row(
    "Why",
    (
        Panel(
            kind="lines",
            title="Failed calls by fault",
            description="unreachable, hung, slow, status and overloaded: the server. The others: what it answered.",
            unit="short",
            queries=(
                Query(
                    f"sum by (fault) (increase(memory_embedding_failures_total{{{OF_MEMORY}}}[$__rate_interval]))",
                    "{{fault}}",
                ),
            ),
            steps=((1, "orange"),),
            stacked=True,
        ),
        Panel(
            kind="lines",
            title="Time a call takes",
            description="Calls of the embedding server as the memory server saw them, whatever came of them.",
            unit="s",
            queries=quantiles("memory_embedding_seconds", OF_MEMORY),
            steps=((2, "red"),),
        ),
        Panel(
            kind="lines",
            title="Changes of the model",
            description="Times the server answered with another model than before; all rows then get new vectors.",
            unit="short",
            queries=(
                Query(f"increase(memory_embedding_model_changes_total{{{OF_MEMORY}}}[$__range])", "{{instance}}"),
            ),
            steps=((1, "orange"),),
        ),
        Panel(
            kind="states",
            title="The embedding server answers",
            description="Whether Prometheus gets metrics from it.",
            unit="none",
            queries=(Query(f'up{{{OF_EMBED},job="embed"}}', "{{instance}}"),),
            starts="red",
            steps=((1, "green"),),
            words={"0": ("Down", "red"), "1": ("Up", "green")},
        ),
        Panel(
            kind="states",
            title="Its model is ready",
            description="Whether the model has passed its self-test and serves.",
            unit="none",
            queries=(Query(f"embed_model_ready{{{OF_EMBED}}}", "{{instance}}"),),
            starts="red",
            steps=((1, "green"),),
            words={"0": ("Not ready", "red"), "1": ("Ready", "green")},
        ),
    ),
)
BOARD = Board(
    uid="memory-embedding",
    title="Embedding health and degradation",
    description="An outage of the embedding server at a glance: whether, since when, what it costs, how it mends, why.",
    variables=(MEMORY, EMBED),
    rows=(NOW, COURSE, COST, CAUSE),
)
