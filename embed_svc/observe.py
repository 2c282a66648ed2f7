"""Every metric and log line of the server; labels are closed sets, and no text of a caller is ever in either."""

import logging
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

EXPOSITION_TYPE = CONTENT_TYPE_LATEST
UNMATCHED = "unmatched"
ROUTES = (
    "/embed",
    "/v1/embeddings",
    "/count_tokens",
    "/capabilities",
    "/livez",
    "/startupz",
    "/readyz",
    "/metrics",
    "/schema/openapi.json",
    UNMATCHED,
)
QUIET_ROUTES = frozenset({"/livez", "/startupz", "/readyz", "/metrics"})
STATUSES = ("2xx", "3xx", "4xx", "5xx")

_LOGGER = logging.getLogger("embed_svc")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_NOISY = ("httpx", "httpx2", "httpcore", "httpcore2", "filelock", "asyncio")
_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_AREAS = (16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0, 2_048.0, 4_096.0, 8_192.0)
_SHARES = (0.0, 0.05, 0.1, 0.15, 0.25, 0.5)


class Metric(msgspec.Struct, frozen=True):
    """A metric as declared: its name, what it counts, and every value each label can have."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: dict[str, tuple[str, ...]] = {}
    buckets: tuple[float, ...] = ()


METRICS: tuple[Metric, ...] = (
    Metric("embed_requests_total", "counter", "Requests answered.", labels={"route": ROUTES, "status": STATUSES}),
    Metric(
        "embed_request_seconds", "histogram", "Time to answer a request.", labels={"route": ROUTES}, buckets=_SECONDS
    ),
    Metric("embed_texts_total", "counter", "Texts embedded."),
    Metric("embed_tokens_total", "counter", "Tokens embedded, without padding."),
    Metric("embed_truncated_total", "counter", "Texts that the model's window cut."),
    Metric("embed_cache_total", "counter", "Texts looked for in the cache.", labels={"outcome": ("hit", "miss")}),
    Metric("embed_cache_bytes", "gauge", "Memory that the cache holds."),
    Metric("embed_queue_texts", "gauge", "Texts taken in and not yet answered."),
    Metric("embed_queue_tokens", "gauge", "Tokens of the texts that wait for a batch."),
    Metric("embed_queue_age_seconds", "gauge", "How long the oldest text that waits for a batch has waited."),
    Metric("embed_batch_tokens", "histogram", "Tokens of a batch, padding included.", buckets=_AREAS),
    Metric("embed_batch_padding_ratio", "histogram", "Share of a batch that is padding.", buckets=_SHARES),
    Metric("embed_batch_seconds", "histogram", "Time a batch ran.", buckets=_SECONDS),
    Metric("embed_model_ready", "gauge", "1 while the model has passed its self-test and serves, else 0."),
    Metric("embed_self_test_age_seconds", "gauge", "Time since the model last passed its self-test, -1 before."),
    Metric("embed_resident_bytes", "gauge", "Memory of the process that is resident."),
)


class Observer:
    """The metrics of one server, in a registry of its own, and its log lines."""

    def __init__(self, resident_bytes: Callable[[], int]) -> None:
        self._registry = CollectorRegistry(auto_describe=True)
        # Looked up once: finding the child of a label costs as much as counting.
        self._children: dict[tuple[str, ...], Any] = {}
        self._collectors: dict[str, Any] = {metric.name: self._collector(metric) for metric in METRICS}
        self._tested_at: float | None = None
        self.follow("embed_resident_bytes", resident_bytes)
        self.follow("embed_self_test_age_seconds", self._self_test_age)

    def follow(self, gauge: str, read: Callable[[], float]) -> None:
        """From now on, show what `read` returns whenever this gauge is asked for."""
        self._collectors[gauge].set_function(read)

    def request(self, route: str | None, status: int, seconds: float, facts: Mapping[str, object]) -> None:
        """Count and log one answered request; `route` is the declared path, or None where none matched."""
        label = route if route in ROUTES else UNMATCHED
        status_class = STATUSES[min(max(status // 100, 2), 5) - 2]
        self._children["embed_requests_total", label, status_class].inc()
        self._children["embed_request_seconds", label].observe(seconds)
        if label not in QUIET_ROUTES:
            say("info", "request", route=label, status=status, milliseconds=round(seconds * 1e3, 2), **facts)

    def embedded(self, tokens: int, texts: int, truncated: int) -> None:
        """Count the texts of one answered request."""
        self._collectors["embed_texts_total"].inc(texts)
        self._collectors["embed_tokens_total"].inc(tokens)
        self._collectors["embed_truncated_total"].inc(truncated)

    def cached(self, hits: int, misses: int) -> None:
        """Count texts looked for in the cache."""
        self._children["embed_cache_total", "hit"].inc(hits)
        self._children["embed_cache_total", "miss"].inc(misses)

    def tested(self) -> None:
        """Note that the model has passed its self-test now."""
        self._tested_at = time.monotonic()

    def batch(self, tokens: Sequence[int], seconds: float) -> None:
        """Count one batch that ran, by the tokens of each of its texts."""
        area = max(tokens) * len(tokens)
        self._collectors["embed_batch_tokens"].observe(area)
        self._collectors["embed_batch_padding_ratio"].observe(1 - sum(tokens) / area)
        self._collectors["embed_batch_seconds"].observe(seconds)

    def ready(self, is_ready: bool) -> None:
        """Tell whether the model serves."""
        self._collectors["embed_model_ready"].set(is_ready)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def _self_test_age(self) -> float:
        return -1.0 if self._tested_at is None else time.monotonic() - self._tested_at

    def _collector(self, metric: Metric) -> Any:
        labels = tuple(metric.labels)
        made: Any
        if metric.kind == "histogram":
            made = Histogram(metric.name, metric.help, labels, registry=self._registry, buckets=metric.buckets)
        else:
            made = {"counter": Counter, "gauge": Gauge}[metric.kind](
                metric.name, metric.help, labels, registry=self._registry
            )
        for values in _combinations(list(metric.labels.values())):
            self._children[metric.name, *values] = made.labels(*values)
        return made


def say(level: Literal["debug", "info", "warning", "error"], event: str, **fields: object) -> None:
    """Log one line."""
    number = _LEVELS[level]
    if _LOGGER.isEnabledFor(number):
        # Made by hand: the logger would first look through the stack for who called.
        _LOGGER.handle(_LOGGER.makeRecord(_LOGGER.name, number, "", 0, event, (), None, extra={"fields": fields}))


def failed(event: str, error: BaseException, **fields: object) -> None:
    """Log an unexpected failure: its type and where it rose, not its message, which may hold a caller's text."""
    frames = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)]
    say("error", event, error=type(error).__name__, frames=frames, **fields)


def configure_logging(level: str) -> None:
    """Send every log line of the process, its libraries' and its warnings too, to stderr as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def _combinations(values: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return every combination of label values; none for a metric without labels."""
    if not values:
        return []
    combined: list[tuple[str, ...]] = [()]
    for choices in values:
        combined = [(*before, choice) for before in combined for choice in choices]
    return combined
