"""The one table of failures, and the one body in which every wire tells them."""

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from memory_svc import errors
from memory_svc.errors import Internal, Invalid, NotFound, Problem, TooLarge, Unavailable
from memory_svc.observe import log_fault

HIDDEN = "Something went wrong inside the server; its log tells what, under this request_id"
JSON_RPC_REFUSED = -32001
JSON_RPC_INVALID = -32602
JSON_RPC_INTERNAL = -32603


class Handling(msgspec.Struct, frozen=True):
    """What the wires do with one kind of Problem.

    mcp: how the caller of a tool gets to know of it. json_rpc: the code of the error where something else was asked.
    """

    problem: type[Problem]
    status: int
    meaning: str
    mcp: Literal["tool result", "refused by http"] = "tool result"
    json_rpc: int = JSON_RPC_INTERNAL

    @property
    def retry(self) -> bool:
        """Whether the same call may succeed a little later."""
        return self.problem.retry


ROWS = (
    Handling(errors.Invalid, 400, "Cannot be understood, or breaks a limit.", json_rpc=JSON_RPC_INVALID),
    Handling(errors.Unauthenticated, 401, "No token, or one that is not known.", "refused by http"),
    Handling(errors.Denied, 403, "A known caller who is not allowed to do this."),
    Handling(errors.NotFound, 404, "Not there for this caller.", json_rpc=JSON_RPC_INVALID),
    Handling(errors.Conflict, 409, "Changed since it was read, locked, or already there."),
    Handling(errors.TooLarge, 413, "A body, batch or import over its limit."),
    Handling(
        errors.Overloaded, 429, "Too many calls, at once or in a second, or a queue is full; try again a little later."
    ),
    Handling(errors.Unavailable, 503, "The database does not answer, or the call took longer than it may; try again."),
    Handling(errors.Internal, 500, "Went wrong inside the server; its log tells what."),
)
TABLE: Mapping[str, Handling] = {row.problem.kind: row for row in ROWS}


class Failure(msgspec.Struct, frozen=True):
    """A failure as the wires send it."""

    status: int
    headers: dict[str, str]
    body: dict[str, Any]

    def encoded(self) -> bytes:
        """The body as compact JSON."""
        return msgspec.json.encode(self.body, enc_hook=str)

    def as_json_rpc(self) -> bytes:
        """The body inside a JSON-RPC error, for callers of MCP who are refused before any message is read."""
        error = {"code": JSON_RPC_REFUSED, "message": self.body["error"], "data": self.body}
        return msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error}, enc_hook=str)


def failed(error: Exception, request_id: str, *, status: int | None = None) -> Failure:
    """The failure to send for an exception; `status` stands in for the table's where HTTP has a finer word.

    To be called while the exception is handled: what is not a Problem, and Internal, is logged with its trace and its
    text is hidden.
    """
    problem = error if isinstance(error, Problem) else Internal(HIDDEN)
    if isinstance(problem, Internal):
        log_fault("fault", request_id=request_id)
        problem = Internal(HIDDEN)
    handling = TABLE[problem.kind]
    headers = {"WWW-Authenticate": "Bearer"} if handling.status == TABLE["unauthenticated"].status else {}
    wait = problem.retry_after_seconds
    if wait is not None:
        headers["Retry-After"] = str(math.ceil(wait))
    return Failure(status or handling.status, headers, _body(problem, request_id))


def unrouted(status: int, method: str, path: str) -> Problem:
    """The Problem that stands for an HTTP status which the web framework gives by itself."""
    place = f"{method} {path[:200]!r}"
    if status == TABLE["not_found"].status:
        return NotFound(f"There is no {place}")
    if status == TABLE["too_large"].status:
        return TooLarge(f"{place}: the body is too large")
    if status == TABLE["unavailable"].status:
        return Unavailable(f"{place}: not now")
    if status >= TABLE["internal"].status:
        return Internal(HIDDEN)
    return Invalid(f"{place}: the request does not fit this address (HTTP {status})")


def _body(problem: Problem, request_id: str) -> dict[str, Any]:
    """Details never stand in for the keys that every failure has."""
    fixed = {"ok": False, "error": _sendable(problem.text), "code": problem.kind, "retry": problem.retry}
    body = {**fixed, **problem.details, **fixed}
    if problem.retry_after_seconds is not None:
        body["retry_after_seconds"] = problem.retry_after_seconds
    return {**body, "request_id": request_id}


def _sendable(text: str) -> str:
    """A lone surrogate cannot be written as UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()
