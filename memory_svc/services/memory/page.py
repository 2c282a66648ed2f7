"""Where a list goes on: a cursor is the last row of a page, in a form that callers hand back as it is."""

import base64
import binascii
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from memory_svc.domain.memory import Episode, Memory
from memory_svc.errors import Invalid
from memory_svc.storage.interface import Position

Cursor = Annotated[str, Meta(max_length=200, description="The next_cursor of the page before.")]


def position(cursor: str) -> Position | None:
    """The row after which a page begins; None for the first page.

    Raises Invalid when the cursor is none that a list has given.
    """
    if not cursor:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor.encode()), type=Position)
    except (msgspec.DecodeError, binascii.Error, ValueError) as error:
        raise Invalid("cursor: is none that a list has given; leave it out to begin with the first page") from error


def next_cursor(rows: list[Memory] | list[Episode], limit: int) -> str | UnsetType:
    """The cursor after `limit` of these rows, where there are more than that."""
    if not 0 < limit < len(rows):
        return UNSET
    last = rows[limit - 1]
    return base64.urlsafe_b64encode(msgspec.json.encode(Position(last.created_at, last.id))).decode()
