"""How good a ranking is: measures of one question, of many, and of the difference between two systems.

A ranking is names of rows, best first; each name stands once. All measures lie between 0 and 1.
"""

import math
import random
from collections.abc import Collection, Mapping, Sequence

import msgspec

RESAMPLES = 2_000
SEED = 20_252
CONFIDENCE = 0.95


class Interval(msgspec.Struct, frozen=True):
    """A mean, and between which values it lies with CONFIDENCE."""

    mean: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether zero lies outside."""
        return self.low > 0 or self.high < 0


class Abstention(msgspec.Struct, frozen=True, kw_only=True):
    """Which questions were answered: an unanswerable one should not be, an answerable one should."""

    unanswerable: int
    silent: int
    answerable: int
    answered: int

    @property
    def silent_share(self) -> float | None:
        """Share of the unanswerable questions that were answered with nothing; None where there is none."""
        return self.silent / self.unanswerable if self.unanswerable else None

    @property
    def answered_share(self) -> float | None:
        """Share of the answerable questions that were answered with anything; None where there is none."""
        return self.answered / self.answerable if self.answerable else None


class Moved(msgspec.Struct, frozen=True):
    """A relevant row and its rank in two rankings, from 1; None = it is not there."""

    row: str
    before: int | None
    after: int | None


def recall_at(ranked: Sequence[str], relevant: Collection[str], k: int) -> float:
    """The share of the relevant rows that stand among the first k. There must be a relevant row."""
    return len(set(ranked[:k]) & set(relevant)) / len(set(relevant))


def reciprocal_rank(ranked: Sequence[str], relevant: Collection[str]) -> float:
    """1 over the rank of the first relevant row, 0 where there is none.

    Source: Voorhees, The TREC-8 Question Answering Track Report, 1999.
    """
    return next((1 / rank for rank, row in enumerate(ranked, start=1) if row in relevant), 0.0)


def ndcg_at(ranked: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Normalised discounted cumulative gain of the first k rows, each relevant or not. There must be a relevant row.

    Source: Järvelin and Kekäläinen, Cumulated Gain-Based Evaluation of IR Techniques, TOIS 20(4), 2002, with the
    discount log2(rank + 1).
    """
    gained = sum(_discount(rank) for rank, row in enumerate(ranked[:k], start=1) if row in relevant)
    best = sum(_discount(rank) for rank in range(1, min(len(set(relevant)), k) + 1))
    return gained / best


def measures(ranked: Sequence[str], relevant: Collection[str], limit: int) -> dict[str, float]:
    """Every measure of one answerable question that was asked for `limit` rows, by the name it has in tables."""
    cuts = sorted({min(5, limit), limit})
    return {
        **{f"R@{k}": recall_at(ranked, relevant, k) for k in cuts},
        "MRR": reciprocal_rank(ranked[:limit], relevant),
        f"nDCG@{limit}": ndcg_at(ranked, relevant, limit),
    }


def means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each measure over questions; {} over none."""
    return {name: math.fsum(one[name] for one in found) / len(found) for name in found[0]} if found else {}


def abstention(questions: Sequence[tuple[bool, bool]]) -> Abstention:
    """The counts of questions, each as (is answerable, was answered)."""
    return Abstention(
        unanswerable=sum(not answerable for answerable, _ in questions),
        silent=sum(not answerable and not answered for answerable, answered in questions),
        answerable=sum(answerable for answerable, _ in questions),
        answered=sum(answerable and answered for answerable, answered in questions),
    )


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which that share of the values lies, between two of them in proportion. There must be a value.

    Source: Hyndman and Fan, Sample Quantiles in Statistical Packages, 1996, definition 7.
    """
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    between = ordered[below] + (ordered[above] - ordered[below]) * (place - below)
    return min(between, ordered[above])


def paired_bootstrap(
    first: Sequence[float], second: Sequence[float], resamples: int = RESAMPLES, seed: int = SEED
) -> Interval:
    """How much more `first` is than `second` on the same questions, in order: the percentile bootstrap of the mean.

    Questions are drawn with replacement, both values of one together. The same seed gives the same interval.
    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13; for rankings Sakai, Evaluating
    Evaluation Metrics based on the Bootstrap, SIGIR 2006.
    """
    gains = [one - other for one, other in zip(first, second, strict=True)]
    if not gains:
        return Interval(0.0, 0.0, 0.0)
    drawn = random.Random(seed)
    found = [sum(drawn.choices(gains, k=len(gains))) / len(gains) for _ in range(resamples)]
    tail = (1 - CONFIDENCE) / 2
    return Interval(math.fsum(gains) / len(gains), quantile(found, tail), quantile(found, 1 - tail))


def moved(before: Sequence[str], after: Sequence[str], relevant: Collection[str]) -> list[Moved]:
    """The relevant rows whose rank is another one, in the order of their names."""
    ranks = [{row: rank for rank, row in enumerate(ranked, start=1)} for ranked in (before, after)]
    found = [Moved(row, ranks[0].get(row), ranks[1].get(row)) for row in sorted(set(relevant))]
    return [each for each in found if each.before != each.after]


def _discount(rank: int) -> float:
    return 1 / math.log2(rank + 1)
