"""The rules of the house, as tests."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest

from memory_svc import errors
from memory_svc.transports.failures import TABLE

ROOT = Path(__file__).parents[2]
PACKAGES = ("memory_svc", "embed_svc")
SQL = re.compile(r"\b(SELECT .+ FROM|INSERT INTO|UPDATE \w+ SET|DELETE FROM|CREATE (TABLE|INDEX)|PRAGMA )")
VAGUE = {"utils", "helpers", "common", "manager", "handlers", "base", "misc"}


def modules() -> list[Path]:
    """Every module of both services."""
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def tracked() -> list[Path]:
    """Every file of the repository, whether committed yet or not."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def definitions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Every public class and function, and the public methods of public classes."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node.name, node
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and not inner.name.startswith("_"):
                        yield f"{node.name}.{inner.name}", inner


def test_imports_go_down_and_the_two_services_do_not_know_each_other() -> None:
    checked = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_and_public_definition_says_what_it_is(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), path
    silent = [name for name, node in definitions(tree) if not ast.get_docstring(node)]
    is_protocol = path.name == "interface.py"
    assert is_protocol or not silent, f"{path}: {silent}"


def test_sql_is_written_in_the_storage_alone() -> None:
    held = [
        str(path.relative_to(ROOT))
        for path in modules()
        if "storage" not in path.parts and SQL.search(path.read_text(encoding="utf-8"))
    ]
    assert held == []


def test_the_environment_is_read_in_the_settings_alone() -> None:
    held = [
        str(path.relative_to(ROOT))
        for path in modules()
        if path.name != "settings.py" and re.search(r"os\.environ|getenv", path.read_text(encoding="utf-8"))
    ]
    assert held == []


def test_the_metrics_library_is_imported_in_observe_alone() -> None:
    held = {
        path.name
        for path in modules()
        if "import prometheus_client" in (text := path.read_text()) or "from prometheus_client" in text
    }
    assert held == {"observe.py"}


def test_the_library_of_traces_is_imported_in_tracing_alone() -> None:
    held = {path.name for path in modules() if re.search(r"^\s*(import|from) opentelemetry", path.read_text(), re.M)}
    assert held == {"tracing.py"}


def test_imports_stand_on_top_but_for_the_two_places_where_start_up_time_asks_for_it() -> None:
    hidden = set()
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if is_function and any(isinstance(inner, ast.Import | ast.ImportFrom) for inner in ast.walk(node)):
                hidden.add(str(path.relative_to(ROOT)))
    assert hidden <= {"memory_svc/app.py", "embed_svc/app.py"}


def test_every_kind_of_problem_has_a_row_in_the_table_of_failures() -> None:
    kinds = {
        value.kind
        for value in vars(errors).values()
        if isinstance(value, type) and value is not errors.Problem and issubclass(value, errors.Problem)
    }
    assert kinds == set(TABLE)
    assert len(kinds) == 9


def test_no_name_is_vague_and_no_file_is_named_after_a_bug() -> None:
    for path in tracked():
        words = set(re.split(r"[^a-z0-9]+", path.stem.lower()))
        assert not words & VAGUE, path
        assert not re.search(r"(issue|bug|ticket|fix)[-_]?\d+", path.stem.lower()), path


def test_the_generated_reference_is_current(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "memory_svc", "reference", str(tmp_path)], cwd=ROOT, check=True, capture_output=True
    )
    written = subprocess.run(
        [sys.executable, "-m", "embed_svc", "reference"], cwd=ROOT, check=True, capture_output=True
    )
    (tmp_path / "embed-svc.md").write_bytes(written.stdout)
    committed = ROOT / "docs" / "reference"
    assert {path.name for path in committed.iterdir()} == {path.name for path in tmp_path.iterdir()}
    for path in tmp_path.iterdir():
        assert (committed / path.name).read_text(encoding="utf-8") == path.read_text(encoding="utf-8"), (
            f"{path.name}: run `make docs`"
        )


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in (path for path in tracked() if path.suffix == ".md"):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_the_documents_keep_their_length() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
    assert len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()) <= 200


def test_lock_files_pin_by_hash_and_name_no_address() -> None:
    for name in ("memory", "embed", "dev"):
        text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
        assert "://" not in text
        pins = re.findall(r"^[a-z0-9].*$", text, flags=re.MULTILINE)
        assert all("==" in pin and pin.endswith("\\") for pin in pins), name


def test_nothing_brings_torch() -> None:
    names = {(found.metadata["Name"] or "").lower() for found in distributions()}
    assert not names & {"torch", "sentence-transformers"}
    assert not any(name.startswith("nvidia-") for name in names)
    for path in (ROOT / "requirements").iterdir():
        assert not re.search(
            r"^(torch|sentence-transformers|nvidia-)", path.read_text(encoding="utf-8"), flags=re.MULTILINE
        )


def test_code_is_formatted_and_passes_the_linter_and_the_type_checker() -> None:
    for command in (["ruff", "format", "--check", "."], ["ruff", "check", "."], ["mypy"]):
        checked = subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_read_of_a_service_is_by_a_scope_of_the_present() -> None:
    held = [
        str(path.relative_to(ROOT))
        for path in modules()
        if "services" in path.parts
        and len(re.findall(r"\bScope\(", path.read_text(encoding="utf-8")))
        != len(re.findall(r"\.present\(\s*Scope\(", path.read_text(encoding="utf-8")))
    ]
    assert held == []
