"""`memory-svc eval`: from files of labels to tables, on a corpus of its own or on the store there is."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from memory_svc import app
from memory_svc.__main__ import main
from memory_svc.domain.scope import Scope
from memory_svc.services.operation import Call
from memory_svc.settings import Settings
from memory_svc.storage.interface import TimesRecalled
from tests.support.fakes import EmbeddingServer

CORPUS = (
    {"content": "The office cat is called Moss", "id": "cat"},
    {"content": "Deploys go out on Friday mornings"},
    {"content": "Moss sleeps on the printer", "id": "sleep"},
)
QUESTIONS = (
    {"query": "what is the cat called?", "relevant": ["cat"], "category": "pets"},
    {"query": "when do deploys go out?", "relevant": ["mem:2", "mem:9"]},
    {"query": "quantum flux", "relevant": []},
)


@pytest.fixture(autouse=True)
def without_vectors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEMORY_EMBEDDING_URL", "")
    monkeypatch.setenv("MEMORY_DATA_DIR", str(tmp_path / "store"))


def file(path: Path, *lines: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


def files(folder: Path) -> list[str]:
    return [file(folder / "q.jsonl", *QUESTIONS), "--agent", "me", "--corpus", file(folder / "c.jsonl", *CORPUS)]


def test_a_table_tells_measures_silence_tokens_and_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", *files(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "| category | questions | R@5 | R@10 | MRR | nDCG@10 |" in out
    assert "| all | 2 | 100.0% | 100.0% | 100.0% | 100.0% |" in out
    assert "| pets | 1 |" in out
    assert "silent: 100.0% of 1 unanswerable" in out
    assert "asked without vectors: 3 of 3" in out
    assert "Not in the store, so not looked for (1): line 2 mem:9" in out
    assert not (tmp_path / "store").exists()


def test_two_sets_of_settings_are_told_question_by_question_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = ["--set", "MEMORY_RRF_K=1", "--against", "MEMORY_RRF_K=2", "MEMORY_PREVIEW_CHARS=5"]
    assert main(["eval", *files(tmp_path), "--limit", "2", *sets, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["outcomes"]) == ["MEMORY_RRF_K=1", "MEMORY_RRF_K=1 MEMORY_RRF_K=2 MEMORY_PREVIEW_CHARS=5"]
    first, second = found["outcomes"].values()
    assert [each["rows"][0] for each in first["answers"] if each["rows"]] == ["msg:cat", "mem:2"]
    assert second["tokens"] != first["tokens"]
    assert found["comparison"]["gains"]["MRR"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert found["comparison"]["changed"] == []


def test_the_questions_that_one_setting_alone_answers_are_told_with_their_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = file(tmp_path / "q.jsonl", {"query": "It is called Moss", "relevant": ["mem:2"], "agent_id": "me"})
    facts = ({"content": "The cat is called Moss"}, {"content": "it is what it is"})
    apart = [{**fact, "timestamp": f"2026-01-0{day}T00:00:00Z"} for day, fact in enumerate(facts, start=1)]
    corpus = file(tmp_path / "c.jsonl", *apart)
    with embedding_server() as url:
        sets = ["--agent", "me", "--corpus", corpus, "--set", f"MEMORY_EMBEDDING_URL={url}"]
        assert main(["eval", asked, *sets, "--against", "MEMORY_EMBEDDING_URL="]) == 0
    out = capsys.readouterr().out
    assert "| MRR | -50.0% | -50.0% to -50.0% | yes |" in out
    assert "- line 1 `It is called Moss`: mem:2 2 → –" in out
    assert out.count("asked without vectors: 1 of 1") == 1


def test_both_settings_answer_from_one_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "memory.db").touch()
    asked = file(tmp_path / "q.jsonl", *QUESTIONS)
    sets = ["--set", f"MEMORY_DATA_DIR={tmp_path / 'one'}", "--against", f"MEMORY_DATA_DIR={tmp_path / 'other'}"]
    assert main(["eval", asked, *sets]) == 2
    assert "both must answer from one" in capsys.readouterr().err


def test_the_store_that_there_is_is_asked_and_none_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = file(tmp_path / "q.jsonl", {"query": "cat", "relevant": ["mem:1"], "agent_id": "me"})
    assert main(["eval", asked]) == 2
    assert "There is no store in" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()
    asyncio.run(store_a_cat(tmp_path / "store"))
    assert main(["eval", asked]) == 0
    assert "| all | 1 | 100.0% | 100.0% | 100.0% | 100.0% |" in capsys.readouterr().out
    assert asyncio.run(recalls_of_the_cat(tmp_path / "store")) == {}


async def recalls_of_the_cat(folder: Path) -> dict[int, TimesRecalled]:
    async with app.assembled(Settings(data_dir=str(folder), embedding_url="")) as parts:
        return await parts.storage.recalls.of(Scope(agent="me"), [1])


async def store_a_cat(folder: Path) -> None:
    folder.mkdir()
    async with app.assembled(Settings(data_dir=str(folder), embedding_url="")) as parts:
        await parts.catalogue.call("store", {"agent_id": "me", "content": "a cat"}, Call())


@contextlib.contextmanager
def embedding_server() -> Iterator[str]:
    """The address of a server whose vectors come from the words of a text."""
    answer = EmbeddingServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, body = asyncio.run(answer(self.rfile.read(int(self.headers["Content-Length"])), {}))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--limit", "0"], "--limit: expected"),
        (["--set", "PREVIEW_CHARS=1"], "--set, --against: 'PREVIEW_CHARS=1' is no setting"),
        (["--set", "MEMORY_PREVIEW_CHARS"], "is no setting"),
        (["--set", "MEMORY_NO_SUCH=1"], "MEMORY_NO_SUCH: no such setting"),
    ],
)
def test_what_cannot_be_used_is_named(
    more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", *files(tmp_path), *more]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"content": ""}, "c.jsonl line 1: empty content"),
        ({"content": 5}, "c.jsonl line 1: content: Expected"),
        ({"content": "x", "agent_id": ""}, "q.jsonl: the store holds none of the relevant rows"),
    ],
)
def test_a_memory_that_cannot_be_stored_is_named_by_its_line(
    line: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = file(tmp_path / "q.jsonl", {"query": "cat", "relevant": ["mem:1"]})
    assert main(["eval", asked, "--agent", "me", "--corpus", file(tmp_path / "c.jsonl", line)]) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    corpus = file(tmp_path / "c.jsonl", *CORPUS)
    assert main(["eval", str(tmp_path / "none.jsonl"), "--corpus", corpus]) == 2
    assert "none.jsonl: cannot be read (No such file or directory)" in capsys.readouterr().err
