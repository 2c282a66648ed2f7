"""The comparison of memory servers: what it asks is the same every time, and its ratios are those of the rounds."""

import itertools
import math

import pytest

from bench.memory import corpus, report, stub
from bench.memory.report import Cell, Profile, Sample


def test_the_memories_are_the_same_every_time_and_no_two_alike() -> None:
    one, other = (list(itertools.islice(corpus.memories(corpus.Language()), 500)) for _ in range(2))
    assert one == other
    assert len(set(one)) == 500
    assert all(13 <= len(text.split()) <= 41 for text in one)


def test_every_question_holds_a_word_that_tells_something() -> None:
    found = corpus.questions(corpus.Language())
    assert len(found) == corpus.QUESTIONS
    assert all(corpus.telling(text.lower().strip("?").split()) for text in found)


def test_texts_that_share_words_are_near_each_other() -> None:
    ship, shipping, cat = (stub.of_text(text) for text in ("we ship on friday", "ship it on friday", "a grey cat"))
    assert math.hypot(*ship) == pytest.approx(1.0, abs=1e-6)
    assert sum(map(float.__mul__, ship, shipping)) > 0.4 > abs(sum(map(float.__mul__, ship, cat)))


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    samples = {
        name: [Sample(cpu=cpu, wall=1.0, calls=1) for cpu in rounds]
        for name, rounds in {"ours": (1.0, 2.0, 4.0), "peer": (10.0, 40.0, 20.0)}.items()
    }
    assert Cell(operation="recall", memories=1, callers=1, samples=samples).ratio("peer", "ours") == 10.0


def test_what_lies_outside_the_stages_is_told() -> None:
    profile = Profile(memories=1000, stages={"embed": 1.0, "fuse": 0.5}, total=3.0)
    assert (profile.rest, profile.without_embedding) == (1.5, 2.0)
    assert "| HTTP and the rest | 1.50 |" in report.profiles([profile])
