"""Writing a file whole or not at all, whoever else writes it and whenever the process dies."""

import errno
import os
import sys
import tempfile
from pathlib import Path


def replace(file: Path, content: bytes) -> None:
    """Put content in place of what is there, making the folder where needed. Raises OSError where it cannot."""
    draft = _draft(file, content)
    try:
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def create(file: Path, content: bytes) -> None:
    """Write a file that is not there yet; raises FileExistsError where another was quicker, OSError where it cannot."""
    draft = _draft(file, content)
    try:
        _place(draft, file)
    finally:
        draft.unlink(missing_ok=True)


def _draft(file: Path, content: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    with os.fdopen(handle, "wb") as draft:
        draft.write(content)
        draft.flush()
        os.fsync(draft.fileno())
    return Path(name)


def _place(draft: Path, file: Path) -> None:
    """Give the draft its name only where that name is free; on a file system without links a moment's race is left."""
    try:
        file.hardlink_to(draft)
    except FileExistsError:
        raise
    except OSError:
        if file.exists():
            raise FileExistsError(file) from None
        draft.replace(file)


def refusal(file: Path, error: OSError) -> str:
    """Say why a file of the data folder cannot be had, and what mends it."""
    if error.errno in (errno.EACCES, errno.EPERM) and sys.platform != "win32":
        user = f"{os.geteuid()}:{os.getegid()}"
        return (
            f"user {user} may not read and write {file}: as root run `chown -R {user} {file.parent}` (of a container: "
            "on the folder that is mounted there), or set EMBED_DATA_DIR"
        )
    return (
        f"{file} cannot be written ({error.strerror or type(error).__name__}): free the disk, or mount {file.parent} "
        "so that it can be written, or set EMBED_DATA_DIR"
    )
