"""Problems: the nine kinds of failure a caller can meet. No HTTP and no MCP here."""

from typing import ClassVar


class Problem(Exception):
    """A failure of a known kind, with a text that names what is wrong and how to mend it.

    `details` are further keys of the answer that a client may read, such as an empty collection.
    """

    kind: ClassVar[str]
    retry: ClassVar[bool] = False

    def __init__(self, text: str, *, retry_after_seconds: float | None = None, **details: object) -> None:
        super().__init__(text)
        self.text = text
        self.retry_after_seconds = retry_after_seconds
        self.details = details


class Invalid(Problem):
    """Cannot be understood, or breaks a limit."""

    kind = "invalid"


class Unauthenticated(Problem):
    """No token, or one that is not known."""

    kind = "unauthenticated"


class Denied(Problem):
    """A known caller who is not allowed to do this."""

    kind = "denied"


class NotFound(Problem):
    """Not there in this scope. Never says that it exists elsewhere."""

    kind = "not_found"


class Conflict(Problem):
    """Changed since it was read, locked, or already there."""

    kind = "conflict"


class TooLarge(Problem):
    """A body, batch or import over its limit."""

    kind = "too_large"


class Overloaded(Problem):
    """A queue or pool is full, or a caller asks too much at once; the same call may succeed a little later."""

    kind = "overloaded"
    retry = True


class Unavailable(Problem):
    """The database does not answer, or the call took longer than it may."""

    kind = "unavailable"
    retry = True


class Internal(Problem):
    """Anything that is not a Problem. Its text is hidden and its trace is logged."""

    kind = "internal"
