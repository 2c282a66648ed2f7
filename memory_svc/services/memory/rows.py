"""The rows of an answer, out of candidates that are in order: read, as they are shown, without what the caller has."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec
from msgspec import UNSET, UnsetType

from memory_svc.domain.blocks import Span
from memory_svc.domain.memory import Episode, Memory, Ref
from memory_svc.domain.recall import fusion
from memory_svc.domain.recall.exclude import Excluded
from memory_svc.domain.recall.fusion import Fused
from memory_svc.services.memory.ranking import Ranking
from memory_svc.services.memory.shown import Confidence, MatchReason, Shown, complete, shown_part, whole
from memory_svc.storage.interface import Candidates

SCORE_DIGITS = 4
HOURS_DIGITS = 1
Read = tuple[Memory | Episode, Shown]


def read(found: Candidates, ranking: Ranking, page: int, *, is_traced: bool, is_complete: bool) -> Iterator[Read]:
    """The rows, best first, as they are in the store and as they are shown; read by the page as they are asked for."""
    show = complete if is_complete else whole
    order = fusion.ordered(ranking.scores, ranking.arms if is_traced else {})
    while batch := list(islice(order, page)):
        rows = found.rows([fused.ref for fused in batch])
        for fused in batch:
            row = rows.get(fused.ref)
            if isinstance(row, Memory | Episode):
                shown = show(row)
                if ranking.signal == "confidence":
                    confidence = _confidence(fused, ranking, _cosine(found, fused))
                    shown = msgspec.structs.replace(shown, confidence=confidence)
                if is_traced:
                    reason = _reason(fused, ranking, _cosine(found, fused))
                    shown = msgspec.structs.replace(shown, match_reason=reason)
                yield row, shown


def kept(rows: Iterable[Read], limit: int, contents: Sequence[str]) -> list[Shown]:
    """The rows the caller does not have yet, best first, so many at most."""
    excluded = Excluded(contents)
    others = (
        shown for row, shown in rows if not excluded.holds(row.content if isinstance(row, Memory) else row.summary)
    )
    return list(islice(others, limit))


def refs(rows: Iterable[Shown]) -> list[Ref]:
    """The refs of rows that have one."""
    return [ref for row in rows if row.ref is not UNSET and (ref := Ref.parse(row.ref))]


def parts(found: Candidates, rows: Iterable[Shown]) -> dict[str, Span]:
    """Of those of these rows that were found by the meaning of a part, where it lies in what is shown."""
    asked = refs(rows)
    spans = found.spans(asked) if asked else {}
    return {str(ref): shown_part(ref, span) for ref, span in spans.items()}


def _reason(fused: Fused, ranking: Ranking, cosine: float | UnsetType) -> MatchReason:
    score = round(fused.score, SCORE_DIGITS)
    return MatchReason(
        signal=ranking.signal,
        score=score,
        cosine=cosine,
        rrf=score if ranking.signal == "rrf" else UNSET,
        rsf=score if ranking.signal == "rsf" else UNSET,
        arms=list(fused.arms),
    )


def _confidence(fused: Fused, ranking: Ranking, cosine: float | UnsetType) -> Confidence:
    told = ranking.told(fused.ref)
    return Confidence(
        score=round(fused.score, SCORE_DIGITS),
        cosine=cosine,
        age_hours=_rounded(told["age_hours"], HOURS_DIGITS),
        resolved=True if told["resolved"] else UNSET,
    )


def _cosine(found: Candidates, fused: Fused) -> float | UnsetType:
    place = int(found.evidence.documents.searchsorted(fused.ref.document))
    return _rounded(float(found.evidence.cosines[place]), SCORE_DIGITS)


def _rounded(value: float, digits: int) -> float | UnsetType:
    return UNSET if math.isnan(value) else round(value, digits)
