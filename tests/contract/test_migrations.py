"""Each old schema becomes the newest; a newer one is refused."""

import threading
from pathlib import Path

import apsw
import pytest

from memory_svc.errors import Unavailable
from memory_svc.storage.migrate import migrate, migrations
from memory_svc.storage.sqlite.engine import SqliteStorage


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [number for number, _ in migrations("sqlite")] == list(range(1, len(migrations("sqlite")) + 1))


def test_a_migrated_database_is_left_as_it_is(tmp_path: Path) -> None:
    for _ in range(2):
        connection = apsw.Connection(str(tmp_path / "memory.db"))
        assert migrate(connection) == migrations("sqlite")[-1][0]
        connection.close()


def test_a_newer_schema_is_refused_with_the_remedy(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    with pytest.raises(Unavailable, match="install the newer version"):
        SqliteStorage(tmp_path / "memory.db")


@pytest.mark.parametrize("_", range(5))
def test_processes_that_start_at_once_migrate_once(tmp_path: Path, _: int) -> None:
    failed: list[Exception] = []

    def start() -> None:
        try:
            engine = SqliteStorage(tmp_path / "memory.db")
            engine.upkeep.close()
        except Unavailable as problem:
            failed.append(problem)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
