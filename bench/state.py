"""The state of a stream on Spark: bytes and time of micro-batches that change a few groups of a large open window.

No Spark runs. Each micro-batch does the work of an operator task: it loads the state of the version before, adds
partials to the window and saves the next version. The partials are of random groups, or always of the same groups.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.minutes_of_partials import PAIR, QUERIES
from bench.report import Report
from bench.setting import Setting
from highlevel.sliding.aggregate import END_WID, FIRST_WID, Aggregate
from highlevel.spark.run_folder.state import PartitionState
from lowlevel.expressions.arrow import to_arrow

SUBAGGREGATES = QUERIES["count, sum"]
KEY = "0.0"


@dataclass(frozen=True)
class MicroBatch:
    """Bytes of the files that a micro-batch wrote, and wall seconds of load, merge and save."""

    written: int
    seconds: float


def make_partials(addresses: np.ndarray, groups: np.ndarray, random: np.random.Generator) -> pa.RecordBatch:
    """Return one partial of each group in window 0."""
    zeros = np.zeros(len(groups), np.uint64)
    columns = [to_arrow(4, zeros, side[groups]) for side in addresses]
    columns += [pa.array(random.integers(1, 1500, len(groups))) for _ in SUBAGGREGATES]
    columns += [pa.array(np.full(len(groups), wid)) for wid in (0, 1)]
    names = [*PAIR, *(sub.name for sub in SUBAGGREGATES), FIRST_WID, END_WID]
    return pa.RecordBatch.from_arrays(columns, names)


def run_batches(folder: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[MicroBatch]:
    """Run micro-batches of one partition, and yield the figures of each."""
    for batch_id, batch in enumerate(batches):
        begin = time.perf_counter()
        state = PartitionState(folder, 0)
        aggregate = Aggregate(PAIR, SUBAGGREGATES)
        aggregate.restore(state.load(batch_id - 1, {KEY: False})[KEY])
        for _ in aggregate.process_rows(0, batch):
            pass
        state.save(batch_id, {KEY: aggregate.snapshot()})
        seconds = time.perf_counter() - begin
        written = [*(folder / "0").glob(f"*-{batch_id}.arrow"), folder / "0" / f"{batch_id}.json"]
        yield MicroBatch(sum(path.stat().st_size for path in written), seconds)


def run(setting: Setting) -> Report:
    """Measure a window in which 1 % of the groups change in each micro-batch."""
    groups, count = (20_000, 30) if setting.quick else (865_000, 200)
    changed = groups // 100
    report = Report("state")
    random = np.random.default_rng(16)
    addresses = random.integers(0, 1 << 32, (2, groups), np.uint64)
    lines = []
    for name in ("random groups", "the same groups"):
        same = random.choice(groups, changed, replace=False)

        def batches(name: str = name, same: np.ndarray = same) -> Iterator[pa.RecordBatch]:
            yield make_partials(addresses, np.arange(groups), random)
            for _ in range(count):
                chosen = same if name == "the same groups" else random.choice(groups, changed, replace=False)
                yield make_partials(addresses, chosen, random)

        with tempfile.TemporaryDirectory() as folder:
            first, *others = run_batches(Path(folder), batches())
        shares = [batch.written / first.written for batch in others]
        lines.append(
            (
                name,
                f"{first.written / 1e6:.1f} MB",
                f"{statistics.median(shares):.2%}",
                f"{statistics.mean(shares):.2%}",
                f"{max(shares):.0%}",
                f"{statistics.median(batch.seconds for batch in others) * 1000:.0f} ms",
                f"{first.seconds * 1000:.0f} ms",
            )
        )
        report.add_criterion(
            f"written per micro-batch / open window, {name}", statistics.mean(shares), "<= 0.05", not setting.quick
        )
    report.table(
        f"{count} micro-batches, each with partials of 1 % of {groups:,} groups of one open window",
        ("groups", "window", "written, median", "mean", "most", "load, merge, save", "first micro-batch"),
        lines,
    )
    return report
