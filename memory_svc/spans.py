"""Spans: the stretches of work of a trace, handed from caller to callee as an argument. Those of here tell nobody."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import msgspec

Name = Literal["embed", "candidates", "fuse", "apply", "POST /embed"]
# W3C Trace Context lets a receiver cut what is longer.
CARRIED_CHARS_MAX = 512


class Carrier(msgspec.Struct, frozen=True):
    """What brings a trace from one process to another: the two headers of W3C Trace Context."""

    traceparent: str
    tracestate: str = ""


class Span:
    """A stretch of work. Nobody is told of this one, nor of what is done inside it.

    trace_id: of the trace that it is in, "" = none.
    """

    trace_id: str = ""

    @property
    def headers(self) -> Mapping[str, str]:
        """What carries the trace on; nothing where there is none."""
        return {}

    def child(self, name: Name, *, is_call: bool = False) -> AbstractContextManager["Span"]:  # noqa: ARG002
        """A stretch inside this one, for as long as a block lasts. is_call: another process does the work."""
        return _NOTHING

    def settle(self, outcome: str, *, is_fault: bool, **facts: str) -> None:
        """Say how it ended. The words are those of closed sets."""


class Tracer:
    """Begins traces, or goes on with those of callers. This one does neither."""

    def operation(self, name: str, carrier: Carrier | None) -> AbstractContextManager[Span]:  # noqa: ARG002
        """The span of an operation, for as long as a block lasts."""
        return _NOTHING


NO_SPAN = Span()
_NOTHING: AbstractContextManager[Span] = nullcontext(NO_SPAN)


def carried(traceparent: object, tracestate: object) -> Carrier | None:
    """The trace that came with a call. None = none, or nothing that could be one: a trace then begins here."""
    if not isinstance(traceparent, str) or not 0 < len(traceparent) <= CARRIED_CHARS_MAX:
        return None
    is_state = isinstance(tracestate, str) and len(tracestate) <= CARRIED_CHARS_MAX
    return Carrier(traceparent, str(tracestate) if is_state else "")
