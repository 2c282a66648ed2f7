"""Every log field and metric name. The only importer of prometheus_client. Labels are closed sets."""

import asyncio
import contextlib
import json
import logging
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from memory_svc.errors import Problem
from memory_svc.spans import Carrier, Span, Tracer

Stage = Literal["embed", "candidates", "fuse"]
Fault = Literal[
    "unreachable", "hung", "slow", "status", "overloaded", "garbage", "count", "dimension", "norm", "not_finite"
]
Refusal = Literal["unauthenticated", "denied", "too_large"]
Connection = Literal["mcp-sse", "mcp-stdio"]
LOGGER = logging.getLogger("memory_svc")
FAULTS = frozenset({"internal", "unavailable"})
BREAKER_STATES = ("closed", "open", "half_open")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The metrics of one server, in a registry of their own, and the traces of its operations."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer or Tracer()
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
        self._degraded = Gauge(
            "memory_embedding_degraded",
            "1 while the embedding server does not give vectors, so that recall answers from full text.",
            registry=self.registry,
        )
        self._degraded_since: float | None = None
        self._embedding_state = ("", False)
        Gauge(
            "memory_embedding_degraded_seconds",
            "How long the present degradation has lasted, 0 when there is none.",
            registry=self.registry,
        ).set_function(self._seconds_degraded)
        self._breaker = Gauge(
            "memory_embedding_breaker",
            "1 for the state the breaker is in: closed, open or half_open.",
            ("state",),
            registry=self.registry,
        )
        self._embedding_seconds = Histogram(
            "memory_embedding_seconds",
            "Time a call of the embedding server took, whatever came of it.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self._embedding_failures = Counter(
            "memory_embedding_failures",
            "Calls of the embedding server that gave no sound vectors, by what was wrong.",
            ("fault",),
            registry=self.registry,
        )
        _begin_at_nought(self._embedding_failures, get_args(Fault))
        self.model_changes = Counter(
            "memory_embedding_model_changes",
            "Times the embedding server answered with another model than before.",
            registry=self.registry,
        )
        self.waiting = Gauge(
            "memory_rows_waiting_for_vectors",
            "Rows that have no vector of the present model yet.",
            registry=self.registry,
        )
        self.fallback_recalls = Counter(
            "memory_fallback_recalls", "Recalls answered without vectors.", registry=self.registry
        )
        self._gate = Counter(
            "memory_recall_gate",
            "Recalls that the gate has judged, by outcome.",
            ("outcome",),
            registry=self.registry,
        )
        self.calibrations = Counter("memory_calibrations", "Calibrations of the gate.", registry=self.registry)
        self.expired = Counter("memory_expired", "Memories erased since their time was over.", registry=self.registry)
        self._rows = Gauge("memory_rows", "Rows there are, by kind.", ("kind",), registry=self.registry)
        self._database_bytes = Gauge("memory_database_bytes", "Size of the database.", registry=self.registry)
        self._log_bytes = Gauge("memory_write_ahead_log_bytes", "Size of the write-ahead log.", registry=self.registry)
        self._journal = Gauge(
            "memory_journal_sequence", "Effects that the journal has ever held.", registry=self.registry
        )
        self._disk_free = Gauge(
            "memory_disk_free_bytes",
            "Bytes that may still be written to the data folder's file system.",
            registry=self.registry,
        )
        self._disk = Gauge(
            "memory_disk_bytes", "Size of the data folder's file system, in bytes.", registry=self.registry
        )
        self._sessions = Gauge(
            "memory_sessions", "MCP connections that are open, by wire.", ("wire",), registry=self.registry
        )
        _begin_at_nought(self._sessions, get_args(Connection))
        self._refusals = Counter(
            "memory_refusals",
            "Requests refused for their host, origin, token or size before anything was called, by outcome.",
            ("outcome",),
            registry=self.registry,
        )
        _begin_at_nought(self._refusals, get_args(Refusal))
        self.erasing = Gauge(
            "memory_erasure_pending",
            "1 while bytes of what was deleted may still be in the files.",
            registry=self.registry,
        )
        self._canary_rank = Gauge(
            "memory_canary_rank",
            "Worst rank at which the canary's rows were found, by sort of probe (meaning, identifier, or a language);"
            " 1 = all first, 31 = one was not found by the arm that it tests.",
            ("probe",),
            registry=self.registry,
        )
        self._canary_at = math.nan
        Gauge(
            "memory_canary_age_seconds",
            "Time since the canary last asked for its rows; NaN = it has not.",
            registry=self.registry,
        ).set_function(lambda: time.monotonic() - self._canary_at)
        self._worker_at = time.monotonic()
        Gauge(
            "memory_worker_age_seconds", "Time since the last round of background work ended.", registry=self.registry
        ).set_function(lambda: time.monotonic() - self._worker_at)
        self._worker_failures = Counter(
            "memory_worker_failures", "Background steps that failed, by step.", ("step",), registry=self.registry
        )

    @contextlib.contextmanager
    def measured(self, operation: str, wire: str, request_id: str, carrier: Carrier | None = None) -> Iterator[Span]:
        """Count, time, trace and log one operation. carrier: the trace that its call is part of."""
        begin, outcome = time.perf_counter(), "internal"
        with self._tracer.operation(operation, carrier) as span:
            try:
                yield span
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
                span.settle(outcome, is_fault=outcome in FAULTS, wire=wire)
                told = {"operation": operation, "outcome": outcome, "wire": wire, "request_id": request_id}
                traced = {"trace_id": span.trace_id} if span.trace_id else {}
                fields = {**told, "milliseconds": round(seconds * 1000, 2), **traced}
                LOGGER.info("operation", extra={"fields": fields})

    @contextlib.contextmanager
    def embedding(self) -> Iterator[None]:
        """Time one call of the embedding server."""
        with self._embedding_seconds.time():
            yield

    def embedding_failed(self, fault: str) -> None:
        """Count what was wrong with an answer of the embedding server."""
        self._embedding_failures.labels(fault).inc()

    def embedding_state(self, state: str, *, degraded: bool) -> None:
        """Note the breaker's state and whether recall runs without vectors."""
        if (state, degraded) == self._embedding_state:
            return
        self._embedding_state = state, degraded
        for each in BREAKER_STATES:
            self._breaker.labels(each).set(int(each == state))
        self._degraded.set(int(degraded))
        if not degraded:
            self._degraded_since = None
        elif self._degraded_since is None:
            self._degraded_since = time.monotonic()

    def _seconds_degraded(self) -> float:
        return 0.0 if self._degraded_since is None else time.monotonic() - self._degraded_since

    @contextlib.contextmanager
    def stage(self, name: Stage) -> Iterator[None]:
        """Time one stage of recall."""
        with self._stage_seconds.labels(name).time():
            yield

    def judged(self, outcome: str) -> None:
        """Count what the gate has decided."""
        self._gate.labels(outcome).inc()

    def sizes(self, rows: Mapping[str, int], database_bytes: int, log_bytes: int, journal_sequence: int) -> None:
        """Note how much there is."""
        for kind, count in rows.items():
            self._rows.labels(kind).set(count)
        self._database_bytes.set(database_bytes)
        self._log_bytes.set(log_bytes)
        self._journal.set(journal_sequence)

    def canary_found(self, worst: Mapping[str, int]) -> None:
        """Note the worst rank of each sort of probe."""
        for sort, rank in worst.items():
            self._canary_rank.labels(sort).set(rank)
        self._canary_at = time.monotonic()

    def disk(self, free_bytes: int, size_bytes: int) -> None:
        """Note how full the data folder's file system is."""
        self._disk_free.set(free_bytes)
        self._disk.set(size_bytes)

    @contextlib.contextmanager
    def session(self, wire: str) -> Iterator[None]:
        """Count a connection while it is open."""
        with self._sessions.labels(wire).track_inprogress():
            yield

    def refused(self, outcome: str) -> None:
        """Count a request that the guard let no further."""
        self._refusals.labels(outcome).inc()

    def worker_steps(self, steps: Iterable[str]) -> None:
        """Show steps that have not failed as well."""
        _begin_at_nought(self._worker_failures, steps)

    def follow_process(self) -> None:
        """Show what the process takes of its machine too, where the system tells (Linux): `process_*`."""
        ProcessCollector(registry=self.registry)

    def worker_ran(self) -> None:
        """Note that a round of background work has ended."""
        self._worker_at = time.monotonic()

    def worker_failed(self, step: str, error: BaseException) -> None:
        """Count and log a background step that failed."""
        self._worker_failures.labels(step).inc()
        log("worker step failed", severity=logging.WARNING, step=step, error=str(error))

    def exposition(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)


def _begin_at_nought(metric: Counter | Gauge, values: Iterable[str]) -> None:
    """Show each value of the one label from the start: what rises from nothing to 1 is no increase to Prometheus."""
    for value in values:
        metric.labels(value)


LINE = json.JSONEncoder(ensure_ascii=False, default=str)


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
        return LINE.encode(line)


def configure_logging(level: str) -> None:
    """Send every log line to stderr as JSON; stdout belongs to the stdio wire."""
    # Of what a record may hold nobody here reads where it was logged, nor by which thread and process.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
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
