"""Text as the search sees it: folding, words, identifiers and their parts, previews."""

import re
import unicodedata
from collections.abc import Iterable

# Scripts written without blanks between words: each run is cut into overlapping pairs of characters.
UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u1100-\u11ff\uac00-\ud7ff"  # Hangul
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u303c"  # marks that stand for a character: 々 〆 〇
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # kana
    "\u3100-\u318f\u31a0-\u31bf"  # bopomofo, Hangul letters
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han and its extensions
)


def _ranges(points: Iterable[int]) -> str:
    """These code points as the inside of a character class."""
    found: list[list[int]] = []
    for point in points:
        if found and found[-1][1] == point - 1:
            found[-1][1] = point
        else:
            found.append([point, point])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in found)


# Marks belong to the letter before them (हिन्दी is one word), although \w does not take them.
MARKS = _ranges(point for point in range(0x300, 0x1EA00) if unicodedata.category(chr(point))[0] == "M")
# More marks in a row than any letter has make normalising quadratic: Unicode Standard Annex 15, stream-safe format.
CROWD = re.compile(rf"([{MARKS}]{{30}})[{MARKS}]+")
# Left to right: an unspaced run; a word or identifier with what joins its parts; a symbol on its own.
LETTER = rf"(?![{UNSPACED}])\w[{MARKS}]*"
TOKEN = re.compile(
    rf"(?P<run>[{UNSPACED}][{UNSPACED}{MARKS}]*)"
    rf"|(?P<word>(?:{LETTER})+(?:[-_.:/@\\'’#&+]+(?:{LETTER})+)*[+#]*)"
    r"|(?P<symbol>[^\w\s\x00-\x7f])"
)
# The same for a text of ASCII alone, in which there is nothing else: three times as fast.
ASCII_WORD = re.compile(r"\w+(?:[-_.:/@\\'#&+]+\w+)*[+#]*", re.ASCII)
UNSPACED_HEAD = re.compile(f"[{UNSPACED}]")
PART = re.compile(rf"(?:[^\W_][{MARKS}]*)+")
CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
WORD_CHARS_MAX = 256
GROWTH_MAX, GROWTH_FREE = 4, 64
FOLDED_BELOW = "\u0780"  # Latin, Greek, Cyrillic, Armenian, Hebrew, Arabic, Syriac
TATWEEL = "\u0640"  # a stroke that only stretches an Arabic word
# English words that tell nothing of what a question is about. They are indexed, and asked for only if nothing else is.
STOP_WORDS = frozenset(
    "a about after all also am an and any are as at be because been before being but by can could did do does doing"  # noqa: SIM905
    " don for from had has have having he her here hers him his how i if in into is it its just me might more most my"
    " no nor not now of off on once only or other our ours out over own s same she should so some such t than that the"
    " their theirs them then there these they this those through to too under until up us very was we were what when"
    " where which while who whom whose why will with would you your yours".split()
)


def normal(text: str) -> str:
    """A text in NFKC, no letter with more than thirty marks, and not much longer than it was.

    One character may stand for eighteen (U+FDFA); no text that is written for reading grows to four times its length.
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", CROWD.sub(r"\1", text))[: GROWTH_MAX * len(text) + GROWTH_FREE]


def fold(text: str) -> str:
    """The form in which texts are compared: NFKC, casefold, and letters without the marks that may be left out.

    Those are the marks of Latin, Greek, Cyrillic, Hebrew and Arabic; others carry meaning (が is not か) and stay.
    """
    plain = normal(text).casefold().replace("’", "'")
    if plain.isascii():
        return plain
    decomposed = unicodedata.normalize("NFD", plain)
    if not any(map(unicodedata.combining, decomposed)):
        return unicodedata.normalize("NFC", decomposed).replace(TATWEEL, "")
    kept: list[str] = []
    base = ""
    for character in decomposed:
        if not unicodedata.combining(character):
            base = character
        elif base < FOLDED_BELOW and base.isalnum():
            continue
        kept.append(character)
    return unicodedata.normalize("NFC", "".join(kept)).replace(TATWEEL, "")


def words(text: str) -> list[str]:
    """The words of a text, in order, with repetitions: what the word index holds of it.

    An identifier stands whole and in its parts (`bug-183`, `bug`, `183`; `parseConfig`, `parse`, `config`). A run of an
    unspaced script stands as its pairs of characters and its last character, so that one character finds it too.
    """
    if text.isascii():
        return [word for found in ASCII_WORD.findall(text) for word in _word_and_parts(found)]
    return [word for match in TOKEN.finditer(normal(text)) for word in _words_of(match)]


def pairs(run: str) -> list[str]:
    """The overlapping pairs of characters of a run, then its last character."""
    return [run[at : at + 2] for at in range(len(run) - 1)] + [run[-1:]]


def query_words(text: str, count_max: int = 64) -> list[str]:
    """The distinct words a query asks for, in order, at most `count_max` of them; stop words only if none else.

    A run of an unspaced script asks for its pairs; its last character alone asks only where the run has no pair.
    """
    asked: list[str] = []
    for match in TOKEN.finditer(normal(text)):
        found = _words_of(match)
        asked += found[:-1] if match["run"] and len(found) > 1 else found
    telling = [word for word in asked if word.partition("'")[0] not in STOP_WORDS]
    return list(dict.fromkeys(telling or asked))[:count_max]


def is_asking(text: str) -> bool:
    """Whether a query asks for any word."""
    return any(_words_of(match) for match in TOKEN.finditer(normal(text)))


def sequence(text: str) -> list[str]:
    """The words of a text as they mostly follow one another where it stands in a longer one.

    The last character of a run that ends the text stands alone there only where nothing follows it in the longer one.
    """
    tokens = list(TOKEN.finditer(normal(text)))
    found = [word for token in tokens for word in _words_of(token)]
    ends_in_run = bool(tokens) and tokens[-1]["run"] is not None and len(fold(tokens[-1]["run"])) > 1
    return found[:-1] if ends_in_run else found


def atoms(text: str) -> list[str]:
    """The distinct words that any longer text holds in which this one stands: of an identifier its parts alone."""
    found: list[str] = []
    for token in TOKEN.finditer(normal(text)):
        each = _words_of(token)
        found += (each[:-1] if token["run"] else each[1:]) or each
    return list(dict.fromkeys(found))


def is_unspaced(word: str) -> bool:
    """Whether a word is a pair of characters of an unspaced script, or one of them alone."""
    return not word.isascii() and UNSPACED_HEAD.match(word) is not None


def is_single_character(word: str) -> bool:
    """Whether a word is one character of an unspaced script, which is then looked for as the head of a pair."""
    return len(word) == 1 and is_unspaced(word)


def preview(text: str, chars: int) -> str:
    """The head of a text, a pure prefix of at most `chars` characters."""
    return text[:chars]


def _words_of(token: re.Match[str]) -> list[str]:
    if token["run"]:
        return pairs(fold(token["run"]))
    if token["word"]:
        return _word_and_parts(token["word"])
    return [token["symbol"]] if unicodedata.category(token["symbol"])[0] == "S" else []


def _word_and_parts(word: str) -> list[str]:
    if word.isascii() and word.isalpha() and (word[1:].islower() or len(word) == 1):
        return [word.lower()[:WORD_CHARS_MAX]]  # most words: nothing to fold, nothing to take apart
    whole = fold(word)
    joined = PART.findall(word)
    parts = [fold(piece) for part in joined for piece in _camel_parts(part)]
    found = [whole] if [whole] == parts else [whole, *map(fold, joined), *parts]
    return list(dict.fromkeys(each[:WORD_CHARS_MAX] for each in found if each))


def _camel_parts(part: str) -> list[str]:
    return CAMEL.findall(part) if part.isascii() else [part]
