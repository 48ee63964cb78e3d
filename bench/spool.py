"""The spool on one core: compared with plain Arrow files, with other layouts of segments, and with many small segments.

The partials are those of a node over the judged capture. Times are CPU times, so other processes do not count. Only the
writing of files is measured by the clock, because it includes the wait for the disk.
"""

from __future__ import annotations

from pathlib import Path

from bench.figure import Figure, figure
from bench.one_core import on_one_core
from bench.partials import partials_of, read_items
from bench.report import Report
from bench.setting import Setting
from bench.spool_files import PLAIN, READ, SPOOL, WRITTEN, measure_files
from bench.spool_layouts import ROWS, measure_layouts
from bench.spool_segments import APPEND, FIRST_LIST, PACK, SMALL, START, measure_segments
from bench.traffic import MILLION, address_pairs, generate_cached, read_into_cache

StepSeconds = dict[str, list[float]]


def run(setting: Setting) -> Report:
    """Measure throughput, sizes, and the cost of many segments at a start."""
    path = generate_cached(address_pairs(setting.packets(5 * MILLION)), setting.data)
    read_into_cache(path)
    count = 100 if setting.quick else 1000
    rows, sizes, written, encoded, many = on_one_core(measure, path, setting.data, setting.runs(5), count)
    report = Report("spool")
    rates = {name: figure(step_time).rate(rows / MILLION) for name, step_time in written.items()}
    report.table(
        f"{rows:,} partials of packets and bytes by address pair",
        ("what", "M partials/s (min..max)", "bytes per partial"),
        [(f"{name}, {done}", str(rates[name, done]), f"{sizes[name] / rows:.1f}") for name, done in rates],
    )
    report.table(
        f"{min(rows, ROWS):,} of them in one stream",
        ("layout", "bytes per partial", "encode, M/s (min..max)", "decode, M/s (min..max)"),
        encoded,
    )
    report.table(
        f"{count:,} segments of {SMALL:,} partials that nobody has read, and as many batches of as many",
        ("what", "ms (min..max)"),
        [(name, str(Figure(tuple(1000 * seconds for seconds in step_time)))) for name, step_time in many.items()],
    )
    judged = not setting.quick
    for done, target in ((WRITTEN, ">= 0.5"), (READ, ">= 0.5")):
        ratio = rates[SPOOL, done].median / rates[PLAIN, done].median
        report.add_criterion(f"partials per second, {done}, spool / plain Arrow", ratio, target, judged)
    report.add_criterion("bytes on the disk, spool / plain Arrow", sizes[SPOOL] / sizes[PLAIN], "<= 0.5", judged)
    report.add_criterion("bytes per partial", sizes[SPOOL] / rows, "<= 10", judged)
    start, look = figure(many[START]).median, figure(many[FIRST_LIST]).median
    report.add_criterion("many segments, a writer's start / a reader's first look", start / look, "<= 0.5", judged)
    append, pack = figure(many[APPEND]).median, figure(many[PACK]).median
    report.add_criterion("a small batch, append / encoding it", append / pack, "<= 0.1", judged)
    return report


def measure(
    path: Path, data: Path, runs: int, count: int
) -> tuple[int, dict[str, int], dict[tuple[str, str], list[float]], list[tuple[str, ...]], StepSeconds]:
    """Return rows of partials, bytes and seconds of both forms, the layouts, and the seconds of many segments."""
    items = read_items(path)
    batches = partials_of(items)
    sizes, written = measure_files(items, data, runs)
    return (
        sum(map(len, batches)),
        sizes,
        written,
        measure_layouts(batches, runs),
        measure_segments(batches, data, runs, count),
    )
