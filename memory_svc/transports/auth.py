"""The bearer token: made once, kept in a file that its owner alone can read, compared in constant time."""

import contextlib
import hmac
import logging
import os
import re
import secrets
import stat
import sys
from pathlib import Path

from memory_svc.domain.access.principal import OWNER, Principal
from memory_svc.errors import Invalid, Unauthenticated
from memory_svc.observe import log
from memory_svc.settings import Settings, refusal

TOKEN_BYTES = 32
TOKEN_FILE_BYTES_MAX = 4096
TOKEN = re.compile(rb"[\x21-\x7e]+")
REMEDY = "send the header `Authorization: Bearer <token>` with the token in the server's token file"


def token_for(settings: Settings) -> str:
    """The token of this server: that of the file which the settings name, else one in the data folder.

    Only the one in the data folder is made when absent. Raises Invalid as `load_token` does.
    """
    if settings.token_file:
        return load_token(Path(settings.token_file))
    return load_or_make_token(Path(settings.data_dir) / "token")


def load_or_make_token(path: Path) -> str:
    """The token in this file, which is made with a new one when absent. Processes that start at once agree on one.

    Raises Invalid as `load_token` does, or when the file cannot be made.
    """
    try:
        if not path.exists():
            _make(path)
    except OSError as error:
        raise Invalid(f"The token cannot be made here: {refusal(path, error)}") from error
    return load_token(path)


def load_token(path: Path) -> str:
    """The token in this file.

    Raises Invalid when it cannot be read, is empty, holds what no header can carry, or others can read it although we
    could forbid it.
    """
    try:
        with path.open("rb") as file:
            _check_mode(path, os.fstat(file.fileno()))
            content = file.read(TOKEN_FILE_BYTES_MAX + 1).strip()
    except OSError as error:
        raise Invalid(f"{path}: the token cannot be read: {error.strerror}") from error
    if not content:
        raise Invalid(f"{path}: the token file is empty; remove it to have a new token made, or write one into it")
    if len(content) > TOKEN_FILE_BYTES_MAX or not TOKEN.fullmatch(content):
        raise Invalid(f"{path}: a token is one line of printable ASCII characters without spaces")
    return content.decode("ascii")


def authenticate(authorization: bytes, token: bytes) -> Principal:
    """The caller behind an Authorization header.

    Raises Unauthenticated, which never repeats what was sent.
    """
    scheme, _, presented = authorization.partition(b" ")
    if not authorization:
        raise Unauthenticated(f"A token is needed: {REMEDY}")
    if scheme.lower() != b"bearer":
        raise Unauthenticated(f"The Authorization header is not a Bearer one: {REMEDY}")
    if not hmac.compare_digest(presented.strip(), token):
        raise Unauthenticated(f"The token is not known: {REMEDY}")
    return OWNER


def _make(path: Path) -> None:
    """Written whole under another name and then linked, so that the first process wins and none sees half a file."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(TOKEN_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
    finally:
        draft.unlink()


def _check_mode(path: Path, status: os.stat_result) -> None:
    """A mounted secret belongs to another user or cannot be written: its mode is then not ours to change."""
    if sys.platform == "win32" or not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return
    if status.st_uid == os.geteuid() and os.access(path, os.W_OK):
        raise Invalid(f"{path}: others on this machine can read the token; run `chmod 600 {path}`")
    log("token file is readable by others", severity=logging.WARNING, path=str(path), mode=oct(status.st_mode & 0o777))
