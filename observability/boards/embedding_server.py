"""What the embedding server has to do, how it does it, and what it takes."""

from observability.boards.queries import EMBED, OF_EMBED, mean, quantile, quantiles, rate
from observability.panels import Board, Panel, Query, Row

WORK = 'route=~"/embed|/v1/embeddings"'
CACHE = "embed_cache_total"
HITS = rate(CACHE, f'{OF_EMBED},outcome="hit"')
NOW = Row(
    "Now",
    (
        Panel(
            kind="number",
            title="Model",
            description="Whether it has passed its self-test and serves.",
            unit="none",
            queries=(Query(f"embed_model_ready{{{OF_EMBED}}}", "{{instance}}"),),
            starts="red",
            steps=((1, "green"),),
            words={"0": ("Not ready", "red"), "1": ("Ready", "green")},
        ),
        Panel(
            kind="number",
            title="Last self-test",
            description="Time since the model last passed its self-test, -1 before; it is tested every ten minutes.",
            unit="dtdurations",
            queries=(Query(f"embed_self_test_age_seconds{{{OF_EMBED}}}", "{{instance}}"),),
            steps=((1200, "orange"), (1800, "red")),
        ),
        Panel(
            kind="number",
            title="Oldest text waits",
            description="How long the oldest text that waits for a batch has waited.",
            unit="s",
            queries=(Query(f"embed_queue_age_seconds{{{OF_EMBED}}}", "{{instance}}"),),
            steps=((1, "orange"), (10, "red")),
        ),
        Panel(
            kind="number",
            title="Failed requests",
            description="Share of the requests of five minutes that were answered with 5xx.",
            unit="percentunit",
            queries=(Query(f"instance:embed_requests_failed:ratio{{{OF_EMBED}}}", "{{instance}}"),),
            steps=((0.01, "orange"), (0.05, "red")),
        ),
        Panel(
            kind="number",
            title="Found in the cache",
            description="Share of the texts whose vectors were there from an earlier time.",
            unit="percentunit",
            queries=(Query(f"{HITS} / ({rate(CACHE, OF_EMBED)} > 0)", "{{instance}}"),),
            starts="blue",
        ),
        Panel(
            kind="number",
            title="Memory",
            description="Resident memory of the process: the model, its working space, and the cache.",
            unit="bytes",
            queries=(Query(f"embed_resident_bytes{{{OF_EMBED}}}", "{{instance}}"),),
            starts="blue",
        ),
    ),
)
REQUESTS = Row(
    "Requests",
    (
        Panel(
            kind="lines",
            title="Requests by route",
            description="Requests answered a second.",
            unit="reqps",
            queries=(Query(rate("embed_requests_total", OF_EMBED, "route"), "{{route}}"),),
            stacked=True,
        ),
        Panel(
            kind="lines",
            title="Requests by status",
            description="4xx: the caller's mistakes and 429, too much at once. 5xx: not ready, stopping or too late.",
            unit="reqps",
            queries=(Query(rate("embed_requests_total", OF_EMBED, "status"), "{{status}}"),),
            stacked=True,
        ),
        Panel(
            kind="lines",
            title="Time a request takes",
            description="Requests for vectors: half, and all but one in a hundred, are faster.",
            unit="s",
            queries=quantiles("embed_request_seconds", f"{OF_EMBED},{WORK}"),
            steps=((2, "red"),),
        ),
        Panel(
            kind="lines",
            title="Texts and tokens",
            description="Texts embedded a second, and those of them that the model's window cut.",
            unit="cps",
            queries=(
                Query(rate("embed_texts_total", OF_EMBED), "{{instance}} texts"),
                Query(rate("embed_truncated_total", OF_EMBED), "{{instance}} cut"),
            ),
        ),
        Panel(
            kind="lines",
            title="Tokens",
            description="Tokens embedded a second, without padding.",
            unit="cps",
            queries=(Query(rate("embed_tokens_total", OF_EMBED), "{{instance}}"),),
        ),
        Panel(
            kind="lines",
            title="Cache",
            description="Texts found in the cache and not, a second.",
            unit="cps",
            queries=(Query(rate(CACHE, OF_EMBED, "outcome"), "{{outcome}}"),),
            stacked=True,
        ),
    ),
)
QUEUE = Row(
    "Queue",
    (
        Panel(
            kind="lines",
            title="Texts in",
            description="Texts taken in and not yet answered. Beyond EMBED_QUEUE_TEXTS_MAX: 429.",
            unit="short",
            queries=(Query(f"embed_queue_texts{{{OF_EMBED}}}", "{{instance}}"),),
            steps=((4096, "red"),),
        ),
        Panel(
            kind="lines",
            title="Tokens that wait",
            description="Tokens of the texts that wait for a batch. Beyond EMBED_QUEUE_TOKENS_MAX: 429.",
            unit="short",
            queries=(Query(f"embed_queue_tokens{{{OF_EMBED}}}", "{{instance}}"),),
            steps=((262144, "red"),),
        ),
        Panel(
            kind="lines",
            title="Oldest text waits",
            description="How long the oldest text that waits for a batch has waited.",
            unit="s",
            queries=(Query(f"embed_queue_age_seconds{{{OF_EMBED}}}", "{{instance}}"),),
            steps=((10, "red"),),
        ),
    ),
)
BATCHES = Row(
    "Batches and memory",
    (
        Panel(
            kind="lines",
            title="Time of a batch",
            description="Half, and all but one in a hundred, of the batches are faster.",
            unit="s",
            queries=quantiles("embed_batch_seconds", OF_EMBED),
        ),
        Panel(
            kind="lines",
            title="Tokens of a batch",
            description="With padding: the mean, and what all but one batch in twenty stay below.",
            unit="short",
            queries=(
                Query(mean("embed_batch_tokens", OF_EMBED), "{{instance}} mean"),
                Query(quantile(0.95, "embed_batch_tokens", OF_EMBED), "{{instance}} p95"),
            ),
        ),
        Panel(
            kind="lines",
            title="Padding",
            description="Mean share of a batch that is padding: work for nothing.",
            unit="percentunit",
            queries=(Query(mean("embed_batch_padding_ratio", OF_EMBED), "{{instance}}"),),
            steps=((0.25, "orange"), (0.5, "red")),
        ),
        Panel(
            kind="lines",
            title="Batches",
            description="Batches run a second.",
            unit="cps",
            queries=(Query(rate("embed_batch_seconds_count", OF_EMBED), "{{instance}}"),),
        ),
        Panel(
            kind="lines",
            title="Busy",
            description="Share of the time in which a batch runs; near 100 % the queue grows.",
            unit="percentunit",
            queries=(Query(rate("embed_batch_seconds_sum", OF_EMBED), "{{instance}}"),),
            steps=((0.8, "orange"), (0.95, "red")),
        ),
        Panel(
            kind="lines",
            title="Memory",
            description="Resident memory of the process, and what of it the cache holds.",
            unit="bytes",
            queries=(
                Query(f"embed_resident_bytes{{{OF_EMBED}}}", "{{instance}} process"),
                Query(f"embed_cache_bytes{{{OF_EMBED}}}", "{{instance}} cache"),
            ),
        ),
    ),
)
BOARD = Board(
    uid="embed-server",
    title="Embedding server",
    description="What the embedding server has to do, how it does it, and what it takes of its machine.",
    variables=(EMBED,),
    rows=(NOW, REQUESTS, QUEUE, BATCHES),
)
