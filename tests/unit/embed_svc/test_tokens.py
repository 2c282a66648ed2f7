"""Texts to tokens: cut, closed, counted, and read in pieces where they are long."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from embed_svc.errors import Invalid
from embed_svc.tokens import PIECE_CHARS_MAX, Reader, closed, pieces

WORDS = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "query:": 3, "a": 4, "b": 5, "会": 6}
UNK, CLS, SEP, QUERY, A, B, KANJI = range(7)


def reader(window: int = 6, opens: bool = True) -> Reader:
    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]" if opens else "$A [SEP]", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    return Reader(tokenizer, SEP, window)


def test_a_text_that_fits_is_read_to_its_end() -> None:
    read = reader().read("", "a b", whole=False)
    assert (read.ids, read.count, read.end, read.truncated) == ([CLS, A, B, SEP], 4, 3, False)


def test_of_a_text_that_does_not_fit_it_is_told_how_many_characters_were_read() -> None:
    text = "a b 会 a b"
    read = reader().read("", text, whole=False)
    assert (read.ids, read.count, read.truncated) == ([CLS, A, B, KANJI, A, SEP], 7, True)
    assert text[: read.end] == "a b 会 a"


def test_the_prefix_takes_room_in_the_window_and_none_of_the_characters() -> None:
    text = "a b a b"
    read = reader().read("query: ", text, whole=False)
    assert read.ids == [CLS, QUERY, A, B, A, SEP]
    assert text[: read.end] == "a b a"


def test_a_window_without_room_for_the_text_reads_none_of_it() -> None:
    read = reader(window=3).read("query: ", "a", whole=False)
    assert (read.ids, read.end, read.truncated) == ([CLS, QUERY, SEP], 0, True)


def test_a_blank_text_is_its_special_tokens() -> None:
    read = reader().read("", " \t\n", whole=True)
    assert (read.ids, read.count, read.end) == ([CLS, SEP], 2, 3)


def test_a_long_text_is_counted_to_its_end_only_where_asked() -> None:
    text = "a b " * PIECE_CHARS_MAX
    assert reader().read("", text, whole=True).count == 2 * PIECE_CHARS_MAX + 2
    read = reader().read("", text, whole=False)
    assert 6 < read.count <= PIECE_CHARS_MAX
    assert read.ids == reader().read("", text, whole=True).ids == [CLS, A, B, A, B, SEP]
    assert read.end == 7


def test_what_the_window_holds_may_begin_pieces_later() -> None:
    text = " " * (3 * PIECE_CHARS_MAX) + "a b a b a"
    read = reader().read("", text, whole=False)
    assert read.ids == [CLS, A, B, A, B, SEP]
    assert read.end == 3 * PIECE_CHARS_MAX + 7


@given(st.text(alphabet="ab 会\n", max_size=200), st.integers(0, 3))
def test_pieces_put_together_are_the_text(text: str, times: int) -> None:
    long = text * (1 + times * PIECE_CHARS_MAX // 40)
    cut = list(pieces(long))
    assert "".join(cut) == long
    assert all(0 < len(piece) <= PIECE_CHARS_MAX for piece in cut)


def test_reading_a_text_of_any_length_holds_no_more_than_a_piece_of_it() -> None:
    text = "a b " * 250_000
    made = reader()
    tracemalloc.start()
    made.read("", text, whole=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40e6


@pytest.mark.parametrize("row", [[A, B], [CLS, A, B], [A, B, SEP], [CLS, A, B, SEP]])
def test_ids_are_taken_with_or_without_those_that_open_and_close(row: list[int]) -> None:
    assert reader().adopt("", row, 0).ids == reader().read("", "a b", whole=False).ids


def test_ids_stand_behind_the_prefix_and_are_cut_as_texts_are() -> None:
    assert reader().adopt("query: ", [A], 0).ids == reader().read("query: ", "a", whole=False).ids
    cut = reader().adopt("", [A, B] * 5, 0)
    assert (cut.ids, cut.count, cut.truncated) == ([CLS, A, B, A, B, SEP], 12, True)
    assert reader(opens=False).adopt("", [A], 0).ids == [A, SEP]
    assert reader().adopt("", [SEP], 0).ids == [CLS, SEP]


@pytest.mark.parametrize(("row", "place"), [([-1], 0), ([A, 7], 1), ([A, B, 10**30], 2)])
def test_an_id_that_is_no_token_is_refused_by_its_place(row: list[int], place: int) -> None:
    with pytest.raises(Invalid, match=rf"input\[3\]\[{place}\] is no token of this model: send ids from 0 to 6"):
        reader().adopt("", row, 3)


@given(st.lists(st.integers(3, 9), max_size=30), st.lists(st.integers(1, 2), max_size=2), st.integers(4, 20))
def test_what_is_read_fits_the_window_and_ends_with_the_end_token(ids: list[int], head: list[int], window: int) -> None:
    read = closed(head, ids, SEP, window)
    assert len(read) <= window
    assert read[-1] == SEP
    assert read[:-1] == [*head, *ids][: len(read) - 1]
