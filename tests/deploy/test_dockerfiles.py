"""What linters find in the Dockerfiles is mended, or waived with a reason."""

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.support.installed import output_of
from tests.support.kubernetes import tool
from tests.support.processes import ROOT

FILES = ("docker/embed.Dockerfile", "docker/memory.Dockerfile", "tests/containers/monitoring.Dockerfile")
Findings = dict[str, set[str]]


def of_hadolint() -> Findings:
    """The files on which each of its rules finds something."""
    asked = [tool("hadolint", "hadolint"), "--no-fail", "--format", "json", *FILES]
    return grouped([(each["code"], each["file"]) for each in json.loads(output_of(asked))])


def of_checkov(folder: Path) -> Findings:
    """The same of checkov, which reads folders."""
    for file in FILES:
        (folder / file).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(ROOT / file, folder / file)
    asked = ["-d", str(folder), "--framework", "dockerfile", "--skip-download", "--soft-fail", "--output", "json"]
    report = json.loads(output_of([tool("checkov", "checkov"), *asked]))
    assert report["summary"]["passed"] > 100
    assert (report["summary"]["parsing_errors"], report["summary"]["resource_count"]) == (0, len(FILES))
    failed = report["results"]["failed_checks"]
    return grouped([(each["check_id"], each["file_path"].removeprefix("/")) for each in failed])


def grouped(found: list[tuple[str, str]]) -> Findings:
    """The files, by rule."""
    return {rule: {file for other, file in found if other == rule} for rule, _ in found}


@pytest.mark.slow
def test_every_finding_in_a_dockerfile_is_waived_with_a_reason_and_every_waiver_is_needed(tmp_path: Path) -> None:
    assert {str(file.relative_to(ROOT)) for file in (ROOT / "docker").glob("*Dockerfile*")} < set(FILES)
    waived = tomllib.loads((ROOT / "docker" / "lint.toml").read_text(encoding="utf-8"))
    assert of_hadolint() | of_checkov(tmp_path) == {rule: set(waiver["on"]) for rule, waiver in waived.items()}
    assert all(len(waiver["why"].split()) > 3 for waiver in waived.values())
