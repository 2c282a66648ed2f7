"""A copy of the store: proved, whole, of one moment; where it cannot be made it is told and nothing has changed."""

import asyncio
import shutil
from pathlib import Path

import apsw
import pytest

from memory_svc.domain.change import Forget
from memory_svc.domain.memory import Kind, Ref
from memory_svc.domain.scope import Scope
from memory_svc.errors import Unavailable
from memory_svc.storage.interface import Query, Storage
from memory_svc.storage.sqlite import backup
from memory_svc.storage.sqlite.engine import SqliteStorage
from tests.support.corpus import candidates, put, vector, write


async def test_a_copy_is_one_file_that_opens_as_a_store(storage: Storage, tmp_path: Path) -> None:
    for number in range(30):
        await storage.apply(put(f"needle {number}"), {0: vector(f"t{number}")})
    copied = await storage.upkeep.backup(str(tmp_path / "copies.db"))
    assert copied.rows["memories"] == 30
    assert copied.size_bytes == (tmp_path / "copies.db").stat().st_size
    await storage.apply(write(Forget(Ref(Kind.MEMORY, 1))))
    assert {path.name for path in tmp_path.glob("copies*")} == {"copies.db"}
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(tmp_path / "copies.db", tmp_path / "elsewhere" / "memory.db")
    restored = SqliteStorage(tmp_path / "elsewhere" / "memory.db")
    found = await candidates(restored, Scope(agent="a"), Query(("needle",), vector("t0"), 100))
    assert (len(found.words), str(found.vectors[0].ref)) == (30, "mem:1")
    assert await restored.upkeep.verify() == []
    await restored.close()


async def test_a_copy_is_of_one_moment_while_others_write(storage: Storage, tmp_path: Path) -> None:
    stopped = asyncio.Event()

    async def keep_writing() -> None:
        number = 0
        while not stopped.is_set():
            await storage.apply(put(f"needle {number}"))
            number += 1

    writing = asyncio.create_task(keep_writing())
    for number in range(5):
        copied = await storage.upkeep.backup(str(tmp_path / f"copy-{number}"))
        assert copied.rows["memories"] == copied.rows["journal"] == copied.rows["vectors"]
    stopped.set()
    await writing


async def test_without_room_nothing_is_left(storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await storage.apply(put("one"))
    (tmp_path / "copy").write_text("an older copy")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=5))
    with pytest.raises(Unavailable, match=r"copy, takes .* bytes and .* has 5 free"):
        await storage.upkeep.backup(str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_text() == "an older copy"


async def test_a_place_that_cannot_be_written_is_named(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(Unavailable, match=r"Cannot write a copy of the database to .*taken"):
        await storage.upkeep.backup(str(tmp_path / "taken"))
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("found", ["rows", "pages"])
async def test_a_copy_that_is_not_sound_is_thrown_away(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    for number in range(50):
        await storage.apply(put(f"needle {number}"))
    copy_pages = backup._copy_pages

    def copied_badly(source: apsw.Connection, part: Path) -> None:
        copy_pages(source, part)
        if found == "rows":
            connection = apsw.Connection(str(part))
            connection.execute("DELETE FROM memories WHERE id = 7")
            connection.close()
            return
        content = bytearray(part.read_bytes())
        content[-20_000:] = bytes(20_000)
        part.write_bytes(content)

    monkeypatch.setattr(backup, "_copy_pages", copied_badly)
    with pytest.raises(Unavailable, match="thrown away|malformed"):
        await storage.upkeep.backup(str(tmp_path / "copy"))
    assert not list(tmp_path.glob("copy*"))
