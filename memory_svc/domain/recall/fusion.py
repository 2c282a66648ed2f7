"""Fusion of what the arms found into one order. Equal scores go by document number: the order is always the same.

weighted: Bruch, Gai and Ingber, An Analysis of Fusion Functions for Hybrid Retrieval, 2023; weights fitted to talk.
rrf: Cormack, Clarke and Buettcher, Reciprocal Rank Fusion outperforms Condorcet, SIGIR 2009. rsf: min-max, added.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from memory_svc.domain.memory import Ref

# (document number, score) of an arm's rows, best first; a cosine, or a text score over the arm's own best (0 to 1).
Hits = Sequence[tuple[int, float]]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]
Held = NDArray[np.uint64]
Mode = Literal["weighted", "rrf", "rsf", "cascade"]
# About the standard deviation of the cosines of the model on which the weights were chosen.
COSINE = 0.12
# By how much more a cosine counts where all that the query's words tell is pairs of characters, which are no words.
COSINE_UNSPACED = 0.5
# What it counts that a row holds the query's characters in runs; among how many rows they are compared.
CHARACTERS = 1.5
CHARACTERS_ROWS = 10
SPREAD_MIN = 1e-6
# What a piece inside a longer word counts: enough to put a row that nothing else has found before those of chance.
PIECES = 0.05
# A row that holds what is asked for to the letter stands before all that do not: see `Evidence.quoted`.
QUOTED = 4.0
# What it counts that a row holds every name in a query of more than names.
NAMED = 0.3


class Weights(msgspec.Struct, frozen=True):
    """What each kind of evidence counts beside the cosine."""

    fields: float = 0.25
    windows: float = 0.5
    speaker: float = 0.1
    date: float = 0.1


class Evidence(msgspec.Struct, frozen=True):
    """What speaks for each candidate: columns of one length, by ascending document number.

    cosines: NaN = the row has no vector. fields, windows, pieces: 0 to 1. speaker, dated, named: whether the query
    names the one who speaks, a time in which the row lies, and only identifiers and versions that the row holds whole.
    quoted: whether it quotes only phrases that the row holds, or, where it quotes none, is nothing but names that the
    row holds. held: bit n = the row holds the nth word asked for.
    """

    documents: Integers
    cosines: Floats
    fields: Floats
    windows: Floats
    pieces: Floats
    speaker: Flags
    dated: Flags
    named: Flags
    quoted: Flags
    held: Held


class Scores(NamedTuple):
    """The score of each row, by its document number. ties: what puts rows of one score in order, if anything."""

    documents: Integers
    values: Floats
    ties: Floats | None = None


class Fused(msgspec.Struct, frozen=True):
    """A row of the fused list: its score and the arms that found it."""

    ref: Ref
    score: float
    arms: tuple[str, ...]


def weighted(evidence: Evidence, weights: Weights) -> Scores:
    """The weighted sum of each row's evidence.

    Models spread their cosines differently, so a cosine counts by how far it lies from the candidates' mean, in
    standard deviations of which each counts COSINE. A row without a vector counts as one of the mean.
    """
    scores = (
        COSINE * _standardised(evidence.cosines)
        + weights.fields * evidence.fields
        + PIECES * evidence.pieces
        + weights.windows * evidence.windows
        + weights.speaker * evidence.speaker
        + weights.date * evidence.dated
        + NAMED * evidence.named
        + QUOTED * evidence.quoted
    )
    return Scores(evidence.documents, scores)


def with_characters(scores: Scores, evidence: Evidence, characters: Floats, unspaced: float) -> Scores:
    """Weighted sums with what speaks for a row in scripts without blanks. characters: the share it holds in runs.

    unspaced: the share of what the query's words tell that lies in such scripts.
    """
    more = COSINE_UNSPACED * COSINE * _standardised(evidence.cosines) + CHARACTERS * characters
    return scores._replace(values=scores.values + unspaced * more)


def best_places(scores: Scores, count: int) -> Integers:
    """The places of the best scores, so many at most, best first; equal ones by document number."""
    return np.lexsort((scores.documents, -scores.values))[:count]


def _standardised(cosines: Floats) -> Floats:
    known = cosines[~np.isnan(cosines)]
    spread = float(known.std()) if len(known) else 0.0
    return np.nan_to_num((cosines - known.mean()) / spread) if spread > SPREAD_MIN else np.zeros(len(cosines))


def coverage(held: Held, tells: Sequence[float]) -> Floats:
    """Of each row the share of what the query's words tell that it holds; tells: the idf of each word, in order."""
    octets = held.astype("<u8").view(np.uint8).reshape(-1, 8)
    bits = np.unpackbits(octets, axis=1, count=len(tells), bitorder="little")
    covered: Floats = bits @ (np.array(tells, np.float64) / max(sum(tells), 1e-9))
    return covered


def rrf(arms: Mapping[str, Hits], k: int) -> Scores:
    """The sum over its arms of 1 / (k + rank) for each row, ranks from 1."""
    scores: dict[int, float] = {}
    for hits in arms.values():
        for rank, (document, _) in enumerate(hits, start=1):
            scores[document] = scores.get(document, 0.0) + 1.0 / (k + rank)
    return _scores(scores)


def rsf(arms: Mapping[str, Hits]) -> Scores:
    """The sum over its arms of each row's score between the arm's least (0) and best (1); 1 where all are equal."""
    scores: dict[int, float] = {}
    for hits in arms.values():
        values = [score for _, score in hits]
        least, spread = min(values, default=0.0), max(values, default=0.0) - min(values, default=0.0)
        for document, score in hits:
            part = (score - least) / spread if spread else 1.0
            scores[document] = scores.get(document, 0.0) + part
    return _scores(scores)


def cascade(arms: Mapping[str, Hits]) -> Scores:
    """The first arm's rows in its order, then what the second adds, and so on: 1 / position."""
    order = dict.fromkeys(document for document, _ in chain.from_iterable(arms.values()))
    return _scores({document: 1.0 / position for position, document in enumerate(order, start=1)})


def exact_first(scores: Scores, evidence: Evidence, arms_count: int) -> Scores:
    """The scores of so many arms, none of which gives more than 1, with exact rows before all that are not."""
    exact = np.isin(scores.documents, evidence.documents[evidence.quoted])
    return scores._replace(values=scores.values + (arms_count + 1.0) * exact)


def ordered(scores: Scores, arms: Mapping[str, Hits]) -> Iterator[Fused]:
    """These rows, best first, with the arms that found each. Made as they are asked for."""
    holding = {name: dict(hits) for name, hits in arms.items()}
    ties = () if scores.ties is None else (-scores.ties,)
    for place in np.lexsort((scores.documents, *ties, -scores.values)):
        document = int(scores.documents[place])
        found_by = tuple(name for name, found in holding.items() if document in found)
        yield Fused(Ref.of_document(document), float(scores.values[place]), found_by)


def _scores(scores: Mapping[int, float]) -> Scores:
    return Scores(np.array(list(scores), np.int64), np.array(list(scores.values()), np.float64))
