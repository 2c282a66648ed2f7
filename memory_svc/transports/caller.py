"""Who calls and under which names: what a wire hands to the Catalogue beside the arguments."""

import datetime as dt
import re
import uuid
from collections.abc import Mapping, MutableMapping
from typing import Any

import msgspec

from memory_svc.domain.access.principal import OWNER, Principal
from memory_svc.domain.memory import zone_of
from memory_svc.errors import Invalid
from memory_svc.services.operation import Call, Wire
from memory_svc.spans import Carrier, carried

IDEMPOTENCY_HEADER = "Idempotency-Key"
ZONE_HEADER = "X-Time-Zone"
DEADLINE_HEADER = "X-Deadline-Ms"
IDEMPOTENCY_META = "io.agent-memory/idempotency-key"
ZONE_META = "io.agent-memory/time-zone"
DEADLINE_META = "io.agent-memory/deadline-ms"
TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{0,200}")
DEADLINE = re.compile(r"[1-9][0-9]{0,8}")
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
STATE_KEY = "memory_svc_caller"


class Caller(msgspec.Struct, frozen=True):
    """A caller that was let in, and the id of its request."""

    principal: Principal
    request_id: str


def local_caller() -> Caller:
    """The owner of this process, with a new request id: who speaks where no HTTP request brought the message."""
    return Caller(OWNER, new_request_id())


def new_request_id() -> str:
    """An id that no other request has."""
    return uuid.uuid4().hex


def request_id_from(asked: str) -> str:
    """The request id that a client asked for where it is fit to be logged, else a new one."""
    return asked if REQUEST_ID.fullmatch(asked) else new_request_id()


def attach(scope: MutableMapping[str, Any], caller: Caller) -> None:
    """Leave the caller where `caller_of` finds it."""
    scope.setdefault("state", {})[STATE_KEY] = caller


def caller_of(scope: Mapping[str, Any]) -> Caller:
    """The caller that the guard let in with this request."""
    caller: Caller = scope["state"][STATE_KEY]
    return caller


class Names(msgspec.Struct, frozen=True):
    """What a caller may say beside the arguments; None = not said."""

    idempotency_key: object = None
    zone: object = None
    deadline: object = None
    carrier: Carrier | None = None

    @classmethod
    def of_headers(cls, headers: Mapping[str, str]) -> "Names":
        """What stands in HTTP headers, whose names the mapping finds in any case."""
        return cls(
            headers.get(IDEMPOTENCY_HEADER), headers.get(ZONE_HEADER), headers.get(DEADLINE_HEADER), carrier_in(headers)
        )

    @classmethod
    def of_meta(cls, meta: Mapping[str, Any]) -> "Names":
        """What stands in the `_meta` of an MCP message."""
        return cls(meta.get(IDEMPOTENCY_META), meta.get(ZONE_META), meta.get(DEADLINE_META), carrier_in(meta))

    def over(self, other: "Names") -> "Names":
        """These names, and where one is not said that of `other`."""
        said = msgspec.structs.asdict(self)
        return msgspec.structs.replace(other, **{name: value for name, value in said.items() if value is not None})


def carrier_in(names: Mapping[str, Any]) -> Carrier | None:
    """The trace that a call comes with, by the same names in headers and in `_meta`."""
    traceparent = names.get(TRACEPARENT)
    return None if traceparent is None else carried(traceparent, names.get(TRACESTATE))


def call_for(caller: Caller, wire: Wire, names: Names, default_zone: dt.tzinfo) -> Call:
    """The circumstances of one call.

    Raises Invalid when a name is not a text, the zone is not known, the key is too long or not plain ASCII, or the
    deadline is not a whole number of milliseconds.
    """
    zone, key = names.zone or "", names.idempotency_key or ""
    if not isinstance(zone, str):
        raise Invalid("time zone: expected a text such as Asia/Tokyo")
    if not isinstance(key, str) or not IDEMPOTENCY_KEY.fullmatch(key):
        raise Invalid("idempotency key: expected at most 200 printable ASCII characters without spaces")
    deadline = "" if names.deadline is None else str(names.deadline)
    if deadline and not DEADLINE.fullmatch(deadline):
        raise Invalid("deadline: expected whole milliseconds, 1 to 999999999")
    return Call(
        principal=caller.principal,
        wire=wire,
        request_id=caller.request_id,
        idempotency_key=key,
        zone=zone_of(zone) if zone else default_zone,
        seconds_max=int(deadline) / 1000 if deadline else None,
        carrier=names.carrier,
    )
