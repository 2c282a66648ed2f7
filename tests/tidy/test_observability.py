"""Rules, dashboards, metrics and pages tell the same story."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from embed_svc.observe import METRICS as EMBED_METRICS
from memory_svc.observe import Metrics
from observability.boards import ALL
from observability.check import panels
from observability.panels import encoded

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "observability"
PROMETHEUS = FOLDER / "prometheus"
GUIDES = ROOT / "docs" / "guides"
BOARDS = {board.uid: json.loads(encoded(board)) for board in ALL}
NAME = re.compile(r"\b(?:[a-z]+:)?(?:memory|embed|process)_[a-z_]+(?::[a-z0-9]+)?")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
SUFFIX = re.compile(r"_(bucket|sum|count)$")
PROCESS = {
    "process_resident_memory_bytes",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_start_time_seconds",
}
GRID = 24


def rules(name: str) -> list[dict[str, Any]]:
    """The rules of one file."""
    return [
        rule for group in yaml.safe_load((PROMETHEUS / "rules" / name).read_text())["groups"] for rule in group["rules"]
    ]


ALERTS = {rule["alert"]: rule for rule in rules("alerts.yml")}
RECORDED = {rule["record"]: rule for rule in rules("recording.yml")}


def exposed() -> set[str]:
    """Every series either server has, histograms by their plain name."""
    memory = {
        f"{family.name}_total" if family.type == "counter" else family.name for family in Metrics().registry.collect()
    }
    return memory | {metric.name for metric in EMBED_METRICS} | PROCESS


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression there is, and where it stands."""
    yield from ((name, rule["expr"]) for name, rule in (ALERTS | RECORDED).items())
    for board in BOARDS.values():
        for panel in panels(board):
            yield from ((f"{board['title']} / {panel['title']}", target["expr"]) for target in panel["targets"])
        for variable in board["templating"]["list"]:
            yield board["title"], str(variable.get("query", ""))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as its readers link them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def cases() -> list[dict[str, Any]]:
    """The committed cases of the alerts."""
    return [case for path in (PROMETHEUS / "tests").glob("*.yml") for case in yaml.safe_load(path.read_text())["tests"]]


def test_the_dashboards_are_what_the_code_writes() -> None:
    committed = FOLDER / "grafana" / "dashboards"
    assert {path.stem for path in committed.iterdir()} == set(BOARDS)
    for board in ALL:
        written = (committed / f"{board.uid}.json").read_text(encoding="utf-8")
        assert written == encoded(board), f"{board.uid}: run `make dashboards`"


def test_whatever_is_asked_for_is_a_metric_that_there_is() -> None:
    known = exposed() | set(RECORDED)
    unknown = {
        (place, name)
        for place, expression in expressions()
        for name in NAME.findall(MATCHER.sub("", expression))
        if name not in known and SUFFIX.sub("", name) not in known
    }
    assert unknown == set()


def test_what_is_recorded_is_asked_for() -> None:
    asked = " ".join(expression for _, expression in expressions())
    assert [name for name in RECORDED if name not in asked] == []


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_every_alert_says_how_bad_it_is_what_is_wrong_and_where_to_read_on(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["labels"]["service"] in ("memory", "embed")
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert page == "docs/guides/operate.md"
    assert anchor in anchors(ROOT / page)


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_is_silent(alert: str) -> None:
    asked = [(case, test) for case in cases() for test in case["alert_rule_test"] if test["alertname"] == alert]
    assert all(case["name"].split()[0] == alert for case, _ in asked)
    assert any(test["exp_alerts"] for _, test in asked)
    assert any(not any(test["exp_alerts"] for test in case["alert_rule_test"]) for case, _ in asked)


def test_the_guide_lists_every_alert_with_its_severity_and_its_runbook() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| (.+)$", (GUIDES / "observe.md").read_text(), flags=re.MULTILINE))
    assert set(told) == set(ALERTS)
    for name, row in told.items():
        rule = ALERTS[name]
        assert row.startswith(rule["labels"]["severity"]), name
        assert Path(rule["annotations"]["runbook"]).name in row, name


def test_every_section_of_the_runbook_belongs_to_an_alert_and_its_links_lead_somewhere() -> None:
    sections = anchors(GUIDES / "operate.md")
    linked = {rule["annotations"]["runbook"].partition("#")[2] for rule in ALERTS.values()}
    assert sections - linked == {"when-an-alert-comes"}
    for page in (GUIDES / "operate.md", GUIDES / "observe.md"):
        for target, anchor in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", page.read_text()):
            assert anchor in anchors(page.parent / target if target else page), (page.name, target, anchor)


@pytest.mark.parametrize("uid", sorted(BOARDS))
def test_every_panel_says_what_it_shows_in_which_unit_with_a_name_for_each_series(uid: str) -> None:
    ids = [panel["id"] for panel in BOARDS[uid]["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in panels(BOARDS[uid]):
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["title"], panel["id"]
        assert panel["description"].endswith("."), panel["title"]
        assert defaults["unit"], panel["title"]
        assert defaults["thresholds"]["steps"], panel["title"]
        assert panel["targets"], panel["title"]
        assert all(target["legendFormat"] for target in panel["targets"]), panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]), panel["title"]


@pytest.mark.parametrize("uid", sorted(BOARDS))
def test_no_panel_covers_another(uid: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARDS[uid]["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= GRID, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


def test_grafana_is_given_the_folder_of_the_dashboards_and_the_source_they_ask() -> None:
    provisioning = FOLDER / "grafana" / "provisioning"
    sources = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert [source["type"] for source in sources if source["isDefault"]] == ["prometheus"]
    providers = yaml.safe_load((provisioning / "dashboards" / "dashboards.yaml").read_text())["providers"]
    folder = providers[0]["options"]["path"]
    assert f"`grafana/dashboards/` | `{folder}/`" in (GUIDES / "observe.md").read_text()


def test_kubernetes_is_given_every_file_that_is_mounted() -> None:
    maps = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["configMapGenerator"]
    named = {FOLDER / name for each in maps for name in each["files"]}
    mounted = {path for path in FOLDER.rglob("*.*") if path.suffix in (".yml", ".yaml", ".json")}
    assert named == mounted - {FOLDER / "kustomization.yaml", *(PROMETHEUS / "tests").iterdir()}
