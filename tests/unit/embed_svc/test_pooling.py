"""From token vectors to one unit vector a text, padded at either end."""

import numpy as np
import pytest

from embed_svc import pooling
from embed_svc.pooling import Floats

HIDDEN = np.array(
    [
        [[1, 0], [3, 2], [9, 9]],
        [[2, 4], [4, 6], [6, 8]],
    ],
    np.float32,
)
RIGHT = np.array([[1, 1, 0], [1, 1, 1]])


def left_padded(hidden: Floats) -> tuple[Floats, np.ndarray]:
    """The same texts with their padding in front."""
    return np.stack([np.roll(hidden[0], 1, axis=0), hidden[1]]), np.array([[0, 1, 1], [1, 1, 1]])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("mean", [[2, 1], [4, 6]]), ("cls", [[1, 0], [2, 4]]), ("last", [[3, 2], [6, 8]])],
)
@pytest.mark.parametrize("left", [False, True], ids=["padded right", "padded left"])
def test_padding_never_enters_a_vector(name: str, expected: list[list[float]], left: bool) -> None:
    hidden, mask = left_padded(HIDDEN) if left else (HIDDEN, RIGHT)
    pooled = pooling.POOLINGS[name](hidden, mask)
    assert pooled.dtype == np.float32
    np.testing.assert_allclose(pooled, expected)


def test_normalised_vectors_have_length_one_and_keep_their_direction() -> None:
    vectors = np.array([[3, 4], [1e-20, 0], [3e37, 3e37]], np.float32)
    unit = pooling.normalise(vectors)
    assert unit.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(unit[0], [0.6, 0.8])


@pytest.mark.parametrize("bad", [[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_a_vector_without_direction_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="no direction"):
        pooling.normalise(np.array([[1, 0], bad], np.float32))
