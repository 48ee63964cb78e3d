"""The metrics of a pipeline for Prometheus: counters, and the last closed window of each query.

For a query with changes the newest window is shown, even if it is not final. A correction replaces the rows of the
window.

Samples have no timestamp, because Prometheus rejects old timestamps, and a replay has old times. So a sample receives
the time of the scrape. `wiretide_query_window_*_seconds` contain the bounds of the window in the time of the capture.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from threading import Lock
from typing import Any

import pyarrow as pa
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as AnyFamily

from capture import arrow_compute as pc
from capture.lazy_dataclasses import dataclass
from capture.metrics import LabelledName, Metric, Samples
from dashboards.prometheus.names import Names
from dashboards.prometheus.query_counters import QueryCounters, counter_name, values_with_counters
from dashboards.prometheus.query_histograms import QueryHistogram, histogram_name
from dashboards.prometheus.query_series import QuerySeries, Series, ShownSeries
from dashboards.prometheus.stable_groups import StableGroups
from highlevel.aggregation import LATE
from highlevel.plan.plan import Plan
from lowlevel.punctuation import BEGINNING, END


@dataclass(frozen=True)
class ClosedWindow:
    """One closed window `[start, end)` in ns, and the rows of it that have arrived so far. Immutable."""

    start: int
    end: int
    tables: tuple[pa.Table, ...]
    series: QuerySeries
    stable: StableGroups
    rests: tuple[pa.Table, ...] = ()
    """Sums over the rows of the window that are not in `tables`."""
    exposition_by_type: dict[str, bytes] = field(default_factory=dict, compare=False)
    """The text of the window for a scrape, by content type."""

    @cached_property
    def shown_series(self) -> ShownSeries:
        """The series of the window.

        They are computed at the first scrape of the window, because most windows are never scraped.

        So only scraped windows influence the selection of groups (`StableGroups`). The caller must hold a lock.
        """
        rows = pa.concat_tables([self.series.plan.schema.empty_table(), *self.tables])
        rest = pa.concat_tables(self.rests) if self.rests else None
        return self.series.select_series(rows, self.stable, self.end, rest=rest)

    @cached_property
    def families(self) -> tuple[GaugeMetricFamily, ...]:
        """The metric families of the value columns.

        They are built once per window, because most scrapes find no new window.
        """
        return tuple(gauge_families(self.series, self.shown_series.series))


def gauge_families(series: QuerySeries, shown: Sequence[Sequence[Series]]) -> Iterator[GaugeMetricFamily]:
    """Yield the metric family of each value column with its samples."""
    for value, samples in zip(series.values, shown, strict=True):
        family = GaugeMetricFamily(value.name, value.help, labels=series.labels)
        for labels, number in samples:
            family.add_metric(labels, number)
        yield family


class LastWindow:
    """The newest closed window of one query, which scrapes contain. Not thread safe.

    Rows of older windows are ignored. The rows of a window may arrive in several calls, for example one per partition.
    Each call adds rows, so no call may be repeated. Only the rows of one window are stored.
    """

    def __init__(self, series: QuerySeries) -> None:
        self.series = series
        self._stable = StableGroups(series.top)
        self.current: ClosedWindow | None = None

    def add_rows(self, table: pa.Table, rest: pa.Table | None = None) -> None:
        """Add rows of closed windows. `rest`: sums over further rows of these windows.

        Raises ValueError if a column of the plan is missing.
        """
        plan = self.series.plan
        if missing := [name for name in plan.schema.names if name not in table.schema.names]:
            raise ValueError(
                f"results of query {plan.name!r} lack {', '.join(missing)}; "
                f"got {', '.join(table.schema.names) or 'no column'}, expected {', '.join(plan.schema.names)}"
            )
        if not table.num_rows:
            return
        table = table.select(plan.schema.names).cast(plan.schema)
        if self.series.aggregation.emit_late:
            # A late row would be a second row of its group. Only files and tables contain late rows.
            table = table.filter(pc.invert(table[LATE]))
            if not table.num_rows:
                return
        start, end = BEGINNING, END
        if plan.windowed:
            end = pc.max(table["window_end"]).as_py()
            table = table.filter(pc.equal(table["window_end"], end))
            start = table["window_start"][0].as_py()
        self._show(start, end, (table,), () if rest is None else (rest.filter(pc.equal(rest["window_end"], end)),))

    def correct(self, start: int, end: int, rows: pa.Table) -> None:
        """Show the window `[start, end)` (ns) with exactly these rows. Has no effect if a newer window is shown."""
        if self.current is None or self.current.end <= end:
            self.current = ClosedWindow(start, end, (rows,), self.series, self._stable)

    def set_watermark(self, watermark: int) -> None:
        """Show the last window that ends at or before `watermark` (ns), even if it has no rows.

        At the end of the input the shown window does not change.
        """
        plan = self.series.plan
        last = plan.window.last_final(watermark) if watermark < END and plan.windowed else None
        if last is not None:
            start, end = last
            self._show(start, end, ())

    def _show(self, start: int, end: int, tables: tuple[pa.Table, ...], rests: tuple[pa.Table, ...] = ()) -> None:
        previous = self.current
        if previous is None or previous.end < end:
            self.current = ClosedWindow(start, end, tables, self.series, self._stable, rests)
        elif previous.end == end and tables:
            tables, rests = previous.tables + tables, previous.rests + rests
            self.current = ClosedWindow(start, end, tables, self.series, self._stable, rests)


# Metrics of the shown windows and of the HTTP server.
#
# `query_groups` = `query_series_folded` + number of rows with separate series.


WINDOW_START = Metric(
    "wiretide_query_window_start_seconds",
    "gauge",
    ("query",),
    "Start of the query's last closed window (seconds since the epoch, in the capture's own time).",
)
WINDOW_END = Metric(
    "wiretide_query_window_end_seconds",
    "gauge",
    ("query",),
    "End, not included, of the query's last closed window (seconds since the epoch, in the capture's own time).",
)
GROUPS = Metric(
    "wiretide_query_groups", "gauge", ("query",), "Result rows of the query's last closed window, after HAVING."
)
SERIES_FOLDED = Metric(
    "wiretide_query_series_folded",
    "gauge",
    ("query",),
    "Result rows of the query's last closed window that have no separate series: they are part of the series other.",
)

HTTP_CONNECTIONS = Metric(
    "wiretide_http_connections_total",
    "counter",
    (),
    "Connections that the metrics server accepted, including refused connections.",
)
HTTP_REFUSED = Metric(
    "wiretide_http_connections_refused_total",
    "counter",
    ("cause",),
    "Connections that the metrics server closed immediately, because there were too many connections in total "
    "(connections) or from one client (client), or no free thread (threads).",
)
HTTP_REJECTED = Metric(
    "wiretide_http_requests_rejected_total",
    "counter",
    ("cause",),
    "Rejected requests by reason: incomplete at the end of the allowed time (deadline), too long (size), a method "
    "other than GET (method), another machine's name in the header Host (host), no valid user or token "
    "(authorization), or a failed TLS handshake (tls).",
)
HTTP_RETRIES = Metric(
    "wiretide_http_accept_retries_total",
    "counter",
    (),
    "Number of times that the metrics server had to wait for a free file descriptor for a connection.",
)

METRICS = (WINDOW_START, WINDOW_END, GROUPS, SERIES_FOLDED)
HTTP_METRICS = (HTTP_CONNECTIONS, HTTP_REFUSED, HTTP_REJECTED, HTTP_RETRIES)


Family = CounterMetricFamily | GaugeMetricFamily
PipelineFamily = Family | HistogramMetricFamily


class Exporter:
    """A prometheus-client collector with its own registry (`registry`).

    * `metrics`: the declarations of all metrics that `set_samples` receives.
    * `top`: maximum number of groups per query.
    * `rank`: by query name, the column that selects the groups. Default: the first value column.
    * `histograms`: by query name, the column of the upper bounds of a histogram
      (`dashboards.prometheus.query_histograms`).
    * `counters`: True if value columns whose values can be added also have counters
      (`dashboards.prometheus.query_counters`).

    Raises ValueError for equal names, and for names that Prometheus does not accept. Thread safe: one thread may add
    results while others scrape. A scrape contains at most one window per query.
    """

    def __init__(
        self,
        plans: Iterable[Plan],
        metrics: Iterable[Metric],
        top: int = 10,
        rank: Mapping[str, str] | None = None,
        counters: bool = False,
        histograms: Mapping[str, str] | None = None,
    ) -> None:
        self.plans = tuple(plans)
        self._metrics = _declarations([*metrics, *METRICS])
        self.series = make_series(self.plans, self._metrics.values(), top, rank, counters, histograms)
        self._histograms = {one.plan.name: QueryHistogram(one) for one in self.series if one.histogram is not None}
        self._counters = {one.plan.name: QueryCounters(one) for one in self.series if one.has_counters}
        self._lock = Lock()
        self._series_lock = Lock()
        """Held while the series of windows are computed. It is separate from `_lock`, so that the pipeline can add
        results meanwhile.
        """
        self._windows = {one.plan.name: LastWindow(one) for one in self.series}
        self._samples: Mapping[LabelledName, float] = {}
        self.registry = Registry()
        self.registry.register(self)

    def add_results(self, query: str, table: pa.Table, rest: pa.Table | None = None) -> None:
        """Add rows of closed windows: `window_start, window_end` (ns), then the select list.

        The window with the largest end is shown. Each call adds rows to its windows, so no call may be repeated.
        `rest`: sums over further rows of these windows (`highlevel.spark.run_folder.staged_results`).
        """
        if last := self._window(query):
            with self._lock:
                last.add_rows(table, rest)
            self.count(query, table, rest)

    def correct(self, query: str, windows: Mapping[tuple[int, int], pa.Table]) -> None:
        """Show the newest of `windows` of a query with changes, unless a newer window is shown.

        `windows`: all rows of each window, by its bounds in ns. Counters and histograms do not change (see `count`).
        """
        last = self._window(query)
        if last is not None and windows:
            start, end = max(windows, key=lambda bounds: bounds[1])
            with self._lock:
                last.correct(start, end, windows[start, end])

    def count(self, query: str, table: pa.Table, rest: pa.Table | None = None) -> None:
        """Add final rows of windows to the counters and the histogram of a query. No call may be repeated.

        `rest`: sums over further rows; None for a query with a histogram.
        """
        counters, histogram = self._counters.get(query), self._histograms.get(query)
        if counters is not None or histogram is not None:
            schema = self._windows[query].series.plan.schema
            rows = table.select(schema.names).cast(schema)
            with self._series_lock:
                if counters is not None:
                    counters.add(rows, rest)
                if histogram is not None:
                    histogram.add(rows)

    def set_watermark(self, query: str, watermark: int) -> None:
        """Record that all windows that end at or before `watermark` (ns) are closed, and all their rows were added.

        The last of these windows is shown, even if it has no rows because no group passed HAVING.
        """
        if last := self._window(query):
            with self._lock:
                last.set_watermark(watermark)

    def _window(self, query: str) -> LastWindow | None:
        """Return the shown window of a query.

        Return None for a query without windows, because its rows are only counted.
        """
        if query not in {plan.name for plan in self.plans}:
            raise ValueError(f"got results of query {query!r}; {_choices(self.plans)}")
        return self._windows.get(query)

    def set_samples(self, samples: Mapping[LabelledName, float]) -> None:
        """Replace all counters and gauges of the pipeline."""
        for name, labels in samples:
            if name not in self._metrics:
                raise ValueError(f"metric {name!r} is not declared; declared are {', '.join(sorted(self._metrics))}")
            if len(labels) != len(self._metrics[name].labels):
                expected = ", ".join(self._metrics[name].labels) or "none"
                raise ValueError(f"metric {name!r} got the label values {labels}; its labels are {expected}")
        copy = dict(samples)  # because the caller continues to change its mapping
        with self._lock:
            self._samples = copy

    @property
    def current_samples(self) -> Mapping[LabelledName, float]:
        """The counters and gauges of the pipeline. Later calls of `set_samples` do not change this mapping."""
        with self._lock:
            return self._samples

    def describe(self) -> Iterator[PipelineFamily]:
        """Yield every metric family without samples."""
        yield from self._families({}, {})
        for one in self.series:
            yield from gauge_families(one, ((),) * len(one.values))
        for counters in self._counters.values():
            for family in counters.families():
                family.samples = []
                yield family
        for histogram in self._histograms.values():
            yield HistogramMetricFamily(histogram.name, "")

    def collect(self) -> Iterator[PipelineFamily]:
        """Yield every metric family with its current samples, in a fixed order."""
        windows, families = self._snapshot()
        yield from families
        for one in self.series:
            window = windows.get(one.plan.name)
            yield from gauge_families(one, ((),) * len(one.values)) if window is None else window.families

    def exposition(self, encode: Encoder, content_type: str) -> bytes:
        """Return the text of a scrape: the metrics of this exporter and of all other collectors of `registry`.

        `encode` returns the text of a registry in the format `content_type`. The text of a window is stored, because
        most scrapes find no new window, and encoding thousands of samples is slow.
        """
        windows, families = self._snapshot()
        for one in self.series:
            if one.plan.name not in windows:
                families += gauge_families(one, ((),) * len(one.values))
        others = [collector for collector in self.registry.collectors if collector is not self]
        text = _encode(encode, [_Families(families), *others])
        end = EOF if text.endswith(EOF) else b""
        parts = [text.removesuffix(end)]
        for window in windows.values():
            if content_type not in window.exposition_by_type:
                window.exposition_by_type[content_type] = _encode(encode, [_Families(window.families)]).removesuffix(
                    end
                )
            parts.append(window.exposition_by_type[content_type])
        return b"".join([*parts, end])

    def _snapshot(self) -> tuple[dict[str, ClosedWindow], list[PipelineFamily]]:
        """Return the shown windows with computed series, and all metric families except those of windows."""
        with self._lock:
            samples = self._samples
            windows = {name: last.current for name, last in self._windows.items() if last.current is not None}
        with self._series_lock:
            for window in windows.values():
                _ = window.families
            cumulative: list[PipelineFamily] = []
            for counters in self._counters.values():
                cumulative += counters.families()
            cumulative += [histogram.family() for histogram in self._histograms.values()]
        return windows, [*self._families(samples, windows), *cumulative]

    def _families(
        self, samples: Mapping[LabelledName, float], windows: Mapping[str, ClosedWindow]
    ) -> Iterator[PipelineFamily]:
        window_samples = Samples()
        for one in self.series:
            if window := windows.get(one.plan.name):
                if one.plan.windowed and one.plan.window.timed:
                    window_samples.set(WINDOW_START, window.start / 1e9, one.plan.name)
                    window_samples.set(WINDOW_END, window.end / 1e9, one.plan.name)
                window_samples.set(GROUPS, window.shown_series.groups, one.plan.name)
                window_samples.set(SERIES_FOLDED, window.shown_series.folded, one.plan.name)
        declared = {metric.name: family_of(metric) for metric in self._metrics.values() if not metric.is_histogram}
        histograms = {
            metric.name: HistogramMetricFamily(metric.name, metric.help, labels=metric.labels[:-1])
            for metric in self._metrics.values()
            if metric.is_histogram
        }
        buckets: dict[LabelledName, list[tuple[str, float]]] = {}
        for (name, labels), number in sorted([*samples.items(), *window_samples.items()]):
            if name in declared:
                declared[name].add_metric(labels, number)
            else:
                buckets.setdefault((name, labels[:-1]), []).append((labels[-1], number))
        for (name, labels), bounds in buckets.items():
            histograms[name].add_metric(labels, sorted(bounds, key=lambda bucket: float(bucket[0])), None)
        yield from declared.values()
        yield from histograms.values()


EOF = b"# EOF\n"
"""The last line of OpenMetrics."""

Encoder = Callable[[Any], bytes]


class Registry(CollectorRegistry):
    """A registry whose collectors can be listed. The collectors of alerts, live page and server are added later."""

    def __init__(self) -> None:
        super().__init__()
        self.collectors: tuple[Any, ...] = ()

    def register(self, collector: Any) -> None:
        """Add a collector. Raises ValueError if one of its names is registered already."""
        super().register(collector)
        self.collectors = (*self.collectors, collector)

    def unregister(self, collector: Any) -> None:
        """Remove a collector."""
        super().unregister(collector)
        self.collectors = tuple(existing for existing in self.collectors if existing is not collector)


class _Families:
    """A collector that returns given metric families."""

    def __init__(self, families: Iterable[AnyFamily]) -> None:
        self._families = families

    def collect(self) -> Iterable[AnyFamily]:
        return self._families


def _encode(encode: Encoder, collectors: Iterable[Any]) -> bytes:
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return encode(registry)


def family_of(metric: Metric) -> Family:
    """Return the metric family of a declaration, without samples."""
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.name, metric.help, labels=metric.labels)


def _declarations(metrics: Iterable[Metric]) -> dict[str, Metric]:
    """Return the declarations by name. Raises ValueError for invalid and for repeated names."""
    declared: dict[str, Metric] = {}
    for metric in metrics:
        if metric.kind not in ("counter", "gauge", "histogram"):
            raise ValueError(f"metric {metric.name!r} is a {metric.kind!r}; expected counter, gauge or histogram")
        if metric.is_histogram != (metric.labels[-1:] == ("le",)):
            raise ValueError(f"metric {metric.name!r} is a {metric.kind}; histograms, and no others, end with label le")
        if (metric.kind == "counter") != metric.name.endswith("_total"):
            raise ValueError(f"metric {metric.name!r} is a {metric.kind}; counters end in _total, gauges do not")
        for name in (metric.name, *metric.labels):
            if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_]*", name):
                raise ValueError(f"metric {metric.name!r} has the name {name!r}; expected letters, digits, underscores")
        if declared.setdefault(metric.name, metric) != metric:
            raise ValueError(f"metric {metric.name!r} has two different declarations")
    return declared


def make_series(
    plans: Sequence[Plan],
    metrics: Iterable[Metric],
    top: int = 10,
    rank: Mapping[str, str] | None = None,
    counters: bool = False,
    histograms: Mapping[str, str] | None = None,
) -> list[QuerySeries]:
    """Return the series of all plans whose results have windows.

    `metrics`: all other metrics, whose names must differ. The other parameters are described at Exporter. Raises
    ValueError for equal names, for names that Prometheus does not accept, for a wrong rank, and for a query that cannot
    have a histogram.
    """
    if top < 1:
        raise ValueError(f"top must be at least 1 group per query, got {top}")
    rank = dict(rank or {})
    queries = Names("query")
    for index, plan in enumerate(plans):
        queries.reserve(plan.name, f"query {index + 1}")
    if unknown := rank.keys() - {plan.name for plan in plans}:
        raise ValueError(f"no query is named {', '.join(sorted(unknown))}; {_choices(plans)}")
    for plan in plans:
        if not plan.has_series and plan.name in rank:
            raise ValueError(f"query {plan.name!r} cannot be ranked: its rows have no window, so they are only counted")
    histograms = dict(histograms or {})
    for plan in plans:
        if not plan.has_series and plan.name in histograms:
            raise ValueError(f"query {plan.name!r} has no windows, so it has no histogram")
    series = [
        QuerySeries(plan, top, rank.get(plan.name), has_counters=counters, histogram=histograms.get(plan.name))
        for plan in plans
        if plan.has_series
    ]
    for one in series:
        if one.histogram is not None:
            QueryHistogram(one)  # checks the query
    _check_names(metrics, series)
    return series


def _choices(plans: Iterable[Plan]) -> str:
    return f"the queries are {', '.join(plan.name for plan in plans) or 'none'}"


def _check_names(metrics: Iterable[Metric], series: Iterable[QuerySeries]) -> None:
    """Raise ValueError if two metric families have the same name."""
    names = Names("metric")
    for metric in metrics:
        # OpenMetrics names a counter without its suffix.
        for name in {metric.name, metric.name.removesuffix("_total")}:
            names.reserve(name, f"the declared metric {metric.name}")
    for one in series:
        for value in one.values:
            names.reserve(value.name, f"column {value.column!r} of query {one.plan.name!r}")
        for value in values_with_counters(one):
            for name in {counter_name(value), counter_name(value).removesuffix("_total"), histogram_name(value)}:
                names.reserve(name, f"the counter of column {value.column!r} of query {one.plan.name!r}")
