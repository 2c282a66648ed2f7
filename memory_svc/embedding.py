"""The client of the embedding server: texts in, vectors out, or None when it does not give them."""

import array
import asyncio
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Literal

import httpx2
import msgspec

from memory_svc.domain.memory import Vector
from memory_svc.errors import Unavailable
from memory_svc.observe import Metrics, log
from memory_svc.settings import Settings

TEXTS_MAX = 100
# No model's window reaches further than this, and a batch of such texts stays below the server's limit for a body.
TEXT_CHARS_MAX = 100_000
BATCH_CHARS_MAX = 400_000
Role = Literal["document", "query"]


class Advisory(msgspec.Struct, frozen=True):
    """What a caller is told while recall runs without vectors."""

    degraded: bool
    severity: str
    reason: str
    evidence: str
    runbook: str
    advisory_scope: str = "principal"


class _Answer(msgspec.Struct):
    embeddings: list[list[float]]
    dimensions: int
    fingerprint: str | None = None


class Embedder:
    """Asks the embedding server, and remembers whether it answers.

    fingerprint: of the model that answered last, "" before the first answer.
    """

    def __init__(
        self, settings: Settings, metrics: Metrics, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        self._url = settings.embedding_url.rstrip("/").removesuffix("/embed")
        self._seconds = {"query": settings.embedding_query_seconds, "document": settings.embedding_store_seconds}
        self._metrics = metrics
        self._client = httpx2.AsyncClient(trust_env=False, transport=transport)
        self._told: set[str] = set()
        self.fingerprint = ""
        self.failure = "" if self._url else "no embedding server is set"
        metrics.degraded.set(int(bool(self.failure)))

    @property
    def enabled(self) -> bool:
        """Whether an embedding server is set at all."""
        return bool(self._url)

    async def embed(self, texts: Sequence[str], role: Role, seconds: float | None = None) -> list[Vector] | None:
        """One L2-normalised vector a text, in order, or None when the server does not give them in time.

        seconds: how long to wait; None = as the settings say for that role.
        """
        if not self._url:
            return None
        patience = seconds or self._seconds[role]
        try:
            async with asyncio.timeout(patience):
                vectors = [vector for batch in batches(texts) for vector in await self._ask(batch, role)]
        except TimeoutError:
            self._failed(f"it did not answer within {patience:g} s")
        except Unavailable as problem:
            self._failed(problem.text)
        else:
            self._answered(vectors)
            return vectors
        return None

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
            evidence=self.failure,
            runbook=advice,
        )

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.aclose()

    async def _ask(self, texts: Sequence[str], role: Role) -> list[Vector]:
        body = msgspec.json.encode({"texts": texts, "input_type": role})
        headers = {"content-type": "application/json"}
        try:
            response = await self._client.post(f"{self._url}/embed", content=body, headers=headers, timeout=None)
            if response.status_code != httpx2.codes.OK:
                raise Unavailable(f"it answered with status {response.status_code}")
            answer = msgspec.json.decode(response.content, type=_Answer)
        except httpx2.HTTPError as error:
            raise Unavailable(f"it cannot be reached ({type(error).__name__})") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable("its answer is not what the contract says") from error
        if len(answer.embeddings) != len(texts):
            raise Unavailable(f"it gave {len(answer.embeddings)} vectors for {len(texts)} texts")
        fingerprint = answer.fingerprint or f"unknown:{answer.dimensions}"
        return [Vector(fingerprint, normalised(values, answer.dimensions)) for values in answer.embeddings]

    def _failed(self, why: str) -> None:
        self._metrics.embedding_failures.inc()
        if not self.failure:
            log("embedding degraded", severity=30, reason=why)
        self.failure = why
        self._metrics.degraded.set(1)

    def _answered(self, vectors: Sequence[Vector]) -> None:
        if vectors:
            self.fingerprint = vectors[-1].fingerprint
        if self.failure:
            log("embedding answers again")
        self.failure = ""
        self._told.clear()
        self._metrics.degraded.set(0)


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


def normalised(values: Sequence[float], dimensions: int) -> bytes:
    """The values over their L2 norm, as little-endian float32.

    Raises Unavailable where they are not `dimensions` finite numbers with a norm above zero.
    """
    norm = math.sqrt(sum(value * value for value in values))
    if len(values) != dimensions:
        raise Unavailable(f"it gave a vector of {len(values)} values where it says {dimensions}")
    if not math.isfinite(norm) or norm == 0.0:
        raise Unavailable("it gave a vector that is zero or not finite")
    packed = array.array("f", [value / norm for value in values])
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


FULL_ADVICE = (
    "Tell the user that memory search runs in a reduced mode: it finds shared words, and may miss memories that say the"
    " same in other words. Nothing is lost; what is stored now gets its vector later. To mend it: see whether the"
    " embedding server at {url} runs (its /readyz names what is missing), start it with `embed-svc serve`, or set"
    " MEMORY_EMBEDDING_URL to where it runs. Recall goes back to normal by itself."
)
SHORT_ADVICE = "Reminder: recall still answers from full text alone."
