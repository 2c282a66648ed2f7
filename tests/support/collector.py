"""A collector of traces: takes OTLP over HTTP and keeps every span."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATIENCE_SECONDS = 20.0
KINDS = {1: "internal", 2: "server", 3: "client"}


class Told(msgspec.Struct, frozen=True):
    """A span as it was sent. resource: who sent it. links: the spans it points at."""

    service: str
    name: str
    kind: str
    trace: str
    id: str
    parent: str
    begin: int
    end: int
    failed: bool
    attributes: dict[str, Any]
    links: tuple[str, ...]
    resource: dict[str, Any]


class Collector:
    """What was sent so far. refuse: answer every batch with a failure."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[Told] = []
        self.bodies: list[bytes] = []
        self.refuse = False

    def take(self, body: bytes) -> None:
        """Keep the spans of one request."""
        self.bodies.append(body)
        for sent in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = values(sent.resource.attributes)
            for scope in sent.scope_spans:
                self.spans += [told(span, resource) for span in scope.spans]

    def wait(self, is_enough: Callable[[list[Told]], bool]) -> list[Told]:
        """The spans, once there are enough."""
        ends = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < ends:
            if is_enough(self.spans):
                return list(self.spans)
            time.sleep(0.05)
        raise AssertionError([(span.service, span.name) for span in self.spans])


def told(span: Any, resource: dict[str, Any]) -> Told:
    """A span of the wire in our words."""
    return Told(
        service=resource["service.name"],
        name=span.name,
        kind=KINDS[span.kind],
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        begin=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        failed=span.status.code == 2,
        attributes=values(span.attributes),
        links=tuple(link.span_id.hex() for link in span.links),
        resource=resource,
    )


def values(pairs: Any) -> dict[str, Any]:
    """Attributes as a plain mapping."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """Take what is sent to the address of traces."""
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/traces" and not collector.refuse:
                collector.take(body)
            self.send_response(400 if collector.refuse else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
