"""The vectors of a long text: what the model left of one block is read in further ones, until nothing is left."""

import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from memory_svc.domain.blocks import Passage, Span, planned, unread
from memory_svc.domain.memory import Block, Vector
from memory_svc.embedding import PROBE, Embedder, Role
from memory_svc.settings import Settings

Ask = Callable[[Sequence[str]], Awaitable[list[Vector | None] | None]]
Embed = Callable[[Sequence[str], Role, float | None, float], Awaitable[list[Vector | None] | None]]
# What is left after so many rounds is text of which a model reads a few characters at a time.
ROUNDS_MAX = 6
# More than that a caller does not wait for.
AWAITED_MAX = 16
ASKED_AT_ONCE = 32
SECONDS_MAX = 60.0


def first_text(passage: Passage, settings: Settings) -> str:
    """The text of the first block, or the whole one where the model's window says how long blocks are."""
    return passage.block(planned(passage, settings.block_chars)[0]) if settings.blocks_max > 1 else passage.text


def begun(passage: Passage, vector: Vector, settings: Settings) -> Vector:
    """The vector of `first_text`, which tells whether further blocks are to follow."""
    if settings.blocks_max == 1:
        return msgspec.structs.replace(vector, read=None)
    chars = planned(passage, settings.block_chars)[0].stop
    return vector if chars == len(passage.text) or vector.read else msgspec.structs.replace(vector, read=chars)


async def in_time(embed: Embed, passage: Passage, first: Vector, settings: Settings, until: float) -> Vector:
    """The vector with its further blocks, or as it is where they do not all come until then, by time.monotonic()."""

    async def ask(texts: Sequence[str]) -> list[Vector | None] | None:
        left = until - time.monotonic()
        return await _asked(embed, texts, left) if len(texts) <= AWAITED_MAX and left > 0 else None

    return (await _completed(passage, first, settings, ask) if first.read is not None else None) or first


async def at_leisure(embedder: Embedder, passage: Passage, settings: Settings) -> Vector | None:
    """The vector with all its blocks; without values where the model makes none of it, None where they do not come."""

    async def ask(texts: Sequence[str]) -> list[Vector | None] | None:
        found: list[Vector | None] = []
        for at in range(0, len(texts), ASKED_AT_ONCE):
            vectors = await _asked(embedder.embed, texts[at : at + ASKED_AT_ONCE], SECONDS_MAX)
            if vectors is None:
                return None
            found += vectors
        return found

    vectors = await ask([first_text(passage, settings)])
    if vectors is None:
        return None
    first = begun(passage, vectors[0], settings) if vectors[0] else Vector(embedder.fingerprint, b"")
    return first if first.read is None else await _completed(passage, first, settings, ask)


async def _completed(passage: Passage, first: Vector, settings: Settings, ask: Ask) -> Vector | None:
    spans = planned(passage, settings.block_chars)
    read = [(_reached(passage, spans[0], first), first.values)]
    wanted = [*unread(passage, spans[0], first.read), *spans[1:]]
    for _ in range(ROUNDS_MAX):
        wanted = wanted[: settings.blocks_max - len(read)]
        if not wanted:
            break
        vectors = await ask([passage.block(span) for span in wanted])
        if vectors is None:
            return None
        found = [(span, vector) for span, vector in zip(wanted, vectors, strict=True) if vector]
        if any(vector.fingerprint != first.fingerprint for _, vector in found):
            return None
        read += [(_reached(passage, span, vector), vector.values) for span, vector in found]
        wanted = [more for span, vector in found for more in unread(passage, span, vector.read)]
    blocks = tuple(Block(*passage.within(span), values) for span, values in sorted(read))
    return msgspec.structs.replace(first, read=None, blocks=blocks if len(blocks) > 1 else ())


def _reached(passage: Passage, span: Span, vector: Vector) -> Span:
    return span if vector.read is None else Span(span.start, min(passage.reached(span, vector.read), span.stop))


async def _asked(embed: Embed, texts: Sequence[str], within: float) -> list[Vector | None] | None:
    """With a text that every model can read beside them, one that it cannot read is told from a server that fails."""
    vectors = await embed([*texts, PROBE], "document", SECONDS_MAX, within)
    return vectors[:-1] if vectors and vectors[-1] else None
