"""The canary's questions and its judgement."""

import pytest

from memory_svc.domain.canary import (
    CONTENTS,
    NOT_FOUND,
    PROBES,
    SORTS,
    Examined,
    Probe,
    Ranked,
    Seen,
    judged,
    ranked,
)
from memory_svc.domain.terms import term
from memory_svc.domain.text import query_words

PROBE = Probe("english", "gulls nest", "gull")


def terms(text: str) -> set[str]:
    """The terms by which a text is found."""
    return {term(word) for word in query_words(text)}


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.query)
def test_a_question_by_meaning_shares_no_word_with_any_row_and_one_by_words_shares_most_with_its_own(
    probe: Probe,
) -> None:
    shared = {content: len(terms(probe.query) & terms(content)) for content in CONTENTS}
    if probe.sort == "meaning":
        assert set(shared.values()) == {0}
    else:
        assert [content for content in CONTENTS if shared[content] == max(shared.values())] == [probe.content]


def test_every_sort_has_a_probe_and_the_agent_has_too_few_rows_for_the_gate() -> None:
    assert {probe.sort for probe in PROBES} == set(SORTS)
    assert len(set(CONTENTS)) == len(CONTENTS) < 30


@pytest.mark.parametrize(
    ("seen", "rank"),
    [
        (Seen(1, {"words": 1}), 1),
        (Seen(2, {"vectors": 3, "words": 1}), 2),
        (Seen(1, {"vectors": 1, "words": 3}), 3),
        (Seen(1, {"vectors": 1}), NOT_FOUND),
        (Seen(NOT_FOUND, {"words": 1}), NOT_FOUND),
        (Seen(NOT_FOUND, {}), NOT_FOUND),
    ],
)
def test_a_row_that_its_arm_has_not_found_does_not_count(seen: Seen, rank: int) -> None:
    assert ranked(PROBE, seen, "weighted") == Ranked("english", "gull", rank)


def test_where_the_order_is_not_by_words_a_question_by_words_goes_by_its_arm_alone() -> None:
    seen = Seen(2, {"vectors": 2, "words": 1})
    assert [ranked(PROBE, seen, order).rank for order in ("rrf", "cascade", "confidence")] == [2, 1, 1]
    assert ranked(Probe("meaning", "gulls nest", "sea birds brood"), seen, "cascade").rank == 2


def test_all_is_well_where_every_row_is_the_first() -> None:
    answers = {probe: Seen(1, {probe.arm: 1}) for probe in PROBES}
    assert judged(answers, "ran", "rrf").is_well
    assert judged(answers, "ran", "rrf").worst == dict.fromkeys(SORTS, 1)
    assert not judged(answers, "degraded: the embedding server does not answer", "rrf").is_well
    second = judged({**answers, PROBES[-1]: Seen(2, {"words": 1})}, "ran", "rrf")
    assert (second.is_well, second.worst["thai"]) == (False, 2)


def test_without_an_embedding_server_nothing_is_asked_by_meaning() -> None:
    found = judged({probe: Seen(1, {"words": 1}) for probe in PROBES}, "skipped: none is set", "rrf")
    assert (found.is_well, found.skipped, found.tests("meaning")) == (True, ["meaning"], False)


def test_the_worst_rank_of_a_sort_is_that_of_its_worst_probe() -> None:
    ranks = [Ranked("english", "a", 1), Ranked("english", "b", 4), Ranked("thai", "c", 2)]
    assert Examined(ranks=ranks).worst == {"english": 4, "thai": 2}
