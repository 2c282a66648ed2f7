"""Reading the token."""

from pathlib import Path

import pytest

from embed_svc.errors import Invalid
from embed_svc.guard import read_token


def test_no_file_is_no_token() -> None:
    assert read_token("") == ""


def test_a_token_is_read_without_the_blanks_around_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("  0123456789abcdef\n")
    assert read_token(str(tmp_path / "token")) == "0123456789abcdef"


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"short", b"0123456789 abcdef", b"0123456789abcde\xff", "é".encode() * 20]
)
def test_what_is_no_token_stops_the_start_without_being_told(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(Invalid, match="EMBED_TOKEN_FILE") as refused:
        read_token(str(file))
    assert not content.strip() or content.strip().decode("latin-1") not in refused.value.text


def test_a_file_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"cannot be read \(FileNotFoundError\)"):
        read_token(str(tmp_path / "absent"))
