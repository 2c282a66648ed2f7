"""The loads of the comparison: texts of exact length in tokens, the same in the same order for every server."""

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

import msgspec

BLOCK = 64
_SPECIAL_TOKENS = 2
_SEED = 20_251


class Load(msgspec.Struct, frozen=True):
    """Texts of `shortest` to `longest` tokens, log-uniform between; each client sends `texts_a_request` and waits."""

    name: str
    shortest: int
    longest: int
    texts_a_request: int
    texts: int

    @property
    def uniform(self) -> bool:
        """Whether all texts are of one length."""
        return self.shortest == self.longest

    def sent(self, clients: int) -> int:
        """Return how many texts are sent: half as many by one client, and at least one request by each."""
        return max(self.texts if clients > 1 else self.texts // 2, clients * self.texts_a_request)


def lengths(load: Load, count: int) -> list[int]:
    """Return the tokens of `count` texts, the special ones among them.

    Each block of 64 holds the same 64 quantiles of the log-uniform distribution in an order of its own, so that what is
    sent weighs the same however many blocks are sent.
    """
    order = random.Random(_SEED)
    spread = math.log(load.longest / load.shortest)
    quantiles = [round(load.shortest * math.exp(spread * (rank + 0.5) / BLOCK)) for rank in range(BLOCK)]
    drawn: list[int] = []
    while len(drawn) < count:
        drawn.extend(order.sample(quantiles, BLOCK))
    return drawn[:count]


def words(tokenizer: Path) -> list[str]:
    """Return the plain words of a WordPiece vocabulary (`tokenizer.json`), each of them one token."""
    vocabulary = json.loads(tokenizer.read_text(encoding="utf-8"))["model"]["vocab"]
    return sorted(word for word in vocabulary if word.isascii() and word.isalpha() and 3 <= len(word) <= 9)


def texts(tokens: Sequence[int], vocabulary: Sequence[str], prefix_tokens: int = 0) -> list[str]:
    """Return a text of each length, no two alike but by chance, `prefix_tokens` short for what goes before it."""
    choose = random.Random(_SEED + 1)
    return [" ".join(choose.choices(vocabulary, k=length - _SPECIAL_TOKENS - prefix_tokens)) for length in tokens]


def requests(sent: Sequence[str], texts_a_request: int) -> list[bytes]:
    """Return the bodies to send, in order."""
    groups = [sent[start : start + texts_a_request] for start in range(0, len(sent), texts_a_request)]
    return [json.dumps({"texts": group}).encode() for group in groups]
