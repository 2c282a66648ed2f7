"""Fetching a model while something goes wrong: what is left, and what the next try does."""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.embed_model import COMMIT, HUB_REPO, Hub

pytestmark = [pytest.mark.e2e, pytest.mark.fault]

MODEL = "jina-embeddings-v5-text-nano-retrieval"
WEIGHTS = "onnx/model.onnx_data"
CONTENT = {
    "onnx/model.onnx": b"graph",
    WEIGHTS: bytes(range(256)) * 20_000,
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b"{}",
}
SECONDS_MAX = 60


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub(HUB_REPO, CONTENT) as made:
        yield made


def start(data_dir: Path, endpoint: str, **more: str) -> "subprocess.Popen[str]":
    given = {"EMBED_DATA_DIR": str(data_dir), "HF_ENDPOINT": endpoint, "HF_HOME": str(data_dir.parent / "hub"), **more}
    return subprocess.Popen(
        [sys.executable, "-m", "embed_svc", "download", MODEL],
        env={**os.environ, **given},
        stderr=subprocess.PIPE,
        text=True,
    )


def download(data_dir: Path, endpoint: str, **more: str) -> tuple[int, str]:
    """Exit status and what was said."""
    process = start(data_dir, endpoint, **more)
    _, said = process.communicate(timeout=SECONDS_MAX)
    assert "Traceback" not in said
    return process.returncode, said


def until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not met():
        assert time.monotonic() < end
        time.sleep(0.01)


def place(data_dir: Path) -> Path:
    return data_dir / "models" / MODEL


def whole(data_dir: Path) -> bool:
    folder = place(data_dir) / COMMIT
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and not file.name.startswith(".")
    } == CONTENT


def test_a_download_tells_its_licence_progress_revision_and_digests(tmp_path: Path, hub: Hub) -> None:
    status, said = download(tmp_path / "data", hub.address)
    assert status == 0, said
    assert "810 MB, licence CC BY-NC 4.0" in said
    assert f"{WEIGHTS} 100 % 5 of 5 MB" in said
    assert f"revision {COMMIT}: here and checked" in said
    assert whole(tmp_path / "data")
    hub.asked.clear()
    status, said = download(tmp_path / "data", "http://127.0.0.1:9", HF_HUB_OFFLINE="1")
    assert (status, hub.asked) == (0, [])


def test_killed_in_the_middle_it_goes_on_where_it_was(tmp_path: Path, hub: Hub) -> None:
    data_dir = tmp_path / "data"
    hub.stops_after = 3_000_000
    process = start(data_dir, hub.address)
    part = place(data_dir) / COMMIT / f"{WEIGHTS}.part"
    assert hub.silent.wait(SECONDS_MAX)
    until(lambda: part.exists() and part.stat().st_size > 2_000_000)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=SECONDS_MAX)
    assert not (place(data_dir) / COMMIT / WEIGHTS).exists()
    came = part.stat().st_size
    hub.stops_after = None
    status, said = download(data_dir, hub.address)
    assert status == 0, said
    assert hub.ranges == [str(came)]
    assert whole(data_dir)
    assert not part.exists()


def test_a_hub_that_cannot_go_on_in_the_middle_is_asked_from_the_beginning(tmp_path: Path, hub: Hub) -> None:
    part = place(tmp_path / "data") / COMMIT / f"{WEIGHTS}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 10_000_000)
    status, said = download(tmp_path / "data", hub.address)
    assert status == 0, said
    assert whole(tmp_path / "data")


def test_a_beginning_that_belongs_to_another_file_is_found_out_and_dropped(tmp_path: Path, hub: Hub) -> None:
    part = place(tmp_path / "data") / COMMIT / f"{WEIGHTS}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 1_000)
    status, said = download(tmp_path / "data", hub.address)
    assert status == 1
    assert f"{WEIGHTS} of {MODEL} could not be fetched" in said
    assert not part.exists()
    assert download(tmp_path / "data", hub.address)[0] == 0
    assert whole(tmp_path / "data")


def test_what_is_damaged_on_its_way_never_gets_its_name(tmp_path: Path, hub: Hub) -> None:
    hub.damaged = WEIGHTS
    status, said = download(tmp_path / "data", hub.address)
    assert status == 1
    assert "could not be fetched" in said
    assert not (place(tmp_path / "data") / COMMIT / WEIGHTS).exists()
    hub.damaged = None
    assert download(tmp_path / "data", hub.address)[0] == 0


def test_a_file_changed_since_the_first_download_is_named(tmp_path: Path, hub: Hub) -> None:
    assert download(tmp_path / "data", hub.address)[0] == 0
    file = place(tmp_path / "data") / COMMIT / WEIGHTS
    file.write_bytes(b"y" + file.read_bytes()[1:])
    status, said = download(tmp_path / "data", hub.address)
    assert status == 2
    assert f"{WEIGHTS} of {MODEL} is not what was fetched at first" in said
    file.unlink()
    assert download(tmp_path / "data", hub.address)[0] == 0
    assert whole(tmp_path / "data")


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Callable[[], None]]:
    """A disk of 2 MB at this folder; what is yielded makes it larger. Where none may be mounted, large files fail."""
    folder.mkdir()
    if os.geteuid():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, resource.RLIM_INFINITY))
        try:
            yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True)
    try:
        yield lambda: subprocess.run(["mount", "-o", "remount,size=16m", str(folder)], check=True) and None
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_told_and_what_came_is_kept(tmp_path: Path, hub: Hub) -> None:
    data_dir = tmp_path / "small"
    with small_disk(data_dir) as grow:
        status, said = download(data_dir, hub.address)
        assert status == 1
        assert "No space left on device" in said or "File too large" in said
        part = place(data_dir) / COMMIT / f"{WEIGHTS}.part"
        assert 0 < part.stat().st_size <= 2 << 20
        grow()
        assert download(data_dir, hub.address)[0] == 0
        assert whole(data_dir)


def test_a_hub_that_cannot_be_resolved_is_told_soon(tmp_path: Path) -> None:
    started = time.monotonic()
    status, said = download(tmp_path / "data", "http://hub.invalid")
    assert status == 1
    assert "the model hub cannot be reached (ConnectError" in said
    assert time.monotonic() - started < 15


def test_a_silent_hub_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        status, said = download(tmp_path / "data", f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert status == 1
    assert "the model hub cannot be reached (ReadTimeout" in said
    assert time.monotonic() - started < 30


def test_two_at_once_fetch_each_file_once(tmp_path: Path, hub: Hub) -> None:
    processes = [start(tmp_path / "data", hub.address) for _ in range(2)]
    said = [process.communicate(timeout=SECONDS_MAX)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert whole(tmp_path / "data")
