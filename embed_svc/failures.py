"""The one table from a kind of failure to a status, and the one body of every answer that is not 2xx."""

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from litestar.exceptions import ClientException, MethodNotAllowedException, NotFoundException, ValidationException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.openapi import ResponseSpec

from embed_svc import bodies, observe
from embed_svc.errors import Internal, Invalid, Kind, NotFound, Problem, TooLarge
from embed_svc.settings import PREFIX

STATUS: dict[Kind, int] = {
    "invalid": HTTPStatus.BAD_REQUEST,
    "unauthenticated": HTTPStatus.UNAUTHORIZED,
    "not_found": HTTPStatus.NOT_FOUND,
    "too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "overloaded": HTTPStatus.TOO_MANY_REQUESTS,
    "left": 499,  # nobody is there to read it
    "unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "internal": HTTPStatus.INTERNAL_SERVER_ERROR,
}
_UNTOLD: frozenset[Kind] = frozenset({"not_found", "left"})
# What the framework raises by itself, in the order to look.
_FRAMEWORK: tuple[tuple[type[Exception], type[Problem], str], ...] = (
    (NotFoundException, NotFound, "there is no such route: GET /schema/openapi.json tells which there are"),
    (
        MethodNotAllowedException,
        Invalid,
        "this route does not take this method: GET /schema/openapi.json tells which it takes",
    ),
    (ClientException, Invalid, f"the request cannot be understood: {bodies.REMEDY}"),
)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every answer that is not 2xx."""

    ok: bool = False
    error: str
    code: Kind
    retry: bool


class OpenAIError(msgspec.Struct, frozen=True, kw_only=True):
    """What OpenAI's clients show to their users; a text in its place they would not."""

    message: str
    type: str
    param: str | None = None
    code: Kind


class OpenAIFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every answer of OpenAI's route that is not 2xx."""

    ok: bool = False
    error: OpenAIError
    code: Kind
    retry: bool


def declared(body: type[Failure] | type[OpenAIFailure]) -> dict[int, ResponseSpec]:
    """Return what the OpenAPI document says of failures."""
    return {
        int(status): ResponseSpec(body, description=kind, generate_examples=False)
        for kind, status in STATUS.items()
        if kind not in _UNTOLD
    }


DECLARED = declared(Failure)


def problem_of(error: Exception, body_bytes_max: int) -> Problem:
    """Return the problem that an exception is; whatever is not known is Internal, with its text hidden."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, RequestEntityTooLarge):
        return TooLarge(
            f"the body is over {body_bytes_max} bytes: send fewer or shorter texts, or raise {PREFIX}BODY_BYTES_MAX"
        )
    if isinstance(error, ValidationException):
        return Invalid(bodies.complaint(error.extra))
    for raised, kind, text in _FRAMEWORK:
        if isinstance(error, raised):
            return kind(text)
    return Internal("something went wrong here, not in the request; the log tells what, by this x-request-id")


class Told(msgspec.Struct, frozen=True):
    """How a failure is answered."""

    status: int
    headers: dict[str, str]
    body: Failure | OpenAIFailure


def told(error: Exception, body_bytes_max: int, as_openai: bool, facts: Mapping[str, object]) -> Told:
    """Return the answer to a request that raised `error`, and log it, beside `facts`, where it is none of a known kind.

    With `as_openai` its body is of that shape.
    """
    problem = problem_of(error, body_bytes_max)
    if isinstance(problem, Internal):
        observe.failed("request failed", error, **facts)
    status = int(STATUS[problem.kind])
    headers: dict[str, str] = {}
    if isinstance(error, MethodNotAllowedException):
        status = error.status_code
        headers = {"allow": (error.headers or {}).get("allow", "")}
    if problem.retry:
        headers["retry-after"] = str(problem.retry_after_seconds or 1)
    if problem.kind == "unauthenticated":
        headers["www-authenticate"] = "Bearer"
    return Told(status, headers, _body(problem, status, as_openai))


def _body(problem: Problem, status: int, as_openai: bool) -> Failure | OpenAIFailure:
    if not as_openai:
        return Failure(error=problem.text, code=problem.kind, retry=problem.retry)
    kind = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
    error = OpenAIError(message=problem.text, type=kind, code=problem.kind)
    return OpenAIFailure(error=error, code=problem.kind, retry=problem.retry)
