"""The gate: whether anything that was found speaks to the query. On absolute evidence, never on a fused score.

The evidence of a row is its cosine, and half the share of what the query's words tell that it holds.
"""

from collections.abc import Collection, Mapping
from typing import Literal

import msgspec
import numpy as np

from memory_svc.domain.recall.fusion import Evidence, Floats, coverage
from memory_svc.domain.terms import term

COVERAGE_WEIGHT = 0.5
# A row that waits for its vector has no cosine yet: it passes by its words alone, if it holds so much of the query.
COVERAGE_ALONE = 0.5
Outcome = Literal["passed", "exact", "waiting", "nothing_clears", "not_calibrated", "no_vectors", "deep", "off"]


class Verdict(msgspec.Struct, frozen=True):
    """What the gate decides. best: the evidence of the row that has most. threshold: what it had to reach."""

    outcome: Outcome
    best: float = 0.0
    threshold: float = 0.0

    @property
    def silences(self) -> bool:
        """Whether nothing is answered."""
        return self.outcome == "nothing_clears"


def verdict(
    evidence: Evidence, tells: Mapping[str, float], threshold: float | None, identifiers: Collection[str]
) -> Verdict:
    """Whether the rows pass: the best of them clears the threshold, or one holds an identifier of the query."""
    if threshold is None:
        return Verdict("not_calibrated")
    if identifiers and (evidence.held & _bits_of(tells, identifiers)).any():
        return Verdict("exact")
    shares = coverage(evidence.held, list(tells.values()))
    best = _best(evidence, shares)
    if best >= threshold:
        return Verdict("passed", best, threshold)
    waits = np.isnan(evidence.cosines) & (shares >= COVERAGE_ALONE)
    return Verdict("waiting" if waits.any() else "nothing_clears", best, threshold)


def strongest(evidence: Evidence, tells: Mapping[str, float]) -> float:
    """The evidence of the row that has most."""
    return _best(evidence, coverage(evidence.held, list(tells.values())))


def _best(evidence: Evidence, shares: Floats) -> float:
    return float(np.fmax.reduce(evidence.cosines + COVERAGE_WEIGHT * shares, initial=0.0))


def _bits_of(tells: Mapping[str, float], identifiers: Collection[str]) -> np.uint64:
    wanted = {term(each) for each in identifiers}
    return np.uint64(sum(1 << place for place, word in enumerate(tells) if term(word) in wanted))
