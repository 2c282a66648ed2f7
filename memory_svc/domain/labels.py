"""What memories are filtered by: their tags, and values of their metadata. Normal forms and limits."""

import unicodedata
from collections.abc import Mapping, Sequence

from memory_svc.domain.text import normal
from memory_svc.errors import Invalid

TAGS_MAX = 32
TAG_CHARS_MAX = 100
VALUES_MAX = 32
Scalar = str | int | float | bool | None


def tags_of(given: Sequence[str]) -> tuple[str, ...]:
    """Tags as a memory keeps them: as they are given but for outer blanks, each once however it is spelled.

    Raises Invalid where one is empty or too long, or there are too many.
    """
    kept: dict[str, str] = {}
    for at, text in enumerate(given):
        tag = text.strip()
        if not tag:
            raise Invalid(f"tags[{at}]: is empty; leave it out")
        if len(tag) > TAG_CHARS_MAX:
            raise Invalid(f"tags[{at}]: has {len(tag)} characters; shorten it to {TAG_CHARS_MAX}")
        kept.setdefault(folded(tag), tag)
    if len(kept) > TAGS_MAX:
        raise Invalid(f"tags: {len(kept)} are too many; give at most {TAGS_MAX}")
    return tuple(kept.values())


def folded(tag: str) -> str:
    """The form in which tags are compared: NFKC and casefold."""
    return unicodedata.normalize("NFKC", normal(tag).casefold())


def asked_tags(given: Sequence[str]) -> tuple[str, ...]:
    """The tags of a filter, folded. Raises what `tags_of` raises."""
    return tuple(map(folded, tags_of(given)))


def asked_values(given: Mapping[str, object]) -> tuple[tuple[str, Scalar], ...]:
    """The values of a filter by the keys of the metadata that must hold them.

    Raises Invalid where one is an object or a list, or there are too many.
    """
    if len(given) > VALUES_MAX:
        raise Invalid(f"metadata: {len(given)} keys are too many; give at most {VALUES_MAX}")
    asked: list[tuple[str, Scalar]] = []
    for key, value in given.items():
        if value is not None and not isinstance(value, str | int | float):
            raise Invalid(f"metadata.{key[:80]}: is no text, number, true, false or null; give one of these")
        asked.append((key, value))
    return tuple(asked)
