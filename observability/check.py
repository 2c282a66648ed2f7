"""Whether every query of every dashboard finds something in a Prometheus that watches both services."""

import json
import math
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

DASHBOARDS = Path(__file__).parent / "grafana" / "dashboards"
LABEL_VALUES = re.compile(r"label_values\((?P<series>.+), (?P<label>\w+)\)")
PLACEHOLDER = re.compile(r"\$\{?\w+")
SECONDS_MAX = 30.0


def dashboards(folder: Path = DASHBOARDS) -> list[dict[str, Any]]:
    """The dashboards in a folder."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def panels(dashboard: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Its panels, without the headings of rows."""
    yield from (panel for panel in dashboard["panels"] if panel["type"] != "row")


def faults(dashboard: Mapping[str, Any], prometheus: str, window: str = "1m") -> list[str]:
    """What does not work, in words, one line a query; [] = everything finds something.

    prometheus: its address. window: what Grafana would take for $__rate_interval.
    """
    values, found = _resolved(dashboard, prometheus, window)
    for panel in panels(dashboard):
        place = f"{dashboard['title']} / {panel['title']}"
        if not panel.get("targets"):
            found.append(f"{place}: asks nothing")
        for target in panel.get("targets", ()):
            fault = _fault(prometheus, _filled(target["expr"], values))
            if fault:
                found.append(f"{place}: {fault}: {target['expr']}")
    return found


def _resolved(dashboard: Mapping[str, Any], prometheus: str, window: str) -> tuple[dict[str, str], list[str]]:
    """What stands for each variable, all of its values chosen; and the variables that have none."""
    values = {"__rate_interval": window, "__interval": window, "__range": "1h"}
    found = []
    for variable in dashboard["templating"]["list"]:
        if variable["type"] != "query":
            continue
        asked = LABEL_VALUES.fullmatch(variable["query"])
        if asked is None:
            found.append(f"{dashboard['title']}: the query of ${variable['name']} cannot be read: {variable['query']}")
            continue
        path = f"label/{asked['label']}/values?{urllib.parse.urlencode({'match[]': asked['series']})}"
        listed = _asked(prometheus, path).get("data") or []
        values[variable["name"]] = "|".join(re.escape(each).replace("\\", "\\\\") for each in listed)
        if not listed:
            found.append(f"{dashboard['title']}: ${variable['name']} has no values: {variable['query']}")
    return values, found


def _filled(expression: str, values: Mapping[str, str]) -> str:
    """The expression with every variable replaced."""
    for name in sorted(values, key=len, reverse=True):
        expression = expression.replace(f"${{{name}}}", values[name]).replace(f"${name}", values[name])
    return expression


def _fault(prometheus: str, expression: str) -> str:
    """Why the expression finds nothing, "" where it finds a number."""
    left = PLACEHOLDER.search(expression)
    if left:
        return f"there is no variable {left[0]}"
    answer = _asked(prometheus, f"query?{urllib.parse.urlencode({'query': expression})}")
    if answer["status"] != "success":
        return str(answer.get("error", "Prometheus refuses it"))
    series = answer["data"]["result"]
    if not series:
        return "no data"
    return "" if any(not math.isnan(float(each["value"][1])) for each in series) else "no number"


def _asked(prometheus: str, path: str) -> dict[str, Any]:
    """The answer of Prometheus' API, refusals too."""
    try:
        with urllib.request.urlopen(f"{prometheus}/api/v1/{path}", timeout=SECONDS_MAX) as response:
            answer: dict[str, Any] = json.load(response)
    except urllib.error.HTTPError as refused:
        with refused:
            answer = json.load(refused)
    return answer
