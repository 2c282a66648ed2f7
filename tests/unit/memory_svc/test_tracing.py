"""Spans of operations, as a collector gets them."""

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from memory_svc.errors import NotFound, Problem, Unavailable
from memory_svc.observe import Metrics
from memory_svc.spans import NO_SPAN, Carrier, Span, Tracer, carried
from memory_svc.tracing import Tracing
from tests.support.collector import Collector, Told, collecting

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7"
CAME = Carrier(f"00-{TRACE}-{CALLER}-01", "of=others")
SECRET = "harbour"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that the environment names."""
    with collecting() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
        yield made


def sent(collector: Collector, act: Callable[[Tracing], None]) -> dict[str, Told]:
    """The spans of what is done with a tracer, by name."""
    tracing = Tracing()
    act(tracing)
    tracing.close()
    return {span.name: span for span in collector.spans}


def test_without_a_tracer_there_is_one_span_for_everything_and_it_carries_nothing() -> None:
    with Tracer().operation("recall", CAME) as span, span.child("embed") as inner:
        assert inner is span is NO_SPAN
        assert (span.trace_id, dict(span.headers)) == ("", {})
        span.settle("ok", is_fault=False, wire="rest")


def test_a_span_is_below_the_one_it_was_made_from_in_whatever_thread_that_was(collector: Collector) -> None:
    def fuse(span: Span) -> None:
        with span.child("fuse"):
            pass

    def recall(tracing: Tracing) -> None:
        with tracing.operation("recall", CAME) as span, span.child("candidates") as searching:
            thread = threading.Thread(target=fuse, args=(searching,))
            thread.start()
            thread.join()

    spans = sent(collector, recall)
    assert {span.trace for span in spans.values()} == {TRACE}
    assert spans["recall"].parent == CALLER
    assert spans["candidates"].parent == spans["recall"].id
    assert spans["fuse"].parent == spans["candidates"].id
    assert spans["recall"].resource["service.name"] == "memory-svc"


def test_a_call_of_another_process_carries_the_trace_and_its_state_on(collector: Collector) -> None:
    carried_on = {}

    def ask(tracing: Tracing) -> None:
        with tracing.operation("recall", CAME) as span, span.child("POST /embed", is_call=True) as call:
            carried_on.update(call.headers)

    spans = sent(collector, ask)
    assert carried_on == {"traceparent": f"00-{TRACE}-{spans['POST /embed'].id}-01", "tracestate": "of=others"}
    assert spans["POST /embed"].kind == "client"


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        SECRET,
        f"00-{TRACE}-{CALLER}",
        f"ff-{TRACE}-{CALLER}-01",
        f"00-{'0' * 32}-{CALLER}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{CALLER}-01",
        f"00-{TRACE}-{CALLER}-01" + " " * 600,
        ["00"],
        5,
    ],
)
def test_what_is_no_trace_is_no_failure_and_begins_a_new_one(collector: Collector, traceparent: object) -> None:
    def recall(tracing: Tracing) -> None:
        with tracing.operation("recall", carried(traceparent, None)) as span:
            assert len(span.trace_id) == 32

    span = sent(collector, recall)["recall"]
    assert span.parent == ""
    assert span.trace != TRACE


@pytest.mark.parametrize("tracestate", [None, 5, "x" * 513, f"{SECRET} = not, allowed"])
def test_a_state_that_is_none_is_left_out_and_not_logged(
    collector: Collector, tracestate: object, caplog: pytest.LogCaptureFixture
) -> None:
    def recall(tracing: Tracing) -> None:
        with tracing.operation("recall", carried(CAME.traceparent, tracestate)) as span:
            assert "tracestate" not in span.headers

    assert sent(collector, recall)["recall"].parent == CALLER
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("problem", "outcome", "is_failed"),
    [
        (None, "ok", False),
        (NotFound(SECRET), "not_found", False),
        (Unavailable(SECRET), "unavailable", True),
        (ValueError(SECRET), "internal", True),
    ],
)
def test_of_a_failure_its_kind_is_told_and_none_of_its_words(
    collector: Collector, problem: Problem | ValueError | None, outcome: str, is_failed: bool
) -> None:
    def act(tracing: Tracing) -> None:
        try:
            with Metrics(tracing).measured("recall", "rest", "id"):
                if problem:
                    raise problem
        except (Problem, ValueError):
            pass

    span = sent(collector, act)["recall"]
    assert (span.attributes, span.failed) == ({"wire": "rest", "outcome": outcome}, is_failed)
    assert not any(SECRET.encode() in body for body in collector.bodies)


def test_that_spans_are_not_taken_is_told_once_and_that_they_are_again(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    caplog.set_level(logging.INFO)
    collector.refuse = True
    tracing = Tracing()

    def call_until(words: str) -> None:
        for _ in range(500):
            with tracing.operation("recall", None):
                pass
            if words in caplog.text:
                return
            threading.Event().wait(0.02)
        raise AssertionError(caplog.text)

    call_until("traces are not taken")
    threading.Event().wait(0.3)
    collector.refuse = False
    call_until("traces are taken again")
    tracing.close()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO] == [
        "traces are not taken",
        "traces are taken again",
    ]


def test_a_header_for_the_collector_that_cannot_be_sent_is_not_logged(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"a b={SECRET}")
    sent(collector, lambda _: None)
    assert SECRET not in caplog.text


def test_the_log_line_of_an_operation_names_its_trace(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "memory_svc")

    def recall(tracing: Tracing) -> None:
        with Metrics(tracing).measured("recall", "rest", "id", CAME):
            pass

    sent(collector, recall)
    with Metrics().measured("recall", "rest", "id", CAME):
        pass
    fields = [record.__dict__["fields"] for record in caplog.records if record.getMessage() == "operation"]
    assert [each.get("trace_id") for each in fields] == [TRACE, None]
