"""The HTTP routes, the shapes of their bodies, and the one table from a kind of failure to a status."""

import json
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Litestar, MediaType, Request, Response, get, post
from litestar.di import NamedDependency, Provide
from litestar.exceptions import (
    ClientException,
    InternalServerException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.openapi import OpenAPIConfig, ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.params import JSONBody
from litestar.types import LifespanHook
from msgspec import Meta

from embed_svc import observe
from embed_svc.errors import Internal, Invalid, Kind, NotFound, Problem, TooLarge, Unavailable
from embed_svc.models import Role
from embed_svc.observe import Observer
from embed_svc.service import Readiness
from embed_svc.settings import PREFIX, Settings

TEXTS_MAX = 100
STATUS: dict[Kind, HTTPStatus] = {
    "invalid": HTTPStatus.BAD_REQUEST,
    "not_found": HTTPStatus.NOT_FOUND,
    "too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "overloaded": HTTPStatus.TOO_MANY_REQUESTS,
    "unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "internal": HTTPStatus.INTERNAL_SERVER_ERROR,
}
_REMEDIES = {
    "texts": f"send 1 to {TEXTS_MAX} texts, each a non-empty string",
    "input_type": 'send "document" or "query", or leave it out',
}
_BODY_REMEDY = 'send a JSON object in UTF-8 like {"texts": ["one text"], "input_type": "document"}'
_COMPLAINT_MAX = 200
# What the framework raises by itself, in the order to look.
_FRAMEWORK: tuple[tuple[type[Exception], type[Problem], str], ...] = (
    (NotFoundException, NotFound, "there is no such route: GET /schema/openapi.json tells which there are"),
    (
        MethodNotAllowedException,
        Invalid,
        "this route does not take this method: GET /schema/openapi.json tells which it takes",
    ),
    (ClientException, Invalid, f"the request cannot be understood: {_BODY_REMEDY}"),
)
_SURROGATES = re.compile("[\ud800-\udfff]")


class EmbedRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Texts to embed."""

    texts: Annotated[
        list[str], Meta(min_length=1, max_length=TEXTS_MAX, description="The texts; none empty, none with NUL in it.")
    ]
    input_type: Annotated[
        Role, Meta(description="What they are: things to be found, or questions to find them by.")
    ] = "document"


class EmbedResponse(msgspec.Struct, frozen=True):
    """One vector of length 1 a text, in order; those of two fingerprints are never to be compared."""

    embeddings: list[list[float]]
    dimensions: int
    fingerprint: str


class Alive(msgspec.Struct, frozen=True):
    """The process answers."""

    ok: bool = True


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The model has passed its self-test and serves."""

    ok: bool = True
    model: str
    revision: str
    dimensions: int
    fingerprint: str


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every answer that is not 2xx."""

    ok: bool = False
    error: str
    code: Kind
    retry: bool


class JsonRequest(Request[Any, Any, Any]):
    """A request whose JSON is refused with a text that helps."""

    async def json(self) -> Any:
        """Return the decoded body. Raises Invalid, saying where it is not JSON or not Unicode."""
        try:
            body = await self.body()
        except InternalServerException:
            raise Invalid("the connection closed before the whole body had come: send it again") from None
        return decode(body)


def decode(body: bytes) -> Any:
    """Return the JSON value of a body. Raises Invalid, naming index and field where a text is not Unicode."""
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise Invalid(_fault(body, error)) from None


def check_texts(texts: Sequence[str]) -> None:
    """Raise Invalid, naming the index, where a text is empty, holds NUL or is not Unicode."""
    for index, text in enumerate(texts):
        if not text:
            raise Invalid(f"texts[{index}] is empty: leave it out, or send a text with a character in it")
        if "\0" in text:
            raise Invalid(f"texts[{index}] holds a NUL character (U+0000): remove it")
        if _SURROGATES.search(text):
            raise Invalid(f"texts[{index}] holds half a surrogate pair, which is no character: remove or complete it")


_FAILURES = {
    status.value: ResponseSpec(Failure, description=kind, generate_examples=False)
    for kind, status in STATUS.items()
    if kind != "not_found"
}


@post("/embed", status_code=HTTPStatus.OK, responses=_FAILURES)
async def embed(
    data: JSONBody[EmbedRequest], request: Request[Any, Any, Any], readiness: NamedDependency[Readiness]
) -> EmbedResponse:
    """Embed texts: one vector of length 1 each, in order."""
    check_texts(data.texts)
    embedder = readiness.embedder
    embedded = await embedder.embed(data.texts, data.input_type)
    facts = request.scope["state"].setdefault("facts", {})
    facts.update(texts=len(data.texts), tokens=embedded.tokens, truncated=embedded.truncated)
    return EmbedResponse(
        embeddings=embedded.vectors.tolist(),
        dimensions=embedder.info.dimensions,
        fingerprint=embedder.info.fingerprint,
    )


@get("/livez", sync_to_thread=False)
def livez() -> Alive:
    """Say that the process answers."""
    return Alive()


@get("/startupz", responses={503: _FAILURES[503]}, sync_to_thread=False)
def startupz(readiness: NamedDependency[Readiness]) -> Alive:
    """Say whether the model has once been ready."""
    if not readiness.started:
        raise Unavailable(f"not started: {readiness.reason}")
    return Alive()


@get("/readyz", responses={503: _FAILURES[503]}, sync_to_thread=False)
def readyz(readiness: NamedDependency[Readiness]) -> Ready:
    """Say whether the model has passed its self-test and serves, and who it is."""
    info = readiness.embedder.info
    return Ready(model=info.name, revision=info.revision, dimensions=info.dimensions, fingerprint=info.fingerprint)


@get("/metrics", media_type=MediaType.TEXT, sync_to_thread=False)
def metrics(observer: NamedDependency[Observer]) -> Response[bytes]:
    """Return the metrics in Prometheus' text format."""
    return Response(observer.exposition(), media_type=observe.EXPOSITION_TYPE)


def create(
    settings: Settings,
    readiness: Readiness,
    observer: Observer,
    on_startup: Sequence[LifespanHook] = (),
    on_shutdown: Sequence[LifespanHook] = (),
) -> Litestar:
    """Return the application, its failures all of one shape, its OpenAPI as plain JSON at /schema/openapi.json."""

    def fail(request: Request[Any, Any, Any], error: Exception) -> Response[Failure]:
        problem = _problem(error, settings.body_bytes_max)
        if isinstance(problem, Internal):
            observe.failed("request failed", error, **request.scope["state"].get("facts", {}))
        return _answer(problem, error)

    return Litestar(
        [embed, livez, startupz, readyz, metrics],
        dependencies={
            "readiness": Provide(lambda: readiness, sync_to_thread=False),
            "observer": Provide(lambda: observer, sync_to_thread=False),
        },
        exception_handlers={Exception: fail},
        on_startup=on_startup,
        on_shutdown=on_shutdown,
        request_class=JsonRequest,
        request_max_body_size=settings.body_bytes_max,
        openapi_config=OpenAPIConfig(
            title="embed_svc", version="1", path="/schema", render_plugins=[JsonRenderPlugin()]
        ),
        logging_config=None,
        debug=False,
        pdb_on_exception=False,
    )


def _problem(error: Exception, body_bytes_max: int) -> Problem:
    """Return the problem that an exception is; whatever is not known is Internal, with its text hidden."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, RequestEntityTooLarge):
        return TooLarge(
            f"the body is over {body_bytes_max} bytes: send fewer or shorter texts, or raise {PREFIX}BODY_BYTES_MAX"
        )
    if isinstance(error, ValidationException):
        return Invalid(_complaint(error.extra))
    for raised, kind, text in _FRAMEWORK:
        if isinstance(error, raised):
            return kind(text)
    return Internal("something went wrong here, not in the request; the log tells what, by this x-request-id")


def _answer(problem: Problem, error: Exception) -> Response[Failure]:
    status: int = STATUS[problem.kind]
    headers = {}
    if isinstance(error, MethodNotAllowedException):
        status = error.status_code
        headers = {"allow": (error.headers or {}).get("allow", "")}
    if problem.retry:
        headers["retry-after"] = str(problem.retry_after_seconds or 1)
    failure = Failure(error=problem.text, code=problem.kind, retry=problem.retry)
    return Response(failure, status_code=status, headers=headers, media_type=MediaType.JSON)


def _complaint(extra: Any) -> str:
    """Word what the framework found wrong with a body: the field and index, what was expected, the remedy."""
    first = extra[0] if isinstance(extra, list) and extra else {}
    place, said = str(first.get("key", "data")), str(first.get("message", "it cannot be understood"))[:_COMPLAINT_MAX]
    if place == "data":
        return f"the body: {_lowered(said)}; {_BODY_REMEDY}"
    remedy = _REMEDIES.get(place.partition("[")[0], _BODY_REMEDY)
    return f"{place}: {_lowered(said)}; {remedy}"


def _fault(body: bytes, error: Exception) -> str:
    """Say why a body is not JSON, and in which text, where it is half a surrogate pair."""
    try:
        value = json.loads(body.decode())
    except UnicodeDecodeError as wrong:
        return f"the body is not UTF-8 (byte {wrong.start}); {_BODY_REMEDY}"
    except (ValueError, RecursionError):
        said = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        return f"the body is not JSON: {_lowered(said)}; {_BODY_REMEDY}"
    texts = value.get("texts") if isinstance(value, dict) else None
    if isinstance(texts, list):
        check_texts([text if isinstance(text, str) and _SURROGATES.search(text) else "-" for text in texts])
    if _SURROGATES.search(json.dumps(value, ensure_ascii=False)):
        return f"the body holds half a surrogate pair, which is no character: remove it; {_BODY_REMEDY}"
    return f"the body is not JSON: {_lowered(str(error))}; {_BODY_REMEDY}"


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
