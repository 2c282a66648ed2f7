"""Runs numbered migrations, all in one transaction; refuses a schema that is newer than this program.

A database that holds anything is copied first (see backup.py). A migration that rewrites data may have a step in Python
that runs in the transaction, so that a start that fails leaves all as it was, and after every migration, since what
reads rows there knows the newest schema alone.
"""

from collections.abc import Callable, Mapping
from importlib import resources

import apsw

from memory_svc.errors import Unavailable

Step = Callable[[apsw.Connection], None]


def migrations(engine: str) -> list[tuple[int, str]]:
    """(number, SQL) of an engine's migrations, in order."""
    folder = resources.files("memory_svc.storage.migrations") / engine
    files = sorted((item for item in folder.iterdir() if item.name.endswith(".sql")), key=lambda item: item.name)
    return [(int(item.name[:4]), item.read_text(encoding="utf-8")) for item in files]


def migrate(connection: apsw.Connection, prepare: Callable[[int], None], steps: Mapping[int, Step]) -> int:
    """Bring a SQLite database to the newest schema; the version it has then. Two processes may call it at once.

    prepare: called with the version of a database that is not empty before its first migration. steps: by number.
    Raises Unavailable when the schema is newer than the newest migration known here.
    """
    known = migrations("sqlite")
    version = _version(connection)
    if version > known[-1][0]:
        raise Unavailable(
            f"The database has schema {version}, this program knows up to {known[-1][0]}; install the newer version"
        )
    if 0 < version < known[-1][0]:
        prepare(version)
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)
        missing = [(number, statements) for number, statements in known if number > version]
        for number, statements in missing:
            connection.execute(statements)
            connection.execute(f"PRAGMA user_version = {number}")
        for number, _ in missing:
            if number in steps:
                steps[number](connection)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return _version(connection)


def _version(connection: apsw.Connection) -> int:
    return int(next(connection.execute("PRAGMA user_version"))[0])
