"""The figures of `wiretide compare` as Prometheus samples, with arrival times of the rows as their times.

There is a sample of the state after each tick. Of the other figures there is one sample per variant, at the last tick.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
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
LATENCY_MOST = Metric(
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

METRICS = (ROWS_HELD, BYTES_HELD, RATE, LATENCY, LATENCY_MOST, WRONG, LATE)
"""The metrics of a comparison. `order` is `in` or `out`."""

_ONCE = {
    RATE: lambda run: run.rate,
    LATENCY: lambda run: run.latency,
    LATENCY_MOST: lambda run: run.max_latency,
    WRONG: lambda run: (run.difference.wrong + run.difference.missing) / max(1, run.difference.results),
    LATE: lambda run: run.late,
}


def write_samples(comparison: Comparison, query: str, extra: Mapping[str, str], path: Path) -> int:
    """Write an OpenMetrics file. Return its number of samples.

    `query`: the value of the label. `extra`: labels of all series, such as `job`.
    """
    collector = _Collector(comparison, query, extra)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    path.write_bytes(text)
    return collector.count


class _Collector:
    """A prometheus-client collector of the samples of a comparison."""

    def __init__(self, comparison: Comparison, query: str, extra: Mapping[str, str]) -> None:
        self.comparison, self.query, self.extra = comparison, query, extra
        self.count = 0

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families.

        The samples of a series follow each other, in the order of time, as OpenMetrics requires.
        """
        self.count = 0
        for metric in METRICS:
            family = GaugeMetricFamily(metric.name, metric.help, labels=[*metric.labels, *self.extra])
            for measurement in self.comparison.measured:
                order = "in" if measurement.variant.ordered else "out"
                labels = [self.query, measurement.variant.name, order, *self.extra.values()]
                for time, value in self._samples(metric, measurement):
                    family.add_metric(labels, value, timestamp=Timestamp(time // 1000, time % 1000 * 1_000_000))
                    self.count += 1
            yield family

    def _samples(self, metric: Metric, measurement: Measurement) -> Iterator[tuple[int, float]]:
        """Yield the samples of one series: time (ms since the epoch) and value, with at most one sample per ms."""
        ticks = (self.comparison.arrivals.ticks // 1_000_000).tolist()
        if metric in _ONCE:
            value = float(_ONCE[metric](measurement))
            if not math.isnan(value):
                yield ticks[-1], value
            return
        values = (measurement.items if metric is ROWS_HELD else measurement.bytes).tolist()
        last = None
        for time, value in zip(ticks, values, strict=False):
            if time != last:
                yield time, float(value)
            last = time
