"""The HTTP routes, and the application around them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Any

from litestar import Litestar, MediaType, Request, Response, get, post
from litestar.di import NamedDependency, Provide
from litestar.openapi import OpenAPIConfig, ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.params import JSONBody
from litestar.types import Guard

from embed_svc import bodies, failures, models, observe
from embed_svc.bodies import (
    Alive,
    CountRequest,
    CountResponse,
    EmbedRequest,
    EmbedResponse,
    JsonRequest,
    OpenAIRequest,
    OpenAIResponse,
    Ready,
    TokenInfo,
)
from embed_svc.encoding import encoded, vectors_as
from embed_svc.errors import Internal, Invalid, Unavailable
from embed_svc.failures import Failure, OpenAIFailure
from embed_svc.identity import Capabilities
from embed_svc.observe import Observer
from embed_svc.patience import while_awaited
from embed_svc.service import Embedded, Readiness, Reading
from embed_svc.settings import Settings

# These answer without a token: whoever starts and stops processes holds none.
OPEN_ROUTES = frozenset({"/livez", "/startupz", "/readyz"})
TRUNCATED = "x-embed-truncated"
_OPENAI = "/v1/embeddings"
Lifespan = Callable[[Litestar], AbstractAsyncContextManager[None]]


def _answers(body: type, failed: dict[int, ResponseSpec] = failures.DECLARED) -> dict[int, ResponseSpec]:
    return {int(HTTPStatus.OK): ResponseSpec(body, description="Done", generate_examples=False), **failed}


@post("/embed", status_code=HTTPStatus.OK, responses=_answers(EmbedResponse))
async def embed(
    data: JSONBody[EmbedRequest], request: Request[Any, Any, Any], readiness: NamedDependency[Readiness]
) -> Response[bytes]:
    """Embed texts: one vector of length 1 each, in order."""
    bodies.check_texts(data.texts)
    embedder = readiness.embedder
    embedded = await while_awaited(request, embedder.embed(data.texts, data.input_type, data.token_info))
    body = {
        "embeddings": vectors_as(embedded.vectors, data.encoding_format),
        "dimensions": embedder.info.dimensions,
        "fingerprint": embedder.info.fingerprint,
    }
    if data.token_info:
        body["token_info"] = [_told(reading, embedder.info.window) for reading in embedded.readings]
    return _answer(request, body, embedded)


@post(_OPENAI, status_code=HTTPStatus.OK, responses=_answers(OpenAIResponse, failures.declared(failures.OpenAIFailure)))
async def embeddings(
    data: JSONBody[OpenAIRequest], request: Request[Any, Any, Any], readiness: NamedDependency[Readiness]
) -> Response[bytes]:
    """Embed inputs as OpenAI's clients ask: one vector of length 1 each, in order."""
    texts, rows = bodies.texts_or_tokens(data.input)
    embedder = readiness.embedder
    if data.model != embedder.info.name and any(data.model == one.name for one in models.MODELS):
        raise Invalid(f"model: another is served here, {embedder.info.name}; send that name, or any that is no model's")
    embedder.check_dimensions(data.dimensions)
    work = embedder.embed_tokens(rows, data.input_type) if rows else embedder.embed(texts, data.input_type)
    embedded = await while_awaited(request, work)
    vectors = vectors_as(embedder.shorten(embedded.vectors, data.dimensions), data.encoding_format)
    body = {
        "object": "list",
        "data": [{"object": "embedding", "index": index, "embedding": one} for index, one in enumerate(vectors)],
        "model": embedder.info.name,
        "usage": {"prompt_tokens": embedded.tokens, "total_tokens": embedded.tokens},
    }
    return _answer(request, body, embedded)


@post("/count_tokens", status_code=HTTPStatus.OK, responses=failures.DECLARED)
async def count_tokens(
    data: JSONBody[CountRequest], request: Request[Any, Any, Any], readiness: NamedDependency[Readiness]
) -> CountResponse:
    """Tell how texts would be read, without embedding them."""
    bodies.check_texts(data.texts)
    embedder = readiness.embedder
    readings = await while_awaited(request, embedder.count(data.texts, data.input_type))
    return CountResponse(token_info=[_told(reading, embedder.info.window) for reading in readings])


@get("/capabilities", responses={401: failures.DECLARED[401]}, sync_to_thread=False)
def capabilities(readiness: NamedDependency[Readiness]) -> Capabilities:
    """Tell who makes the vectors, and what of that is not known (yet)."""
    return readiness.capabilities


@get("/livez", sync_to_thread=False)
def livez() -> Alive:
    """Say that the process answers."""
    return Alive()


@get("/startupz", responses={503: failures.DECLARED[503]}, sync_to_thread=False)
def startupz(readiness: NamedDependency[Readiness]) -> Alive:
    """Say whether the model has once been ready."""
    if not readiness.started:
        raise Unavailable(f"not started: {readiness.reason}")
    return Alive()


@get("/readyz", responses={503: failures.DECLARED[503]}, sync_to_thread=False)
def readyz(readiness: NamedDependency[Readiness]) -> Ready:
    """Say whether the model has passed its self-test and serves, and who it is."""
    info = readiness.embedder.info
    return Ready(model=info.name, revision=info.revision, dimensions=info.dimensions, fingerprint=info.fingerprint)


@get("/metrics", media_type=MediaType.TEXT, responses={401: failures.DECLARED[401]}, sync_to_thread=False)
def metrics(observer: NamedDependency[Observer]) -> Response[bytes]:
    """Return the metrics in Prometheus' text format."""
    return Response(observer.exposition(), media_type=observe.EXPOSITION_TYPE)


def create(
    settings: Settings,
    readiness: Readiness,
    observer: Observer,
    lifespan: Sequence[Lifespan] = (),
    guards: Sequence[Guard] = (),
) -> Litestar:
    """Return the application, its failures all of one shape, its OpenAPI as plain JSON at /schema/openapi.json."""

    def fail(request: Request[Any, Any, Any], error: Exception) -> Response[Failure | OpenAIFailure]:
        problem = failures.problem_of(error, settings.body_bytes_max)
        if isinstance(problem, Internal):
            observe.failed("request failed", error, **request.scope["state"].get("facts", {}))
        return failures.answer(problem, error, request.scope.get("path_template") == _OPENAI)

    return Litestar(
        [embed, embeddings, count_tokens, capabilities, livez, startupz, readyz, metrics],
        dependencies={
            "readiness": Provide(lambda: readiness, sync_to_thread=False),
            "observer": Provide(lambda: observer, sync_to_thread=False),
        },
        exception_handlers={Exception: fail},
        guards=guards,
        lifespan=lifespan,
        request_class=JsonRequest,
        request_max_body_size=settings.body_bytes_max,
        openapi_config=OpenAPIConfig(
            title="embed_svc", version="1", path="/schema", render_plugins=[JsonRenderPlugin()]
        ),
        logging_config=None,
        debug=False,
        pdb_on_exception=False,
    )


def ranges(indices: Sequence[int]) -> str:
    """Return ascending indices in few words: `0,3-5`."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1][1:] = [index]
        else:
            runs.append([index])
    return ",".join("-".join(map(str, run)) for run in runs)


def _answer(request: Request[Any, Any, Any], body: Any, embedded: Embedded) -> Response[bytes]:
    facts = request.scope["state"].setdefault("facts", {})
    facts.update(texts=len(embedded.readings), tokens=embedded.tokens, truncated=embedded.truncated)
    cut = ranges([index for index, reading in enumerate(embedded.readings) if reading.truncated])
    headers = {TRUNCATED: cut} if cut else {}
    return Response(encoded(body), media_type=MediaType.JSON, headers=headers)


def _told(reading: Reading, window: int) -> TokenInfo:
    return TokenInfo(count=reading.count, window=window, truncated=reading.truncated, window_end_char=reading.end)
