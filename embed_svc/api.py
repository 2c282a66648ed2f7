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

from embed_svc import answers, failures, observe
from embed_svc.answers import Answer
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
)
from embed_svc.errors import Unavailable
from embed_svc.failures import Failure, OpenAIFailure
from embed_svc.identity import Capabilities
from embed_svc.observe import Observer
from embed_svc.patience import Caller, caller
from embed_svc.service import Readiness
from embed_svc.settings import Settings

# These answer without a token: whoever starts and stops processes holds none.
OPEN_ROUTES = frozenset({"/livez", "/startupz", "/readyz"})
_OPENAI = "/v1/embeddings"
Lifespan = Callable[[Litestar], AbstractAsyncContextManager[None]]


def _answers(body: type, failed: dict[int, ResponseSpec] = failures.DECLARED) -> dict[int, ResponseSpec]:
    return {int(HTTPStatus.OK): ResponseSpec(body, description="Done", generate_examples=False), **failed}


@post("/embed", status_code=HTTPStatus.OK, responses=_answers(EmbedResponse))
async def embed(
    data: JSONBody[EmbedRequest], request: Request[Any, Any, Any], readiness: NamedDependency[Readiness]
) -> Response[bytes]:
    """Embed texts: one vector of length 1 each, in order."""
    return _response(await answers.embed(data, _caller(request), readiness))


@post(_OPENAI, status_code=HTTPStatus.OK, responses=_answers(OpenAIResponse, failures.declared(failures.OpenAIFailure)))
async def embeddings(
    data: JSONBody[OpenAIRequest], request: Request[Any, Any, Any], readiness: NamedDependency[Readiness]
) -> Response[bytes]:
    """Embed inputs as OpenAI's clients ask: one vector of length 1 each, in order."""
    return _response(await answers.embeddings(data, _caller(request), readiness))


@post("/count_tokens", status_code=HTTPStatus.OK, responses=_answers(CountResponse))
async def count_tokens(
    data: JSONBody[CountRequest], request: Request[Any, Any, Any], readiness: NamedDependency[Readiness]
) -> Response[bytes]:
    """Tell how texts would be read, without embedding them."""
    return _response(await answers.count_tokens(data, _caller(request), readiness))


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
        as_openai = request.scope.get("path_template") == _OPENAI
        told = failures.told(error, settings.body_bytes_max, as_openai, request.scope["state"].get("facts", {}))
        return Response(told.body, status_code=told.status, headers=told.headers, media_type=MediaType.JSON)

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


def _caller(request: Request[Any, Any, Any]) -> Caller:
    return caller(request.scope["state"], request.receive, dict(reversed(list(request.scope["headers"]))))


def _response(answer: Answer) -> Response[bytes]:
    return Response(answer.body, media_type=MediaType.JSON, headers=answer.headers)
