"""A copy of the database that was proved: sound, with every row, on the disk, under its name only when all of it is."""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw

from memory_svc.errors import Unavailable
from memory_svc.storage.interface import Copied

SPARE_BYTES = 1_000_000


def copy(source: apsw.Connection, target: Path) -> Copied:
    """Write what one snapshot of the source holds to a file that takes the place of one of the same name.

    Raises Unavailable where there is no room, the file cannot be written, or the copy is not sound; then no file of
    that name has come or changed.
    """
    check_room(target.parent, size_bytes(source), f"A copy of the database, {target},")
    part = target.with_name(f"{target.name}.part")
    with _clearing(part, target):
        source.execute("BEGIN")
        try:
            rows = row_counts(source)
            _copy_pages(source, part)
        finally:
            source.execute("ROLLBACK")
        _prove(part, rows)
        _sync(part)
        part.replace(target)
        if sys.platform != "win32":
            _sync(target.parent)
        return Copied(str(target), target.stat().st_size, rows)


def check_room(folder: Path, bytes_needed: int, what: str) -> None:
    """Raise Unavailable unless so many bytes are free in a folder."""
    free = shutil.disk_usage(folder).free
    if free < bytes_needed + SPARE_BYTES:
        raise Unavailable(
            f"{what} takes {bytes_needed:,} bytes and {folder} has {free:,} free; nothing was changed, make room there"
        )


def size_bytes(connection: apsw.Connection) -> int:
    """How large the database is."""
    pages, size = (next(connection.execute(f"PRAGMA {name}"))[0] for name in ("page_count", "page_size"))
    return int(pages * size)


def row_counts(connection: apsw.Connection) -> dict[str, int]:
    """How many rows each table has that stores any."""
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 ORDER BY name")
    names = [str(name) for (name,) in tables.fetchall()]
    return {name: int(next(connection.execute(f'SELECT count(*) FROM "{name}"'))[0]) for name in names}


@contextlib.contextmanager
def _clearing(part: Path, target: Path) -> Iterator[None]:
    """Leave no half a copy behind, and name the copy in what is raised."""
    try:
        part.unlink(missing_ok=True)
        yield
    except (apsw.Error, OSError) as error:
        free = shutil.disk_usage(target.parent).free
        raise Unavailable(
            f"Cannot write a copy of the database to {target}: {error}; {free:,} bytes are free there"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def _copy_pages(source: apsw.Connection, part: Path) -> None:
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with contextlib.closing(apsw.Connection(str(part))) as written:
        written.execute("PRAGMA synchronous = OFF")
        with written.backup("main", source, "main") as copying:
            copying.step()
        written.execute("PRAGMA journal_mode = DELETE").fetchall()


def _prove(part: Path, rows: dict[str, int]) -> None:
    with contextlib.closing(apsw.Connection(str(part), flags=apsw.SQLITE_OPEN_READONLY)) as written:
        found = written.execute("PRAGMA integrity_check").fetchall()
        if found != [("ok",)]:
            raise Unavailable(f"The copy of the database is not sound: {found[0][0]}; it was thrown away")
        if row_counts(written) != rows:
            raise Unavailable("The copy of the database lacks rows; it was thrown away")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
