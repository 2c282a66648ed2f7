"""Folding and words."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.domain.memory import clean_content
from memory_svc.domain.text import (
    WORD_CHARS_MAX,
    fold,
    is_single_character,
    is_unspaced,
    pairs,
    preview,
    query_words,
    words,
)


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Café", "cafe"),
        ("cafe\u0301", "cafe"),
        ("Ｃｌｏｕｄ", "cloud"),
        ("ｶﾞ", "ガ"),
        ("か\u3099", "が"),
        ("STRASSE ß", "strasse ss"),
        ("İstanbul", "istanbul"),
        ("Ёлка", "елка"),
        ("ที่", "ที่"),
        ("≠", "≠"),
    ],
)
def test_texts_that_are_the_same_to_a_reader_fold_to_one(text: str, folded: str) -> None:
    assert fold(text) == folded


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("bug-183", ["bug-183", "bug", "183"]),
        ("parseConfig", ["parseconfig", "parse", "config"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("snake_case", ["snake_case", "snake", "case"]),
        ("C++ and C#", ["c++", "c", "and", "c#", "c"]),
        ("what's", ["what's", "what", "s"]),
        ("a.b/c", ["a.b/c", "a", "b", "c"]),
        ("東京都", ["東京", "京都", "都"]),
        ("東", ["東"]),
        ("foo東京bar", ["foo", "東京", "京", "bar"]),
        ("end. Next", ["end", "next"]),
        ("-- ... !!", []),
        ("हिन्दी दिन", ["हिन्दी", "दिन"]),
        ("Ọ̀ṣun", ["osun"]),
        ("שָׁלוֹם", ["שלום"]),
        ("مُحَمَّد", ["محمد"]),
        ("மொழி", ["மொழி"]),
        ("❤️ fine", ["❤", "fine"]),
        ("", []),
    ],
)
def test_a_text_is_cut_into_its_words(text: str, found: list[str]) -> None:
    assert words(text) == found


def test_a_query_asks_for_pairs_and_for_a_single_character_only_where_it_stands_alone() -> None:
    assert query_words("東京都 会") == ["東京", "京都", "会"]
    assert is_single_character("会")
    assert not is_single_character("会議")
    assert not is_single_character("a")


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("what's the deploy plan?", ["deploy", "plan"]),
        ("what’s the deploy plan?", ["deploy", "plan"]),
        ("O'Brien's cat", ["o'brien's", "o", "brien", "cat"]),
        ("who are you", ["who", "are", "you"]),
        ("don't", ["don't", "don", "t"]),
    ],
)
def test_a_query_asks_for_stop_words_only_if_it_has_no_others(text: str, asked: list[str]) -> None:
    assert query_words(text) == asked


def test_a_query_asks_for_each_word_once_and_for_a_bounded_number() -> None:
    assert query_words("one two one TWO") == ["one", "two"]
    assert len(query_words(" ".join(f"w{number}" for number in range(500)))) == 64


@given(st.text())
def test_every_word_is_folded_and_holds_no_blank(text: str) -> None:
    for word in words(text):
        assert word
        assert word.split() == [word]
        assert fold(word) == word


@given(st.text(min_size=1))
def test_what_a_text_holds_is_found_by_itself(text: str) -> None:
    held = set(words(text))
    for word in query_words(text):
        assert word in held or is_single_character(word)


@given(st.text(min_size=1))
def test_pairs_cover_every_character(run: str) -> None:
    assert "".join(pair[0] for pair in pairs(run)) == run


def test_every_part_of_a_long_identifier_counts() -> None:
    address = "https://example.org/" + "/".join(f"section{number}" for number in range(60)) + "/harbour-report.pdf"
    found = words(address)
    assert {"harbour", "report", "section59"} <= set(found)
    assert max(map(len, found)) <= WORD_CHARS_MAX
    assert set(query_words(address, 1000)) <= set(found)


@pytest.mark.parametrize(
    "text",
    [
        "a" + "\u0315\u0316" * 200_000,
        "[Memory from x" * 20_000,
        "a-" * 100_000,
        "aA" * 100_000,
        "_" * 200_000,
        "会" * 100_000,
        "e\u0301" * 100_000,
        "a a a " * 30_000,
        "'" * 200_000,
        "．" * 200_000,
        "\ufdfa" * 100_000,
    ],
)
def test_no_text_takes_more_than_its_length_to_read(text: str) -> None:
    begin = time.process_time()
    for read in (words, query_words, lambda each: clean_content(each, 16_000)):
        read(text)
    assert time.process_time() - begin < 5


def test_a_preview_is_a_pure_prefix() -> None:
    assert preview("abcdef", 3) == "abc"


@given(st.text(st.characters(max_codepoint=127)))
def test_a_text_of_ascii_is_cut_as_any_other_is(text: str) -> None:
    assert words(text) == words(f"{text} é")[:-1]


def test_a_pair_of_characters_is_unspaced_and_a_word_between_blanks_is_not() -> None:
    assert all(map(is_unspaced, ("会議", "会", "です", "ไท", "회의")))
    assert not any(map(is_unspaced, ("meeting", "é", "встреча", "")))
