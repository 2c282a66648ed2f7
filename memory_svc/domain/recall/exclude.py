"""Which rows a caller already has before its eyes and does not want again."""

from collections.abc import Sequence

PREFIX_CHARS_MIN = 32


class Excluded:
    """The contents a caller has, blanks and case aside.

    A short one is the whole content; from 32 characters on, either may be the beginning of the other, since a caller
    often holds a cut copy.
    """

    def __init__(self, entries: Sequence[str]) -> None:
        known = {entry.strip().lower() for entry in entries} - {""}
        self._whole = known
        self._by_head: dict[str, list[str]] = {}
        for entry in known:
            if len(entry) >= PREFIX_CHARS_MIN:
                self._by_head.setdefault(entry[:PREFIX_CHARS_MIN], []).append(entry)

    def holds(self, content: str) -> bool:
        """Whether the caller has this content."""
        text = content.strip().lower()
        if text in self._whole:
            return True
        near = self._by_head.get(text[:PREFIX_CHARS_MIN], ()) if len(text) >= PREFIX_CHARS_MIN else ()
        return any(text.startswith(entry) or entry.startswith(text) for entry in near)
