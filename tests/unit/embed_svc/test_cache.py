"""Vectors of exact texts, bounded in bytes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from embed_svc.cache import ENTRY_BYTES, Cache, Known

SIZE = 4 * 8 + ENTRY_BYTES


def known(seed: int) -> Known:
    return Known(vector=np.full(8, seed, np.float32), count=seed, used=seed, end=seed)


def test_a_text_is_found_in_its_role_alone_and_exactly() -> None:
    cache = Cache(10 * SIZE, "1:aa")
    cache.keep("one", "query", known(1))
    found = cache.find("one", "query")
    assert found is not None
    assert (found.vector.tolist(), found.count) == ([1] * 8, 1)
    assert cache.find("one", "document") is None
    assert cache.find("One", "query") is None
    assert cache.find("one ", "query") is None


def test_what_was_asked_for_longest_ago_goes_first() -> None:
    cache = Cache(2 * SIZE, "1:aa")
    cache.keep("a", "query", known(1))
    cache.keep("b", "query", known(2))
    assert cache.find("a", "query")
    cache.keep("c", "query", known(3))
    assert cache.find("b", "query") is None
    assert cache.find("a", "query")
    assert cache.find("c", "query")


@given(st.lists(st.tuples(st.text(max_size=2), st.booleans()), max_size=60), st.integers(0, 5 * SIZE))
def test_the_bound_is_kept_and_the_size_is_told_right(asked: list[tuple[str, bool]], bytes_max: int) -> None:
    cache = Cache(bytes_max, "1:aa")
    for number, (text, looks) in enumerate(asked):
        if looks:
            cache.find(text, "query")
        else:
            cache.keep(text, "query", known(number))
        assert cache.size_bytes <= bytes_max
        assert cache.size_bytes % SIZE == 0


def test_without_bytes_or_a_fingerprint_nothing_is_kept() -> None:
    for cache in (Cache(0, "1:aa"), Cache(10 * SIZE, None)):
        cache.keep("one", "query", known(1))
        assert cache.find("one", "query") is None
        assert cache.size_bytes == 0


def test_a_kept_vector_holds_no_batch_in_memory_and_cannot_be_changed_from_outside() -> None:
    cache = Cache(10 * SIZE, "1:aa")
    batch = np.ones((64, 8), np.float32)
    cache.keep("one", "query", Known(batch[0], 1, 1, 1))
    batch[:] = 7
    found = cache.find("one", "query")
    assert found is not None
    assert found.vector.base is None
    assert found.vector.tolist() == [1] * 8
