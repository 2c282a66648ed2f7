"""Fields, stems, phrases and pieces."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_svc.domain.memory import Episode, Memory, Profile
from memory_svc.domain.terms import (
    Fields,
    embedded,
    fields_of,
    flat,
    is_long,
    names,
    phrases,
    pieces,
    talk_of,
    term,
    words_of,
    written_out,
)
from memory_svc.domain.text import atoms, sequence, words
from tests.support.corpus import memory

NOW = "2023-05-08T13:56:00+00:00"


@pytest.mark.parametrize(
    ("word", "stem"),
    [
        ("deploying", "deploy"),
        ("deployments", "deploy"),
        ("parties", "parti"),
        ("harbour", "harbour"),
        ("is", "is"),
        ("bug-183s", "bug-183s"),
        ("v1.2.3", "v1.2.3"),
        ("max_retry_counts", "max_retry_counts"),
        ("4f9c2ab7d1", "4f9c2ab7d1"),
        ("e" * 80, "e" * 80),
        ("кошками", "кошками"),
        ("京都", "京都"),
    ],
)
def test_english_words_stand_as_stems_and_everything_else_as_it_is(word: str, stem: str) -> None:
    assert term(word) == stem


@pytest.mark.parametrize(
    ("instant", "words"),
    [
        (NOW, "8 may 2023 monday 2023-05-08"),
        ("2024-12-31T23:59:59.123456+00:00", "31 december 2024 tuesday 2024-12-31"),
        ("", ""),
        ("yesterday", ""),
        ("2023-13-40", ""),
    ],
)
def test_a_day_is_written_out(instant: str, words: str) -> None:
    assert written_out(instant) == words


@pytest.mark.parametrize(
    ("source", "speaker"),
    [
        ({"type": "User", "id": "discord:7", "name": "Ann"}, "Ann discord:7"),
        ({"type": "User", "id": "ann", "name": "ann"}, "ann"),
        ({"type": "Agent", "id": 7, "name": None}, ""),
        ({}, ""),
        ("claude-code", "claude-code"),
    ],
)
def test_the_speaker_is_the_name_and_the_id_of_the_source(source: dict[str, object] | str, speaker: str) -> None:
    row = Memory(agent="a", content="x", source=source, timestamp=NOW, created_at=NOW)
    assert fields_of(row) == Fields(speaker, "8 may 2023 monday 2023-05-08", "x", "")


def test_extras_are_the_captions_keywords_tags_and_titles_that_are_texts() -> None:
    metadata = {
        "caption": "a sunset",
        "keywords": "sea, sky",
        "tags": ["blue", 7, None, "a sunset"],
        "title": 5,
        "n": "no",
    }
    row = Memory(agent="a", content="x", metadata=metadata, timestamp=NOW, created_at=NOW)
    assert fields_of(row).extras == "a sunset sea, sky blue"


def test_an_episode_has_its_days_and_its_keywords_and_a_profile_nothing() -> None:
    episode = Episode(agent="a", summary="s", keywords="k", start_time=NOW, end_time="2023-05-09", created_at=NOW)
    days = "8 may 2023 monday 2023-05-08 9 may 2023 tuesday 2023-05-09"
    assert fields_of(episode) == Fields("", days, "s", "k")
    assert fields_of(Episode(agent="a", summary="s", created_at=NOW)).date == "8 may 2023 monday 2023-05-08"
    assert not any(fields_of(Profile(agent="a", content="c", updated_at=NOW)))


@pytest.mark.parametrize(
    ("fields", "talk"),
    [
        ({"metadata": {"session": "s"}}, "session s"),
        ({"metadata": {"session_id": 7}, "channel": "c", "source": {"name": "Ann"}}, "session 7"),
        ({"metadata": {"session": ""}}, ""),
        ({"metadata": {"session": ["s"]}}, ""),
        ({"channel": "c"}, "talk"),
        ({"source": {"type": "User", "name": "Ann"}}, "talk"),
        ({"source": {"type": "User", "id": "ann"}}, ""),
        ({"source": {"name": 7}}, ""),
        ({"source": "Ann"}, ""),
        ({}, ""),
    ],
)
def test_a_line_of_talk_has_a_session_a_channel_or_one_who_speaks(fields: dict[str, Any], talk: str) -> None:
    assert talk_of(memory("text", **fields)) == talk


@pytest.mark.parametrize(
    ("content", "source", "text"),
    [
        ("hello", {"name": "Ann"}, "Ann (8 May 2023): hello"),
        ("Ann said hello", {"name": "Ann"}, "Ann said hello"),
        ("hello", {"type": "User", "id": "ann"}, "hello"),
        ("hello", "Ann", "hello"),
    ],
)
def test_the_vector_of_a_line_of_talk_stands_for_who_speaks_and_the_day_too(
    content: str, source: dict[str, str] | str, text: str
) -> None:
    spoken = msgspec.structs.replace(memory(content, source=source), timestamp="2023-05-08T10:00:00+00:00")
    assert embedded(spoken).text == text


def test_the_words_of_a_row_stand_by_field() -> None:
    assert words_of(Fields("Ann", "8 may", "we met", "")) == (("ann",), ("8", "may"), ["we", "met"], [])


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ('say "the big  Needle" now', ["the big needle"]),
        ("“one” and «two» and 「三」『四』 `five`", ["one", "two", "三", "四", "five"]),
        ('say "hi', []),
        ('"..." ""', []),
        ('"a" "A"', ["a"]),
        ("it's O'Brien's", []),
        (" ".join(f'"p{n}"' for n in range(50)), [f"p{n}" for n in range(8)]),
        ("ValueError: negative  timeout.", ["valueerror: negative timeout"]),
        ("error[E0382]: borrow of moved value", ["error[e0382]: borrow of moved value"]),
        ('fatal: "x y" is no repository', ["x y"]),
        ("numpy==2.4.6", ["numpy==2.4.6"]),
        ("numpy v2.4.6", ["numpy v2.4.6"]),
        ("which numpy 2.4.6", []),
        ("at 10:30 in the hall", []),
        ("who said: hello there?", []),
        ("Error: " + "x " * 200, []),
    ],
)
def test_phrases_are_what_is_quoted_and_messages_that_quote_nothing(query: str, found: list[str]) -> None:
    assert phrases(query) == found


@pytest.mark.parametrize(
    ("query", "found", "alone"),
    [
        ("ERR_TIMEOUT", ["err_timeout"], True),
        ("src/app.py 2.4.1", ["src/app.py", "2.4.1"], True),
        ("was bug-204 closed in 2.4?", ["bug-204", "2.4"], False),
        ("bug-204は何か", ["bug-204"], False),
        ("20th of May", [], False),
        ("when do we ship?", [], False),
        ("", [], False),
    ],
)
def test_names_are_identifiers_and_versions(query: str, found: list[str], alone: bool) -> None:
    assert names(query) == (found, alone)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("where is 4f9c2ab?", ["4f9c2ab"]),
        ("the conf of max_retry", ["max_retry", "conf"]),
        ("which were there about", []),
        ("京都の会議", []),
        ("a bc def", []),
    ],
)
def test_pieces_are_the_words_that_may_stand_in_longer_ones(query: str, found: list[str]) -> None:
    assert pieces(query) == found


def test_words_of_eight_characters_are_long() -> None:
    assert [is_long("a" * length) for length in (7, 8, 255, 256)] == [False, True, True, False]


@given(st.text(min_size=1), st.text())
def test_a_text_that_stands_in_a_longer_one_leaves_its_atoms_there(inner: str, outer: str) -> None:
    held = set(words(f"{outer} {inner} {outer}"))
    assert set(atoms(inner)) <= held


@given(st.text(min_size=1))
def test_a_sequence_follows_the_words_of_its_text(text: str) -> None:
    assert words(text)[: len(sequence(text))] == sequence(text)
    assert len(words(text)) - len(sequence(text)) in (0, 1)


@given(st.text())
def test_a_flat_text_is_flat(text: str) -> None:
    assert flat(flat(text)) == flat(text)
