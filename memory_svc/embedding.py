"""The client of the embedding server: texts in, vectors out, or None when it does not give them.

A breaker keeps callers from waiting for a server that is known not to answer.
"""

import asyncio
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Literal

import msgspec
import numpy as np

from memory_svc.domain.memory import Vector
from memory_svc.embedding_http import Connections, Send
from memory_svc.observe import Fault, Metrics, log
from memory_svc.settings import Settings
from memory_svc.spans import NO_SPAN, Span

Role = Literal["document", "query"]
State = Literal["closed", "open", "half_open"]
TEXTS_MAX = 100
# No model's window reaches further than this, and a batch of such texts stays below the server's limit for a body.
TEXT_CHARS_MAX = 100_000
BATCH_CHARS_MAX = 400_000
NORM_TOLERANCE = 0.01
LATE_SECONDS_MAX = 30.0
LATE_MAX = 32
LEFT_MAX = 32
NOT_IN_TIME = "no vector came within the caller's time, or none that is sound"
PROBE = "Does the embedding server answer?"


class Advisory(msgspec.Struct, frozen=True):
    """What a caller is told while recall runs without vectors."""

    degraded: bool
    severity: str
    reason: str
    evidence: str
    runbook: str
    advisory_scope: str = "principal"


class _Reading(msgspec.Struct):
    truncated: bool = False
    window_end_char: int | None = None


class _Answer(msgspec.Struct):
    embeddings: list[list[float]]
    dimensions: int
    fingerprint: str | None = None
    token_info: list[_Reading] | None = None


class Faulty(Exception):
    """The server gave no vectors: in which way, and the words for it."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault: Fault = fault
        self.text = text


class Breaker:
    """Whether the server is asked at all: closed = yes; open = no; half open = a probe is under way.

    Source: Nygard, Release It!, 2nd edition, 2018, chapter 5.
    """

    def __init__(self, failures_max: int) -> None:
        self._failures_max = failures_max
        self._failures = 0
        self.state: State = "closed"

    def failed(self) -> None:
        """Count a failure; so many in a row, or one of the probe, open it."""
        self._failures += 1
        if self.state == "half_open" or self._failures >= self._failures_max:
            self.state = "open"

    def succeeded(self) -> None:
        """Close it."""
        self._failures = 0
        self.state = "closed"


class Embedder:
    """Asks the embedding server, and remembers whether it answers.

    fingerprint: of the model that answered last, "" before the first answer. failure: why the last call gave no
    vectors, "" when it gave some. waiting: rows known to lack a vector. send: asks in place of a connection.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        send: Send | None = None,
        token: str = "",
    ) -> None:
        self._url = settings.embedding_url.rstrip("/").removesuffix("/embed")
        self._seconds = {"query": settings.embedding_query_seconds, "document": settings.embedding_store_seconds}
        self._metrics = metrics
        self._connections = Connections(f"{self._url}/embed", token)
        self._send = send or self._connections.post
        self._breaker = Breaker(settings.embedding_failures_max)
        self._told: set[str] = set()
        self._late: set[asyncio.Task[list[Vector | None]]] = set()
        self._left: set[asyncio.Task[list[Vector | None] | None]] = set()
        self._dimensions = 0
        self._asked_at = -math.inf
        self.fingerprint = ""
        self.failure = "" if self._url else "no embedding server is set"
        self.waiting = 0
        self._tell()

    @property
    def enabled(self) -> bool:
        """Whether an embedding server is set at all."""
        return bool(self._url)

    @property
    def state(self) -> State:
        """Whether it is asked."""
        return self._breaker.state

    async def embed(
        self,
        texts: Sequence[str],
        role: Role,
        seconds: float | None = None,
        within: float = math.inf,
        *,
        span: Span = NO_SPAN,
    ) -> list[Vector | None] | None:
        """One L2-normalised vector a text, in order, None for a text it makes no sound vector of.

        Of a document of which the window holds a part alone, a vector tells how many characters were `read`.
        None at once while the breaker is open, and when no text gets a vector in time. seconds: how long the
        server has; None = as the settings say for that role. within: how long the caller waits. That it waits less is
        no fault of the server: the request goes on without it, and counts when the server's time is over. Callers
        in a hurry get None at once while LEFT_MAX of these are under way. span: what it is done for.
        """
        if not self._url or self._breaker.state != "closed":
            return None
        patience = seconds or self._seconds[role]
        if within >= patience:
            return await self._measured(texts, role, patience, span)
        if len(self._left) >= LEFT_MAX:
            return None
        asked = asyncio.create_task(self._measured(texts, role, patience, span))
        self._left.add(asked)
        asked.add_done_callback(self._left.discard)
        done, _ = await asyncio.wait({asked}, timeout=within)
        return asked.result() if done else None

    @property
    def reason(self) -> str:
        """Why a caller got no vector."""
        return self.failure or NOT_IN_TIME

    async def probe(self, idle_seconds: float) -> None:
        """Ask for one vector where the breaker is not closed, no model is known, or nobody has asked for so long."""
        is_idle = time.monotonic() - self._asked_at >= idle_seconds
        if not self._url or (self._breaker.state == "closed" and self.fingerprint and not is_idle):
            return
        if self._breaker.state == "open":
            self._breaker.state = "half_open"
            self._tell()
        await self._measured([PROBE], "query", self._seconds["query"], NO_SPAN)

    def advisory(self, principal: str) -> Advisory:
        """What to tell a caller now: in full the first time since the failure began, a reminder after that."""
        first = principal not in self._told
        self._told.add(principal)
        reason = "the embedding server gives no vectors; recall answered from full text alone"
        advice = FULL_ADVICE.format(url=self._url or "(none)") if first else SHORT_ADVICE
        return Advisory(
            degraded=True,
            severity="fault" if self._url else "hint",
            reason=reason if self._url else "no embedding server is set; recall answers from full text alone",
            evidence=self.reason,
            runbook=advice,
        )

    async def close(self) -> None:
        """Let go of the connections."""
        for task in (*self._late, *self._left):
            task.cancel()
        await self._connections.close()

    async def _measured(
        self, texts: Sequence[str], role: Role, patience: float, span: Span
    ) -> list[Vector | None] | None:
        self._asked_at = time.monotonic()
        try:
            with self._metrics.embedding():
                vectors = await self._in_time(texts, role, patience, span)
        except Faulty as fault:
            self._failed(fault)
            return None
        self._answered(vectors)
        return vectors

    async def _in_time(self, texts: Sequence[str], role: Role, patience: float, span: Span) -> list[Vector | None]:
        """The vectors, if they come in time; else the call goes on a while, to tell a slow server from a hung one."""
        task = asyncio.create_task(self._ask_all(texts, role, span))
        try:
            done, _ = await asyncio.wait({task}, timeout=patience)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if done:
            return task.result()
        if len(self._late) < LATE_MAX:
            self._late.add(task)
            task.add_done_callback(self._came_late)
            asyncio.get_running_loop().call_later(LATE_SECONDS_MAX, task.cancel)
        else:
            task.cancel()
        raise Faulty("hung", f"it did not answer within {patience:g} s")

    def _came_late(self, task: asyncio.Task[list[Vector | None]]) -> None:
        self._late.discard(task)
        fault: Fault = "hung" if task.cancelled() else "slow"
        self._metrics.embedding_failed(fault)
        if fault == "slow" and self.failure.startswith("it did not answer"):
            self.failure += "; an answer came later, so it is slow and not gone"
        if not task.cancelled():
            task.exception()

    async def _ask_all(self, texts: Sequence[str], role: Role, span: Span) -> list[Vector | None]:
        found = [each for batch in batches(texts) for each in await self._ask(batch, role, span)]
        if texts and all(isinstance(each, Faulty) for each in found):
            raise next(each for each in found if isinstance(each, Faulty))
        return [
            None if isinstance(each, Faulty) else _cut_here(each, text) for each, text in zip(found, texts, strict=True)
        ]

    async def _ask(self, texts: Sequence[str], role: Role, span: Span) -> list[Vector | Faulty]:
        request = {"texts": texts, "input_type": role, **({"token_info": True} if role == "document" else {})}
        outcome = "cancelled"
        with span.child("POST /embed", is_call=True) as call:
            try:
                found = await self._answered_to(msgspec.json.encode(request), texts, call.headers)
                outcome = "ok"
            except Faulty as fault:
                outcome = fault.fault
                raise
            finally:
                call.settle(outcome, is_fault=outcome not in ("ok", "cancelled"))
        return found

    async def _answered_to(
        self, request: bytes, texts: Sequence[str], headers: Mapping[str, str]
    ) -> list[Vector | Faulty]:
        try:
            status, content = await self._send(request, headers)
        except OSError as error:
            raise Faulty("unreachable", f"it cannot be reached ({error})") from error
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            raise Faulty("overloaded", "it has more work than it takes (status 429)")
        if status != HTTPStatus.OK:
            raise Faulty("status", f"it answered with status {status}")
        try:
            answer = msgspec.json.decode(content, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Faulty("garbage", "its answer is not what the contract says") from error
        if len(answer.embeddings) != len(texts):
            raise Faulty("count", f"it gave {len(answer.embeddings)} vectors for {len(texts)} texts")
        return self._sound(answer, texts)

    def _sound(self, answer: _Answer, texts: Sequence[str]) -> list[Vector | Faulty]:
        fingerprint = answer.fingerprint or f"unknown:{answer.dimensions}"
        if fingerprint == self.fingerprint and self._dimensions not in (0, answer.dimensions):
            raise Faulty(
                "dimension", f"its model gave {self._dimensions} dimensions before and {answer.dimensions} now"
            )
        found: list[Vector | Faulty] = []
        for values, read in zip(answer.embeddings, _read(answer, texts), strict=True):
            try:
                found.append(Vector(fingerprint, unit(values, answer.dimensions), read))
            except Faulty as fault:
                self._metrics.embedding_failed(fault.fault)
                found.append(fault)
        self._dimensions = answer.dimensions
        return found

    def _failed(self, fault: Faulty) -> None:
        # A late answer is counted once it is known whether it came; unsound vectors were, one by one.
        if fault.fault not in ("hung", "norm", "not_finite"):
            self._metrics.embedding_failed(fault.fault)
        if not self.failure:
            # A server that still loads its model, beside which this one was just started, is no cause for alarm.
            is_starting = fault.fault == "status" and not self.fingerprint
            log("embedding degraded", severity=20 if is_starting else 30, reason=fault.text)
        self.failure = fault.text
        self._breaker.failed()
        self._tell()

    def _answered(self, vectors: Sequence[Vector | None]) -> None:
        fingerprint = next((vector.fingerprint for vector in vectors if vector), self.fingerprint)
        if self.fingerprint and fingerprint != self.fingerprint:
            log("embedding model changed", severity=30, before=self.fingerprint, now=fingerprint)
            self._metrics.model_changes.inc()
        self.fingerprint = fingerprint
        if self.failure:
            log("embedding answers again")
        self.failure = ""
        self._told.clear()
        self._breaker.succeeded()
        self._tell()

    def _tell(self) -> None:
        self._metrics.embedding_state(self._breaker.state, degraded=bool(self.failure))


def _cut_here(vector: Vector, text: str) -> Vector:
    """A text that is too long to be sent whole was read as far as it was sent, where the window did not end before."""
    if vector.read is None and len(text) > TEXT_CHARS_MAX:
        return msgspec.structs.replace(vector, read=TEXT_CHARS_MAX)
    return vector


def _read(answer: _Answer, texts: Sequence[str]) -> list[int | None]:
    """How many characters of each text the model read where its window cut it; None = all, or it does not say."""
    readings = answer.token_info or []
    if len(readings) != len(texts):
        return [None] * len(texts)
    ends = (each.window_end_char if each.truncated else None for each in readings)
    return [end if end is not None and 0 < end < len(text) else None for end, text in zip(ends, texts, strict=True)]


def batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in order, each cut to TEXT_CHARS_MAX, in groups that one request may hold."""
    batch: list[str] = []
    for text in texts:
        cut = text[:TEXT_CHARS_MAX]
        if batch and (len(batch) == TEXTS_MAX or sum(map(len, batch)) + len(cut) > BATCH_CHARS_MAX):
            yield batch
            batch = []
        batch.append(cut)
    if batch:
        yield batch


def unit(values: Sequence[float], dimensions: int) -> bytes:
    """The values as little-endian float32, brought to length 1 exactly.

    Raises Faulty where they are not `dimensions` finite numbers with a length of 1 (within a hundredth).
    """
    if len(values) != dimensions:
        raise Faulty("dimension", f"it gave a vector of {len(values)} values where it says {dimensions}")
    vector = np.array(values, np.float64)
    with np.errstate(over="ignore"):
        norm = math.sqrt(vector @ vector)
    if not math.isfinite(norm):
        raise Faulty("not_finite", "it gave a vector with a value that is not finite")
    if abs(norm - 1.0) > NORM_TOLERANCE:
        raise Faulty("norm", f"it gave a vector of length {norm:.3g} where the contract says 1")
    return (vector / norm).astype("<f4").tobytes()


FULL_ADVICE = (
    "Tell the user that memory search runs in a reduced mode: it finds shared words, and may miss memories that say the"
    " same in other words. Nothing is lost; what is stored now gets its vector later. To mend it: see whether the"
    " embedding server at {url} runs (its /readyz names what is missing), start it with `embed-svc serve`, or set"
    " MEMORY_EMBEDDING_URL to where it runs. Recall goes back to normal by itself."
)
SHORT_ADVICE = "Reminder: recall still answers from full text alone."
