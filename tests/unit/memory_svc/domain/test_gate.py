"""The gate decides by the best row's evidence; identifiers pass, and so do rows whose vector is not made yet."""

import numpy as np
import pytest

from memory_svc.domain.recall.fusion import Evidence
from memory_svc.domain.recall.gate import Verdict, strongest, verdict
from memory_svc.domain.terms import identifiers

TELLS = {"deploy": 3.0, "friday": 1.0}


def evidence(*rows: tuple[float, int]) -> Evidence:
    """Rows by their cosine and the words that they hold."""
    count = len(rows)
    nothing, never = np.zeros(count), np.zeros(count, np.bool_)
    return Evidence(
        documents=np.arange(count),
        cosines=np.array([cosine for cosine, _ in rows]),
        fields=nothing,
        windows=nothing,
        pieces=nothing,
        speaker=never,
        dated=never,
        named=never,
        quoted=never,
        held=np.array([held for _, held in rows], np.uint64),
    )


def test_the_best_row_speaks_for_the_answer() -> None:
    assert verdict(evidence((0.2, 0), (0.3, 1)), TELLS, 0.6, ()) == Verdict("passed", 0.675, 0.6)
    assert verdict(evidence((0.2, 0), (0.3, 2)), TELLS, 0.6, ()) == Verdict("nothing_clears", 0.425, 0.6)
    assert verdict(evidence((0.2, 0), (0.3, 2)), TELLS, 0.6, ()).silences


def test_the_strongest_evidence_is_told_also_where_something_else_passes() -> None:
    assert strongest(evidence((0.2, 0), (0.3, 1), (float("nan"), 3)), TELLS) == pytest.approx(0.675)
    assert strongest(evidence(), {}) == 0.0


def test_nothing_found_clears_nothing() -> None:
    assert verdict(evidence(), {}, 0.6, ()) == Verdict("nothing_clears", 0.0, 0.6)


def test_without_a_calibration_nothing_is_held_back() -> None:
    assert verdict(evidence((0.0, 0)), TELLS, None, ()) == Verdict("not_calibrated")


def test_an_identifier_that_a_row_holds_passes() -> None:
    tells = {"bug-183": 5.0, "bug": 1.0, "183": 1.0, "closed": 50.0}
    for held, outcome in ((0b1, "exact"), (0b110, "nothing_clears")):
        assert verdict(evidence((0.0, held)), tells, 0.6, identifiers("bug-183 closed?")).outcome == outcome


def test_a_row_that_waits_for_its_vector_passes_by_half_of_what_the_query_tells() -> None:
    for held, outcome in ((1, "waiting"), (2, "nothing_clears")):
        assert verdict(evidence((float("nan"), held), (0.1, 0)), TELLS, 0.6, ()).outcome == outcome


@pytest.mark.parametrize(
    "word",
    "bug-183 CVE-2024-3094 parseConfig ERR_FAILED /etc/hosts.conf v1.2.3 a@b.org std::sort C++ 0x7f3a sha256".split(),  # noqa: SIM905
)
def test_what_is_an_identifier(word: str) -> None:
    assert len(identifiers(f"what is {word} about")) == 1


@pytest.mark.parametrize(
    "word", ["2023", "20th", "5km", "10.5", "1,000", "and/or", "U.S.", "e.g.", "well-known", "don't", "Anna", "会議"]
)
def test_what_is_none(word: str) -> None:
    assert identifiers(f"what is {word} about") == []
