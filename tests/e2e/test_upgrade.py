"""The guide of upgrades, by its own commands: an old store is brought up, and put back."""

import re
import stat
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from tests.contract.test_migrations import NEWEST, OLD_TEXTS, old_database
from tests.support.processes import ROOT, environment, running

pytestmark = pytest.mark.e2e
GUIDE = (ROOT / "docs" / "guides" / "upgrade.md").read_text(encoding="utf-8")
HOME = "~/.local/share/agent-memory"
WITHOUT_EMBEDDINGS = {"MEMORY_EMBEDDING_URL": ""}


def told(name: str) -> str:
    """The block of the guide that stands under that mark."""
    block = re.search(rf"<!-- {name} -->\n```(?:sh)?\n(.*?)```", GUIDE, flags=re.DOTALL)
    assert block, name
    return block[1]


def run(script: str, folder: Path) -> str:
    """What a block prints when it is run on the store in this folder."""
    ran = subprocess.run(
        ["bash", "-ec", script.replace(HOME, str(folder))], capture_output=True, text=True, check=True, timeout=60
    )
    return ran.stdout.strip()


def texts(path: Path) -> list[str]:
    """What a program of any schema finds in the database."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = [str(text) for (text,) in connection.execute("SELECT content FROM memories ORDER BY id")]
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    return found


@pytest.mark.parametrize("version", [1, NEWEST - 1])
def test_an_old_store_is_brought_up_and_put_back_by_the_commands_of_the_guide(tmp_path: Path, version: int) -> None:
    old_database(tmp_path / "memory.db", version)
    before = texts(tmp_path / "memory.db")
    assert run(told("version"), tmp_path) == str(version)
    with running("memory_svc", tmp_path, **WITHOUT_EMBEDDINGS) as memory:
        assert "brought to the newest schema" in memory.log.read_text()
        assert f"memory.db.schema-{version}" in memory.log.read_text()
        memory.call("store", agent_id="a", content="stored since the upgrade")
        memory.call("delete_memory", memory_id=1)
        assert memory.stop() == 0
    assert run(told("version"), tmp_path) == str(NEWEST)

    back = told("back")
    assert "schema-6" in back
    run(back.replace("schema-6", f"schema-{version}"), tmp_path)
    assert run(told("version"), tmp_path) == str(version)
    assert stat.S_IMODE((tmp_path / "memory.db").stat().st_mode) == 0o600
    assert texts(tmp_path / "memory.db") == before
    assert texts(tmp_path / "newer" / "memory.db")[-1] == "stored since the upgrade"

    with running("memory_svc", tmp_path, **WITHOUT_EMBEDDINGS) as memory:
        found = memory.call("recall", agent_id="a", query="bug-183", limit=1)
        assert found["messages"][-1]["content"] == OLD_TEXTS[3]
        assert memory.stop() == 0


def test_an_older_program_says_why_it_does_not_start_as_the_guide_has_it(tmp_path: Path) -> None:
    old_database(tmp_path / "memory.db", NEWEST)
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    connection.execute(f"PRAGMA user_version = {NEWEST + 1}")
    connection.close()
    before = (tmp_path / "memory.db").read_bytes()
    settings = environment(MEMORY_DATA_DIR=str(tmp_path), MEMORY_PORT="0", MEMORY_EMBEDDING_URL="")
    started = subprocess.run(
        [sys.executable, "-m", "memory_svc", "serve"],
        cwd=ROOT, env=settings, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert started.returncode == 2
    expected = told("refusal").replace("schema 7", f"schema {NEWEST + 1}").replace("up to 6", f"up to {NEWEST}")
    assert expected.strip() in started.stderr
    assert (tmp_path / "memory.db").read_bytes() == before


def test_every_verb_and_metric_that_the_guide_names_is_there() -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "memory_svc", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for verb in re.findall(r"`?memory-svc (\w+)", GUIDE):
        assert verb in listed.stdout, verb
    metrics = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    for metric in set(re.findall(r"`(memory_[a-z_]+)`", GUIDE)):
        assert metric in metrics, metric
