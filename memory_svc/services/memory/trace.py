"""Why a row is where it is in an answer, and why another is not in it."""

import math
from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from memory_svc.domain.memory import Kind, Ref
from memory_svc.domain.recall.fusion import Evidence, Floats, Hits, coverage, ordered
from memory_svc.domain.recall.gate import Outcome, Verdict
from memory_svc.domain.scope import Scope
from memory_svc.services.memory.ranking import Ranking
from memory_svc.storage.interface import Candidates, Storage

DIGITS = 4
SILENCED = "left out: nothing clears the gate"
UNRANKED = "left out: in the scope, but no arm has it among its first rows"
OVER_BUDGET = "left out: beyond max_tokens"
BEHIND_GAP = "left out: behind the largest gap"
NOT_THERE = "left out: there is no such row in this scope"


class ArmPlace(msgspec.Struct, frozen=True):
    """Where an arm has a row: its rank from 1, and its score there."""

    rank: int
    score: float


class TracedRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row: what became of it, its rank and score among the candidates, what speaks for it, which arms have it.

    coverage: the share of what the query's words tell that the row holds. characters: in scripts without blanks, the
    share of the query that it holds in runs, told of the rows that are compared by it. Where they are set: the
    confidence before it was lowered and what made it (decay: what age leaves), and what the row keeps of its score:
    boundary, for lying before the newest episode's end, recent, for having been recalled a moment ago.
    """

    ref: str
    outcome: str = ""
    rank: int | UnsetType = UNSET
    score: float | UnsetType = UNSET
    cosine: float | UnsetType = UNSET
    words: float = 0.0
    window: float = 0.0
    piece: float = 0.0
    coverage: float = 0.0
    characters: float = 0.0
    speaker_named: bool = False
    time_named: bool = False
    quoted: bool = False
    confidence: float | UnsetType = UNSET
    age_hours: float | UnsetType = UNSET
    decay: float | UnsetType = UNSET
    recall_count: float | UnsetType = UNSET
    resolved: float | UnsetType = UNSET
    boundary: float | UnsetType = UNSET
    recent: float | UnsetType = UNSET
    arms: dict[str, ArmPlace] = {}


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer came about. words: what each word of the query tells (its idf). candidates: rows that were ranked.

    gate: what it decided. best, threshold: the greatest evidence (cosine + coverage / 2), and what it had to reach.
    rows: those of the answer, best first, then those that were asked about.
    """

    mode: str
    words: dict[str, float]
    candidates: int
    gate: Outcome
    best: float | UnsetType = UNSET
    threshold: float | UnsetType = UNSET
    rows: list[TracedRow]


def traced(found: Candidates, ranking: Ranking, shown: Sequence[str], asked: Sequence[str], verdict: Verdict) -> Trace:
    """What speaks for the rows of the answer and those asked about, and what became of those that were ranked.

    The outcome of a row that was not ranked is left empty, for `explained`. What is no ref is left out.
    """
    ranks = {fused.ref: (rank, fused.score) for rank, fused in enumerate(ordered(ranking.scores, {}), start=1)}
    places = {name: _places(hits) for name, hits in ranking.arms.items()}
    covered = coverage(found.evidence.held, list(found.tells.values()))
    refs = [ref for text in dict.fromkeys([*shown, *asked]) if (ref := Ref.parse(text))]
    last = max((ranks[ref][0] for ref in refs if str(ref) in shown), default=0)
    rows = [
        msgspec.structs.replace(_row(found.evidence, covered, ref, *ranks[ref], places), **_rounded(ranking.told(ref)))
        if ref in ranks
        else TracedRow(ref=str(ref))
        for ref in refs
    ]
    return Trace(
        mode=ranking.signal,
        words={word: round(tells, DIGITS) for word, tells in found.tells.items()},
        candidates=len(ranks),
        gate=verdict.outcome,
        best=round(verdict.best, DIGITS) if verdict.threshold else UNSET,
        threshold=verdict.threshold or UNSET,
        rows=[
            msgspec.structs.replace(row, outcome=_outcome(row, shown, last, silenced=verdict.silences)) for row in rows
        ],
    )


async def explained(storage: Storage, scope: Scope, trace: Trace) -> Trace:
    """The trace with what became of the rows that were not ranked."""
    unranked = [ref for row in trace.rows if not row.outcome and (ref := Ref.parse(row.ref))]
    there = {Ref(Kind.MEMORY, id) for id in await storage.memories.get(scope, _ids(unranked, Kind.MEMORY))}
    there |= {Ref(Kind.EPISODE, id) for id in await storage.episodes.get(scope, _ids(unranked, Kind.EPISODE))}
    told = {str(ref): UNRANKED if ref in there else NOT_THERE for ref in unranked}
    rows = [msgspec.structs.replace(row, outcome=row.outcome or told[row.ref]) for row in trace.rows]
    return msgspec.structs.replace(trace, rows=rows)


def left_out(trace: Trace, refs: Collection[object], outcome: str) -> Trace:
    """The trace where these rows of the answer were left out of it after all."""
    rows = [msgspec.structs.replace(row, outcome=outcome) if row.ref in refs else row for row in trace.rows]
    return msgspec.structs.replace(trace, rows=rows)


def _outcome(row: TracedRow, shown: Sequence[str], last: int, *, silenced: bool) -> str:
    if row.ref in shown:
        return "shown"
    if row.rank is UNSET:
        return ""
    if silenced:
        return SILENCED
    return "left out: you have it" if row.rank < last else "left out: beyond the limit"


def _ids(refs: Sequence[Ref], kind: Kind) -> list[int]:
    return [ref.id for ref in refs if ref.kind is kind]


def _row(  # noqa: PLR0913, PLR0917 - one argument a source
    evidence: Evidence, covered: Floats, ref: Ref, rank: int, score: float, arms: Mapping[str, Mapping[int, ArmPlace]]
) -> TracedRow:
    at = int(evidence.documents.searchsorted(ref.document))
    cosine = float(evidence.cosines[at])
    return TracedRow(
        ref=str(ref),
        rank=rank,
        score=round(score, DIGITS),
        cosine=UNSET if math.isnan(cosine) else round(cosine, DIGITS),
        words=round(float(evidence.fields[at]), DIGITS),
        window=round(float(evidence.windows[at]), DIGITS),
        piece=round(float(evidence.pieces[at]), DIGITS),
        coverage=round(float(covered[at]), DIGITS),
        speaker_named=bool(evidence.speaker[at]),
        time_named=bool(evidence.dated[at]),
        quoted=bool(evidence.quoted[at]),
        arms={name: places[ref.document] for name, places in arms.items() if ref.document in places},
    )


def _rounded(told: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, DIGITS) for name, value in told.items() if not math.isnan(value)}


def _places(hits: Hits) -> dict[int, ArmPlace]:
    return {document: ArmPlace(rank, round(score, DIGITS)) for rank, (document, score) in enumerate(hits, start=1)}
