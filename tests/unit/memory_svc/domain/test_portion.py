"""Parts of texts: by characters, by blocks."""

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.domain.portion import BLOCK_CHARS_MAX, Part, Portion, blocks, portion, revision_of

PIECES = st.sampled_from(
    ("word ", "A sentence. ", "\n\n", "\n", "日本語の文。", "x" * 300, "e\u0301" * 40, " ", "ｶﾞ", "👩‍👩‍👧")
)
TEXTS = st.lists(PIECES, max_size=120).map("".join)


def part(**asked: Any) -> Part:
    """A part of a row."""
    return Part("mem:1", **asked)


@given(TEXTS)
def test_blocks_are_the_text_in_order_and_none_is_longer_than_its_limit(text: str) -> None:
    found = blocks(text)
    assert "".join(text[start:end] for start, end in found) == text
    assert all(0 < end - start <= BLOCK_CHARS_MAX for start, end in found)
    assert all(end - start > BLOCK_CHARS_MAX // 2 for start, end in found[:-1])
    assert not any(unicodedata.category(text[start]) == "Mn" for start, _ in found[1:] if "x" * 300 not in text)


@given(TEXTS, TEXTS)
def test_a_text_that_goes_on_keeps_its_blocks_but_the_last(text: str, more: str) -> None:
    kept = blocks(text)[:-1]
    assert blocks(text + more)[: len(kept)] == kept


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("A" * 500 + ".\n\n" + "B. " * 200, 503),
        ("A" * 300 + ".\n\n" + "Bb. " * 200, 799),
        ("word " * 300, 800),
        ("日" * 500 + "。" + "本" * 600, 501),
        ("x" * 1000, 800),
        ("e\u0301" * 600, 800),
        ("e" + "e\u0301" * 600, 799),
    ],
)
def test_a_block_ends_after_a_paragraph_else_a_sentence_else_a_word(text: str, first: int) -> None:
    assert blocks(text)[0] == (0, first)


def test_a_short_text_is_one_block_and_an_empty_one_has_none() -> None:
    assert blocks("short") == [(0, 5)]
    assert blocks("") == []
    assert portion("", part(block=0)) == "no_current_blocks"


@given(st.integers(0, 1200), st.integers(1, 1200))
def test_a_span_is_half_open_and_ends_with_the_text_at_the_latest(start: int, length: int) -> None:
    text = "abcdefghij" * 100
    found = portion(text, part(span=[start, start + length]))
    if start >= len(text):
        assert found == "span_out_of_range"
    else:
        assert isinstance(found, Portion)
        assert text[slice(*found.span)] == text[start : start + length]
        assert found.content_len == len(text)


@pytest.mark.parametrize(
    "asked",
    [
        {"span": [3, 3]},
        {"span": [4, 3]},
        {"span": [-1, 3]},
        {"span": [1]},
        {"span": []},
        {"span": [1, 2, 3]},
        {"block": -1},
        {"block": [1, 0]},
        {"block": [0]},
        {"block": [-1, 0]},
        {"span": [0, 1], "block": 0},
        {"node": 0, "block": 0},
    ],
)
def test_what_names_no_part_is_invalid(asked: dict[str, Any]) -> None:
    assert portion("some text", part(**asked)) == "invalid_range"


def test_blocks_are_named_by_their_number_or_from_the_first_to_the_last() -> None:
    text = "word " * 400
    assert [end for _, end in blocks(text)] == [800, 1600, 2000]
    one, two = portion(text, part(block=1)), portion(text, part(block=[1, 2]))
    assert isinstance(one, Portion)
    assert isinstance(two, Portion)
    assert (one.span, one.block, one.of) == ((800, 1600), (1, 1), 3)
    assert (two.span, two.block, two.of) == ((800, 2000), (1, 2), 3)
    assert portion(text, part(block=3)) == portion(text, part(block=[0, 3])) == "block_out_of_range"


def test_a_part_of_a_text_that_has_changed_is_stale() -> None:
    text = "some text"
    for asked in ({"span": [0, 3]}, {"block": 0}, {}):
        found = portion(text, part(revision=revision_of(text), **asked))
        assert isinstance(found, Portion)
        assert found.revision == revision_of(text)
        assert portion("another", part(revision=revision_of(text), **asked)) == "stale_revision"


def test_there_are_no_nodes() -> None:
    assert portion("some text", part(node=0)) == portion("some text", part(node=[0, 1])) == "no_current_nodes"
