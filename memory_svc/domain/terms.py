"""What the word index holds of a row, in fields, and what a query asks it for: stems, phrases, pieces of longer words.

Stems: Porter, An Algorithm for Suffix Stripping, 1980, in the English form of the Snowball project.
"""

import calendar
import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from snowballstemmer.english_stemmer import EnglishStemmer  # type: ignore[import-untyped]

from memory_svc.domain.blocks import Passage
from memory_svc.domain.memory import Episode, Memory, Row
from memory_svc.domain.text import STOP_WORDS, TOKEN, WORD_CHARS_MAX, fold, normal, words

STEMS_KEPT = 50_000
SHORT_KEPT = 1_000
STEMMED_CHARS = range(3, 40)
LONG_CHARS = range(8, WORD_CHARS_MAX)
PIECE_CHARS_MIN = 4
PIECES_MAX = PHRASES_MAX = 8
SESSION_KEYS = ("session", "session_id")
TALK, SESSION = "talk", "session "
EXTRAS_KEYS = ("caption", "keywords", "tags", "title")
# What joins or marks the parts of an identifier alone; a number with its unit (20th, 5km) is none.
CODE = re.compile(r"[_:@\\#]|\w[./]\w|[a-z][A-Z]|[+#]$")
# Without any of these there is no identifier: most queries need not be taken apart.
HINT = re.compile(r"\d|[_:@\\#+]|\w[./]\w|[a-z][A-Z]|[^\x00-\x7f]")
JOINT = re.compile(r"[/.:]")
MEASURE = re.compile(r"[0-9.:,]+[A-Za-z]{0,2}")
VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+")
# A message as a log has it, its kind first (`ValueError: negative timeout`); a name and its version (`numpy==2.4.6`).
VERBATIM = re.compile(r"\w[\w.\[\]-]*: .*\w.*|\w[\w.-]*(?: |==)v?[0-9]+(?:\.[0-9]+)+")
VERBATIM_CHARS_MAX = 300
QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”|«([^»]+)»|「([^」]+)」|『([^』]+)』|`([^`]+)`')


class Fields(NamedTuple):
    """The texts of a row that are searched."""

    speaker: str = ""
    date: str = ""
    text: str = ""
    extras: str = ""


def term(word: str) -> str:
    """The term under which a folded word is indexed: the stem of an English one, any other word as it is."""
    return _stem(word) if len(word) in STEMMED_CHARS and word.isascii() and word.isalpha() else word


def words_of(fields: Fields) -> tuple[Sequence[str], Sequence[str], Sequence[str], Sequence[str]]:
    """The words of each field, in order. Speakers and days are few, so that theirs are kept."""
    return _short_words(fields.speaker), _short_words(fields.date), words(fields.text), words(fields.extras)


def is_long(word: str) -> bool:
    """Whether a word may be looked for by a piece of it."""
    return len(word) in LONG_CHARS


def fields_of(row: Row) -> Fields:
    """What is searched of a row; nothing of a profile."""
    if isinstance(row, Memory):
        return Fields(_speaker(row.source), written_out(row.timestamp), row.content, _extras(row.metadata))
    if isinstance(row, Episode):
        days = dict.fromkeys(written_out(each) for each in (row.start_time or row.created_at, row.end_time))
        return Fields("", " ".join(days).strip(), row.summary, row.keywords)
    return Fields()


def embedded(row: Row) -> Passage:
    """The text whose vector a row has: a line of talk with who speaks and the day before it; "" of a profile.

    Both are left out where the text begins with the speaker already, and stand before its further blocks all the same.
    """
    if isinstance(row, Episode):
        return Passage(f"{row.summary}\n{row.keywords}" if row.keywords else row.summary)
    if not isinstance(row, Memory):
        return Passage("")
    speaker = name_of(row.source)
    lead = f"{speaker} ({_day_in_words(row.timestamp[:10])}): " if speaker else ""
    if row.content.startswith(speaker):
        return Passage(row.content, lead)
    return Passage(lead + row.content, lead, len(lead))


def talk_of(memory: Memory) -> str:
    """What talk a memory is a line of, beside its agent, project and channel; "" = it stands alone.

    A line is one that names a session, was said in a channel, or tells who spoke.
    """
    named = (memory.metadata.get(key) for key in SESSION_KEYS)
    session = next((str(each) for each in named if isinstance(each, str | int) and each != ""), "")
    return f"{SESSION}{session}" if session else TALK if memory.channel or name_of(memory.source) else ""


def name_of(source: Mapping[str, Any] | str) -> str:
    """The name of the one who speaks; "" where none is told."""
    name = "" if isinstance(source, str) else source.get("name", "")
    return name if isinstance(name, str) else ""


def written_out(instant: str) -> str:
    """The day of an instant as people and machines write it: `8 may 2023 monday 2023-05-08`; "" where it is none."""
    return _day_written_out(instant[:10])


def phrases(query: str) -> list[str]:
    """The distinct phrases that a query quotes, folded, blanks made one; a message that quotes none is one itself."""
    found = ["".join(match.groups("")) for match in QUOTED.finditer(normal(query))]
    message = query.strip(" \n.")
    if not found and len(message) <= VERBATIM_CHARS_MAX and VERBATIM.fullmatch(message):
        found = [message]
    return [phrase for phrase in dict.fromkeys(map(flat, found)) if words(phrase)][:PHRASES_MAX]


def flat(text: str) -> str:
    """A text as phrases are compared: folded, every run of blanks one blank."""
    return " ".join(fold(text).split())


def pieces(query: str) -> list[str]:
    """The distinct words and identifiers of a query that may be pieces of longer words, longest first."""
    found = (fold(match["word"])[:WORD_CHARS_MAX] for match in TOKEN.finditer(normal(query)) if match["word"])
    asked = [word for word in dict.fromkeys(found) if len(word) >= PIECE_CHARS_MIN and word not in STOP_WORDS]
    return sorted(asked, key=len, reverse=True)[:PIECES_MAX]


def identifiers(query: str) -> list[str]:
    """The distinct identifiers of a query, folded: names of code, errors, paths, versions, numbers of tickets."""
    if not HINT.search(query):
        return []
    found = (match["word"][:WORD_CHARS_MAX] for match in TOKEN.finditer(normal(query)) if match["word"])
    return list(dict.fromkeys(fold(word) for word in found if _is_identifier(word)))


def names(query: str) -> tuple[list[str], bool]:
    """The distinct identifiers and versions of a query, folded, and whether it is nothing else."""
    if not HINT.search(query):
        return [], False
    tokens = [match["word"] for match in TOKEN.finditer(normal(query))]
    found = [word for word in tokens if word and (_is_identifier(word) or VERSION.fullmatch(word))]
    return list(dict.fromkeys(fold(word[:WORD_CHARS_MAX]) for word in found)), len(found) == len(tokens) > 0


def _is_identifier(word: str) -> bool:
    parts = JOINT.split(word)
    if MEASURE.fullmatch(word) or all(len(each) == 1 or each.casefold() in STOP_WORDS for each in parts):
        return False
    return bool(CODE.search(word)) or (any(map(str.isdigit, word)) and any(map(str.isalpha, word)))


@lru_cache(STEMS_KEPT)
def _stem(word: str) -> str:
    return str(EnglishStemmer().stemWord(word))  # one for each word: threads cannot share one


@lru_cache(SHORT_KEPT)
def _short_words(text: str) -> tuple[str, ...]:
    return tuple(words(text))


@lru_cache(SHORT_KEPT)
def _day_in_words(day: str) -> str:
    """The day as people write it: `8 May 2023`; as it is where it is none."""
    try:
        found = dt.date.fromisoformat(day)
    except ValueError:
        return day
    return f"{found.day} {calendar.month_name[found.month]} {found.year}"


@lru_cache(SHORT_KEPT)
def _day_written_out(day: str) -> str:
    try:
        found = dt.date.fromisoformat(day)
    except ValueError:
        return ""
    month, weekday = calendar.month_name[found.month], calendar.day_name[found.weekday()]
    return f"{found.day} {month} {found.year} {weekday} {found.isoformat()}".lower()


def _speaker(source: Mapping[str, Any] | str) -> str:
    if isinstance(source, str):
        return source
    return _joined(source.get(key) for key in ("name", "id"))


def _extras(metadata: Mapping[str, Any]) -> str:
    found: list[object] = []
    for key in EXTRAS_KEYS:
        value = metadata.get(key)
        found += value if isinstance(value, list) else [value]
    return _joined(found)


def _joined(values: Iterable[object]) -> str:
    return " ".join(dict.fromkeys(each for each in values if isinstance(each, str) and each))
