"""Counters of the metrics server. Thread safe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from threading import Lock

from prometheus_client.core import CounterMetricFamily

from capture.metrics import Metric
from dashboards.prometheus.exporter import HTTP_CONNECTIONS, HTTP_METRICS, HTTP_REFUSED, HTTP_REJECTED, HTTP_RETRIES


class HttpCounts:
    """The counters of one server, as a prometheus-client collector."""

    def __init__(self) -> None:
        """Start all counters at zero."""
        self._lock = Lock()
        self._counts: Counter[tuple[Metric, tuple[str, ...]]] = Counter()

    def accept(self) -> None:
        """Count an accepted connection."""
        self._add(HTTP_CONNECTIONS)

    def refuse(self, cause: str) -> None:
        """Count a connection that was closed immediately."""
        self._add(HTTP_REFUSED, cause)

    def reject(self, cause: str) -> None:
        """Count a request that was rejected."""
        self._add(HTTP_REJECTED, cause)

    def retry(self) -> None:
        """Count an accept that failed because the process had no free file descriptor."""
        self._add(HTTP_RETRIES)

    def _add(self, metric: Metric, *labels: str) -> None:
        with self._lock:
            self._counts[metric, labels] += 1

    def describe(self) -> Iterator[CounterMetricFamily]:
        """Yield every family without samples."""
        for metric in HTTP_METRICS:
            yield CounterMetricFamily(metric.name, metric.help, labels=metric.labels)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield every family with the counters that are not zero."""
        with self._lock:
            counts = sorted((metric.name, labels, count) for (metric, labels), count in self._counts.items())
        for family, metric in zip(self.describe(), HTTP_METRICS, strict=True):
            for name, labels, count in counts:
                if name == metric.name:
                    family.add_metric(labels, count)
            yield family
