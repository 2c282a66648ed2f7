"""What the routes that take texts answer, whoever has read the request: a body in, an Answer out."""

from collections.abc import Sequence
from typing import Any

import msgspec

from embed_svc import bodies, models
from embed_svc.bodies import CountRequest, CountResponse, EmbedRequest, OpenAIRequest, TokenInfo
from embed_svc.encoding import encoded, vectors_as
from embed_svc.errors import Invalid
from embed_svc.patience import Caller, while_awaited
from embed_svc.service import Embedded, Readiness, Reading

TRUNCATED = "x-embed-truncated"


class Answer(msgspec.Struct, frozen=True):
    """A body of JSON, and the headers that are not those of every answer."""

    body: bytes
    headers: dict[str, str] = {}


async def embed(data: EmbedRequest, caller: Caller, readiness: Readiness) -> Answer:
    """Answer `/embed`. Raises a Problem where it cannot be, as `Embedder.embed` and `while_awaited` do."""
    bodies.check_texts(data.texts)
    embedder = readiness.embedder
    embedded = await while_awaited(caller, embedder.embed(data.texts, data.input_type, data.token_info, caller.span))
    body = {
        "embeddings": vectors_as(embedded.vectors, data.encoding_format),
        "dimensions": embedder.info.dimensions,
        "fingerprint": embedder.info.fingerprint,
    }
    if data.token_info:
        body["token_info"] = [_told(reading, embedder.info.window) for reading in embedded.readings]
    return _answer(caller, body, embedded)


async def embeddings(data: OpenAIRequest, caller: Caller, readiness: Readiness) -> Answer:
    """Answer `/v1/embeddings`. Raises as `embed`, and Invalid where another model is asked for, or other dimensions."""
    texts, rows = bodies.texts_or_tokens(data.input)
    embedder = readiness.embedder
    if data.model != embedder.info.name and any(data.model == one.name for one in models.MODELS):
        raise Invalid(f"model: another is served here, {embedder.info.name}; send that name, or any that is no model's")
    embedder.check_dimensions(data.dimensions)
    if rows:
        work = embedder.embed_tokens(rows, data.input_type, caller.span)
    else:
        work = embedder.embed(texts, data.input_type, span=caller.span)
    embedded = await while_awaited(caller, work)
    vectors = vectors_as(embedder.shorten(embedded.vectors, data.dimensions), data.encoding_format)
    body = {
        "object": "list",
        "data": [{"object": "embedding", "index": index, "embedding": one} for index, one in enumerate(vectors)],
        "model": embedder.info.name,
        "usage": {"prompt_tokens": embedded.tokens, "total_tokens": embedded.tokens},
    }
    return _answer(caller, body, embedded)


async def count_tokens(data: CountRequest, caller: Caller, readiness: Readiness) -> Answer:
    """Answer `/count_tokens`. Raises as `embed`."""
    bodies.check_texts(data.texts)
    embedder = readiness.embedder
    readings = await while_awaited(caller, embedder.count(data.texts, data.input_type, caller.span))
    told = [_told(reading, embedder.info.window) for reading in readings]
    return Answer(encoded(CountResponse(token_info=told)))


def ranges(indices: Sequence[int]) -> str:
    """Return ascending indices in few words: `0,3-5`."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1][1:] = [index]
        else:
            runs.append([index])
    return ",".join("-".join(map(str, run)) for run in runs)


def _answer(caller: Caller, body: Any, embedded: Embedded) -> Answer:
    caller.facts.update(texts=len(embedded.readings), tokens=embedded.tokens, truncated=embedded.truncated)
    cut = ranges([index for index, reading in enumerate(embedded.readings) if reading.truncated])
    return Answer(encoded(body), {TRUNCATED: cut} if cut else {})


def _told(reading: Reading, window: int) -> TokenInfo:
    return TokenInfo(count=reading.count, window=window, truncated=reading.truncated, window_end_char=reading.end)
