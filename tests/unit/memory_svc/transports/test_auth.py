"""The token file and the comparison."""

import multiprocessing
import os
import re
import stat
from pathlib import Path

import pytest

from memory_svc.errors import Invalid, Unauthenticated
from memory_svc.transports.auth import authenticate, load_or_make_token, load_token, token_for
from tests.support.toy_server import settings_for

PROCESSES = 8


def test_a_token_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "token"
    token = load_or_make_token(path)
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", token)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_or_make_token(path) == token
    assert [each.name for each in path.parent.iterdir()] == ["token"]


def test_processes_that_start_at_once_agree_on_one_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        tokens = pool.map(load_or_make_token, [path] * PROCESSES * 4, chunksize=1)
    assert len(set(tokens)) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["token"]


def test_a_file_of_ones_own_is_read_without_the_space_around(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("  my-token \r\n")
    path.chmod(0o600)
    assert load_token(path) == "my-token"


@pytest.mark.parametrize("content", [b"", b" \n", b"two words", b"\xff\xfe", "tökën".encode(), b"a\nb", b"x" * 5000])
def test_a_file_that_holds_no_token_is_refused_and_not_repeated(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(Invalid) as refused:
        load_or_make_token(path)
    assert str(path) in refused.value.text
    assert "words" not in refused.value.text


def test_an_empty_file_is_told_how_to_mend(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    with pytest.raises(Invalid, match="empty; remove it"):
        load_or_make_token(path)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o666])
def test_a_file_that_others_can_read_is_refused_with_the_command_that_mends_it(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    path.write_text("my-token")
    path.chmod(mode)
    with pytest.raises(Invalid, match="chmod 600"):
        load_token(path)


def test_a_mounted_secret_whose_mode_is_not_ours_is_taken_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "token"
    path.write_text("my-token")
    path.chmod(0o444)
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert load_token(path) == "my-token"
    assert "readable by others" in caplog.text
    assert "my-token" not in caplog.text


def test_a_read_only_mount_of_our_own_file_is_taken_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "token"
    path.write_text("my-token")
    path.chmod(0o444)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert load_token(path) == "my-token"
    assert "readable by others" in caplog.text


def test_a_file_that_the_settings_name_is_never_made(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        token_for(settings_for(token_file=str(tmp_path / "secret")))
    assert token_for(settings_for(data_dir=str(tmp_path / "data"))) == load_token(tmp_path / "data" / "token")


def test_a_folder_where_nothing_can_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Invalid, match="cannot be made here"):
        load_or_make_token(tmp_path / "file" / "token")


@pytest.mark.parametrize("header", [b"Bearer secret", b"bearer secret", b"BEARER   secret"])
def test_the_right_token_is_the_owner(header: bytes) -> None:
    assert authenticate(header, b"secret").name == "owner"


@pytest.mark.parametrize(
    "header",
    [b"", b"Bearer", b"Bearer ", b"secret", b"Basic secret", b"Bearer Secret", b"Bearer secret2", b"Bearer \xff\xfe"],
)
def test_anything_else_is_nobody_and_is_not_repeated(header: bytes) -> None:
    with pytest.raises(Unauthenticated) as refused:
        authenticate(header, b"secret")
    assert "ecret2" not in refused.value.text
