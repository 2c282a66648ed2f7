"""Traces as OpenTelemetry has them, sent by OTLP over HTTP. Imported only where traces are asked for.

What the SDK can be told by OTEL_* variables it reads itself. Nothing is made known to the process as a whole: spans are
arguments, and the MCP SDK, whose own spans would hold what clients write, has no tracer.
"""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import SpanKind, StatusCode, format_trace_id, set_span_in_context
from opentelemetry.trace import Tracer as OtelTracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from memory_svc.observe import log
from memory_svc.spans import Carrier, Name, Span, Tracer

SERVICE = "memory-svc"
FLUSH_SECONDS_MAX = 2.0
W3C = TraceContextTextMapPropagator()


class Tracing(Tracer):
    """Sends spans to the collector that the environment names, in batches, from a thread of its own."""

    def __init__(self) -> None:
        # It would log a header that it cannot read, and headers hold credentials.
        logging.getLogger("opentelemetry.util.re").setLevel(logging.CRITICAL)
        self._exporter = Telling(OTLPSpanExporter())
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer(SERVICE)
        # What was wrong with variables is told by now. The rest is told by `Telling`, once, and without callers' words.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)

    @contextmanager
    def operation(self, name: str, carrier: Carrier | None) -> Iterator[Span]:
        """The span of an operation: of the trace that was carried in, else of a new one."""
        came = W3C.extract(_headers(carrier), Context())
        with _told(self._tracer, self._tracer.start_span(name, came, SpanKind.SERVER)) as span:
            yield span

    def close(self) -> None:
        """Send what waits, for FLUSH_SECONDS_MAX at most; not at all where nothing was taken last."""
        ending = threading.Thread(target=self._provider.shutdown, name="traces-end", daemon=True)
        ending.start()
        ending.join(0 if self._exporter.is_failing else FLUSH_SECONDS_MAX)


class Telling(SpanExporter):
    """Hands spans on. That they are not taken is logged once, and once that they are again."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.is_failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Hand on a batch; what is not taken is gone."""
        result = self._exporter.export(spans)
        is_failing = result is not SpanExportResult.SUCCESS
        if is_failing and not self.is_failing:
            log("traces are not taken", severity=logging.WARNING, remedy="see that OTEL_EXPORTER_OTLP_ENDPOINT answers")
        elif self.is_failing and not is_failing:
            log("traces are taken again")
        self.is_failing = is_failing
        return result

    def shutdown(self) -> None:
        """Hand on no more."""
        self._exporter.shutdown()


class _Told(Span):
    """A span that the collector is told of, if its trace is sampled."""

    def __init__(self, tracer: OtelTracer, span: OtelSpan) -> None:
        self._tracer = tracer
        self._span = span
        self._context = set_span_in_context(span, Context())
        self.trace_id = format_trace_id(span.get_span_context().trace_id)

    @property
    def headers(self) -> Mapping[str, str]:
        headers: dict[str, str] = {}
        W3C.inject(headers, self._context)
        return headers

    @contextmanager
    def child(self, name: Name, *, is_call: bool = False) -> Iterator[Span]:
        kind = SpanKind.CLIENT if is_call else SpanKind.INTERNAL
        with _told(self._tracer, self._tracer.start_span(name, self._context, kind)) as span:
            yield span

    def settle(self, outcome: str, *, is_fault: bool, **facts: str) -> None:
        self._span.set_attributes({"outcome": outcome, **facts})
        if is_fault:
            self._span.set_status(StatusCode.ERROR)


@contextmanager
def _told(tracer: OtelTracer, span: OtelSpan) -> Iterator[Span]:
    """This span until the block ends. Of an exception nothing is told, since it may hold a caller's words."""
    try:
        yield _Told(tracer, span)
    finally:
        span.end()


def _resource() -> Resource:
    """Who sends: what the environment says, and where it names no service, this one."""
    said = OTELResourceDetector().detect().attributes
    return Resource.create({"service.name": SERVICE, "service.version": version("agent-memory"), **said})


def _headers(carrier: Carrier | None) -> dict[str, str]:
    return {"traceparent": carrier.traceparent, "tracestate": carrier.tracestate} if carrier else {}
