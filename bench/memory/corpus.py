"""Memories and questions made from a seed: the same ones in the same order for every server and every run."""

import bisect
import itertools
import random
from collections.abc import Iterator, Sequence

AGENT = "bench"
WORDS = 4_000
QUESTIONS = 50
SYLLABLES = tuple(
    consonant + vowel + end
    for consonant in "b br c cl d dr f g gr h k l m n p pl r s st t tr v w".split()  # noqa: SIM905
    for vowel in ("a", "e", "i", "o", "u", "ea", "ou")
    for end in ("", "n", "r", "s")
)
# The most frequent words of English text, most frequent first: the head of the distribution.
HEAD = tuple(
    """
    the of and to a in is that it was for on with he as you be at by i this had not are but from or have an they which
    one were all we when there can no more if out so said what up its about than into them only other time new some
    could these two may then do first any my now such like our over man me even most made after also did many before
    must through back years where much your way well down should because each just those people how too
    """.split()  # noqa: SIM905
)
_SEED = 20_252


class Language:
    """Words whose frequency falls as 1 over their rank (Zipf), the most frequent of English first."""

    def __init__(self) -> None:
        made = random.Random(_SEED)
        words = dict.fromkeys(HEAD)
        while len(words) < WORDS:
            words["".join(made.choices(SYLLABLES, k=made.choice((2, 2, 3))))] = None
        self.words = tuple(words)
        self._heights = list(itertools.accumulate(1.0 / (rank + 2.7) for rank in range(1, WORDS + 1)))

    def sentence(self, chosen: random.Random, length: int) -> list[str]:
        """So many words, each by its frequency."""
        top = self._heights[-1]
        return [self.words[bisect.bisect(self._heights, chosen.random() * top)] for _ in range(length)]


def memories(language: Language) -> Iterator[str]:
    """Texts of 12 to 40 words without end, no two alike: each tells its number."""
    chosen = random.Random(_SEED + 1)
    for number in itertools.count(1):
        words = language.sentence(chosen, chosen.randint(12, 40))
        words.insert(chosen.randrange(len(words)), f"note-{number}")
        yield " ".join(words).capitalize() + "."


def questions(language: Language, count: int = QUESTIONS) -> list[str]:
    """Questions of 6 to 12 words by the same frequencies, so that about half of their words are stop words."""
    chosen = random.Random(_SEED + 2)
    found: list[str] = []
    while len(found) < count:
        words = language.sentence(chosen, chosen.randint(6, 12))
        if telling(words):
            found.append(" ".join(words).capitalize() + "?")
    return found


def telling(words: Sequence[str]) -> int:
    """How many of these words are not among the most frequent ones."""
    return sum(word not in HEAD for word in words)
