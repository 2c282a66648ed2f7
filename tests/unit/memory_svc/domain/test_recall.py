"""Fusion and exclusion."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.domain.memory import Kind, Ref
from memory_svc.domain.recall.exclude import Excluded
from memory_svc.domain.recall.fusion import (
    Evidence,
    Hits,
    Scores,
    Weights,
    best_places,
    cascade,
    exact_first,
    ordered,
    rrf,
    rsf,
    weighted,
    with_characters,
)

DOCUMENTS = st.lists(st.integers(1, 40).map(lambda id: Ref(Kind.MEMORY, id).document), unique=True)


def mem(id: int) -> int:
    """A memory's document number."""
    return Ref(Kind.MEMORY, id).document


def hits(documents: list[int]) -> Hits:
    """An arm that found these, best first."""
    return [(document, 1.0 / place) for place, document in enumerate(documents, start=1)]


def evidence(cosines: list[float], **columns: list[float]) -> Evidence:
    """What speaks for the memories 1, 2 and so on; nothing but the cosine where nothing is given."""
    count = len(cosines)
    given = {name: np.array(columns.get(name, [0.0] * count)) for name in ("fields", "windows", "pieces")}
    flags = {name: np.array(columns.get(name, [0.0] * count)) > 0 for name in ("speaker", "dated", "named", "quoted")}
    documents = np.array([mem(id) for id in range(1, count + 1)])
    return Evidence(documents, np.array(cosines), **given, **flags, held=np.zeros(count, np.uint64))


def ids(scores: Scores) -> list[int]:
    """The memories in their order."""
    return [row.ref.id for row in ordered(scores, {})]


def test_by_ranks_a_row_in_two_arms_goes_before_one_that_leads_a_single_arm() -> None:
    arms = {"vectors": hits([mem(1), mem(2)]), "words": hits([mem(3), mem(2)])}
    fused = list(ordered(rrf(arms, 60), arms))
    assert [row.ref.id for row in fused] == [2, 1, 3]
    assert fused[0].score == pytest.approx(2 / 62)
    assert fused[0].arms == ("vectors", "words")


@given(st.dictionaries(st.sampled_from(["vectors", "words", "episodes"]), DOCUMENTS), st.sampled_from(range(3)))
def test_every_mode_keeps_every_row_once_and_is_ordered(arms: dict[str, list[int]], mode: int) -> None:
    found = {name: hits(documents) for name, documents in arms.items()}
    fused = list(ordered([lambda: rrf(found, 60), lambda: rsf(found), lambda: cascade(found)][mode](), found))
    documents = [row.ref.document for row in fused]
    assert sorted(documents) == sorted({document for each in arms.values() for document in each})
    keys = [(-row.score, row.ref.document) for row in fused]
    assert keys == sorted(keys)


@given(DOCUMENTS)
def test_one_arm_alone_keeps_its_order(documents: list[int]) -> None:
    arms = {"words": hits(documents)}
    for scores in (rrf(arms, 60), rsf(arms), cascade(arms)):
        assert [row.ref.document for row in ordered(scores, arms)] == documents


def test_scores_between_least_and_best_are_added_and_a_lone_row_counts_in_full() -> None:
    scores = rsf({"vectors": [(mem(1), 0.9), (mem(2), 0.8), (mem(3), 0.4)], "words": [(mem(2), 1.0)]})
    assert scores.documents.tolist() == [mem(1), mem(2), mem(3)]
    assert scores.values.tolist() == pytest.approx([1.0, 1.8, 0.0])


def test_a_cascade_takes_the_first_arm_whole_before_the_next() -> None:
    arms = {"vectors": hits([mem(2), mem(1)]), "episodes": hits([mem(1), mem(4)]), "words": hits([mem(3)])}
    assert ids(cascade(arms)) == [2, 1, 4, 3]


def test_exact_rows_stand_before_all_others_in_every_mode_and_keep_their_order_among_themselves() -> None:
    arms = {"vectors": [(mem(1), 0.9), (mem(2), 0.5), (mem(3), 0.4)], "words": [(mem(1), 1.0), (mem(3), 0.2)]}
    exact = evidence([0.9, 0.5, 0.4], quoted=[0, 1, 1])
    for scores, order in ((rrf(arms, 60), [3, 2, 1]), (rsf(arms), [2, 3, 1]), (cascade(arms), [2, 3, 1])):
        assert ids(exact_first(scores, exact, len(arms))) == order


def test_the_weighted_sum_adds_what_each_evidence_counts() -> None:
    given = evidence(
        [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5],
        fields=[0, 1, 0, 0, 0, 0, 0],
        windows=[0, 0, 1, 0, 0, 0, 0],
        speaker=[0, 0, 0, 1, 0, 0, 0],
        dated=[0, 0, 0, 0, 1, 0, 0],
        quoted=[0, 0, 0, 0, 0, 1, 0],
        named=[0, 0, 0, 0, 0, 0, 1],
    )
    scores = weighted(given, Weights(fields=0.25, windows=0.5, speaker=0.1, date=0.2))
    assert scores.values.tolist() == pytest.approx([0.0, 0.25, 0.5, 0.1, 0.2, 4.0, 0.3])


def test_a_cosine_counts_by_how_far_it_lies_from_the_mean_whatever_the_model_spreads() -> None:
    wide, narrow = (weighted(evidence(cosines), Weights()) for cosines in ([0.0, 0.4, 0.8], [0.80, 0.81, 0.82]))
    assert wide.values.tolist() == pytest.approx(narrow.values.tolist())
    assert wide.values.tolist() == pytest.approx([-0.147, 0.0, 0.147], abs=1e-3)


def test_in_scripts_without_blanks_runs_of_characters_count_and_the_cosine_counts_more() -> None:
    found = evidence([0.2, 0.4, 0.6])
    before = weighted(found, Weights())
    after, half = (with_characters(before, found, np.array([0.4, 0.0, 0.0]), share) for share in (1.0, 0.5))
    assert after.values.tolist() == pytest.approx((1.5 * before.values + [0.6, 0.0, 0.0]).tolist())
    assert half.values.tolist() == pytest.approx(((before.values + after.values) / 2).tolist())


def test_the_best_places_are_those_of_the_best_scores_and_equal_ones_go_by_document() -> None:
    scores = Scores(np.array([mem(4), mem(2), mem(9)]), np.array([0.5, 0.5, 0.7]))
    assert best_places(scores, 2).tolist() == [2, 1]
    assert best_places(scores, 9).tolist() == [2, 1, 0]


def test_a_piece_of_a_word_counts_less_than_a_word_of_its_own() -> None:
    assert ids(weighted(evidence([0.1, 0.1, 0.1], fields=[0, 0.5, 0], pieces=[0, 0, 1]), Weights())) == [2, 3, 1]


def test_a_row_that_waits_for_its_vector_is_neither_lifted_nor_lowered() -> None:
    assert ids(weighted(evidence([0.2, math.nan, 0.6]), Weights())) == [3, 2, 1]
    assert weighted(evidence([math.nan]), Weights()).values.tolist() == [0.0]


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
