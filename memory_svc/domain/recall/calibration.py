"""Calibration of the gate: from some of an agent's rows, what evidence chance gives, and the threshold above it.

Questions are made of the rows' own texts. Against the other rows they show what unrelated ones reach.
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal

import msgspec
import numpy as np

from memory_svc.domain.memory import Episode, Memory
from memory_svc.domain.recall.fusion import Floats
from memory_svc.domain.recall.gate import COVERAGE_WEIGHT
from memory_svc.domain.terms import fields_of, term, words_of
from memory_svc.domain.text import query_words

Method = Literal["separation", "percentile", "zscore"]
ROWS_MIN = 30
QUESTIONS_MAX = 64
QUESTION_CHARS = 120
QUESTION_WORDS_MIN = 3
# The best of more rows reaches further by chance; beyond so many, further than was measured.
REACH_ROWS_MAX = 2000
# With it strict answers 95 % of what is off topic with nothing, and balanced costs less than a point of recall.
BETA_POWER = 1.5
# The spread is that of the lower half, which pairs that are related after all do not widen.
ONE_SPREAD_BELOW = 0.1587
DIGITS = 3
RATE_DIGITS = 4


class Rule(msgspec.Struct, frozen=True):
    """How a threshold follows from what was measured. beta: how much worse a wrong answer is than none."""

    method: Method
    beta: float
    z_factor: float
    percentile: float
    sample_size: int


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold and what was measured. Rates: how many clear it; own: questions with the row they were made of.

    mean, std, median, p95, null_admit_rate: of unrelated pairs. youden_j: the difference of the two rates.
    """

    threshold: float
    pairs: int
    mean: float
    std: float
    median: float
    p95: float
    null_admit_rate: float
    own_mean: float
    own_admit_rate: float
    youden_j: float


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The gate of an agent for a model. corpus, rule_name: stand for the rows and the choices it was made of."""

    agent: str
    fingerprint: str
    corpus: str
    rule_name: str
    rule: Rule
    rows: int
    sampled: int
    dimensions: int
    summary: Summary


class Measured(msgspec.Struct, frozen=True):
    """Evidence of each question: `own` with the row it was made of, `others` with each other one."""

    own: Floats
    others: Floats


def text_of(row: Memory | Episode) -> str:
    """What the row says."""
    return row.content if isinstance(row, Memory) else row.summary


def questions(rows: Sequence[Memory | Episode]) -> dict[int, str]:
    """Questions, by the place of the row whose latter half they are; of rows that say enough."""
    texts = map(text_of, rows)
    found = {place: text[len(text) // 2 :][:QUESTION_CHARS] for place, text in enumerate(texts)}
    telling = [(place, text) for place, text in found.items() if len(query_words(text)) >= QUESTION_WORDS_MIN]
    return dict(telling[:QUESTIONS_MAX])


def measured(
    rows: Sequence[Memory | Episode], vectors: Floats, asked: dict[int, str], asked_vectors: Floats
) -> Measured:
    """What evidence each question gives with each row. vectors: one for each row, or for each question."""
    evidence = asked_vectors @ vectors.T + COVERAGE_WEIGHT * _coverage(rows, list(asked.values()))
    places = np.array(list(asked))
    is_own = np.arange(len(rows)) == places[:, np.newaxis]
    return Measured(evidence[is_own], evidence[~is_own].reshape(len(places), len(rows) - 1))


def threshold(found: Measured, rule: Rule, rows_count: int) -> float:
    """What the evidence of the best row must reach among so many rows."""
    match rule.method:
        case "zscore":
            median, below = np.quantile(found.others, (0.5, ONE_SPREAD_BELOW))
            spread = max(median - below, found.others.std() / 2.0)
            reach = NormalDist().inv_cdf(1.0 - 1.0 / max(2, min(rows_count, REACH_ROWS_MAX)))
            value = median + spread * (reach + rule.z_factor * rule.beta**BETA_POWER)
        case "percentile":
            value = np.quantile(found.others.max(axis=1), max(0.0, 1.0 - (1.0 - rule.percentile) / rule.beta))
        case "separation":
            value = _separating(found.own, found.others.max(axis=1), rule.beta)
    return round(float(value), DIGITS)


def summary(found: Measured, least: float) -> Summary:
    """What was measured, beside that threshold."""
    others, own = found.others, found.own
    median, p95 = np.quantile(others, (0.5, 0.95)).tolist()
    null_rate, own_rate = float((others >= least).mean()), float((own >= least).mean())
    return Summary(
        threshold=least,
        pairs=others.size,
        mean=round(float(others.mean()), DIGITS),
        std=round(float(others.std()), DIGITS),
        median=round(median, DIGITS),
        p95=round(p95, DIGITS),
        null_admit_rate=round(null_rate, RATE_DIGITS),
        own_mean=round(float(own.mean()), DIGITS),
        own_admit_rate=round(own_rate, RATE_DIGITS),
        youden_j=round(own_rate - null_rate, RATE_DIGITS),
    )


def _separating(own: Floats, others: Floats, beta: float) -> float:
    """Where the share of own above it, less beta times that of others, is greatest (Youden's J); of a range its middle.

    Source: Youden, Index for Rating Diagnostic Tests, 1950.
    """
    values = np.unique(np.concatenate([own, others]))
    gains = (own >= values[:, np.newaxis]).mean(axis=1) - beta * (others >= values[:, np.newaxis]).mean(axis=1)
    best = int(np.argmax(gains))
    return float(values[best] + values[max(best - 1, 0)]) / 2.0


def _coverage(rows: Sequence[Memory | Episode], asked: Sequence[str]) -> Floats:
    """The share of what each question's words tell that each row holds: a word tells more, the fewer rows hold it."""
    held = [{term(word) for field in words_of(fields_of(row)) for word in field} for row in rows]
    wanted = [list(dict.fromkeys(map(term, query_words(text)))) for text in asked]
    places = {word: place for place, word in enumerate(sorted({word for words in wanted for word in words}))}
    holds = np.array([[word in each for word in places] for each in held], np.float64)
    counts = holds.sum(axis=0)
    tells = np.log1p((len(rows) - counts + 0.5) / (counts + 0.5))
    asks = np.zeros((len(asked), len(places)))
    for at, words in enumerate(wanted):
        asks[at, [places[word] for word in words]] = 1.0
    shares: Floats = (asks * tells) @ holds.T / (asks @ tells)[:, np.newaxis]
    return shares
