"""Where both services are to be found."""

import argparse
import socket

import pytest

from memory_svc.cli.run import run, url_of, with_addresses
from memory_svc.errors import Invalid, Unavailable


def test_without_any_setting_both_are_where_the_readme_says() -> None:
    environ = with_addresses({})
    assert (url_of(environ, "EMBED"), url_of(environ, "MEMORY")) == ("http://127.0.0.1:8401", "http://127.0.0.1:8402")
    assert environ["MEMORY_EMBEDDING_URL"] == "http://127.0.0.1:8401"


def test_any_free_port_is_chosen_before_either_starts() -> None:
    environ = with_addresses({"EMBED_PORT": "0", "MEMORY_PORT": "0"})
    ports = {environ["EMBED_PORT"], environ["MEMORY_PORT"]}
    assert len(ports) == 2
    assert "0" not in ports


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.2", "http://127.0.0.2:8401"),
        ("0.0.0.0", "http://127.0.0.1:8401"),
        ("::1", "http://[::1]:8401"),
        ("::", "http://[::1]:8401"),
    ],
)
def test_the_address_is_one_that_this_machine_reaches(host: str, url: str) -> None:
    assert url_of(with_addresses({"EMBED_HOST": host}), "EMBED") == url


def test_an_embedding_server_elsewhere_is_kept() -> None:
    assert with_addresses({"MEMORY_EMBEDDING_URL": "http://other:1"})["MEMORY_EMBEDDING_URL"] == "http://other:1"


@pytest.mark.parametrize("port", ["abc", "-1", "70000", "", "８４０１"])
def test_what_is_no_port_is_refused_by_name(port: str) -> None:
    with pytest.raises(Invalid, match="EMBED_PORT"):
        with_addresses({"EMBED_PORT": port})


@pytest.mark.parametrize("prefix", ["EMBED", "MEMORY"])
def test_an_address_that_another_program_has_is_named_before_anything_is_started(
    prefix: str, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr("memory_svc.cli.run.started", lambda *_: pytest.fail("it was started"))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with socket.create_server(("127.0.0.1", 0)) as other:
        for name, value in {"EMBED_PORT": "0", "MEMORY_PORT": "0", "MEMORY_DATA_DIR": str(tmp_path)}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv(f"{prefix}_PORT", str(other.getsockname()[1]))
        with pytest.raises(Unavailable, match=f"{prefix}_PORT: cannot listen on 127.0.0.1 .* already in use.* or set"):
            run(argparse.Namespace())
