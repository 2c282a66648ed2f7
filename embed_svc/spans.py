"""Spans: the stretches of work of a trace, handed from caller to callee as an argument. Those of here tell nobody."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import msgspec

Headers = Iterable[tuple[bytes, bytes]]


class Turn(msgspec.Struct, frozen=True):
    """A caller's texts in a batch, by time.monotonic(): when they came, when the batch began to run and when it ended.

    texts: how many the batch had, those of other callers too.
    """

    came: float
    began: float
    ended: float
    texts: int


class Span:
    """A stretch of work. Nobody is told of this one, nor of what is done inside it.

    trace_id: of the trace that it is in, "" = none. is_told: whether it is worth while to tell it anything.
    """

    trace_id: str = ""
    is_told: bool = False

    def tokenising(self) -> AbstractContextManager[None]:
        """A stretch inside this one in which texts are read, for as long as a block lasts."""
        return _NOTHING

    def ran(self, turn: Turn, oldest: "Span") -> None:
        """Tell of a wait and a run inside this one. oldest: the caller that has waited longest for the same batch."""

    def answered(self, status: int) -> None:
        """Say how it ended."""


class Tracer:
    """Begins traces, or goes on with those of callers. This one does neither."""

    def request(self, route: str, headers: Headers) -> AbstractContextManager[Span]:  # noqa: ARG002
        """The span of a request, for as long as a block lasts."""
        return _UNTOLD


NO_SPAN = Span()
_UNTOLD: AbstractContextManager[Span] = nullcontext(NO_SPAN)
_NOTHING: AbstractContextManager[None] = nullcontext()
