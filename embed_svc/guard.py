"""Who may ask: whoever holds the bearer token, where one is set; compared in constant time, never logged."""

import hashlib
import hmac
from pathlib import Path
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import Guard

from embed_svc.errors import Invalid, Unauthenticated

_LENGTH_MIN = 16


class Token:
    """The token that is asked for."""

    def __init__(self, token: str) -> None:
        self._digest = _digest(token)

    def is_in(self, authorization: str) -> bool:
        """Say whether a header `Authorization` holds it."""
        scheme, given = (*authorization.split(" ", 1), "")[:2]
        return scheme.lower() == "bearer" and hmac.compare_digest(_digest(given.strip()), self._digest)


def guard(token: Token, open_routes: frozenset[str]) -> Guard:
    """Return what raises Unauthenticated on every route but the open ones, unless the token comes along."""

    def check(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        if connection.scope.get("path_template") in open_routes:
            return
        if not token.is_in(connection.headers.get("authorization", "")):
            raise Unauthenticated("send the header Authorization: Bearer and the token in EMBED_TOKEN_FILE")

    return check


def read_token(file: str) -> str:
    """Return the token in a file, "" where no file is named. Raises Invalid where it cannot be read or is too short."""
    if not file:
        return ""
    try:
        token = Path(file).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise Invalid(
            f"EMBED_TOKEN_FILE={file} cannot be read ({type(error).__name__}): correct it, or unset it"
        ) from None
    if len(token) < _LENGTH_MIN or not token.isascii() or not token.isprintable() or " " in token:
        raise Invalid(
            f"EMBED_TOKEN_FILE={file} holds no token: write {_LENGTH_MIN} or more printable ASCII characters without "
            "blanks into it, such as those of `openssl rand -hex 32`"
        )
    return token


def _digest(text: str) -> bytes:
    """Return bytes of one length, so that comparing tells nothing of the token's."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
