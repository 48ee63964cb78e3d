"""Panels of the results of queries: the values of each value column over time, and the newest window as a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from dashboards.grafana.metric_panels import matchers
from dashboards.grafana.panels import AnyPanel, Line, PanelMaker, Variable
from dashboards.prometheus.names import prometheus_name
from dashboards.prometheus.query_counters import counter_name, values_with_counters
from dashboards.prometheus.query_histograms import histogram_name
from dashboards.prometheus.query_series import OTHER, QuerySeries, Value
from dashboards.units import unit_of


def make_query_panels(series: QuerySeries, maker: PanelMaker, variables: Collection[str] = ()) -> Iterator[AnyPanel]:
    """Yield the panels of a query with value columns. Those `variables` that are labels select the series."""
    for value in series.values:
        yield make_value_panel(series, value, maker, variables)
    if series.has_counters:
        for value in values_with_counters(series):
            yield make_rate_panel(series, value, maker, variables)
    if series.histogram is not None:
        yield make_quantile_panel(series, maker)
    if series.labels:
        columns = [
            (_selector(series, value, variables), value.column, unit_of(value.column).grafana)
            for value in series.values
        ]
        yield maker.make_table(f"{series.plan.name}: newest window", _sql_of(series), columns)


def make_value_panel(series: QuerySeries, value: Value, maker: PanelMaker, variables: Collection[str] = ()) -> AnyPanel:
    """Return the panel with the values of a value column over time."""
    legend = " ".join(f"{{{{{label}}}}}" for label in series.labels)
    other_help = f" The series {OTHER} is the rest." if series.labels and value.fold else ""
    groups = f" The {series.top} largest groups of each window.{other_help}" if series.labels else ""
    lines = [Line(_selector(series, value, variables), legend or value.column)]
    title = f"{series.plan.name}: {value.column}"
    unit = unit_of(value.column).grafana
    return maker.make_time_series(title, f"{_sql_of(series)}{groups}", lines, unit, draws_steps=True)


RATE_UNITS = {"decbytes": "Bps", "decbits": "bps"}
"""The unit of a rate in Grafana, by the unit of its counter. For other units it is `short`."""

QUANTILES = (0.5, 0.95, 0.99)


def make_rate_panel(series: QuerySeries, value: Value, maker: PanelMaker, variables: Collection[str] = ()) -> AnyPanel:
    """Return the panel with the rate of a counter. Counters count all windows, also windows between two scrapes."""
    legend = " ".join(f"{{{{{label}}}}}" for label in series.labels)
    selector = f"{counter_name(value)}{matchers(series.labels, variables)}"
    lines = [Line(f"rate({selector}[$__rate_interval])", legend or value.column)]
    title = f"{series.plan.name}: {value.column} per second"
    unit = RATE_UNITS.get(unit_of(value.column).grafana, "short")
    return maker.make_time_series(title, f"{_sql_of(series)} The mean over all windows, from a counter.", lines, unit)


def make_quantile_panel(series: QuerySeries, maker: PanelMaker) -> AnyPanel:
    """Return the panel with quantiles of the histogram of a query, over all windows."""
    bucket = f"rate({histogram_name(values_with_counters(series)[0])}_bucket[$__rate_interval])"
    lines = [Line(f"histogram_quantile({share}, {bucket})", f"{share:.0%}") for share in QUANTILES]
    column = str(series.histogram)
    title = f"{series.plan.name}: quantiles of {column}"
    return maker.make_time_series(title, _sql_of(series), lines, unit_of(column).grafana)


def main_value(series: QuerySeries) -> Value:
    """Return the value column by which groups are ranked. The query must have value columns."""
    return next(value for value in series.values if value.column == series.rank)


def make_variables(queries: Sequence[QuerySeries]) -> list[Variable]:
    """Return a variable for each label of the series of some queries."""
    titles: dict[str, str] = {}
    for series in queries:
        for label, column in zip(series.labels, series.key_columns, strict=True):
            titles.setdefault(label, column)
    return [Variable(label, _select_series_with(label, queries), title) for label, title in titles.items()]


def _select_series_with(label: str, queries: Iterable[QuerySeries]) -> str:
    """Return a selector of all series of the queries that have a label."""
    names = [prometheus_name(series.plan.name) for series in queries if label in series.labels]
    return f'{{__name__=~"wiretide_query_({"|".join(names)})_.+"}}'


def _selector(series: QuerySeries, value: Value, variables: Collection[str]) -> str:
    return f"{value.name}{matchers(series.labels, variables)}"


def _sql_of(series: QuerySeries) -> str:
    return " ".join(series.plan.sql.split())
