"""Writing a file whole or not at all, whoever else writes it and whenever the process dies."""

import os
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
