"""The one door: an Operation is one thing a caller may ask; the Catalogue finds, reads, authorises, runs, measures."""

import asyncio
import contextlib
import datetime as dt
import enum
import functools
import hashlib
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from memory_svc.domain.access.principal import OWNER, Permission, Principal
from memory_svc.domain.blocks import Passage, covered
from memory_svc.domain.change import Applied, Change, Write
from memory_svc.domain.memory import Ref, Vector, utc
from memory_svc.domain.scope import Scope
from memory_svc.embedding import Embedder, Role
from memory_svc.errors import Denied, Invalid, NotFound, Unavailable
from memory_svc.misfit import misfit
from memory_svc.observe import Metrics, Stage
from memory_svc.services import blocks
from memory_svc.services.limits import Limits
from memory_svc.settings import Settings
from memory_svc.spans import NO_SPAN, Carrier, Span
from memory_svc.storage.interface import Storage

Wire = Literal["mcp-http", "mcp-sse", "mcp-stdio", "rest"]
UNSENDABLE = re.compile(r"[\x00\ud800-\udfff]")
AUTO_PROJECT = "@auto"
DEPTH_MAX = 32


class Effect(enum.Enum):
    """What an operation may do to what is stored: the hints of its tool."""

    READ = "read"
    ADD = "add"
    CHANGE = "change"
    ERASE = "erase"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller sends. Field names are those of the wire."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """The circumstances of one call: who, over which wire, under which names, and for how long (None = as set).

    began: by time.monotonic(); what asks for several operations in one call gives them one time together. carrier: the
    trace that the call is part of.
    """

    principal: Principal = OWNER
    wire: Wire = "rest"
    request_id: str = ""
    idempotency_key: str = ""
    zone: dt.tzinfo = dt.UTC
    seconds_max: float | None = None
    carrier: Carrier | None = None
    began: float = msgspec.field(default_factory=time.monotonic)


class Receipt(msgspec.Struct, frozen=True):
    """What has become of a text that was taken: on disk, found by its words, found by its meaning.

    blocks: how many vectors stand for a long text. vector_chars: how much of it they stand for, where not for all.
    """

    text: Literal["done"] = "done"
    words: Literal["done"] = "done"
    vector: Literal["done", "waiting"] = "done"
    blocks: int | UnsetType = UNSET
    vector_chars: int | UnsetType = UNSET


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation works with.

    describe: the JSON Schema of an operation's arguments. digest: stands for the request, so that a key used twice is
    told. span: what is done now, as its trace tells it.
    """

    storage: Storage
    embedder: Embedder
    settings: Settings
    metrics: Metrics
    clock: Callable[[], dt.datetime]
    describe: Callable[["Operation"], dict[str, Any]] = lambda _operation: {"type": "object"}
    operations: Mapping[str, "Operation"] = {}
    call: Call = Call()
    operation: str = ""
    digest: bytes = b""
    span: Span = NO_SPAN

    @property
    def seconds_max(self) -> float:
        """How long this call may take."""
        return min(self.call.seconds_max or math.inf, self.settings.call_seconds_max)

    @property
    def seconds_left(self) -> float:
        """How much of that is left."""
        return max(self.call.began + self.seconds_max - time.monotonic(), 0.0)

    def present(self, scope: Scope) -> Scope:
        """The scope as it is now: memories whose time is over are hidden. Every read of an operation asks by it."""
        return msgspec.structs.replace(scope, now=utc(self.clock()))

    @contextlib.contextmanager
    def stage(self, name: Stage) -> Iterator["Runtime"]:
        """What a stage of recall works with. It is timed, and told as a span."""
        with self.metrics.stage(name), self.span.child(name) as span:
            yield self if span is self.span else msgspec.structs.replace(self, span=span)

    async def vector(self, text: str, role: Role) -> Vector | None:
        """The text's vector; None when it does not come within half of the call's time."""
        vectors = await self.embedder.embed([text], role, within=self.seconds_left / 2, span=self.span)
        return vectors[0] if vectors else None

    async def vector_of(self, passage: Passage) -> dict[int, Vector]:
        """The vector of the row that the first change of a Write makes, by the change's index; {} = it must wait."""
        with self.span.child("embed") as span:
            vector = await msgspec.structs.replace(self, span=span)._vector_of(passage)
        self.embedder.waiting += vector is None or vector.read is not None
        return {0: vector} if vector else {}

    async def _vector_of(self, passage: Passage) -> Vector | None:
        until = time.monotonic() + min(self.settings.embedding_store_seconds, self.seconds_left / 2)
        found = await self.vector(blocks.first_text(passage, self.settings), "document")
        if found is None:
            return None
        vector = blocks.begun(passage, found, self.settings)
        if vector.read is None:
            return vector
        embed = functools.partial(self.embedder.embed, span=self.span)
        return await blocks.in_time(embed, passage, vector, self.settings, until)

    async def receipt(self, ref: Ref, vectors: Mapping[int, Vector], passage: Passage) -> Receipt:
        """What has become of a text; read anew where this call did not write its vector."""
        is_own = bool(vectors) and not self.call.idempotency_key
        held = vectors[0].spans if is_own else await self.storage.derived.spans(ref)
        if held is None:
            return Receipt(vector="waiting")
        chars, reached = len(passage.text) - passage.begins, covered(held)
        return Receipt(
            blocks=len(held) or UNSET,
            vector_chars=reached if held and reached < chars else UNSET,
        )

    async def apply(self, *changes: Change, vectors: Mapping[int, Vector] | None = None) -> Applied:
        """Do these changes as one Write of this call. Raises as `Storage.apply` does."""
        with self.span.child("apply"):
            return await self.storage.apply(self.write(*changes), vectors)

    def write(self, *changes: Change) -> Write:
        """These changes as one Write of this call."""
        return Write(
            principal=self.call.principal.name,
            operation=self.operation,
            now=utc(self.clock()),
            changes=changes,
            key=self.call.idempotency_key,
            digest=self.digest,
        )


RequestType = TypeVar("RequestType", bound=Request)
ResultType = TypeVar("ResultType", bound=msgspec.Struct)


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a caller may ask. Tool, route, access rule, metric label and docs are read off it."""

    name: str
    summary: str
    request: type[Request]
    result: type[msgspec.Struct]
    needs: Permission
    effect: Effect
    idempotent: bool
    run: Callable[[Runtime, Any], Awaitable[msgspec.Struct]]


def operation(
    *, needs: Permission, effect: Effect, idempotent: bool = True
) -> Callable[[Callable[[Runtime, RequestType], Awaitable[ResultType]]], Operation]:
    """Make an Operation of an async function: its name, docstring and annotations say the rest."""

    def declare(run: Callable[[Runtime, RequestType], Awaitable[ResultType]]) -> Operation:
        hints = get_type_hints(run)
        return Operation(
            name=run.__name__,
            summary=" ".join((run.__doc__ or "").split()),
            request=hints["request"],
            result=hints["return"],
            needs=needs,
            effect=effect,
            idempotent=idempotent,
            run=run,
        )

    return declare


class Catalogue:
    """Every Operation by its name, and the only way to call one."""

    def __init__(self, operations: Iterable[Operation], runtime: Runtime) -> None:
        self.operations: Mapping[str, Operation] = {each.name: each for each in operations}
        self.runtime = msgspec.structs.replace(runtime, operations=self.operations)
        self._limits = Limits(runtime.settings.calls_per_second_max, runtime.settings.calls_at_once_max)

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.operations.values())

    async def call(self, name: str, arguments: Mapping[str, Any], call: Call) -> dict[str, Any]:
        """The answer of an operation, as plain values ready for JSON.

        Raises NotFound when there is no such operation, Invalid when the arguments do not fit, Denied when the caller
        may not, Overloaded when it calls too often, Unavailable when it takes too long, and what the operation raises.
        """
        found = self.operations.get(name)
        if found is None:
            raise NotFound(f"There is no operation {name[:80]!r}; there are {', '.join(self.operations)}")
        with (
            self.runtime.metrics.measured(name, call.wire, call.request_id, call.carrier) as span,
            self._limits.call(call.principal.name),
        ):
            request, ignored = read(found.request, arguments)
            if not call.principal.may(found.needs):
                raise Denied("permission_denied", tool=name, required=found.needs.name.lower())
            digest = hashlib.sha256(name.encode() + msgspec.json.encode(request, order="sorted")).digest()
            runtime = msgspec.structs.replace(self.runtime, call=call, operation=name, digest=digest, span=span)
            answer: dict[str, Any] = msgspec.to_builtins(await self._run(found, runtime, request))
        if arguments.get("project_id") == AUTO_PROJECT:
            answer["resolved_project_id"] = AUTO_PROJECT
        if ignored:
            answer["ignored_arguments"] = ignored
        return answer

    async def _run(self, found: Operation, runtime: Runtime, request: Request) -> msgspec.Struct:
        try:
            async with asyncio.timeout(runtime.seconds_left):
                return await found.run(runtime, request)
        except TimeoutError as error:
            maybe_done = (
                "a change may yet be done: repeat it with the same idempotency key, or look before you repeat it"
            )
            remedy = "give it more time" if found.effect is Effect.READ else maybe_done
            raise Unavailable(
                f"{found.name} took longer than {runtime.seconds_max:g} s and was given up; {remedy}"
            ) from error


def read(request: type[RequestType], arguments: Mapping[str, Any]) -> tuple[RequestType, list[str]]:
    """The request in these arguments, and the names that it does not know. A null stands for "left out".

    Raises Invalid naming the field that is missing, of the wrong type, out of its limits, or not text.
    """
    if not isinstance(arguments, Mapping):
        raise Invalid("arguments: expected an object with the operation's fields")
    for name in arguments:
        _refuse_unsendable("arguments (a name)", name)
    known = request.__struct_fields__
    given = {name: value for name, value in arguments.items() if name in known and value is not None}
    for name, value in given.items():
        _refuse_unsendable(name, value)
    try:
        return msgspec.convert(given, request), sorted(name for name in arguments if name not in known)
    except msgspec.ValidationError as error:
        raise Invalid(_explained(error, request)) from error


def _refuse_unsendable(place: str, value: object, depth: int = 0) -> None:
    """NUL ends a text for a full-text index, and a lone surrogate cannot be written as UTF-8."""
    if depth > DEPTH_MAX:
        raise Invalid(
            f"{place.partition('.')[0].partition('[')[0]}: is nested deeper than {DEPTH_MAX} levels; flatten it"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise Invalid(f"{place}: is not a finite number; JSON has no other")
    if isinstance(value, str):
        found = UNSENDABLE.search(value)
        if found:
            what = "a NUL character" if found[0] == "\0" else "a lone surrogate"
            raise Invalid(f"{place}: holds {what} at position {found.start()}; remove it")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            _refuse_unsendable(f"{place} (a key)", key)
            _refuse_unsendable(f"{place}.{key}", inner, depth + 1)
    elif isinstance(value, list | tuple):
        for at, inner in enumerate(value):
            _refuse_unsendable(f"{place}[{at}]", inner, depth + 1)


def _explained(error: msgspec.ValidationError, request: type[Request]) -> str:
    """`field: what is wrong` from msgspec's words."""
    place, wrong = misfit(error, request)
    missing = re.search(r"missing required field `(\w+)`", wrong)
    if missing:
        return f"{place + '.' if place else ''}{missing[1]}: is required; give it"
    return f"{place or 'arguments'}: {wrong.replace('`', '')}"
