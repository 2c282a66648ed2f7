"""Fusion and exclusion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.domain.memory import Kind, Ref
from memory_svc.domain.recall.exclude import Excluded
from memory_svc.domain.recall.fusion import rrf

REFS = st.lists(st.builds(Ref, st.sampled_from([Kind.MEMORY, Kind.EPISODE]), st.integers(1, 20)), unique=True)


def mem(id: int) -> Ref:
    """A memory's ref."""
    return Ref(Kind.MEMORY, id)


def test_a_row_in_two_arms_goes_before_one_that_leads_a_single_arm() -> None:
    fused = rrf({"vectors": [mem(1), mem(2)], "words": [mem(3), mem(2)]}, 60)
    assert [row.ref.id for row in fused] == [2, 1, 3]
    assert fused[0].score == pytest.approx(2 / 62)
    assert fused[0].arms == ("vectors", "words")


@given(st.dictionaries(st.sampled_from(["vectors", "words", "episodes"]), REFS))
def test_fusion_keeps_every_row_once_and_is_ordered(arms: dict[str, list[Ref]]) -> None:
    fused = rrf(arms, 60)
    assert {row.ref for row in fused} == {ref for refs in arms.values() for ref in refs}
    assert len(fused) == len({row.ref for row in fused})
    keys = [(-row.score, row.ref.document) for row in fused]
    assert keys == sorted(keys)


@given(REFS)
def test_one_arm_alone_keeps_its_order(refs: list[Ref]) -> None:
    assert [row.ref for row in rrf({"words": refs}, 60)] == refs


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
