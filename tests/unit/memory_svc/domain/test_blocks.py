"""Cutting into blocks: nothing is lost, nothing is too long, no character is torn apart."""

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.domain.blocks import Passage, Span, covered, cut, planned, unread

PARTS = [
    "word",
    "会議の",
    "。",
    ". ",
    "\n",
    "\r\n",
    " ",
    "e\u0301",
    "👩\u200d🚀",
    "👍🏽",
    "🇯🇵",
    "ㄱ",
    "\u1112\u1161\u11ab",
    "x" * 30,
]
texts = st.lists(st.sampled_from(PARTS), max_size=120).map("".join)
sizes = st.integers(16, 200)


@given(texts, sizes)
def test_blocks_cover_the_text_in_order_and_none_is_longer_than_asked(text: str, chars: int) -> None:
    found = cut(text, Span(0, len(text)), chars)
    assert covered(found) == len(text)
    assert found == sorted(found)
    assert all(span.stop - span.start <= chars for span in found)
    assert (len(found) == 1) == (len(text) <= chars)


@given(texts, sizes)
def test_each_block_begins_a_little_before_the_last_one_ends(text: str, chars: int) -> None:
    found = cut(text, Span(0, len(text)), chars)
    for before, after in pairwise(found):
        assert chars // 12 <= before.stop - after.start <= chars // 6
        assert before.stop - before.start >= chars * 3 // 4


@given(
    st.lists(st.sampled_from(["e\u0301", "👩\u200d🚀", "👍🏽", "\u1112\u1161\u11ab", "か\u3099"]), max_size=80).map(
        "".join
    )
)
def test_what_is_read_as_one_character_is_never_parted(text: str) -> None:
    starts = [span.start for span in cut(text, Span(0, len(text)), 40)]
    stops = [span.stop for span in cut(text, Span(0, len(text)), 40)]
    for place in (*starts, *stops):
        rest = text[place : place + 1]
        assert not rest or not unicodedata.category(rest).startswith("M")
        assert rest not in ("\u200d", "🏽", "\u1161", "\u11ab")
        assert text[place - 1 : place] != "\u200d" or not rest


def test_a_text_that_is_one_endless_character_is_cut_all_the_same() -> None:
    text = "a" + "\u0301" * 200
    assert covered(cut(text, Span(0, len(text)), 40)) == len(text)


def test_blocks_begin_and_end_with_sentences_else_with_words() -> None:
    sentences = " ".join(f"The number {number} is told." for number in range(40))
    found = cut(sentences, Span(0, len(sentences)), 300)
    assert all(sentences[span.start :].startswith("The number") for span in found)
    assert all(sentences[: span.stop].rstrip().endswith("told.") for span in found)
    words = " ".join(f"word{number}" for number in range(200))
    assert all(words[: span.start + 1].endswith(("w", " w")) for span in cut(words, Span(0, len(words)), 90))
    japanese = "".join(f"会議は第{number}室で開かれた。" for number in range(100))
    assert all(japanese[: span.stop].endswith("。") for span in cut(japanese, Span(0, len(japanese)), 120))


def test_a_text_of_no_set_size_is_one_block_until_a_model_has_read_it() -> None:
    assert planned(Passage("word " * 1000), 0) == [Span(0, 5000)]
    assert planned(Passage("word " * 10), 50) == [Span(0, 50)]
    assert len(planned(Passage("word " * 1000), 500)) > 10


def test_what_a_model_left_of_a_block_is_cut_by_what_it_read_of_it() -> None:
    passage = Passage("Ann: " + "word " * 200, "Ann: ", 5)
    whole = Span(0, 1005)
    assert unread(passage, whole, None) == []
    found = unread(passage, whole, 105)
    assert found[0].start < 105
    assert found[-1].stop == 1005
    assert covered([Span(0, 105), *found]) == 1005
    assert all(len(passage.block(span)) <= 105 for span in found)
    assert all(passage.block(span).startswith("Ann: word") for span in found)
    later = unread(passage, found[0], 55)
    assert covered([Span(0, 105), Span(found[0].start, found[0].start + 50), *later, *found[1:]]) == 1005


@pytest.mark.parametrize("read", [0, 5, 10])
def test_a_model_that_reads_next_to_nothing_is_not_asked_again(read: int) -> None:
    assert unread(Passage("Ann: " + "word " * 200, "Ann: ", 5), Span(0, 1005), read) == []


def test_a_part_of_the_text_is_told_as_a_part_of_the_content() -> None:
    passage = Passage("Ann: hello", "Ann: ", 5)
    assert (passage.within(Span(0, 7)), passage.within(Span(6, 10))) == (Span(0, 2), Span(1, 5))
