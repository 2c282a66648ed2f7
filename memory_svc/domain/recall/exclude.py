"""Which rows a caller already has before its eyes and does not want again."""

from collections.abc import Sequence

PREFIX_CHARS_MIN = 32


def is_excluded(content: str, entries: Sequence[str]) -> bool:
    """Whether a content matches one of the entries, blanks and case aside.

    A short entry must be the whole content; from 32 characters on, either may be the beginning of the other, since a
    caller often holds a cut copy.
    """
    text = content.strip().lower()
    for entry in entries:
        known = entry.strip().lower()
        if not known:
            continue
        if text == known:
            return True
        longer = len(known) >= PREFIX_CHARS_MIN
        if longer and (text.startswith(known) or (len(text) >= PREFIX_CHARS_MIN and known.startswith(text))):
            return True
    return False
