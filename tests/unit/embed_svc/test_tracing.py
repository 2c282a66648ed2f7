"""Spans of requests, as a collector gets them."""

import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from embed_svc.batching import Batcher, Limits
from embed_svc.observe import Observer
from embed_svc.spans import NO_SPAN, Headers, Tracer, Turn
from embed_svc.tracing import Tracing
from tests.support.collector import Collector, Told, collecting

TRACE, OTHER = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
CAME: Headers = [(b"host", b"here"), (b"traceparent", f"00-{TRACE}-{CALLER}-01".encode())]
CAME_TOO: Headers = [(b"traceparent", f"00-{OTHER}-{CALLER}-01".encode())]
UNSAMPLED: Headers = [(b"traceparent", f"00-{TRACE}-{CALLER}-00".encode())]
TURN = Turn(came=1.0, began=2.5, ended=4.0, texts=3)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that the environment names."""
    with collecting() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
        yield made


def sent(collector: Collector, act: Callable[[Tracing], None]) -> dict[tuple[str, str], Told]:
    """The spans of what is done with a tracer, by trace and name."""
    tracing = Tracing()
    act(tracing)
    tracing.close()
    return {(span.trace, span.name): span for span in collector.spans}


def test_without_a_tracer_there_is_one_span_for_everything() -> None:
    with Tracer().request("/embed", CAME) as span, span.tokenising():
        assert span is NO_SPAN
        assert (span.trace_id, span.is_told) == ("", False)
        span.ran(TURN, span)
        span.answered(200)


def test_a_wait_and_a_run_are_told_with_the_times_at_which_they_were(collector: Collector) -> None:
    def act(tracing: Tracing) -> None:
        with tracing.request("/embed", CAME) as span:
            span.ran(TURN, span)

    now = time.time_ns() - time.monotonic_ns()
    spans = sent(collector, act)
    wait, run = spans[TRACE, "wait"], spans[TRACE, "run"]
    assert wait.begin == pytest.approx(now + 1e9, abs=1e9)
    assert wait.end - wait.begin == pytest.approx(1.5e9, abs=1000)
    assert run.begin == wait.end
    assert run.end - run.begin == pytest.approx(1.5e9, abs=1000)
    assert (run.attributes, run.links) == ({"batch.texts": 3}, ())
    assert wait.parent == run.parent == spans[TRACE, "/embed"].id


def test_callers_whose_texts_run_together_have_a_run_each_and_a_link_to_the_one_that_came_first(
    collector: Collector,
) -> None:
    running = threading.Event()

    def run(items: list[int]) -> list[int]:
        assert running.wait(10)
        return items

    batcher: Batcher[int, int] = Batcher(run, lambda item: item, Limits(), Observer(lambda: 0))

    def act(tracing: Tracing) -> None:
        ahead = batcher.submit([500])
        with tracing.request("/embed", CAME) as one, tracing.request("/embed", CAME_TOO) as other:
            futures = [batcher.submit([5, 5], one), batcher.submit([5], other), batcher.submit([5])]
            running.set()
            assert [future.result(10) for future in (ahead, *futures)] == [[500], [5, 5], [5], [5]]
            batcher.close()

    spans = sent(collector, act)
    one, other = spans[TRACE, "run"], spans[OTHER, "run"]
    assert (one.links, other.links) == ((), (spans[TRACE, "/embed"].id,))
    assert one.attributes == other.attributes == {"batch.texts": 4}
    assert (one.begin, one.end) == pytest.approx((other.begin, other.end), abs=1e6)


def test_what_is_not_sampled_is_not_told_of_its_runs(collector: Collector) -> None:
    def act(tracing: Tracing) -> None:
        with tracing.request("/embed", UNSAMPLED) as span:
            assert (span.trace_id, span.is_told) == (TRACE, False)

    assert sent(collector, act) == {}


@pytest.mark.parametrize("headers", [[], [*CAME, *CAME_TOO], [(b"traceparent", b"\xff" * 55)], [*CAME, *CAME]])
def test_headers_that_carry_no_trace_or_two_begin_a_new_one(collector: Collector, headers: Headers) -> None:
    def act(tracing: Tracing) -> None:
        with tracing.request("/embed", headers):
            pass

    (span,) = sent(collector, act).values()
    assert (span.parent, span.trace in (TRACE, OTHER)) == ("", False)


@pytest.mark.parametrize(("status", "is_failed"), [(200, False), (400, False), (499, False), (500, True), (503, True)])
def test_a_failure_is_one_where_it_is_the_servers_own(collector: Collector, status: int, is_failed: bool) -> None:
    def act(tracing: Tracing) -> None:
        with tracing.request("/embed", CAME) as span:
            span.answered(status)

    span = sent(collector, act)[TRACE, "/embed"]
    assert (span.failed, span.attributes["http.response.status_code"]) == (is_failed, status)


def test_that_spans_are_not_taken_is_told_once_and_that_they_are_again(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    caplog.set_level(logging.INFO)
    collector.refuse = True
    tracing = Tracing()

    def call_until(words: str) -> None:
        for _ in range(500):
            with tracing.request("/embed", []):
                pass
            if words in caplog.text:
                return
            time.sleep(0.02)
        raise AssertionError(caplog.text)

    call_until("traces are not taken")
    time.sleep(0.3)
    collector.refuse = False
    call_until("traces are taken again")
    tracing.close()
    assert [record.getMessage() for record in caplog.records] == ["traces are not taken", "traces are taken again"]
