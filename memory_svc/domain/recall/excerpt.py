"""The part of a text that tells most of what a query's words tell, found in one pass."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from memory_svc.domain import blocks
from memory_svc.domain.blocks import BLANKS, SENTENCE_END
from memory_svc.domain.terms import term
from memory_svc.domain.text import ASCII_WORD, MARKS, TOKEN, UNSPACED, fold, words

EXCERPT_CHARS_MAX = 800
# An excerpt begins after a sentence's end and ends at one, or at a blank, where there is one so near.
NEAR_CHARS = 80
WEIGHT_STEPS = 1_000_000
CHARACTER = re.compile(rf"[{UNSPACED}][{MARKS}]*")


class Hit(NamedTuple):
    """Where a text holds words of the query: from, to, and the numbers of the words."""

    start: int
    end: int
    numbers: tuple[int, ...]


class Span(NamedTuple):
    """A part of a text, and what the distinct words tell that it holds."""

    weight: int
    start: int
    end: int


class Asked:
    """The words of a query. Remembers the tokens it has met, so it is made for the texts of one answer."""

    def __init__(self, tells: Mapping[str, float]) -> None:
        """tells: what each word tells, its idf."""
        by_term: dict[str, float] = {}
        for word, idf in tells.items():
            by_term[term(word)] = max(idf, by_term.get(term(word), 0.0))
        self._numbers = {each: number for number, each in enumerate(by_term)}
        self._weights = [1 + round(WEIGHT_STEPS * idf) for idf in by_term.values()]
        self._known: dict[str, tuple[int, ...]] = {}
        self._heads = {each[:1] for each in by_term}
        self._begins: dict[str, bool] = {}

    def hits(self, text: str) -> list[Hit]:
        """Where the text holds the words, in order."""
        tokens = _ascii_tokens(text) if text.isascii() else self._tokens(text)
        return [
            Hit(start, start + min(len(token), EXCERPT_CHARS_MAX), numbers)
            for token, start in tokens
            if (numbers := self._numbers_of(token))
        ]

    def weight(self, hits: Sequence[Hit]) -> int:
        """What the distinct words of these hits tell."""
        return sum(self._weights[number] for number in {number for hit in hits for number in hit.numbers})

    def best(self, hits: Sequence[Hit], chars: int) -> Span:
        """The part of at most so many characters that tells most; of those the shortest, then the first."""
        best = Span(0, 0, 0)
        held: Counter[int] = Counter()
        weight = left = 0
        for hit in hits:
            weight += sum(self._weights[number] for number in hit.numbers if not held[number])
            held.update(hit.numbers)
            while hits[left] is not hit:
                first = hits[left]
                if hit.end - first.start <= chars and any(held[number] == 1 for number in first.numbers):
                    break
                held.subtract(first.numbers)
                weight -= sum(self._weights[number] for number in first.numbers if not held[number])
                left += 1
            span = Span(weight, hits[left].start, hit.end)
            if (span.weight, best.end - best.start) > (best.weight, span.end - span.start):
                best = span
        return best

    def _tokens(self, text: str) -> Iterator[tuple[str, int]]:
        """The tokens of a text and where they begin.

        Of a run in a script without blanks each character and each pair that may be a word of the query.
        """
        for match in TOKEN.finditer(text):
            place = match.start()
            if not match["run"]:
                yield match[0], place
                continue
            characters = CHARACTER.findall(match[0])
            for character, following in zip(characters, [*characters[1:], ""], strict=True):
                begins = self._begins.get(character)
                if self._learn(character) if begins is None else begins:
                    yield character, place
                    yield character + following, place
                place += len(character)

    def _learn(self, character: str) -> bool:
        """Whether a word of the query begins so."""
        begins = self._begins[character] = fold(character)[:1] in self._heads
        return begins

    def _numbers_of(self, token: str) -> tuple[int, ...]:
        numbers = self._known.get(token)
        if numbers is None:
            numbers = self._known[token] = self._read(token)
        return numbers

    def _read(self, token: str) -> tuple[int, ...]:
        """A stem begins as its word does, so that most words are told from those of the query by their first letter."""
        if token[0].lower() not in self._heads and token.isascii() and token.isalpha() and token[1:].islower():
            return ()
        found = (self._numbers.get(term(word)) for word in words(token) if word[:1] in self._heads)
        return tuple(dict.fromkeys(number for number in found if number is not None))


def excerpt(text: str, shown: int, asked: Asked) -> str:
    """The part beyond the first `shown` characters that tells most, with what stands around it.

    "" where those characters tell as much as any part beyond them. A word on the border belongs to what is beyond.
    """
    hits = asked.hits(text)
    before = [hit for hit in hits if hit.end <= shown]
    beyond = hits[len(before) :]
    best = asked.best(beyond, EXCERPT_CHARS_MAX)
    if best.weight <= asked.weight(before):
        return ""
    return text[slice(*_around(text, best, min(shown, beyond[0].start), EXCERPT_CHARS_MAX))].strip()


def excerpt_of(part: blocks.Span, text: str, shown: int, asked: Asked) -> str:
    """What tells most in this part of a text beyond the first `shown` characters; its beginning where no word does.

    "" where the part lies within those characters.
    """
    start = part.start if part.start >= shown else _begin(text, shown, min(shown + NEAR_CHARS, part.stop))
    beyond = text[start : part.stop]
    best = asked.best(asked.hits(beyond), EXCERPT_CHARS_MAX)
    return beyond[slice(*_around(beyond, best, 0, EXCERPT_CHARS_MAX))].strip()


def quoted(text: str, chars: int, asked: Asked | None, near: blocks.Span | None = None) -> tuple[int, int]:
    """From where to where a text is quoted in at most so many characters: all of it, else the part that tells most.

    Where no part holds a word that is asked for, that is the part which is near by its meaning, else the beginning.
    """
    if len(text) <= chars:
        return 0, len(text)
    best = asked.best(asked.hits(text), chars) if asked else Span(0, 0, 0)
    if near and not best.weight:
        best = Span(0, near.start, min(near.stop, near.start + max(chars - NEAR_CHARS, 0)))
    start, end = _around(text, best._replace(end=min(best.end, best.start + chars)), 0, chars)
    part = text[start:end]
    return end - len(part.lstrip()), start + len(part.rstrip())


def _around(text: str, span: Span, floor: int, chars: int) -> tuple[int, int]:
    room = chars - (span.end - span.start)
    after = min(max(room // 2, room - (span.start - floor)), len(text) - span.end)
    start = max(span.start - (room - after), floor)
    return _begin(text, start, span.start), _finish(text, span.end + after, span.end)


def _begin(text: str, start: int, upto: int) -> int:
    """The first good place to begin at, from `start` on and not beyond `upto`."""
    if not start:
        return 0
    near = min(start + NEAR_CHARS, upto)
    found = SENTENCE_END.search(text, start - 1, near) or BLANKS.search(text, start - 1, near)
    if found:
        return found.end()
    while start < upto and _is_mark(text[start]):
        start += 1
    return start


def _finish(text: str, end: int, down_to: int) -> int:
    """The last good place to end at, from `end` back and not before `down_to`."""
    if end == len(text):
        return end
    near = max(end - NEAR_CHARS, down_to)
    for pattern in (SENTENCE_END, BLANKS):
        places = [match.end() for match in pattern.finditer(text, near, end + 1) if match.end() <= end]
        if places:
            return places[-1]
    while end > down_to and _is_mark(text[end]):
        end -= 1
    return end


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


def _ascii_tokens(text: str) -> Iterator[tuple[str, int]]:
    return ((match[0], match.start()) for match in ASCII_WORD.finditer(text))
