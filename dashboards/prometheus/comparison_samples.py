"""The figures of `wiretide compare` as Prometheus samples. The time of a sample is an arrival time of rows.

The state has one sample after each tick. Each other figure has one sample per variant, at the last tick.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Timestamp
from prometheus_client.openmetrics.exposition import generate_latest

from capture.metrics import Metric
from highlevel.compare.comparison import Comparison, Measurement

LABELS = ("query", "variant", "order")

ROWS_HELD = Metric("wiretide_compare_rows_held", "gauge", LABELS, "Rows or partials that a variant stores.")
BYTES_HELD = Metric("wiretide_compare_bytes_held", "gauge", LABELS, "Bytes of the state of a variant.")
RATE = Metric("wiretide_compare_rows_per_cpu_second", "gauge", LABELS, "Rows per second of CPU time of a variant.")
LATENCY = Metric(
    "wiretide_compare_latency_seconds",
    "gauge",
    LABELS,
    "Median time until a result is returned, from the end of its window, or from the later row of a pair.",
)
MAX_LATENCY = Metric(
    "wiretide_compare_latency_largest_seconds",
    "gauge",
    LABELS,
    "Largest time until a result is returned.",
)
WRONG = Metric(
    "wiretide_compare_wrong_ratio",
    "gauge",
    LABELS,
    "Share of the exact results that are wrong or missing in a variant.",
)
LATE = Metric(
    "wiretide_compare_late_rows", "gauge", LABELS, "Late rows: rows that a variant did not add to all their windows."
)

METRICS = (ROWS_HELD, BYTES_HELD, RATE, LATENCY, MAX_LATENCY, WRONG, LATE)
"""The metrics of a comparison. `order` is `in` or `out`."""

_FIGURES_OF_RUN: dict[Metric, Callable[[Measurement], float]] = {
    RATE: lambda run: run.rate,
    LATENCY: lambda run: run.median_latency,
    MAX_LATENCY: lambda run: run.max_latency,
    WRONG: lambda run: (run.difference.wrong + run.difference.missing) / max(1, run.difference.results),
    LATE: lambda run: run.late,
}


def write_samples(comparison: Comparison, query: str, common_labels: Mapping[str, str], path: Path) -> int:
    """Write an OpenMetrics file. Return its number of samples.

    `query`: the value of the label. `common_labels`: labels of all series, such as `job`.
    """
    collector = _Collector(comparison, query, common_labels)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    path.write_bytes(text)
    return collector.count


class _Collector:
    """A prometheus-client collector of the samples of a comparison."""

    def __init__(self, comparison: Comparison, query: str, common_labels: Mapping[str, str]) -> None:
        self.comparison, self.query, self.common_labels = comparison, query, common_labels
        self.count = 0

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families.

        The samples of a series follow each other, in the order of time, as OpenMetrics requires.
        """
        self.count = 0
        for metric in METRICS:
            family = GaugeMetricFamily(metric.name, metric.help, labels=[*metric.labels, *self.common_labels])
            for measurement in self.comparison.measured:
                order = "in" if measurement.variant.is_ordered else "out"
                labels = [self.query, measurement.variant.name, order, *self.common_labels.values()]
                for time, value in self._samples(metric, measurement):
                    family.add_metric(labels, value, timestamp=Timestamp(time // 1000, time % 1000 * 1_000_000))
                    self.count += 1
            yield family

    def _samples(self, metric: Metric, measurement: Measurement) -> Iterator[tuple[int, float]]:
        """Yield the samples of one series: time (ms since the epoch) and value, with at most one sample per ms."""
        ticks = (self.comparison.arrivals.ticks // 1_000_000).tolist()
        if metric in _FIGURES_OF_RUN:
            value = float(_FIGURES_OF_RUN[metric](measurement))
            if not math.isnan(value):
                yield ticks[-1], value
            return
        values = (measurement.stored_items if metric is ROWS_HELD else measurement.stored_bytes).tolist()
        last = None
        for time, value in zip(ticks, values, strict=False):
            if time != last:
                yield time, float(value)
            last = time
