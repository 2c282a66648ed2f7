"""Texts to tokens by a model's own tokenizer: prefixed, cut to the window, closed by the end token, piece by piece."""

from collections.abc import Iterator, Sequence
from typing import Any

from embed_svc.errors import Invalid
from embed_svc.models import Tokens

# Reading takes up to 600 bytes a character while it lasts: 2.3 GB for a text of 4 MB read at once.
PIECE_CHARS_MAX = 32_768
_BLANK_WITHIN = 256


class Reader:
    """Reads texts for one model; used by several threads at once."""

    def __init__(self, tokenizer: Any, end: int, window: int) -> None:
        """`tokenizer` is one of the library `tokenizers`, `end` the id that closes every text."""
        # The file's own cut and padding (MiniLM's says 128 and 128) would stand in for the declared window.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._end = end
        self._window = window
        self._size = tokenizer.get_vocab_size(with_added_tokens=True)
        empty = tokenizer.encode("", add_special_tokens=True).ids
        self._head = empty[: -1 if empty and empty[-1] == end else None]

    def read(self, prefix: str, text: str, whole: bool) -> Tokens:
        """Return one text as tokens; what lies behind the window is read only where it is to be counted."""
        ids: list[int] = []
        kept: list[tuple[int, Any]] = []
        count = len(self._head) + 1
        done = -len(prefix)
        for piece in pieces(prefix + text):
            read = self._tokenizer.encode(piece, add_special_tokens=False)
            count += len(read.ids)
            if len(ids) < self._window:
                ids.extend(read.ids)
                kept.append((done, read))
            done += len(piece)
            if count > self._window and not whole:
                break
        end = len(text) if count <= self._window else self._cut(kept)
        return Tokens(ids=closed(self._head, ids, self._end, self._window), count=count, end=end)

    def _cut(self, kept: Sequence[tuple[int, Any]]) -> int:
        """Return where in its text the last token ends that fits the window, of pieces that begin at these places."""
        ends: list[int] = [begin + last for begin, read in kept for _, last in read.offsets]
        room = max(self._window - len(self._head) - 1, 0)
        return max([0, *ends[max(room - 1, 0) : room]])

    def adopt(self, prefix: str, row: Sequence[int], index: int) -> Tokens:
        """Return tokens of a text whose ids are given, with or without those that open and close it.

        Raises Invalid, naming `index`, where one is no token of this model.
        """
        wrong = next((place for place, number in enumerate(row) if not 0 <= number < self._size), None)
        if wrong is not None:
            raise Invalid(
                f"input[{index}][{wrong}] is no token of this model: send ids from 0 to {self._size - 1}, or the text"
            )
        own = list(row)
        if own[-1] == self._end:
            del own[-1]
        if self._head and own[: len(self._head)] == self._head:
            del own[: len(self._head)]
        ids = [*self._tokenizer.encode(prefix, add_special_tokens=False).ids, *own]
        return Tokens(ids=closed(self._head, ids, self._end, self._window), count=len(self._head) + len(ids) + 1)


def closed(head: Sequence[int], ids: Sequence[int], end: int, window: int) -> list[int]:
    """Return what the model reads of a text, within `window` tokens: what opens it, the text, what closes it."""
    return [*[*head, *ids][: window - 1], end]


def pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces of at most PIECE_CHARS_MAX characters, cut behind a blank where one is near."""
    start = 0
    while start < len(text):
        stop = start + PIECE_CHARS_MAX
        if stop < len(text):
            blank = max(text.rfind(mark, stop - _BLANK_WITHIN, stop) for mark in " \n\t")
            stop = blank + 1 if blank > start else stop
        yield text[start:stop]
        start = stop
