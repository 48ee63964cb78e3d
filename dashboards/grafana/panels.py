"""Panels of Grafana dashboards over one Prometheus data source.

The builders of grafana-foundation-sdk write the JSON of Grafana's dashboard schema v1, which Grafana 10 and later read.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

with warnings.catch_warnings():
    # The package recommends the schema v2, which only Grafana 12 and later read.
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.common import (
        BigValueColorMode,
        BigValueGraphMode,
        GraphThresholdsStyleMode,
        LegendDisplayMode,
        LegendPlacement,
        LineInterpolation,
        SortOrder,
        TooltipDisplayMode,
        VisibilityMode,
        VizOrientation,
    )
    from grafana_foundation_sdk.models.dashboard import (
        DashboardCursorSync,
        DashboardLinkType,
        DataSourceRef,
        DataTransformerConfig,
        DynamicConfigValue,
        Threshold,
        ThresholdsMode,
        VariableOption,
        VariableRefresh,
        VariableSort,
    )
    from grafana_foundation_sdk.models.prometheus import PromQueryFormat

Dashboard = dashboard.Dashboard
AnyPanel = timeseries.Panel | table.Panel | stat.Panel | bargauge.Panel

REFRESH_INTERVAL = "15s"
TIME_RANGE_START = "now-1h"
WIDTH, HEIGHT = 12, 8
"""Columns (of 24) and rows of a panel."""

STAT_WIDTH, STAT_HEIGHT = 4, 4

HIDDEN_LABELS = ("Time", "__name__", "instance", "job")
"""Columns of a table that Prometheus and Grafana add."""

TAG = "wiretide"

GREEN, YELLOW, RED = "green", "yellow", "red"

Limits = tuple[tuple[float, str], ...]
"""Thresholds: values from which a colour is used, the smallest first. Smaller values are green."""

NO_LOSS: Limits = ((1, RED),)
"""Thresholds of losses: red from 1."""


@dataclass(frozen=True, slots=True)
class Line:
    """A PromQL expression, and the text of the legend of each of its series."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a dashboard: the values of a label of `metric`, a PromQL selector."""

    name: str
    metric: str
    title: str


@dataclass(frozen=True, slots=True)
class PanelMaker:
    """Makes panels that read the data source `uid`."""

    uid: str

    @property
    def source(self) -> DataSourceRef:
        """The data source."""
        return DataSourceRef(type_val="prometheus", uid=self.uid)

    def make_time_series(
        self,
        title: str,
        description: str,
        lines: Sequence[Line],
        unit: str,
        *,
        draws_steps: bool = False,
        limits: Limits = (),
    ) -> timeseries.Panel:
        """Return a panel with a line for each series. With `draws_steps` a line is constant until its next value.

        The legend is a table with the last value, the mean and the largest value.
        """
        panel = (
            timeseries.Panel()
            .title(title)
            .description(description)
            .datasource(self.source)
            .unit(unit)
            .span(WIDTH)
            .height(HEIGHT)
            .min(0)
            .show_points(VisibilityMode.NEVER)
            .fill_opacity(10)
            .line_interpolation(LineInterpolation.STEP_AFTER if draws_steps else LineInterpolation.LINEAR)
            .legend(
                common.VizLegendOptions()
                .display_mode(LegendDisplayMode.TABLE)
                .placement(LegendPlacement.BOTTOM)
                .show_legend(True)
                .calcs(["lastNotNull", "mean", "max"])
            )
            .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
        )
        if limits:
            panel = panel.thresholds(_thresholds(limits)).thresholds_style(
                common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED)
            )
        for number, line in enumerate(lines):
            target = prometheus.Dataquery().expr(line.expression).legend_format(line.legend)
            panel = panel.with_target(target.ref_id(ref_id(number)).range())
        return panel

    def make_stat(
        self,
        title: str,
        description: str,
        expression: str,
        unit: str,
        limits: Limits = (),
        *,
        draws_sparkline: bool = True,
    ) -> stat.Panel:
        """Return a panel with one number, and with `draws_sparkline` a line of its values over time."""
        panel = (
            stat.Panel()
            .title(title)
            .description(description)
            .datasource(self.source)
            .unit(unit)
            .span(STAT_WIDTH)
            .height(STAT_HEIGHT)
            .graph_mode(BigValueGraphMode.AREA if draws_sparkline else BigValueGraphMode.NONE)
            .color_mode(BigValueColorMode.VALUE)
            .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
            .thresholds(_thresholds(limits))
        )
        target = prometheus.Dataquery().expr(expression).ref_id("A")
        return panel.with_target(target.range() if draws_sparkline else target.instant())

    def make_bars(self, title: str, description: str, line: Line, unit: str) -> bargauge.Panel:
        """Return a panel with a bar for the current value of each series."""
        target = prometheus.Dataquery().expr(line.expression).legend_format(line.legend).ref_id("A").instant()
        return (
            bargauge.Panel()
            .title(title)
            .description(description)
            .datasource(self.source)
            .unit(unit)
            .span(WIDTH)
            .height(HEIGHT)
            .min(0)
            .orientation(VizOrientation.HORIZONTAL)
            .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
            .thresholds(_thresholds(()))
            .with_target(target)
        )

    def make_table(self, title: str, description: str, columns: Sequence[tuple[str, str, str]]) -> table.Panel:
        """Return a table with a row for each set of labels, and a column for the newest value of each expression.

        `columns`: expression, name of the column and unit.
        """
        panel = (
            table.Panel()
            .title(title)
            .description(description)
            .datasource(self.source)
            .span(2 * WIDTH)
            .height(HEIGHT)
            .filterable(True)
        )
        names = {}
        for number, (expression, column, unit) in enumerate(columns):
            target = prometheus.Dataquery().expr(expression).format(PromQueryFormat.TABLE).instant()
            panel = panel.with_target(target.ref_id(ref_id(number)))
            names["Value" if len(columns) == 1 else f"Value #{ref_id(number)}"] = column
            panel = panel.override_by_name(column, [DynamicConfigValue(id_val="unit", value=unit)])
        if len(columns) > 1:
            panel = panel.with_transformation(DataTransformerConfig(id_val="merge", options={}))
        hidden = dict.fromkeys(HIDDEN_LABELS, True)
        options = {"excludeByName": hidden, "renameByName": names}
        panel = panel.with_transformation(DataTransformerConfig(id_val="organize", options=options))
        first = columns[0][1] if columns else ""
        sort = {"sort": [{"field": first, "desc": True}], "fields": {}}
        return panel.with_transformation(DataTransformerConfig(id_val="sortBy", options=sort))

    def add_variable(self, builder: Dashboard, variable: Variable) -> Dashboard:
        """Add a variable with several values. At first all values are selected, and also series without the label."""
        query = f"label_values({variable.metric}, {variable.name})"
        every = VariableOption(selected=True, text="All", value="$__all")
        return builder.with_variable(
            dashboard.QueryVariable(variable.name)
            .label(variable.title)
            .datasource(self.source)
            .query(query)
            .definition(query)
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(VariableSort.ALPHABETICAL_ASC)
            .multi(True)
            .include_all(True)
            .all_value(".*")
            .current(every)
        )


def _thresholds(limits: Limits) -> dashboard.ThresholdsConfig:
    steps = [Threshold(value=None, color=GREEN), *(Threshold(value=value, color=color) for value, color in limits)]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def make_dashboard(uid: str, title: str, description: str, pipeline: str) -> Dashboard:
    """Return a dashboard without panels, with links to the other dashboards of the pipeline.

    It shows the last hour and is refreshed every 15 s.
    """
    links = (
        dashboard.DashboardLink("Wiretide")
        .type(DashboardLinkType.DASHBOARDS)
        .tags([TAG, pipeline_tag(pipeline)])
        .as_dropdown(False)
        .keep_time(True)
    )
    return (
        Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG, pipeline_tag(pipeline)])
        .refresh(REFRESH_INTERVAL)
        .time(TIME_RANGE_START, "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(links)
    )


def pipeline_tag(pipeline: str) -> str:
    """Return the tag of the dashboards of a pipeline, by which links between dashboards find them."""
    return f"pipeline {pipeline}"


def link_to(uid: str, title: str) -> dashboard.DashboardLink:
    """Return a link from a panel to another dashboard with the same time range."""
    return dashboard.DashboardLink(title).type(DashboardLinkType.LINK).url(f"/d/{quote(uid)}?${{__url_time_range}}")


def add_row(builder: Dashboard, title: str) -> Dashboard:
    """Add a row; the next panels belong to it."""
    return builder.with_row(dashboard.Row(title))


def write_json(builder: Dashboard) -> str:
    """Return the JSON of a dashboard."""
    return JSONEncoder(sort_keys=True, indent=2).encode(builder.build()) + "\n"


def ref_id(number: int) -> str:
    """Return the name of a target in its panel: A to Z, then AA.

    >>> ref_id(1), ref_id(27)
    ('B', 'AB')
    """
    letter = chr(ord("A") + number % 26)
    return letter if number < 26 else ref_id(number // 26 - 1) + letter
