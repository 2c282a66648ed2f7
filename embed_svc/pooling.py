"""From one vector a token to one unit vector a text: pure numpy, on arrays padded at either end."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Mask = NDArray[np.integer[Any]]


def mean(hidden: Floats, mask: Mask) -> Floats:
    """Average the real tokens: (texts, tokens, dimensions) and a 0/1 mask (texts, tokens) to (texts, dimensions).

    Sentence-BERT (Reimers and Gurevych 2019, https://arxiv.org/abs/1908.10084).
    """
    weights = mask.astype(np.float32)
    summed = np.einsum("ntd,nt->nd", hidden, weights)
    return np.asarray(summed / weights.sum(axis=1, keepdims=True), np.float32)


def cls(hidden: Floats, mask: Mask) -> Floats:
    """Take each text's first real token; shapes as for `mean`."""
    first = mask.argmax(axis=1)
    chosen: Floats = hidden[np.arange(len(hidden)), first]
    return chosen


def last(hidden: Floats, mask: Mask) -> Floats:
    """Take each text's last real token, which must be the one that closes it; shapes as for `mean`."""
    final = mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1)
    chosen: Floats = hidden[np.arange(len(hidden)), final]
    return chosen


def normalise(vectors: Floats) -> Floats:
    """Scale each row of (texts, dimensions) to length 1.

    Raises ValueError where a row has no direction: zero, infinite or not a number.
    """
    exact = vectors.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise ValueError("a vector of the model has no direction")
    scaled: Floats = (exact / lengths).astype(np.float32)
    return scaled


def shortened(vectors: Floats, dimensions: int) -> Floats:
    """Return the first `dimensions` of each row, scaled to length 1 again; raises ValueError as `normalise` does.

    Matryoshka representations (Kusupati et al. 2022, https://arxiv.org/abs/2205.13147).
    """
    return normalise(vectors[:, :dimensions])


POOLINGS = {"mean": mean, "cls": cls, "last": last}
