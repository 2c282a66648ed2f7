"""Fusion of ranked lists into one.

Reciprocal rank fusion: Cormack, Clarke and Büttcher, Reciprocal Rank Fusion outperforms Condorcet and individual Rank
Learning Methods, SIGIR 2009.
"""

from collections.abc import Mapping, Sequence

import msgspec

from memory_svc.domain.memory import Ref


class Fused(msgspec.Struct, frozen=True):
    """A row of the fused list: its score and the arms that found it."""

    ref: Ref
    score: float
    arms: tuple[str, ...]


def rrf(arms: Mapping[str, Sequence[Ref]], k: int) -> list[Fused]:
    """The rows of all arms, best first: a row's score is the sum over its arms of 1 / (k + rank), ranks from 1.

    Equal scores are ordered by document number, so that the same arms always give the same list.
    """
    scores: dict[Ref, float] = {}
    found_by: dict[Ref, list[str]] = {}
    for name, refs in arms.items():
        for rank, ref in enumerate(refs, start=1):
            scores[ref] = scores.get(ref, 0.0) + 1.0 / (k + rank)
            found_by.setdefault(ref, []).append(name)
    ordered = sorted((-score, ref.document, ref) for ref, score in scores.items())
    return [Fused(ref, -score, tuple(found_by[ref])) for score, _, ref in ordered]
