"""Files that are whole or not there."""

import errno
import os
from pathlib import Path

import pytest

from embed_svc import disk


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def no_links(*_: object) -> None:
    raise OSError("this file system has no links")


def test_replacing_makes_the_folder_and_leaves_nothing_beside_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "record"
    disk.replace(file, b"one")
    disk.replace(file, b"two")
    assert file.read_bytes() == b"two"
    assert names(file.parent) == ["record"]


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_creating_never_overwrites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    if not links:
        monkeypatch.setattr(Path, "hardlink_to", no_links)
    disk.create(tmp_path / "record", b"one")
    with pytest.raises(FileExistsError):
        disk.create(tmp_path / "record", b"two")
    assert (tmp_path / "record").read_bytes() == b"one"
    assert names(tmp_path) == ["record"]


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.replace(tmp_path / "record", b"one")
    monkeypatch.setattr(Path, "replace", no_links)
    with pytest.raises(OSError, match="no links"):
        disk.replace(tmp_path / "record", b"two")
    assert (tmp_path / "record").read_bytes() == b"one"
    assert names(tmp_path) == ["record"]


def test_who_may_not_write_is_told_what_to_run(tmp_path: Path) -> None:
    said = disk.refusal(tmp_path / "model.json", PermissionError(errno.EACCES, "Permission denied"))
    assert f"as root run `chown -R {os.geteuid()}:{os.getegid()} {tmp_path}`" in said
    said = disk.refusal(tmp_path / "model.json", OSError(errno.EROFS, "Read-only file system"))
    assert said.startswith(f"{tmp_path}/model.json cannot be written (Read-only file system): ")
    assert "chown" not in said
