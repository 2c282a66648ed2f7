"""Traces through both services, taken by a collector; and what there is of them where nobody asked for any."""

import contextlib
import json
import re
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.collector import Told, collecting
from tests.support.processes import Process, free_port, running

pytestmark = [pytest.mark.e2e, pytest.mark.model]
AT_ONCE = {"OTEL_BSP_SCHEDULE_DELAY": "100"}
OVER_REST, OVER_MCP = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
SECRET = "harbour"
LIBRARIES = re.compile(r"\bopentelemetry\.(sdk|exporter)\b")
PROMPT_SECONDS = 5.0
RECALL = ["POST /embed", "candidates", "embed", "fuse", "recall"]


def traceparent(trace: str, flags: str = "01") -> str:
    """The header of a caller's span."""
    return f"00-{trace}-{CALLER}-{flags}"


@contextlib.contextmanager
def both(folder: Path, **settings: str) -> Iterator[tuple[Process, Process]]:
    """The embedding server and the memory server."""
    with (
        running("embed_svc", folder / "embed", **settings) as embed,
        running("memory_svc", folder / "memory", MEMORY_EMBEDDING_URL=embed.url, **settings) as memory,
    ):
        yield embed, memory


def ask(memory: Process, name: str, arguments: dict[str, Any], **headers: str) -> Any:
    """An operation over REST, with headers."""
    request = urllib.request.Request(
        f"{memory.url}/v1/{name}",
        json.dumps(arguments).encode(),
        {"Authorization": f"Bearer {memory.token}", **headers},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


async def ask_over_mcp(memory: Process, mode: str, name: str, arguments: dict[str, Any], meta: Any) -> None:
    """An operation over MCP, with `_meta`."""
    headers = {"Authorization": f"Bearer {memory.token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http,
        Client(streamable_http_client(f"{memory.url}/mcp", http_client=http), mode=mode) as client,
    ):
        assert not (await client.call_tool(name, arguments, meta=meta)).is_error


def of(spans: list[Told], trace: str, service: str) -> dict[str, Told]:
    """The spans of a trace that one service sent, by name; none comes twice."""
    found = [span for span in spans if (span.trace, span.service) == (trace, service)]
    assert len({span.name for span in found}) == len(found), found
    return {span.name: span for span in found}


def is_whole(trace: str) -> Any:
    """Whether both services have told of a recall in this trace."""
    return lambda spans: (
        len([span for span in spans if span.trace == trace]) == len(RECALL) + len(("/embed", "tokenise", "wait", "run"))
    )


def check_recall(spans: list[Told], trace: str, wire: str) -> None:
    """Every span of the recall is in its caller's trace, below the right one, and tells nothing of what was said."""
    memory, embed = of(spans, trace, "memory-svc"), of(spans, trace, "embed-svc")
    assert sorted(memory) == RECALL
    assert (memory["recall"].kind, memory["recall"].parent) == ("server", CALLER)
    assert memory["recall"].attributes == {"wire": wire, "outcome": "ok"}
    assert memory["embed"].parent == memory["candidates"].parent == memory["recall"].id
    assert memory["fuse"].parent == memory["candidates"].id
    asked = memory["POST /embed"]
    assert (asked.kind, asked.parent, asked.attributes) == ("client", memory["embed"].id, {"outcome": "ok"})
    served = embed["/embed"]
    assert (served.kind, served.parent) == ("server", asked.id)
    assert served.attributes == {"http.route": "/embed", "http.response.status_code": 200}
    assert {embed[name].parent for name in ("tokenise", "wait", "run")} == {served.id}
    assert embed["wait"].begin <= embed["wait"].end == embed["run"].begin <= embed["run"].end
    assert not any(span.failed for span in (*memory.values(), *embed.values()))


async def test_a_recall_is_one_trace_through_both_services_whichever_way_it_came(tmp_path: Path) -> None:
    with collecting() as collector:
        settings = AT_ONCE | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test",
        }
        with both(tmp_path, **settings) as (embed, memory):
            ask(memory, "store", {"agent_id": SECRET, "content": f"The database is called {SECRET}."})
            query = {"agent_id": SECRET, "query": f"What is called {SECRET}?"}
            ask(memory, "recall", query, Traceparent=traceparent(OVER_REST), Tracestate="of=others")
            collector.wait(is_whole(OVER_REST))
            meta = {"traceparent": traceparent(OVER_MCP)}
            # Another text than before, since one that came before is in the cache and runs no more.
            await ask_over_mcp(memory, "2026-07-28", "recall", query | {"query": f"Is {SECRET} a name?"}, meta)
            spans = collector.wait(is_whole(OVER_MCP))
            check_recall(spans, OVER_REST, "rest")
            check_recall(spans, OVER_MCP, "mcp-http")
            check_store(spans)
            for log, trace in ((memory.log, OVER_REST), (memory.log, OVER_MCP), (embed.log, OVER_REST)):
                assert f'"trace_id":"{trace}"' in log.read_text().replace(": ", ":")
        assert {span.resource["deployment.environment"] for span in spans} == {"test"}
        assert not any(word in body for body in collector.bodies for word in (SECRET.encode(), memory.token.encode()))


def check_store(spans: list[Told]) -> None:
    """A call that nobody else traces begins a trace; storing is embedding and writing."""
    (store,) = [span for span in spans if span.name == "store"]
    assert store.parent == ""
    below = of(spans, store.trace, "memory-svc")
    assert sorted(below) == ["POST /embed", "apply", "embed", "store"]
    assert below["apply"].parent == below["embed"].parent == store.id
    assert of(spans, store.trace, "embed-svc")["/embed"].parent == below["POST /embed"].id


def test_a_trace_that_its_caller_does_not_sample_is_told_by_neither_service_and_still_logged(tmp_path: Path) -> None:
    with collecting() as collector:
        settings = AT_ONCE | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collector.url}/v1/traces"}
        with both(tmp_path, **settings) as (_, memory):
            arguments = {"agent_id": "me", "query": "quiet"}
            ask(memory, "recall", arguments, Traceparent=traceparent(OVER_REST, "00"))
            ask(memory, "recall", arguments, Traceparent=traceparent(OVER_MCP))
            spans = collector.wait(lambda spans: any(span.name == "recall" for span in spans))
            assert memory.stop() == 0
        assert {span.trace for span in spans if span.name == "recall"} == {OVER_MCP}
        assert OVER_REST not in {span.trace for span in collector.spans}
        assert OVER_REST in memory.log.read_text()


def test_what_is_not_sent_yet_is_sent_when_the_servers_stop(tmp_path: Path) -> None:
    with collecting() as collector:
        settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "mine"}
        with both(tmp_path, OTEL_BSP_SCHEDULE_DELAY="600000", **settings) as (embed, memory):
            ask(memory, "recall", {"agent_id": "me", "query": "late"}, Traceparent=traceparent(OVER_REST))
            assert collector.spans == []
            assert (memory.stop(), embed.stop()) == (0, 0)
        assert {span.name for span in collector.spans if span.trace == OVER_REST} >= {"recall", "/embed"}
        assert {span.service for span in collector.spans} == {"mine"}


@pytest.mark.parametrize("sort", ["nobody listens", "silent"])
def test_a_collector_that_takes_nothing_slows_and_fails_no_call_and_is_told_once(tmp_path: Path, sort: str) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        if sort == "silent":
            deaf.listen(64)
        collector = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        settings = AT_ONCE | {"OTEL_EXPORTER_OTLP_ENDPOINT": collector, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
        with both(tmp_path, **settings) as (embed, memory):
            begin = time.monotonic()
            while not all("traces are not taken" in each.log.read_text() for each in (embed, memory)):
                called = time.monotonic()
                stored = memory.call("store", agent_id="me", content=f"At {called} all is well.")
                assert stored["result"] == "stored"
                assert memory.call("recall", agent_id="me", query=f"{called}")["channels"]["vectors"] == "ran"
                assert time.monotonic() - called < PROMPT_SECONDS
                assert time.monotonic() - begin < 30
            time.sleep(2.5)
            assert (memory.stop(), embed.stop()) == (0, 0)
            for each in (embed, memory):
                assert each.log.read_text().count("traces are not taken") == 1
                assert "Traceback" not in each.log.read_text()


def test_where_no_collector_is_named_nothing_of_it_is_imported_and_nothing_goes_out(tmp_path: Path) -> None:
    connects = tmp_path / "connects"
    watched = ["strace", "-f", "-qq", "-e", "trace=connect", "-o", str(connects)]
    # OTEL_TRACES_EXPORTER alone names no collector; the standard's default address is not taken for one.
    settings = {"PYTHONPROFILEIMPORTTIME": "1", "OTEL_TRACES_EXPORTER": "otlp"}
    with running("embed_svc", tmp_path / "embed", **settings) as embed:
        own = settings | {"MEMORY_EMBEDDING_URL": embed.url}
        with running("memory_svc", tmp_path / "memory", prefix=watched, **own) as memory:
            ask(memory, "store", {"agent_id": "me", "content": "All is quiet."}, Traceparent=traceparent(OVER_REST))
            ask(memory, "recall", {"agent_id": "me", "query": "quiet"}, Traceparent=traceparent(OVER_REST))
            for each in (embed, memory):
                imported = each.log.read_text()
                assert "msgspec" in imported
                assert not LIBRARIES.search(imported)
                assert "trace_id" not in imported
            memory.kill_tree()
        reached = set(re.findall(r"sin6?_port=htons\((\d+)\)", connects.read_text()))
        assert reached - {"0"} == {str(embed.port)}


def test_where_a_collector_is_named_its_libraries_are_imported(tmp_path: Path) -> None:
    settings = {"PYTHONPROFILEIMPORTTIME": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    with running("memory_svc", tmp_path, MEMORY_EMBEDDING_URL="", **settings) as memory:
        assert LIBRARIES.search(memory.log.read_text())
