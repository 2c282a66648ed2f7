"""Traces as OpenTelemetry has them, sent by OTLP over HTTP. Imported only where traces are asked for.

What the SDK can be told by OTEL_* variables it reads itself. Nothing is made known to the process as a whole.
"""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from importlib.metadata import version

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Link, SpanKind, StatusCode, format_trace_id, set_span_in_context
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import Tracer as OtelTracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from embed_svc.observe import say
from embed_svc.spans import Headers, Span, Tracer, Turn

SERVICE = "embed-svc"
FLUSH_SECONDS_MAX = 2.0
# W3C Trace Context lets a receiver cut what is longer.
_CARRIED_BYTES_MAX = 512
_CARRIED = (b"traceparent", b"tracestate")
_W3C = TraceContextTextMapPropagator()


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
    def request(self, route: str, headers: Headers) -> Iterator[Span]:
        """The span of a request: of the trace that its headers carry, else of a new one."""
        span = self._tracer.start_span(route, _carried(headers), SpanKind.SERVER, {"http.route": route})
        try:
            yield _Told(self._tracer, span)
        finally:
            span.end()

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
            say("warning", "traces are not taken", remedy="see that OTEL_EXPORTER_OTLP_ENDPOINT answers")
        elif self.is_failing and not is_failing:
            say("info", "traces are taken again")
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
        self.is_told = span.is_recording()

    @contextmanager
    def tokenising(self) -> Iterator[None]:
        span = self._tracer.start_span("tokenise", self._context)
        try:
            yield
        finally:
            span.end()

    def ran(self, turn: Turn, oldest: Span) -> None:
        moment = time.time_ns() - int(time.monotonic() * 1e9)
        came, began, ended = (moment + int(instant * 1e9) for instant in (turn.came, turn.began, turn.ended))
        self._tracer.start_span("wait", self._context, start_time=came).end(began)
        links = []
        if isinstance(oldest, _Told) and oldest is not self:
            links.append(Link(oldest._span.get_span_context()))
        facts = {"batch.texts": turn.texts}
        self._tracer.start_span("run", self._context, attributes=facts, links=links, start_time=began).end(ended)

    def answered(self, status: int) -> None:
        self._span.set_attribute("http.response.status_code", status)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self._span.set_status(StatusCode.ERROR)


def _carried(headers: Headers) -> Context:
    """The trace that headers carry; nothing where a name comes twice, or with more than may come."""
    found = [(name.decode(), value.decode("latin-1")) for name, value in headers if name in _CARRIED]
    fits = len(dict(found)) == len(found) and all(len(value) <= _CARRIED_BYTES_MAX for _, value in found)
    return _W3C.extract(dict(found) if fits else {}, Context())


def _resource() -> Resource:
    """Who sends: what the environment says, and where it names no service, this one."""
    said = OTELResourceDetector().detect().attributes
    return Resource.create({"service.name": SERVICE, "service.version": version("agent-memory"), **said})
