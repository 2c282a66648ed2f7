"""Exact nearest rows of a matrix of unit vectors, most of them looked at in eight bits a value.

The product of two rounded vectors is off by no more than the length of what was rounded away, so that every row which
may be among the best is looked at in full: the answer is that of the whole scan, at a quarter of the reading.
"""

from collections.abc import Callable

import numkong
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Rounded = NDArray[np.int8]
Slots = NDArray[np.intp]

ROOM_START = 1024
# Rows that are more than one in so many are read with all that lie between.
GATHER_BELOW = 3
# So many rows stay in the processor's cache between being gathered and being read.
GATHERED_ROWS = 256
# So many stay there in double precision.
DOUBLED_ROWS = 64
# What single precision may add up wrongly over a few thousand products of unit vectors.
SINGLE_ERROR = 1e-5
LEVELS = 127
# With fewer rows than so many times those asked for, most would be looked at in full anyway.
ROUNDED_FROM = 20


class Matrix:
    """Rows of float32 and L2-norm 1; rows are only ever added.

    A reader may search what `view` gave while rows are added.
    """

    def __init__(self, dimensions: int) -> None:
        self._rows: Floats = np.empty((ROOM_START, dimensions), np.float32)
        self._rounded = np.empty((ROOM_START, dimensions), np.int8)
        self._steps, self._lost, self._reach = (np.zeros(ROOM_START, np.float32) for _ in range(3))
        self._count = self._rounded_count = 0

    def add(self, row: Floats) -> None:
        """Add a row; its number is how many there were."""
        if self._count == len(self._rows):
            self._grow()
        self._rows[self._count] = row
        self._count += 1

    def view(self) -> "View":
        """What a search reads: the rows there are now."""
        for start in range(self._rounded_count, self._count, GATHERED_ROWS):
            part = slice(start, min(start + GATHERED_ROWS, self._count))
            self._rounded[part], self._steps[part], self._lost[part], self._reach[part] = rounded(self._rows[part])
        self._rounded_count = self._count
        return View(self._rows, self._rounded, self._steps, self._lost, self._reach)

    def _grow(self) -> None:
        """Twice the room, in new arrays: a reader keeps those it holds."""
        self._rows, self._rounded = (
            np.concatenate([each, np.empty_like(each)]) for each in (self._rows, self._rounded)
        )
        self._steps, self._lost, self._reach = (
            np.concatenate([each, np.zeros_like(each)]) for each in (self._steps, self._lost, self._reach)
        )


class View:
    """The rows of a matrix at one moment.

    steps: of each row, the value of one of the 127 levels. lost: the length of what rounding took. reach: the length of
    what is left and of what it took.
    """

    def __init__(
        self,
        rows: Floats,
        rounded: Rounded,
        steps: Floats,
        lost: Floats,
        reach: Floats,
    ) -> None:
        self._rows, self._rounded = rows, rounded
        self._steps, self._lost, self._reach = steps, lost, reach

    def best(self, slots: Slots, documents: NDArray[np.int64], query: Floats, depth: int) -> list[tuple[int, float]]:
        """(document, cosine) of the best of these rows, at most `depth`, best first, ties by document.

        slots: row numbers in ascending order. documents: of each row of the matrix. query: float32, L2-norm 1.
        """
        if not len(slots) or depth <= 0:
            return []
        if len(slots) > depth:
            slots, products = self._promising(slots, query, depth)
            slots = slots[products >= _cut(products, depth) - SINGLE_ERROR]
        cosines = self.cosines(slots, query)
        found = documents[slots]
        order = np.lexsort((found, -cosines))[:depth]
        return list(zip(found[order].tolist(), cosines[order].tolist(), strict=True))

    def cosines(self, slots: Slots, query: Floats) -> NDArray[np.float64]:
        """The cosine of each of these rows, in double precision and each row by itself.

        The rounding of a product depends on how it is made; the answer must not depend on which rows are asked for.
        """
        double = query.astype(np.float64)
        parts = (slots[at : at + DOUBLED_ROWS] for at in range(0, len(slots), DOUBLED_ROWS))
        products = [np.vecdot(self._rows[part].astype(np.float64), double) for part in parts]
        return np.concatenate([np.zeros(0), *products])

    def _promising(self, slots: Slots, query: Floats, depth: int) -> tuple[Slots, Floats]:
        """Those that may be among the best `depth`, and some more, with their products in single precision."""
        if len(slots) < ROUNDED_FROM * depth:
            return slots, self._exact(slots, query)
        (whole,), (step,), (lost,), (length,) = rounded(query[np.newaxis])
        rough = _products(slots, lambda part: _product_of_bytes(self._rounded[part], whole))
        steps, losses, reaches = (_of(column, slots) for column in (self._steps, self._lost, self._reach))
        rough *= steps * step
        error = losses * length + reaches * lost + SINGLE_ERROR
        kept = np.flatnonzero(rough + error >= _cut(rough - error, depth))
        products = self._exact(slots[kept], query)
        if (np.abs(products - rough[kept]) > error[kept]).any():
            # The library multiplies bytes wrongly on this processor.
            return slots, self._exact(slots, query)
        return slots[kept], products

    def _exact(self, slots: Slots, query: Floats) -> Floats:
        return _products(slots, lambda part: np.vecdot(self._rows[part], query))


def rounded(rows: Floats) -> tuple[Rounded, Floats, Floats, Floats]:
    """Rows in steps of their own: (steps, value of a step, length of what was lost, greatest length) of each."""
    step = np.abs(rows).max(axis=1, initial=0.0) / LEVELS
    step[step == 0.0] = 1.0
    whole = np.rint(rows / step[:, np.newaxis])
    lost = _lengths(rows - whole * step[:, np.newaxis])
    return whole.astype(np.int8), step, lost, _lengths(rows) + lost


def _lengths(rows: Floats) -> Floats:
    lengths: Floats = np.sqrt(np.vecdot(rows, rows))
    return lengths


def _cut(scores: Floats, depth: int) -> float:
    """The score of the last of the best `depth`; where there are fewer, the least."""
    at = max(len(scores) - depth, 0)
    return float(np.partition(scores, at)[at])


def _of(column: Floats, slots: Slots) -> Floats:
    """What a column has of these rows, as it lies there where they are all that it begins with."""
    return column[: len(slots)] if slots[-1] + 1 == len(slots) else column[slots]


def _products(slots: Slots, product: Callable[[Slots | slice], Floats]) -> Floats:
    """What `product` gives for these rows, in this thread.

    A product of matrix and vector wakes the threads of the linear algebra library, which wait for more by spinning.
    """
    if len(slots) * GATHER_BELOW >= slots[-1] + 1:
        return _of(product(slice(0, slots[-1] + 1)), slots)
    return np.concatenate([product(slots[at : at + GATHERED_ROWS]) for at in range(0, len(slots), GATHERED_ROWS)])


def _product_of_bytes(matrix: Rounded, query: Rounded) -> Floats:
    products: Floats = np.asarray(numkong.cdist(query[np.newaxis], matrix, "dot"))[0].astype(np.float32)
    return products
