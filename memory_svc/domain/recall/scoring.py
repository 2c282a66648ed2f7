"""Scores by time and use: confidence, what lowers a row, and where a list breaks off. All off unless they are set.

Instants are hours since 1970, NaN = none. Nothing here is seen by the gate, which goes by absolute evidence alone.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np

from memory_svc.domain.recall.fusion import Flags, Floats, Integers


class Decay(msgspec.Struct, frozen=True):
    """How confidence falls with age: by `rate` an hour, slower where the memories span more than `reference_hours`.

    Never below the floor, which `boost` raises as a row is recalled, to the ceiling at most; it fades by `boost_fade`
    an hour since.
    """

    rate: float = 0.005
    floor: float = 0.3
    ceiling: float = 0.5
    span_hours_min: float = 24.0
    reference_hours: float = 168.0
    boost: float = 0.02
    boost_fade: float = 0.002


class Ages(msgspec.Struct, frozen=True):
    """How old each row is, how often it was recalled, and how long ago (NaN = never); span: of the scope. In hours."""

    ages: Floats
    counts: Integers
    since_recall: Floats
    span: float


def nearness(cosines: Floats, shares: Floats, floor: float, ceiling: float) -> Floats:
    """Each cosine between floor (0) and ceiling (1). A row without one counts by the share of the query it holds."""
    between = np.clip((cosines - floor) / max(ceiling - floor, 1e-9), 0.0, 1.0)
    return np.where(np.isnan(cosines), shares, between)


def decays(rows: Ages, decay: Decay) -> Floats:
    """What the age of each row leaves of it, 0 to 1. One whose age is not known counts as half the span old."""
    ages = np.maximum(np.where(np.isnan(rows.ages), rows.span / 2, rows.ages), 0.0)
    slower = max(1.0, max(decay.span_hours_min, rows.span) / decay.reference_hours)
    faded = 1.0 + decay.boost_fade * np.maximum(np.nan_to_num(rows.since_recall), 0.0)
    floors = np.minimum(decay.ceiling, decay.floor + decay.boost * np.log1p(rows.counts) / faded)
    left: Floats = np.clip(np.maximum(floors, 1.0 / (1.0 + ages * decay.rate / slower)), 0.0, 1.0)
    return left


def confidence(near: Floats, decayed: Floats, resolved: Flags, resolved_factor: float) -> Floats:
    """The geometric mean of nearness and decay; a resolved episode counts less."""
    return np.sqrt(near * decayed) * np.where(resolved, resolved_factor, 1.0)


def boundary_factors(said: Floats, boundary: float, rate: float, floor: float) -> Floats:
    """What each row keeps for lying before the boundary: less by `rate` an hour, never below the floor.

    1 = it lies at or after the boundary, or one of the two is not known.
    """
    before = np.nan_to_num(boundary - said, nan=0.0)
    return np.where(before > 0.0, np.maximum(floor, np.exp(-rate * np.maximum(before, 0.0))), 1.0)


def recent_factors(since_recall: Floats, hours: float, factor: float) -> Floats:
    """What each row keeps for having been recalled within so many hours; NaN = it never was."""
    return np.where(np.nan_to_num(since_recall, nan=math.inf) < hours, factor, 1.0)


def lowered(values: Floats, factors: Floats) -> Floats:
    """The scores with each row's factor. One of 0 or less, for which nothing speaks, stays: none is ever raised."""
    return np.where(values > 0.0, values * factors, values)


def kept_before_gap(values: Sequence[float], gap_min: float, rows_min: int) -> int:
    """How many rows, best first, stand before the largest gap; all where it is less than so much of the best score.

    Only for scores that are likeness (confidence, cosine): those of ranks have gaps that mean nothing.
    """
    if len(values) < max(rows_min, 2) or values[0] <= 0.0:
        return len(values)
    gaps = [before - after for before, after in pairwise(values)]
    largest = max(gaps)
    return gaps.index(largest) + 1 if largest >= gap_min * values[0] else len(values)
