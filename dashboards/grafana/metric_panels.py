"""Panels over the counters and gauges of Wiretide, made from their declarations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from capture.metrics import Metric
from dashboards.grafana.panels import AnyPanel, Limits, Line, PanelMaker

INTERVAL = "$__rate_interval"
RANGE = "$__range"


@dataclass(frozen=True, slots=True)
class MetricPanel:
    """A panel with the values of metrics over time. All metrics have the same labels.

    Counters are shown as rates per second.

    Raises ValueError for a label that a metric does not have.
    """

    title: str
    metrics: tuple[Metric, ...]
    grouping_labels: tuple[str, ...]
    unit: str = "short"
    limits: Limits = ()

    def __post_init__(self) -> None:
        for metric in self.metrics:
            if not {*self.grouping_labels} <= {*metric.labels}:
                raise ValueError(
                    f"{metric.name}: got the labels {self.grouping_labels}, expected some of {metric.labels}"
                )

    def make(self, maker: PanelMaker, variables: Collection[str]) -> AnyPanel:
        """Return the panel. `variables` that are labels of the metric select the series."""
        legend = " ".join(f"{{{{{label}}}}}" for label in self.grouping_labels)
        lines = [
            Line(
                per_second(metric, self.grouping_labels, variables)
                if metric.kind == "counter"
                else selector(metric, variables),
                legend if len(self.metrics) == 1 else f"{short_name(metric)} {legend}",
            )
            for metric in self.metrics
        ]
        return maker.make_time_series(self.title, help_of(self.metrics), lines, self.unit, limits=self.limits)


@dataclass(frozen=True, slots=True)
class CountPanel:
    """A panel with one number: the growth of counters in the time range of the dashboard.

    Missing counters count as 0.
    """

    title: str
    metrics: tuple[Metric, ...]
    limits: Limits = ()

    def make(self, maker: PanelMaker, variables: Collection[str]) -> AnyPanel:
        """Return the panel. `variables` that are labels of the metric select the series."""
        expression = growth_of(self.metrics, variables)
        return maker.make_stat(
            self.title, help_of(self.metrics), expression, "short", self.limits, draws_sparkline=False
        )


AnyMetricPanel = MetricPanel | CountPanel


def selector(metric: Metric, variables: Collection[str] = ()) -> str:
    """Return a selector of a metric, limited to the values of those `variables` that are labels of the metric.

    >>> selector(Metric("wiretide_a_total", "counter", ("query", "link"), "help."), ["link"])
    'wiretide_a_total{link=~"$link"}'
    """
    return f"{metric.name}{matchers(metric.labels, variables)}"


def matchers(labels: Iterable[str], variables: Collection[str]) -> str:
    """Return matchers for the labels that are also variables."""
    texts = [f'{label}=~"${label}"' for label in labels if label in variables]
    return f"{{{', '.join(texts)}}}" if texts else ""


def per_second(metric: Metric, grouping_labels: Sequence[str], variables: Collection[str] = ()) -> str:
    """Return the rate of a counter, summed by `grouping_labels`."""
    grouping = f" by ({', '.join(grouping_labels)})" if grouping_labels else ""
    return f"sum{grouping} (rate({selector(metric, variables)}[{INTERVAL}]))"


def growth_of(metrics: Iterable[Metric], variables: Collection[str] = ()) -> str:
    """Return the growth of counters over the range of the dashboard.

    A counter that has never counted has no series, so it is 0.
    """
    parts = [f"(sum(increase({selector(metric, variables)}[{RANGE}])) or vector(0))" for metric in metrics]
    return " + ".join(parts)


def help_of(metrics: Iterable[Metric]) -> str:
    """Return the help texts of metrics, each once."""
    return " ".join(dict.fromkeys(metric.help for metric in metrics))


def short_name(metric: Metric) -> str:
    """Return a name for legends.

    >>> short_name(Metric("wiretide_late_rows_total", "counter", (), "help."))
    'late rows'
    """
    return metric.name.removeprefix("wiretide_").removesuffix("_total").replace("_", " ")
