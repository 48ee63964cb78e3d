"""Panels of Grafana dashboards over one Prometheus data source.

The builders of grafana-foundation-sdk write the JSON of Grafana's dashboard schema v1, which Grafana 10 and later read.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from capture.lazy_dataclasses import dataclass

with warnings.catch_warnings():
    # The package recommends the schema v2, which only Grafana 12 and later read.
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.builders import common, dashboard, prometheus, table, timeseries
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.common import (
        LegendDisplayMode,
        LegendPlacement,
        LineInterpolation,
        SortOrder,
        TooltipDisplayMode,
        VisibilityMode,
    )
    from grafana_foundation_sdk.models.dashboard import DataSourceRef, DataTransformerConfig
    from grafana_foundation_sdk.models.prometheus import PromQueryFormat

Dashboard = dashboard.Dashboard

REFRESH = "15s"
SINCE = "now-1h"
WIDTH, HEIGHT = 12, 8
"""Columns (of 24) and rows of a panel."""

HIDDEN_LABELS = ("Time", "__name__", "instance", "job")
"""Columns of a table that Prometheus and Grafana add."""


@dataclass(frozen=True, slots=True)
class Line:
    """A PromQL expression, and the text of the legend of each of its series."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class PanelMaker:
    """Makes panels that read the data source `uid`."""

    uid: str

    @property
    def _source(self) -> DataSourceRef:
        return DataSourceRef(type_val="prometheus", uid=self.uid)

    def make_time_series(
        self, title: str, description: str, lines: Sequence[Line], unit: str, *, steps: bool = False
    ) -> timeseries.Panel:
        """Return a panel with a line for each series. With `steps` a value is shown until the next one."""
        panel = (
            timeseries.Panel()
            .title(title)
            .description(description)
            .datasource(self._source)
            .unit(unit)
            .span(WIDTH)
            .height(HEIGHT)
            .min(0)
            .show_points(VisibilityMode.NEVER)
            .fill_opacity(10)
            .line_interpolation(LineInterpolation.STEP_AFTER if steps else LineInterpolation.LINEAR)
            .legend(
                common.VizLegendOptions()
                .display_mode(LegendDisplayMode.LIST)
                .placement(LegendPlacement.BOTTOM)
                .show_legend(True)
            )
            .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
        )
        for number, line in enumerate(lines):
            target = prometheus.Dataquery().expr(line.expression).legend_format(line.legend)
            panel = panel.with_target(target.ref_id(_ref_id(number)).range())
        return panel

    def make_table(self, title: str, description: str, metrics: Sequence[tuple[str, str]]) -> table.Panel:
        """Return a table with a row for each set of labels, and a column for the newest value of each metric.

        `metrics`: name of the metric and name of the column.
        """
        panel = (
            table.Panel()
            .title(title)
            .description(description)
            .datasource(self._source)
            .span(2 * WIDTH)
            .height(HEIGHT)
            .filterable(True)
        )
        names = {}
        for number, (metric, column) in enumerate(metrics):
            target = prometheus.Dataquery().expr(metric).format(PromQueryFormat.TABLE).instant()
            panel = panel.with_target(target.ref_id(_ref_id(number)))
            names["Value" if len(metrics) == 1 else f"Value #{_ref_id(number)}"] = column
        if len(metrics) > 1:
            panel = panel.with_transformation(DataTransformerConfig(id_val="merge", options={}))
        hidden = dict.fromkeys(HIDDEN_LABELS, True)
        options = {"excludeByName": hidden, "renameByName": names}
        return panel.with_transformation(DataTransformerConfig(id_val="organize", options=options))


def make_dashboard(uid: str, title: str, description: str) -> Dashboard:
    """Return a dashboard without panels. It shows the last hour and is refreshed every 15 s."""
    return Dashboard(title).uid(uid).description(description).tags(["wiretide"]).refresh(REFRESH).time(SINCE, "now")


def add_row(made: Dashboard, title: str) -> Dashboard:
    """Add a row; the next panels belong to it."""
    return made.with_row(dashboard.Row(title))


def write_json(made: Dashboard) -> str:
    """Return the JSON of a dashboard."""
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


def _ref_id(number: int) -> str:
    """Return the name of a target in its panel: A to Z, then AA.

    >>> _ref_id(1), _ref_id(27)
    ('B', 'AB')
    """
    letter = chr(ord("A") + number % 26)
    return letter if number < 26 else _ref_id(number // 26 - 1) + letter
