"""BM25 over fields and over windows, from postings: the arithmetic alone.

Source: Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009 (fields weigh the count of
a term before it saturates). The idf is the one that never falls below zero, log(1 + (N - n + 0.5) / (n + 0.5)).
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
K1 = 1.2
B_FIELDS = 0.3
B_WINDOWS = 0.75
SPREAD_MAX = 64


class Postings(NamedTuple):
    """One entry for each term and row that holds it.

    weights: its count over all fields; bodies: in text and extras; speakers: among the names of who speaks.
    """

    terms: Integers
    ids: Integers
    weights: Floats
    bodies: Floats
    speakers: Floats

    def frequencies(self, count: int) -> Integers:
        """How many rows hold each of so many terms."""
        return np.bincount(self.terms, minlength=count)

    def slices(self, count: int) -> list[slice]:
        """Where the entries of each of so many terms stand."""
        ends = np.searchsorted(self.terms, np.arange(count + 1)).tolist()
        return [slice(begin, end) for begin, end in itertools.pairwise(ends)]


def gathered(terms: Integers, ids: Integers, *counts: Floats) -> Postings:
    """Postings from one entry for each place of a term, those of a row and term side by side."""
    starts = np.flatnonzero(_changes(ids) | _changes(terms))
    if not len(starts):
        return Postings(terms, ids, *counts)
    return Postings(terms[starts], ids[starts], *(np.add.reduceat(each, starts) for each in counts))


def idf(frequencies: Integers | int, rows: int) -> Floats:
    """How much each term tells, by how many of the rows hold it."""
    return np.log1p((rows - frequencies + 0.5) / (frequencies + 0.5))


def weight(frequency: int, rows: int, is_pair: bool) -> float:
    """What a term counts: its idf, and of a pair of characters the square of it over the largest there is.

    A pair is a piece of a word, and those of the words that join others (です, した) are in too many rows to tell
    anything; the square does for them what a list of words to leave out does for words between blanks.
    """
    told = math.log1p((rows - frequency + 0.5) / (frequency + 0.5))
    return told * told / math.log1p((rows - 0.5) / 1.5) if is_pair else told


def field_scores(
    postings: Postings, places: Integers, lengths: Integers, length_mean: float, weights: Floats
) -> Floats:
    """The score of each row. places: of each posting's row among the rows, which are as many as the lengths."""
    norms = K1 * (1.0 - B_FIELDS + B_FIELDS * lengths / max(length_mean, 1.0))
    parts = weights[postings.terms] * (K1 + 1.0) * postings.weights / (postings.weights + norms[places])
    return np.bincount(places, parts, len(lengths)).astype(np.float64)


def window_scores(postings: Postings, places: Integers, norms: Floats, pairs: Sequence[bool], rows: int) -> Floats:
    """The score of each window.

    places: where the window of each posting's row stands among the windows, which are as many as the norms; then those
    of the rows before and after it, where there are any. Behind the end = there is none. pairs: see `weight`.
    """
    count = len(norms)
    scores = np.zeros(count)
    for inside, is_pair in zip(postings.slices(len(pairs)), pairs, strict=True):
        bodies = postings.bodies[inside] if len(places) == 1 else np.tile(postings.bodies[inside], len(places))
        found = np.bincount(places[:, inside].ravel(), bodies, count + 1)[:count]
        told = weight(int(np.count_nonzero(found)), rows, is_pair)
        scores += told * (K1 + 1.0) * found / (found + norms)
    return scores


def window_norms(lengths: Integers, length_mean: float) -> Floats:
    """What a window's length adds to the count of a term."""
    return (K1 * (1.0 - B_WINDOWS + B_WINDOWS * lengths / max(length_mean, 1.0))).astype(np.float64)


def distinct(ids: Integers) -> Integers:
    """These numbers in ascending order, each once."""
    ordered = np.sort(ids)
    return np.asarray(ordered[_changes(ordered)])


def places_in(universe: Integers, ids: Integers) -> Integers:
    """Where each of these numbers, all of which are in the universe, stands in it. The universe is in order."""
    if not len(universe):
        return np.zeros(0, np.int64)
    first, spread = int(universe[0]), int(universe[-1] - universe[0]) + 1
    if spread > SPREAD_MAX * len(universe):
        return np.searchsorted(universe, ids)
    table = np.empty(spread, np.int32)
    table[universe - first] = np.arange(len(universe), dtype=np.int32)
    return table[ids - first].astype(np.int64)


def places_found(universe: Integers, ids: Integers) -> Integers:
    """Where those of these numbers stand that are in the universe, which is in order."""
    places = universe.searchsorted(ids)
    inside = places < len(universe)
    places = places[inside]
    return np.asarray(places[universe[places] == ids[inside]])


def best(scores: Floats, count: int) -> Integers:
    """The places of the best scores above zero, best first; equal ones by place, also at the cut."""
    if len(scores) > count:
        least = np.partition(scores, -count)[-count]
        places = np.flatnonzero((scores >= least) & (scores > 0.0))
    else:
        places = np.flatnonzero(scores > 0.0)
    return places[np.argsort(-scores[places], kind="stable")][:count]


def _changes(values: Integers) -> NDArray[np.bool_]:
    """Where a value differs from the one before it; the first one does."""
    found = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=found[1:])
    return found
