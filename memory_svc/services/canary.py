"""The canary at work: its rows are stored once, its questions asked as any caller asks, and the answers judged."""

import datetime as dt
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from memory_svc.domain.access.principal import Principal
from memory_svc.domain.canary import CONTENTS, NOT_FOUND, PROBES, ROWS, Examined, Seen, judged
from memory_svc.domain.memory import Kind, Ref
from memory_svc.domain.scope import CANARY_AGENT
from memory_svc.observe import Metrics
from memory_svc.services.memory.lists import list_memories
from memory_svc.services.memory.recall import recall
from memory_svc.services.memory.remember import store
from memory_svc.services.operation import Call, Runtime, read

# How an operation is asked for, here or over a wire: its name and arguments give its answer.
Ask = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
PRINCIPAL = Principal(name="canary")
LISTED_MAX = 500
QUESTION = {"agent_id": CANARY_AGENT, "limit": ROWS, "deep": True, "trace": True}


async def examined(ask: Ask) -> Examined:
    """Store what is not there yet, ask for every probe, and judge. Raises what an operation raises."""
    refs = await _stored(ask)
    answers = {
        probe: await ask("recall", {**QUESTION, "query": probe.query, "trace_refs": [refs[probe.content]]})
        for probe in PROBES
    }
    told = [each["channels"]["vectors"] for each in answers.values()]
    seen = {probe: _seen(answer, refs[probe.content]) for probe, answer in answers.items()}
    order = answers[PROBES[0]]["trace"]["mode"]
    return judged(seen, next((each for each in told if each != "ran"), "ran"), order)


class Canary:
    """The canary as a step of the worker: asks when its time has come, and notes what was found."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._ask = inside(runtime)
        self._pause = dt.timedelta(seconds=runtime.settings.canary_seconds)
        self._next = runtime.clock()

    async def step(self) -> bool:
        """Ask, unless it is too early; there is never more to do."""
        now = self._runtime.clock()
        if now >= self._next:
            self._next = now + self._pause
            found = await examined(self._ask)
            self._runtime.metrics.canary_found({str(sort): rank for sort, rank in found.worst.items()})
        return False


def inside(runtime: Runtime) -> Ask:
    """Asks this process, with metrics of its own: the canary's calls count among nobody's."""
    operations = {each.name: each for each in (list_memories, store, recall)}
    apart = msgspec.structs.replace(runtime, metrics=Metrics())

    async def ask(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        found = operations[name]
        request, _ = read(found.request, arguments)
        called = msgspec.structs.replace(apart, call=Call(principal=PRINCIPAL), operation=name)
        answer: dict[str, Any] = msgspec.to_builtins(await found.run(called, request))
        return answer

    return ask


async def _stored(ask: Ask) -> dict[str, str]:
    """The refs of the canary's rows by what they say, once all of them are stored."""
    listed = await ask("list_memories", {"agent_id": CANARY_AGENT, "limit": LISTED_MAX})
    ids = {row["content"]: row["id"] for row in listed["memories"]}
    for content in CONTENTS:
        if content not in ids:
            ids[content] = (await ask("store", {"agent_id": CANARY_AGENT, "content": content}))["id"]
    return {content: str(Ref(Kind.MEMORY, id)) for content, id in ids.items()}


def _seen(answer: Mapping[str, Any], ref: str) -> Seen:
    rows = [row.get("ref") for row in reversed(answer["messages"])]
    arms = next(row.get("arms", {}) for row in answer["trace"]["rows"] if row["ref"] == ref)
    return Seen(rows.index(ref) + 1 if ref in rows else NOT_FOUND, {name: arm["rank"] for name, arm in arms.items()})
