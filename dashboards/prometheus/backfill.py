"""Back-fill: the windows of a finished capture become Prometheus samples with the times of the capture.

Names, labels and the limit of series are the same as in the exporter (`dashboards.prometheus.query_series`). The time
of a sample is the end of its window. There is one OpenMetrics file for each UTC day, because `promtool` reads its whole
input again for each block of two hours.

`promtool` rounds times down to milliseconds. It silently drops samples before 1970, and samples that are not later than
the previous sample of their series. So this module collects the samples of each series in the order of their windows,
and omits and counts the samples that `promtool` would drop. Then it compares the number of samples in the blocks with
the number in the files.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Timestamp
from prometheus_client.openmetrics.exposition import generate_latest

from capture import arrow_compute as pc
from capture.errors import WiretideError
from capture.lazy_dataclasses import dataclass
from capture.units import SECOND
from dashboards.prometheus.query_series import QuerySeries, ShownSeries, Value
from dashboards.prometheus.stable_groups import StableGroups
from highlevel.aggregation import LATE

NS_PER_MS = SECOND // 1000
DAY_MS = 86_400_000
"""Milliseconds of a day."""


class BackfillError(WiretideError):
    """A back-fill is not complete. The user must remove the cause, and delete the blocks that were written."""


@dataclass(slots=True)
class SeriesSamples:
    """The samples of one series: times (ms since the epoch, ascending) and values."""

    times: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))


@dataclass(frozen=True, slots=True)
class SampleFamily:
    """A metric, the names of its labels, and the samples of each series by its label values."""

    name: str
    help: str
    labels: tuple[str, ...]
    series: Mapping[tuple[str, ...], SeriesSamples]


class Families(Protocol):
    """A source of metric families for back-fill."""

    def families(self) -> Iterable[SampleFamily]:
        """Return the metrics with their samples."""
        ...


class Backfill:
    """Collects the samples of one query with windows of time. Memory: 16 bytes for each sample."""

    def __init__(self, series: QuerySeries) -> None:
        """Begin without samples. Raises ValueError for windows that are not windows of time."""
        if not (series.plan.windowed and series.plan.window.timed):
            raise ValueError(f"query {series.plan.name!r} has no windows of time")
        if series.is_provisional:
            raise ValueError(
                f"query {series.plan.name!r} has EMIT CHANGES: expected final results, because "
                f"samples cannot be corrected"
            )
        self.series = series
        self.samples: dict[tuple[Value, tuple[str, ...]], SeriesSamples] = {}
        self.samples_before_1970 = 0
        """Number of samples before 1970, which Prometheus cannot store."""
        self.samples_within_1_ms = 0
        """Number of samples less than 1 ms after the previous sample of their series."""
        self._waiting: pa.Table = series.plan.schema.empty_table()
        self._waiting_end = 0
        self._stable = StableGroups(series.top)

    def add(self, rows: pa.Table) -> None:
        """Add rows of closed windows, in the order of the windows. Late rows of LATE EMIT are ignored."""
        if self.series.aggregation.emit_late:
            rows = rows.filter(pc.invert(rows[LATE]))
        ends = pc.unique(rows["window_end"].cast(pa.int64())).to_pylist()
        for end in ends:
            of_window = rows.filter(pc.equal(rows["window_end"].cast(pa.int64()), end))
            if end != self._waiting_end:
                self.complete()
                self._waiting_end = end
            self._waiting = pa.concat_tables([self._waiting, of_window.cast(self.series.plan.schema)])

    def complete(self) -> None:
        """Compute the samples of the last window."""
        if self._waiting.num_rows == 0:
            return
        time, shown = self._waiting_end // NS_PER_MS, self._select_series()
        self._waiting = self.series.plan.schema.empty_table()
        for value, series in zip(self.series.values, shown.series, strict=True):
            for labels, number in series:
                samples = self.samples.setdefault((value, labels), SeriesSamples())
                if time < 0:
                    self.samples_before_1970 += 1
                elif samples.times and time <= samples.times[-1]:
                    self.samples_within_1_ms += 1
                else:
                    samples.times.append(time)
                    samples.values.append(number)

    def _select_series(self) -> ShownSeries:
        return self.series.select_series(self._waiting, self._stable, self._waiting_end)

    def warnings(self) -> Iterator[str]:
        """Yield a message for each reason for which samples were omitted."""
        query = f"query {self.series.plan.name}"
        if self.samples_before_1970:
            yield (
                f"{query}: {self.samples_before_1970:,} samples before 1970 are left out: Prometheus cannot store "
                "such times"
            )
        if self.samples_within_1_ms:
            yield (
                f"{query}: {self.samples_within_1_ms:,} samples are left out: Prometheus stores at most one "
                "sample per ms"
            )

    def families(self) -> Iterator[SampleFamily]:
        """Yield the value columns with their samples."""
        for value in self.series.values:
            series = {labels: samples for (of_value, labels), samples in self.samples.items() if of_value is value}
            yield SampleFamily(value.name, value.help, self.series.labels, series)


def write_daily_files(
    sources: Iterable[Families], common_labels: Mapping[str, str], folder: Path
) -> Iterator[tuple[Path, int]]:
    """Write an OpenMetrics file for each UTC day that has samples.

    Yield the path and the number of samples of each file.

    `common_labels`: labels of all series, such as `job`.
    """
    families = [family for source in sources for family in source.families()]
    days = {time // DAY_MS for family in families for samples in family.series.values() for time in samples.times}
    for day in sorted(days):
        date = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)
        path = folder / f"wiretide-{date:%Y-%m-%d}.om"
        text, count = render_samples(families, common_labels, day * DAY_MS, (day + 1) * DAY_MS)
        path.write_bytes(text)
        yield path, count


def render_samples(
    families: Iterable[SampleFamily], common_labels: Mapping[str, str], start: int = 0, end: int = 2**62
) -> tuple[bytes, int]:
    """Return the samples of the times `[start, end)` (ms) as OpenMetrics, and their number.

    `common_labels`: labels of all series.
    """
    collector = _SampleCollector(tuple(families), common_labels, start, end)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text, collector.count


class _SampleCollector:
    """A prometheus-client collector of the samples of the times `[start, end)` (ms)."""

    def __init__(
        self, families: Sequence[SampleFamily], common_labels: Mapping[str, str], start: int, end: int
    ) -> None:
        self._families, self._common_labels, self._start, self._end = families, common_labels, start, end
        self.count = 0

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families. The samples of a series follow each other, as OpenMetrics requires."""
        self.count = 0
        for family in self._families:
            metric = GaugeMetricFamily(family.name, family.help, labels=[*family.labels, *self._common_labels])
            for texts, samples in family.series.items():
                self._add(metric, [*texts, *self._common_labels.values()], samples)
            if metric.samples:
                yield metric

    def _add(self, family: GaugeMetricFamily, labels: list[str], series_samples: SeriesSamples) -> None:
        first, after = bisect_left(series_samples.times, self._start), bisect_left(series_samples.times, self._end)
        for time, number in zip(series_samples.times[first:after], series_samples.values[first:after], strict=True):
            family.add_metric(labels, number, timestamp=Timestamp(time // 1000, time % 1000 * 1_000_000))
        self.count += after - first


def require_promtool() -> str:
    """Return the path of promtool. Raises BackfillError if it is not installed."""
    promtool = shutil.which("promtool")
    if promtool is None:
        raise BackfillError("--blocks needs promtool, which is not on the PATH (Debian package prometheus)")
    return promtool


def create_blocks(promtool: str, file: Path, folder: Path, expected_samples: int) -> int:
    """Convert a file to Prometheus blocks in `folder`. Return the number of blocks.

    Raises BackfillError if promtool fails, or if the number of samples in the blocks is not `expected_samples`.
    """
    before = {*_find_block_metadata(folder)}
    command = [promtool, "tsdb", "create-blocks-from", "openmetrics", "--quiet", str(file), str(folder)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode != 0:
        reason = (completed.stderr.strip().splitlines() or ["no message"])[-1]
        raise BackfillError(f"{file}: promtool ended with status {completed.returncode}: {reason}")
    new = [meta for meta in _find_block_metadata(folder) if meta not in before]
    written = sum(json.loads(meta.read_text())["stats"]["numSamples"] for meta in new)
    if written != expected_samples:
        raise BackfillError(
            f"{file}: the blocks have {written:,} samples, expected the {expected_samples:,} of the file"
        )
    return len(new)


def _find_block_metadata(folder: Path) -> Iterator[Path]:
    yield from folder.glob("*/meta.json")
