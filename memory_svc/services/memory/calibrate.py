"""The gate's calibration: asked for, chosen for an agent, and kept up with its memories in the background."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta, UnsetType

from memory_svc.domain.access.principal import Permission
from memory_svc.domain.change import PutPrecision
from memory_svc.domain.memory import Precision, Vector
from memory_svc.domain.recall.calibration import (
    ROWS_MIN,
    Calibration,
    Measured,
    Method,
    Rule,
    measured,
    questions,
    summary,
    threshold,
)
from memory_svc.embedding import Embedder
from memory_svc.errors import Conflict, Invalid, Problem, Unavailable
from memory_svc.services.operation import Effect, Request, Runtime, operation
from memory_svc.settings import Settings
from memory_svc.spans import NO_SPAN, Span
from memory_svc.storage.interface import Sample, Storage

Level = Literal["strict", "balanced", "lenient", "custom"]
EMBED_SECONDS_MAX = 30.0
BETAS: Mapping[Level, float] = {"strict": 2.0, "balanced": 1.0, "lenient": 0.5}
METHOD: Method = "zscore"
Z_FACTOR = 0.7
PERCENTILE = 0.95


class CalibrateThreshold(Request, frozen=True, kw_only=True):
    """Whose gate, and how. What is chosen here stays chosen; what is left out is as set for all agents."""

    agent_id: Annotated[str, Meta(max_length=1000, description="Whose gate.")]
    sample_size: Annotated[int, Meta(ge=0, le=2000, description="Rows to go by, 30 at least; 0 = as set.")] = 0
    z_factor: Annotated[
        float, Meta(ge=0, le=10, description="zscore: deviations above what chance reaches; 0 = 0.7.")
    ] = 0.0
    method: Annotated[Literal["", "separation", "percentile", "zscore"], Meta(description='How; "" = zscore.')] = ""
    percentile: Annotated[
        float, Meta(ge=0, le=100, description="percentile: of what unrelated rows reach, (0, 1] or to 100; 0 = 0.95.")
    ] = 0.0


class Distribution(msgspec.Struct, frozen=True):
    """Evidence of unrelated pairs."""

    mean: float
    std: float
    median: float
    p95: float


class Calibrated(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured, and the threshold that follows. pos_*: of questions with the row they were made of."""

    ok: bool = True
    sidecar_persisted: bool = True
    scope: Literal["per_agent"] = "per_agent"
    agent_id: str
    sampled_embeddings: int
    num_pairs: int
    method: Method
    z_factor: float
    percentile: float
    embedding_dim: int
    embedding_model: str
    distribution: Distribution
    null_admit_rate: float
    youden_j: float
    pos_admit_rate: float
    pos_mean: float
    old_threshold: float | None
    new_threshold: float


class SetRecallPrecision(Request, frozen=True, kw_only=True):
    """Whose recall, and how sure it must be; neither precision nor beta = as set for all agents."""

    agent_id: Annotated[str, Meta(max_length=1000, description="Whose recall.")]
    precision: Annotated[
        Literal["", "strict", "balanced", "lenient"], Meta(description="strict says nothing sooner, lenient later.")
    ] = ""
    beta: Annotated[
        float,
        Meta(ge=0, le=100, description="In numbers: 2 = strict, 1 = balanced, 0.5 = lenient; goes before precision."),
    ] = 0.0


class Recalibrated(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the gate goes by the choice already; if not, it will once what is told in `error` has passed."""

    ok: bool
    scope: Literal["per_agent"] = "per_agent"
    new_threshold: float | None = None
    error: str | None = None


class PrecisionSet(msgspec.Struct, frozen=True, kw_only=True):
    """What is chosen now. fused_gate is always null: no fused score is ever compared with a threshold."""

    ok: bool = True
    agent_id: str
    precision: Level
    beta: float
    cleared: bool
    fused_gate: float | None = None
    calibrate: Recalibrated


class GetRecallPrecision(Request, frozen=True, kw_only=True):
    """Whose recall."""

    agent_id: Annotated[str, Meta(max_length=1000, description="Whose recall.")]


class RecallPrecision(msgspec.Struct, frozen=True, kw_only=True):
    """How sure recall must be. threshold: what the gate goes by now, where it is calibrated."""

    ok: bool = True
    agent_id: str
    precision: Level
    beta: float
    overridden: bool
    global_precision: Literal["strict", "balanced", "lenient"]
    global_beta: float
    threshold: float | UnsetType = UNSET


@operation(needs=Permission.WRITE, effect=Effect.CHANGE, idempotent=False)
async def calibrate_threshold(runtime: Runtime, request: CalibrateThreshold) -> Calibrated:
    """Calibrate the gate of recall by the agent's rows. It is done by itself as they grow or the model changes."""
    if 0 < request.sample_size < ROWS_MIN:
        raise Invalid(f"sample_size: give {ROWS_MIN} or more, or 0 for what is set")
    held = await runtime.storage.calibrations.precision(request.agent_id) or Precision(agent=request.agent_id)
    percentile = request.percentile / 100 if request.percentile > 1 else request.percentile
    chosen = msgspec.structs.replace(
        held,
        method=request.method,
        z_factor=request.z_factor,
        percentile=percentile,
        sample_size=request.sample_size,
    )
    await runtime.apply(PutPrecision(chosen))
    old = await _present(runtime, request.agent_id)
    found = await calibrated(runtime.storage, runtime.embedder, runtime.settings, request.agent_id, runtime.span)
    runtime.metrics.calibrations.inc()
    return Calibrated(
        agent_id=request.agent_id,
        sampled_embeddings=found.sampled,
        num_pairs=found.summary.pairs,
        method=found.rule.method,
        z_factor=found.rule.z_factor,
        percentile=found.rule.percentile,
        embedding_dim=found.dimensions,
        embedding_model=found.fingerprint,
        distribution=Distribution(found.summary.mean, found.summary.std, found.summary.median, found.summary.p95),
        null_admit_rate=found.summary.null_admit_rate,
        youden_j=found.summary.youden_j,
        pos_admit_rate=found.summary.own_admit_rate,
        pos_mean=found.summary.own_mean,
        old_threshold=old.summary.threshold if old else None,
        new_threshold=found.summary.threshold,
    )


@operation(needs=Permission.WRITE, effect=Effect.CHANGE)
async def set_recall_precision(runtime: Runtime, request: SetRecallPrecision) -> PrecisionSet:
    """Choose how sure recall must be before it answers an agent. It then says nothing sooner, or later."""
    held = await runtime.storage.calibrations.precision(request.agent_id) or Precision(agent=request.agent_id)
    chosen = msgspec.structs.replace(
        held, beta=request.beta or (BETAS[request.precision] if request.precision else 0.0)
    )
    await runtime.apply(PutPrecision(chosen))
    try:
        found = await calibrated(runtime.storage, runtime.embedder, runtime.settings, request.agent_id, runtime.span)
        runtime.metrics.calibrations.inc()
        done = Recalibrated(ok=True, new_threshold=found.summary.threshold)
    except Problem as problem:
        done = Recalibrated(ok=False, error=problem.text)
    beta = chosen.beta or BETAS[runtime.settings.gate_precision]
    return PrecisionSet(
        agent_id=request.agent_id, precision=_level(beta), beta=beta, cleared=not chosen.beta, calibrate=done
    )


@operation(needs=Permission.READ, effect=Effect.READ)
async def get_recall_precision(runtime: Runtime, request: GetRecallPrecision) -> RecallPrecision:
    """Read how sure recall must be before it answers an agent."""
    chosen = await runtime.storage.calibrations.precision(request.agent_id)
    present = await _present(runtime, request.agent_id)
    everywhere = runtime.settings.gate_precision
    beta = chosen.beta if chosen and chosen.beta else BETAS[everywhere]
    return RecallPrecision(
        agent_id=request.agent_id,
        precision=_level(beta),
        beta=beta,
        overridden=bool(chosen and chosen.beta),
        global_precision=everywhere,
        global_beta=BETAS[everywhere],
        threshold=present.summary.threshold if present else UNSET,
    )


OPERATIONS = (calibrate_threshold, set_recall_precision, get_recall_precision)


def rule_of(settings: Settings, chosen: Precision | None) -> Rule:
    """How an agent's threshold is found: what was chosen for it, and what is set for all where nothing was."""
    chosen = chosen or Precision(agent="")
    return Rule(
        method=msgspec.convert(chosen.method or METHOD, Method),
        beta=chosen.beta or BETAS[settings.gate_precision],
        z_factor=chosen.z_factor or Z_FACTOR,
        percentile=chosen.percentile or PERCENTILE,
        sample_size=chosen.sample_size or settings.gate_sample_rows,
    )


def defaults_of(settings: Settings) -> str:
    """Stands for what is set for all agents."""
    return msgspec.json.encode(rule_of(settings, None)).decode()


async def calibrated(
    storage: Storage, embedder: Embedder, settings: Settings, agent: str, span: Span = NO_SPAN
) -> Calibration:
    """The agent's calibration by its memories and episodes as they are, kept. span: what it is done for.

    Raises Unavailable where there are no vectors of the questions, Conflict where there are too few rows.
    """
    fingerprint = embedder.fingerprint
    if not fingerprint:
        raise Unavailable(f"The gate is not calibrated without vectors: {embedder.reason}")
    chosen = await storage.calibrations.precision(agent)
    rule = rule_of(settings, chosen)
    sample = await storage.calibrations.sample(agent, fingerprint, rule.sample_size)
    asked = questions([row for row, _ in sample.rows])
    if len(sample.rows) < ROWS_MIN or not asked:
        raise Conflict(
            f"The gate is calibrated by {ROWS_MIN} memories and episodes or more that have vectors; this agent has"
            f" {len(sample.rows)}, and until there are more nothing is held back"
        )
    vectors = await embedder.embed(list(asked.values()), "query", EMBED_SECONDS_MAX, span=span)
    found = {place: vector for place, vector in zip(asked, vectors or (), strict=bool(vectors)) if vector}
    if not found or any(each.fingerprint != fingerprint for each in found.values()):
        raise Unavailable(f"The gate is not calibrated without vectors: {embedder.reason}")
    evidence = await asyncio.to_thread(_measured, sample, {place: asked[place] for place in found}, found)
    made = Calibration(
        agent=agent,
        fingerprint=fingerprint,
        corpus=sample.corpus,
        rule_name=f"{f'{chosen.id}:{chosen.revision}' if chosen else ''} {defaults_of(settings)}",
        rule=rule,
        rows=sample.rows_count,
        sampled=len(sample.rows),
        dimensions=len(sample.rows[0][1]) // 4,
        summary=summary(evidence, threshold(evidence, rule, sample.rows_count)),
    )
    await storage.calibrations.put(made)
    return made


def _measured(sample: Sample, asked: dict[int, str], vectors: dict[int, Vector]) -> Measured:
    rows = np.stack([np.frombuffer(values, "<f4") for _, values in sample.rows]).astype(np.float64)
    questions = np.stack([np.frombuffer(each.values, "<f4") for each in vectors.values()]).astype(np.float64)
    return measured([row for row, _ in sample.rows], rows, asked, questions)


def _level(beta: float) -> Level:
    return next((name for name, value in BETAS.items() if value == beta), "custom")


async def _present(runtime: Runtime, agent: str) -> Calibration | None:
    return await runtime.storage.calibrations.get(agent, runtime.embedder.fingerprint)
