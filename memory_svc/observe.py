"""Every log field and metric name. The only importer of prometheus_client. Labels are closed sets."""

import asyncio
import contextlib
import json
import logging
import sys
import time
from collections.abc import Iterator
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from memory_svc.errors import Problem

Stage = Literal["embed", "candidates", "fuse"]
LOGGER = logging.getLogger("memory_svc")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._operations = Counter(
            "memory_operations",
            "Operations called, by name, outcome (ok, cancelled or a kind of failure) and wire.",
            ("operation", "outcome", "wire"),
            registry=self.registry,
        )
        self._operation_seconds = Histogram(
            "memory_operation_seconds",
            "Time an operation took, by name.",
            ("operation",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self._stage_seconds = Histogram(
            "memory_recall_stage_seconds",
            "Time a stage of recall took, by stage.",
            ("stage",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.degraded = Gauge(
            "memory_embedding_degraded",
            "1 while the embedding server does not give vectors, so that recall answers from full text.",
            registry=self.registry,
        )
        self.embedding_failures = Counter(
            "memory_embedding_failures", "Calls of the embedding server that gave no vectors.", registry=self.registry
        )
        self.waiting = Gauge(
            "memory_rows_waiting_for_vectors",
            "Rows that have no vector of the present model yet.",
            registry=self.registry,
        )
        self.fallback_recalls = Counter(
            "memory_fallback_recalls", "Recalls answered without vectors.", registry=self.registry
        )
        self.log_bytes = Gauge(
            "memory_write_ahead_log_bytes", "Size of the write-ahead log after a checkpoint.", registry=self.registry
        )
        self._worker_failures = Counter(
            "memory_worker_failures", "Background steps that failed, by step.", ("step",), registry=self.registry
        )

    @contextlib.contextmanager
    def measured(self, operation: str, wire: str, request_id: str) -> Iterator[None]:
        """Count, time and log one operation."""
        begin, outcome = time.perf_counter(), "internal"
        try:
            yield
            outcome = "ok"
        except Problem as problem:
            outcome = problem.kind
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            seconds = time.perf_counter() - begin
            self._operations.labels(operation, outcome, wire).inc()
            self._operation_seconds.labels(operation).observe(seconds)
            log(
                "operation",
                operation=operation,
                outcome=outcome,
                wire=wire,
                request_id=request_id,
                milliseconds=round(seconds * 1000, 2),
            )

    @contextlib.contextmanager
    def stage(self, name: Stage) -> Iterator[None]:
        """Time one stage of recall."""
        with self._stage_seconds.labels(name).time():
            yield

    def worker_failed(self, step: str, error: BaseException) -> None:
        """Count and log a background step that failed."""
        self._worker_failures.labels(step).inc()
        log("worker step failed", severity=logging.WARNING, step=step, error=str(error))

    def exposition(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)


class JsonLines(logging.Formatter):
    """A log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """One line: instant, level, event, fields, and the trace of an exception."""
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure_logging(level: str) -> None:
    """Send every log line to stderr as JSON; stdout belongs to the stdio wire."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    LOGGER.setLevel(level.upper())


def log(event: str, *, severity: int = logging.INFO, **fields: object) -> None:
    """One line. Never a text, a query or a token of a caller."""
    LOGGER.log(severity, event, extra={"fields": fields})


def log_fault(event: str, **fields: object) -> None:
    """One line with the trace of the exception at hand."""
    LOGGER.error(event, exc_info=True, extra={"fields": fields})
