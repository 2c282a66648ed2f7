"""The ways a request or a start can fail, one class a kind; no word here is about HTTP."""

from typing import ClassVar, Literal

Kind = Literal["invalid", "unauthenticated", "not_found", "too_large", "overloaded", "left", "unavailable", "internal"]


class Problem(Exception):
    """A failure of a known kind.

    Its text is shown to whoever asked: it says what is wrong and what to do, and never repeats what they sent.
    """

    kind: ClassVar[Kind]
    retry: ClassVar[bool] = False

    def __init__(self, text: str, retry_after_seconds: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.retry_after_seconds = retry_after_seconds


class Invalid(Problem):
    """Cannot be understood, or breaks a limit."""

    kind = "invalid"


class Unauthenticated(Problem):
    """A token is asked for, and none or another came."""

    kind = "unauthenticated"


class NotFound(Problem):
    """There is no such route."""

    kind = "not_found"


class TooLarge(Problem):
    """The request is over the cap: its body in bytes, or its texts in tokens."""

    kind = "too_large"


class Overloaded(Problem):
    """The queue is full; the same request will do later."""

    kind = "overloaded"
    retry = True


class Left(Problem):
    """The caller closed the connection before its answer; its work was dropped. Seen in log and metrics alone."""

    kind = "left"


class Unavailable(Problem):
    """The model is not ready, the server is stopping, or the request's deadline has passed."""

    kind = "unavailable"
    retry = True


class Internal(Problem):
    """Anything that is none of the others: logged with its request id, its text hidden."""

    kind = "internal"


PROBLEMS: tuple[type[Problem], ...] = (
    Invalid,
    Unauthenticated,
    NotFound,
    TooLarge,
    Overloaded,
    Left,
    Unavailable,
    Internal,
)
