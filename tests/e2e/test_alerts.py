"""Every alert, asked of Prometheus' own tools: it fires at its time, and a rule that is bent is noticed."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.installed import debian
from tests.support.processes import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
RULES = ROOT / "observability" / "prometheus" / "rules"
CASES = ROOT / "observability" / "prometheus" / "tests"
ALERTMANAGER = ROOT / "observability" / "alertmanager" / "alertmanager.yml"
ALERTS = {
    rule["alert"]: (group["name"], rule)
    for group in yaml.safe_load((RULES / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
}
COMPARISON = re.compile(r"(<|>|==) (\d+(?:\.\d+)?)\b")
DAYS = re.compile(r"\b(\d+) \* 86400")
DURATION = re.compile(r"(\d+)([a-z]+)")


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """What Prometheus' tool says of files."""
    command = [debian("promtool", "prometheus"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def bent(rule: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rule, each time with one number or comparison of it changed."""
    count, unit = DURATION.fullmatch(rule["for"]).groups()  # type: ignore[union-attr]
    smaller = {"m": f"{int(count) * 30}s"}[unit]
    yield from (rule | {"for": f"{int(count) * 2}{unit}"}, rule | {"for": smaller})
    for found in COMPARISON.finditer(rule["expr"]):
        for other in other_comparisons(found[1], float(found[2])):
            yield rule | {"expr": rule["expr"][: found.start()] + other + rule["expr"][found.end() :]}
    for found in DAYS.finditer(rule["expr"]):
        for factor in (0.5, 2.0):
            days = f"{int(found[1]) * factor:g} * 86400"
            yield rule | {"expr": rule["expr"][: found.start()] + days + rule["expr"][found.end() :]}


def other_comparisons(sign: str, number: float) -> list[str]:
    """Comparisons that are nearly that one."""
    if sign == "==":
        return [f"== {1 - number:g}"]
    turned = f"{'<' if sign == '>' else '>'} {number:g}"
    return [turned, *(f"{sign} {number * factor:g}" for factor in (0.5, 2.0) if number)]


def cases_of(alert: str, group: str) -> dict[str, Any]:
    """The committed cases of one alert."""
    document: dict[str, Any] = yaml.safe_load((CASES / f"{group}.yml").read_text())
    named = [each for each in document["tests"] if each["name"].split()[0] == alert]
    return document | {"tests": named, "rule_files": ["recording.yml", "alert.yml"]}


def test_the_rules_and_the_configuration_of_prometheus_are_sound(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "observability" / "prometheus", tmp_path, dirs_exist_ok=True)
    (tmp_path / "secrets").mkdir()
    for name in ("memory_token", "embed_token"):
        (tmp_path / "secrets" / name).write_text("not-a-token")
    checked = promtool("check", "config", tmp_path / "prometheus.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.count("rules found") == 2


def test_the_configuration_of_alertmanager_is_sound() -> None:
    command = [debian("amtool", "prometheus-alertmanager"), "check-config", str(ALERTMANAGER)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_alertmanager_routes_every_alert_to_the_receiver() -> None:
    tool = debian("amtool", "prometheus-alertmanager")
    for severity in ("warning", "critical"):
        command = [tool, "config", "routes", "test", "--config.file", str(ALERTMANAGER), f"severity={severity}"]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["webhook"]


def test_every_alert_fires_at_its_time_and_is_silent_where_it_should_be() -> None:
    checked = promtool("test", "rules", *sorted(CASES.glob("*.yml")))
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_an_alert_that_is_bent_fails_its_cases(alert: str, tmp_path: Path) -> None:
    group, rule = ALERTS[alert]
    shutil.copy(RULES / "recording.yml", tmp_path)
    (tmp_path / "cases.yml").write_text(yaml.safe_dump(cases_of(alert, group)))
    written = tmp_path / "alert.yml"
    outcomes = []
    for each in (rule, *bent(rule)):
        written.write_text(yaml.safe_dump({"groups": [{"name": group, "rules": [each]}]}))
        checked = promtool("test", "rules", tmp_path / "cases.yml")
        outcomes.append((checked.returncode, each["for"], each["expr"], checked.stderr))
    assert outcomes[0][0] == 0, outcomes[0]
    assert [each for each in outcomes[1:] if each[0] == 0 or "got:" not in each[3]] == []
