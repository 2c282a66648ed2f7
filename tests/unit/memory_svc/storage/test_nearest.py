"""The nearest rows, found through bytes: always those of the whole scan."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.storage import nearest
from memory_svc.storage.nearest import Floats, Matrix, rounded


def unit_rows(seed: int, count: int, dimensions: int, spread: float = 1.0) -> Floats:
    """Unit rows around one direction; the less the spread, the closer they lie together."""
    generator = np.random.default_rng(seed)
    rows = generator.standard_normal(dimensions) + spread * generator.standard_normal((count, dimensions))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def found(rows: Floats, slots: list[int], query: Floats, depth: int) -> list[int]:
    """What the matrix finds among these rows."""
    matrix = Matrix(rows.shape[1])
    for row in rows:
        matrix.add(row)
    return [document for document, _ in matrix.view().best(np.array(slots), np.arange(len(rows)), query, depth)]


def scanned(rows: Floats, slots: list[int], query: Floats, depth: int) -> list[int]:
    """What looking at every one of them in double precision finds."""
    cosines = np.multiply(rows, query, dtype=np.float64).sum(axis=1)
    return sorted(slots, key=lambda slot: (-cosines[slot], slot))[:depth]


@given(
    seed=st.integers(0, 1000),
    dimensions=st.sampled_from([1, 2, 8, 33, 384]),
    spread=st.sampled_from([0.0, 0.001, 0.1, 1.0, 10.0]),
    depth=st.integers(1, 5),
    taken=st.sampled_from([1, 2, 5]),
)
def test_what_is_found_is_what_a_whole_scan_finds(
    seed: int, dimensions: int, spread: float, depth: int, taken: int
) -> None:
    rows = unit_rows(seed, 700, dimensions, spread)
    query = unit_rows(seed + 1, 1, dimensions)[0]
    slots = list(range(0, len(rows), taken))
    assert found(rows, slots, query, depth) == scanned(rows, slots, query, depth)


def test_rows_that_differ_by_less_than_a_step_are_told_apart() -> None:
    query = unit_rows(1, 1, 64)[0]
    rows = np.repeat(query[np.newaxis], 500, axis=0)
    rows[:, 0] += np.linspace(0, 1e-4, 500, dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert found(rows, list(range(500)), query, 10) == scanned(rows, list(range(500)), query, 10)


def test_equal_rows_are_ordered_by_their_document() -> None:
    rows = np.repeat(unit_rows(1, 1, 16), 300, axis=0)
    assert found(rows, list(range(300)), rows[0], 4) == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(20))
def test_no_product_of_bytes_is_further_off_than_is_said(seed: int) -> None:
    rows, query = unit_rows(seed, 200, 48), unit_rows(seed + 1, 1, 48)
    whole, step, lost, reach = rounded(rows)
    (asked,), (asked_step,), (asked_lost,), (length,) = rounded(query)
    rough = (whole.astype(int) @ asked.astype(int)) * step * asked_step
    assert (np.abs(rough - rows @ query[0]) <= lost * length + reach * asked_lost + 1e-6).all()


def test_rows_added_after_a_view_are_not_in_its_way() -> None:
    rows = unit_rows(1, 3000, 8)
    matrix = Matrix(8)
    for row in rows[:1000]:
        matrix.add(row)
    view = matrix.view()
    for row in rows[1000:]:
        matrix.add(row)
    slots, documents = np.arange(1000), np.arange(3000)
    before = [document for document, _ in view.best(slots, documents, rows[0], 5)]
    assert before == scanned(rows, list(slots), rows[0], 5)
    assert [document for document, _ in matrix.view().best(np.arange(3000), documents, rows[0], 5)] == scanned(
        rows, list(range(3000)), rows[0], 5
    )


def test_a_processor_on_which_bytes_are_multiplied_wrongly_gets_the_whole_scan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def saturated(query: np.ndarray, matrix: np.ndarray, metric: str) -> np.ndarray:
        return np.clip(query.astype(int) @ matrix.astype(int).T, -1000, 1000)

    monkeypatch.setattr(nearest.numkong, "cdist", saturated)
    rows, query = unit_rows(1, 500, 32), unit_rows(2, 1, 32)[0]
    assert found(rows, list(range(500)), query, 5) == scanned(rows, list(range(500)), query, 5)


def test_nothing_is_found_among_no_rows() -> None:
    assert found(unit_rows(1, 3, 8), [], unit_rows(2, 1, 8)[0], 5) == []
