"""The part of a text around a query's words: by hand, and what must hold for any text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.domain import blocks
from memory_svc.domain.recall.excerpt import EXCERPT_CHARS_MAX, Asked, excerpt, quoted
from memory_svc.domain.terms import term
from memory_svc.domain.text import words

FILLER = "Nothing of note was said here. " * 40
TELLS = {"harbour": 4.0, "database": 2.0, "friday": 1.0}
LETTERS = st.sampled_from(
    ["harbour", "Databases", "friday", "x", "é", "会議", "金", "が", "か\u3099", " ", ". ", "。", "\n"]
)
texts = st.lists(LETTERS, max_size=600).map("".join)
tells = st.dictionaries(st.sampled_from(["harbour", "database", "会議", "会", "が", "é", "x"]), st.floats(0, 9))


def of(text: str, shown: int = 500, words_tell: dict[str, float] | None = None) -> str:
    """The excerpt of a text."""
    return excerpt(text, shown, Asked(TELLS if words_tell is None else words_tell))


def test_it_holds_the_words_and_begins_and_ends_with_sentences() -> None:
    found = of(FILLER + "The database is called harbour. " + FILLER)
    assert "The database is called harbour." in found
    assert found.startswith("Nothing of note")
    assert found.endswith("said here.")
    assert EXCERPT_CHARS_MAX - 100 < len(found) <= EXCERPT_CHARS_MAX


def test_where_no_sentence_ends_near_it_is_cut_at_blanks_and_else_anywhere() -> None:
    found = of("lorem ipsum " * 100 + "harbour " + "dolor sit " * 100)
    assert found.split()[0] in {"lorem", "ipsum"}
    assert found.split()[-1] in {"dolor", "sit"}
    assert len(of("x" * 900 + " harbour " + "y" * 900)) <= EXCERPT_CHARS_MAX


@pytest.mark.parametrize("shown", ["harbour ", "the harbour database on friday "])
def test_where_the_beginning_tells_as_much_there_is_none(shown: str) -> None:
    assert of(shown + FILLER + "harbour again " + FILLER) == ""


def test_where_no_word_is_found_there_is_none() -> None:
    assert of(FILLER) == ""
    assert of(FILLER + "harbour", words_tell={}) == ""


def test_the_part_that_tells_most_is_taken_and_of_equal_ones_the_closest_together() -> None:
    found = of(f"{FILLER}friday database one {FILLER}harbour two {FILLER}harbour three database {FILLER}")
    assert "harbour three database" in found
    closest = of(f"{FILLER}harbour and far away the database one {FILLER}harbour database two {FILLER}")
    assert "harbour database two" in closest


def test_a_word_said_often_counts_once() -> None:
    assert "harbour" in of(f"{FILLER}{'database ' * 30}{FILLER}harbour {FILLER}")


def test_a_word_on_the_border_is_in_the_excerpt() -> None:
    text = "a " * 248 + "harbour " + FILLER
    assert text[:500].endswith("har ") or text[:500].endswith("harb")
    assert of(text).startswith("harbour")


def test_other_forms_of_a_word_are_found() -> None:
    assert "Databases" in of(FILLER + "Databases " + FILLER)
    assert "parseHarbour" in of(FILLER + "parseHarbour() " + FILLER)
    assert "ｈａｒｂｏｕｒ" in of(FILLER + "ｈａｒｂｏｕｒ " + FILLER)


@pytest.mark.parametrize(("asked", "said"), [("会議", "会議"), ("会", "会議"), ("ガラ", "ｶﾞﾗｽ"), ("がく", "か\u3099く")])
def test_scripts_without_blanks_are_found_and_cut_at_their_sentences(asked: str, said: str) -> None:
    filler = "今日は天気がいい。" * 100
    found = of(f"{filler}{said}は金曜日にあります。{filler}", words_tell={asked: 3.0})
    assert said in found
    assert found.startswith("今日は")
    assert found.endswith("。")


@pytest.mark.parametrize("said", ["会", "会議", "会議室"])
def test_a_letter_keeps_its_marks(said: str) -> None:
    tells = {"会": 1.0, "会議": 3.0, "議室": 3.0}
    found = of("ก" + "ที่" * 400 + said + "ที่" * 400, words_tell=tells)
    assert said in found
    assert found.startswith("ที่")
    assert found.endswith("ที่")


def test_a_token_longer_than_an_excerpt_is_cut() -> None:
    found = of(FILLER + "x" * 600 + "-harbour-" + "y" * 600)
    assert len(found) <= EXCERPT_CHARS_MAX
    assert found.startswith("xxx")


@given(texts, st.integers(0, 600), tells)
def test_it_is_a_part_of_the_text_that_tells_more_than_its_beginning(
    text: str, shown: int, words_tell: dict[str, float]
) -> None:
    asked = Asked(words_tell)
    found = excerpt(text, shown, asked)
    assert found in text
    assert len(found) <= EXCERPT_CHARS_MAX
    assert found == excerpt(text, shown, Asked(words_tell))
    if found:
        before = [hit for hit in asked.hits(text) if hit.end <= shown]
        assert asked.weight(asked.hits(found)) > asked.weight(before)
        assert found == found.strip()


@given(texts, st.integers(20, 300), tells)
def test_no_other_part_tells_more(text: str, chars: int, words_tell: dict[str, float]) -> None:
    asked = Asked(words_tell)
    hits = [hit for hit in asked.hits(text) if hit.end - hit.start <= chars]
    found = asked.best(hits, chars)
    parts = [[hit for hit in hits if hit.start >= first.start and hit.end <= first.start + chars] for first in hits]
    assert found.weight == max(map(asked.weight, parts), default=0)


@given(st.lists(st.sampled_from(["Harbour", "databases", "bug-18", "fooBar", "été"]), min_size=1).map(" ".join))
def test_words_are_met_as_the_index_has_them(text: str) -> None:
    asked = Asked(dict.fromkeys(words(text), 1.0))
    hits = asked.hits(text)
    assert [text[hit.start : hit.end] for hit in hits] == text.split()
    assert {number for hit in hits for number in hit.numbers} == set(range(len({term(w) for w in words(text)})))


def quote(text: str, chars: int = 400) -> str:
    """The part of a text that is quoted."""
    start, end = quoted(text, chars, Asked(TELLS))
    return text[start:end]


def test_a_short_text_is_quoted_whole_and_a_long_one_where_its_words_are() -> None:
    assert quote(" harbour ") == " harbour "
    found = quote(FILLER + "The database is called harbour. " + FILLER)
    assert "The database is called harbour." in found
    assert found.startswith("Nothing of note")
    assert found.endswith("said here.")
    assert 300 < len(found) <= 400


def test_where_no_word_is_found_the_part_that_is_near_by_its_meaning_is_quoted() -> None:
    text = FILLER + "We moor in Kiel. " + FILLER
    near = blocks.Span(len(FILLER), len(FILLER) + 600)
    for part in (near, near._replace(stop=near.start + 17)):
        start, end = quoted(text, 400, Asked(TELLS), part)
        assert "We moor in Kiel." in text[start:end]
        assert text[start:end].startswith("Nothing of note")
        assert 300 < end - start <= 400
    assert quoted(text + "harbour", 400, Asked(TELLS), near) == quoted(text + "harbour", 400, Asked(TELLS))


def test_where_no_word_is_found_the_beginning_is_quoted() -> None:
    assert FILLER.startswith(quote(FILLER))
    assert FILLER[slice(*quoted(FILLER, 100, None))].endswith("said here.")


@given(texts, tells, st.integers(50, 900))
def test_a_quote_is_as_long_as_it_may_be_and_holds_what_the_best_part_holds(
    text: str, known: dict[str, float], chars: int
) -> None:
    asked = Asked(known)
    start, end = quoted(text, chars, asked)
    assert 0 <= start <= end <= len(text)
    assert end - start <= chars
    best = asked.best(asked.hits(text), chars)
    if len(text) > chars and best.end - best.start <= chars:
        assert asked.weight(asked.hits(text[start:end])) >= best.weight
