"""Fusion and exclusion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.domain.memory import Kind, Ref
from memory_svc.domain.recall.exclude import Excluded
from memory_svc.domain.recall.fusion import rrf

DOCUMENTS = st.lists(st.integers(1, 40).map(lambda id: Ref(Kind.MEMORY, id).document), unique=True)


def mem(id: int) -> int:
    """A memory's document number."""
    return Ref(Kind.MEMORY, id).document


def test_a_row_in_two_arms_goes_before_one_that_leads_a_single_arm() -> None:
    fused = list(rrf({"vectors": [mem(1), mem(2)], "words": [mem(3), mem(2)]}, 60))
    assert [row.ref.id for row in fused] == [2, 1, 3]
    assert fused[0].score == pytest.approx(2 / 62)
    assert fused[0].arms == ("vectors", "words")


@given(st.dictionaries(st.sampled_from(["vectors", "words", "episodes"]), DOCUMENTS))
def test_fusion_keeps_every_row_once_and_is_ordered(arms: dict[str, list[int]]) -> None:
    fused = list(rrf(arms, 60))
    found = [row.ref.document for row in fused]
    assert sorted(found) == sorted({document for documents in arms.values() for document in documents})
    keys = [(-row.score, row.ref.document) for row in fused]
    assert keys == sorted(keys)


@given(DOCUMENTS)
def test_one_arm_alone_keeps_its_order(documents: list[int]) -> None:
    assert [row.ref.document for row in rrf({"words": documents}, 60)] == documents


@pytest.mark.parametrize(
    ("content", "entry", "excluded"),
    [
        ("kestrel", " KESTREL ", True),
        ("kestrel", "kestre", False),
        ("x" * 40, "x" * 31, False),
        ("x" * 40, "x" * 32, True),
        ("x" * 40, "x" * 60, True),
        ("x" * 31, "x" * 60, False),
        ("anything", "", False),
        ("x" * 40, "x" * 32 + "y", False),
    ],
)
def test_a_known_content_is_excluded_by_itself_or_a_long_beginning(content: str, entry: str, excluded: bool) -> None:
    assert Excluded([entry]).holds(content) is excluded
