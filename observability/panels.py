"""What a dashboard is made of, as data, and how Grafana wants it told."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    GraphTresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

Kind = Literal["number", "lines", "states", "heat"]
TAG = "agent-memory"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
HEIGHTS: Mapping[Kind, int] = {"number": 4, "lines": 8, "states": 5, "heat": 8}
WIDTHS: Mapping[Kind, int] = {"number": 4, "lines": 8, "states": 12, "heat": 8}


class Query(msgspec.Struct, frozen=True):
    """What is asked of Prometheus, and what each series that comes back is called."""

    expression: str
    legend: str


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One panel.

    steps: from which value on which colour, green before the first. words: what a value is shown as, and its colour.
    starts: colour before the first step. width: of 24, 0 = what is usual for its kind.
    """

    kind: Kind
    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    steps: tuple[tuple[float, str], ...] = ()
    words: Mapping[str, tuple[str, str]] = {}
    starts: str = "green"
    stacked: bool = False
    width: int = 0


class Variable(msgspec.Struct, frozen=True):
    """A choice on top of a dashboard, filled from what Prometheus knows."""

    name: str
    label: str
    query: str


class Row(msgspec.Struct, frozen=True):
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """One dashboard; `uid` is its address and the name of its file."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]


def encoded(board: Board) -> str:
    """The dashboard as the JSON that Grafana reads."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .readonly()
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(_siblings())
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for variable in board.variables:
        made = made.with_variable(_choice(variable))
    number = 0
    for row in board.rows:
        made = made.with_row(dashboard.Row(row.title).id(number := number + 1))
        for panel in row.panels:
            made = made.with_panel(_panel(panel, number := number + 1))
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _siblings() -> dashboard.DashboardLink:
    return (
        dashboard.DashboardLink("Agent memory")
        .type(DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )


def _choice(variable: Variable) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(variable.name)
        .id(variable.name)
        .label(variable.label)
        .query(variable.query)
        .datasource(SOURCE)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )


def _panel(panel: Panel, number: int) -> Any:
    shape: Any = {"number": _number, "lines": _lines, "states": _states, "heat": _heat}[panel.kind](panel)
    for place, query in enumerate(panel.queries):
        shape = shape.with_target(_target(query, panel.kind, "ABCDEFGH"[place]))
    return (
        shape.id(number)
        .title(panel.title)
        .description(panel.description)
        .datasource(SOURCE)
        .unit(panel.unit)
        .height(HEIGHTS[panel.kind])
        .span(panel.width or WIDTHS[panel.kind])
        .thresholds(_thresholds(panel.starts, panel.steps))
        .mappings(_mappings(panel.words))
    )


def _number(_panel: Panel) -> stat.Panel:
    last = common.ReduceDataOptions().calcs(["lastNotNull"])
    return stat.Panel().reduce_options(last).color_mode(BigValueColorMode.BACKGROUND)


def _lines(panel: Panel) -> timeseries.Panel:
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
    shown = GraphTresholdsStyleMode.DASHED if panel.steps else GraphTresholdsStyleMode.OFF
    stacking = common.StackingConfig().mode(StackingMode.NORMAL if panel.stacked else StackingMode.NONE)
    return (
        timeseries.Panel()
        .legend(legend.show_legend(True))
        .min(0)
        .fill_opacity(40 if panel.stacked else 10)
        .show_points(VisibilityMode.NEVER)
        .stacking(stacking)
        .thresholds_style(common.GraphThresholdsStyleConfig().mode(shown))
    )


def _states(_panel: Panel) -> statetimeline.Panel:
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
    return statetimeline.Panel().legend(legend.show_legend(True)).merge_values(True)


def _heat(panel: Panel) -> heatmap.Panel:
    return heatmap.Panel().calculate(False).y_axis(heatmap.YAxisConfig().unit(panel.unit))


def _target(query: Query, kind: Kind, ref_id: str) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expression).legend_format(query.legend).ref_id(ref_id).range()
    return target.format(PromQueryFormat.HEATMAP) if kind == "heat" else target


def _thresholds(starts: str, steps: Sequence[tuple[float, str]]) -> dashboard.ThresholdsConfig:
    listed = [Threshold(value=None, color=starts), *(Threshold(value=value, color=color) for value, color in steps)]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(listed)


def _mappings(words: Mapping[str, tuple[str, str]]) -> list[Any]:
    if not words:
        return []
    results = {
        value: ValueMappingResult(text=text, color=color, index=index)
        for index, (value, (text, color)) in enumerate(words.items())
    }
    return [ValueMap(options=results)]
