"""What can be set for the compose file stands in .env.example, with its default."""

import os
import re
from pathlib import Path

import pytest

from tests.support.installed import environment_of, output_of
from tests.support.processes import ROOT

EXAMPLE = (ROOT / ".env.example").read_text(encoding="utf-8")
LINES = re.findall(r"^#(\w+=.*)$", EXAMPLE, re.MULTILINE)
ASKED = re.compile(r"\$\{(\w+)")


def read_with(*lines: str, folder: Path) -> str:
    """The whole project as Docker Compose understands it with these settings and no others."""
    program = environment_of("compose") / "bin" / "docker-compose"
    settings = folder / "settings"
    settings.write_text("\n".join(lines))
    kept = {name: value for name, value in os.environ.items() if f"{name}=" not in EXAMPLE}
    clean = ["env", "-i", *(f"{name}={value}" for name, value in kept.items())]
    files = ["--file", "compose.yaml", "--file", "docker/secrets.yaml"]
    return output_of([*clean, str(program), "--env-file", str(settings), *files, "--profile", "*", "config"])


def test_every_setting_of_the_compose_file_is_in_the_example() -> None:
    files = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docker").glob("*.yaml"))
    assert set(ASKED.findall(files)) == {line.partition("=")[0] for line in LINES}


def test_what_is_copied_from_the_example_as_it_stands_changes_nothing(tmp_path: Path) -> None:
    assert read_with(*LINES, folder=tmp_path) == read_with(folder=tmp_path)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("MEMORY_RAM=777m", f'memory: "{777 * 1024 * 1024}"'),
        ("PROMETHEUS_CONFIGURATION=./mine", f"source: {ROOT}/mine/prometheus.yml"),
        ("EMBED_TOKEN=./mine/token", f"file: {ROOT}/mine/token"),
    ],
)
def test_what_is_changed_there_counts_from_the_root_of_the_project(line: str, told: str, tmp_path: Path) -> None:
    assert told in read_with(line, folder=tmp_path)


def test_no_secret_is_in_the_environment_where_each_has_its_file(tmp_path: Path) -> None:
    told = read_with("GRAFANA_PASSWORD=told-by-the-environment", folder=tmp_path)
    assert "told-by-the-environment" not in told
    assert {"embed_token", "memory_token", "grafana_password"} <= set(re.findall(r"/run/secrets/(\w+)", told))
