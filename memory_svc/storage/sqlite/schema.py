"""Bringing a file to the newest schema: a proved copy beside it, then the migrations and what they ask of Python."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw

from memory_svc.domain.memory import Kind, Memory
from memory_svc.domain.terms import talk_of
from memory_svc.errors import Unavailable
from memory_svc.observe import log
from memory_svc.storage.migrate import migrate
from memory_svc.storage.sqlite import indexing
from memory_svc.storage.sqlite.backup import check_room, copy, size_bytes
from memory_svc.storage.sqlite.connection import open_connection
from memory_svc.storage.sqlite.rows import TABLES

BATCH_ROWS = 500
LOGGED_ROWS = 20_000
WARNING = 30


def bring_up(path: Path) -> None:
    """Bring the database to the newest schema.

    Raises Unavailable when it has a newer one, or there is no room to copy or to change it: then it is as it was.
    """
    with contextlib.closing(open_connection(path)) as connection:

        def prepare(version: int) -> None:
            check_room(path.parent, 3 * size_bytes(connection), f"Bringing {path} to the newest schema")
            copied = copy(connection, path.with_name(f"{path.name}.schema-{version}"))
            log(
                "the database is brought to the newest schema; a copy of it as it was is kept until you remove it,"
                " and what is erased from now on stays in that copy",
                severity=WARNING,
                copy=copied.path,
                bytes=copied.size_bytes,
                schema=version,
            )

        with _full_disk(path):
            migrate(connection, prepare, {2: _index_words})


@contextlib.contextmanager
def _full_disk(path: Path) -> Iterator[None]:
    try:
        yield
    except (apsw.FullError, apsw.IOError) as error:
        free = shutil.disk_usage(path.parent).free
        raise Unavailable(
            f"{path} cannot be brought to the newest schema: {error}; {free:,} bytes are free in {path.parent};"
            " nothing was changed, make room there and start again"
        ) from error


def _index_words(connection: apsw.Connection) -> None:
    """Index every row anew."""
    done = 0
    for kind in (Kind.MEMORY, Kind.EPISODE):
        last = 0
        while rows := TABLES[kind].select(connection, "id > ? ORDER BY id LIMIT ?", (last, BATCH_ROWS)):
            for row in rows:
                if isinstance(row, Memory):
                    connection.execute("UPDATE memories SET talk = ? WHERE id = ?", (talk_of(row), row.id))
                indexing.put(connection, row)
            last = rows[-1].id
            done += len(rows)
            if done % LOGGED_ROWS < len(rows):
                log("indexing the words of every row", rows=done)
