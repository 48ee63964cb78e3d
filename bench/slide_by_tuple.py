"""Windows that slide by rows, on one core: the operator compared with the bins of the thesis.

Rows are a microsecond apart and up to 50 ms late. The watermark of a file follows each block. An open bin is a position
at which the contents of unfinished windows change, because a row enters or leaves. The bins are a kernel too, an
ordered array of positions and counts, and receive the same rows in the same blocks. All figures are the smallest CPU
time of several runs. The methods take turns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bench.one_core import on_one_core
from bench.report import Report
from bench.setting import Setting
from bench.undisturbed import time_step
from capture.native import kernel
from highlevel.groups.key_words import Words
from highlevel.slide_by_tuple.operator import SlideByTupleAggregate
from highlevel.windows.kind import SlideByTuple
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.punctuation import END, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate

MICROSECOND = 1000
BLOCK = 16_384
COUNT = SubAggregate("rows", Kind.COUNT)
LENGTH = Column("len", Type.INT)
MORE_SUBAGGREGATES = (COUNT, SubAggregate("bytes", Kind.SUM, LENGTH), SubAggregate("most", Kind.MAX, LENGTH))
FEW, MANY = 1_000, 100_000
"""Open bins."""

PLACE, VALUE, ROWS = 0, 1, 2
"""Words of a bin: its position, the number of rows of its windows, and the number of rows that begin at it."""


@kernel("i64(i64*, i64, i64, i64*, i64, i64)")
def add_to_bins(bins, room, count, times, rows, reach):  # type: ignore[no-untyped-def]
    """Add rows to `count` bins, a matrix of words x room in the order of positions. Return the new number of bins.

    Bin 0 is the base: it is below all times.
    """
    for row in range(rows):
        first = 0
        for side in range(2):
            position = times[row] + side * reach
            low = 0
            high = count
            while high - low > 1:
                middle = (low + high) // 2
                if bins[PLACE * room + middle] <= position:
                    low = middle
                else:
                    high = middle
            at = low
            if bins[PLACE * room + low] != position:
                at = low + 1
                for word in range(3):
                    for moved in range(count, at, -1):
                        bins[word * room + moved] = bins[word * room + moved - 1]
                bins[PLACE * room + at] = position
                bins[VALUE * room + at] = bins[VALUE * room + low]
                bins[ROWS * room + at] = 0
                count += 1
            if side == 0:
                first = at
                bins[ROWS * room + at] += 1
            else:
                for each in range(first, at):
                    bins[VALUE * room + each] += 1
    return count


class Bins:
    """Counts of windows, by the bins of Li 2008, Fig. 6-7, with its errata."""

    def __init__(self, reach: int, room: int) -> None:
        self.reach = reach
        self.bins = np.zeros((3, room), np.int64)
        self.bins[PLACE, 0] = -(2**62)
        self.count = 1
        self.total = 0

    def add(self, times: Words, low: int) -> None:
        """Add rows, and report the windows below the watermark."""
        self.count = add_to_bins(self.bins, self.bins.shape[1], self.count, times, len(times), self.reach)
        final = int(np.searchsorted(self.bins[PLACE, : self.count], low))
        self.total += int(self.bins[VALUE, 1:final][self.bins[ROWS, 1:final] > 0].sum())
        kept = self.bins[:, final : self.count].copy()
        self.bins[VALUE, 0] = self.bins[VALUE, final - 1]
        self.bins[:, 1 : kept.shape[1] + 1] = kept
        self.count = kept.shape[1] + 1


@dataclass(frozen=True)
class Stream:
    """Blocks of times, and the watermark after each block."""

    blocks: list[tuple[Words, int]]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(len(times) for times, _ in self.blocks)


def make_stream(rows: int, late: int) -> Stream:
    """Return rows a microsecond apart, each late by up to `late` rows."""
    random = np.random.default_rng(1)
    times = np.arange(rows) * MICROSECOND + random.integers(0, late * MICROSECOND + 1, rows)
    lows = np.append(np.minimum.accumulate(times[::-1])[::-1], END)
    ends = [min(first + BLOCK, rows) for first in range(0, rows, BLOCK)]
    return Stream(
        [(times[end - BLOCK if end % BLOCK == 0 else end - end % BLOCK : end], int(lows[end])) for end in ends]
    )


def make_batches(stream_: Stream, groups: int, subs: Iterable[SubAggregate]) -> list[pa.RecordBatch]:
    """Return the same rows as partials."""
    random = np.random.default_rng(2)
    found = []
    for times, _ in stream_.blocks:
        columns = {"pane": pa.array(times)}
        if groups > 1:
            columns["group"] = pa.array(random.integers(groups, size=len(times)))
        values = pa.array(random.integers(1, 1500, len(times)))
        columns |= {sub.name: pa.array(np.ones(len(times), np.int64)) if sub is COUNT else values for sub in subs}
        found.append(pa.RecordBatch.from_pydict(columns))
    return found


@dataclass(frozen=True)
class OperatorRun:
    """CPU seconds; open bins or rows before the end, and their bytes; sum of the counts of all windows."""

    seconds: float
    open_bins: int
    open_rows: int
    bytes: int
    total: int


def run_operator(
    window: SlideByTuple, stream_: Stream, groups: int = 1, subs: tuple[SubAggregate, ...] = (COUNT,)
) -> OperatorRun:
    """Run the operator."""
    feed_plan = make_batches(stream_, groups, subs)
    operator = SlideByTupleAggregate(window, ["group"] if groups > 1 else [], subs)
    found = [0, 0, 0, 0]

    def once() -> None:
        for batch, (_, low) in zip(feed_plan, stream_.blocks, strict=True):
            for _ in operator.process_rows(0, batch):
                pass
            if low == END:
                snapshot = operator.snapshot()
                pending, held = snapshot["pending"].num_rows, snapshot["held"].num_rows
                found[:3] = 2 * pending + held, pending + held, operator.bytes
            for item in operator.punctuate(0, Punctuation("link", low)):
                if isinstance(item, pa.RecordBatch):
                    found[3] += int(item.column(COUNT.name).to_numpy().sum())

    seconds = time_step(once).processor
    return OperatorRun(seconds, *found)


def run_bins(reach: int, stream_: Stream, room: int) -> OperatorRun:
    """Run the bins."""
    bins = Bins(reach, room)
    most = 0

    def once() -> None:
        nonlocal most
        for times, low in stream_.blocks:
            bins.add(times, low)
            most = max(most, bins.count)

    seconds = time_step(once).processor
    return OperatorRun(seconds, most, 0, 0, bins.total)


WINDOW_FORMS = {
    "each row": (SlideByTuple(1), 1, (COUNT,)),
    "each row; count, sum, max": (SlideByTuple(1), 1, MORE_SUBAGGREGATES),
    "each row, by two groups": (SlideByTuple(1), 2, (COUNT,)),
    "each 5th that arrives": (SlideByTuple(1, 5), 1, (COUNT,)),
    "each 5th in the order of ts": (SlideByTuple(1, 5, in_time_order=True), 1, (COUNT,)),
}


def measure_forms(rows: int, runs: int) -> dict[str, list[OperatorRun]]:
    """Run each form with many open bins."""
    stream_, reach = make_stream(rows, MANY // 2), MANY * 6 // 10 * MICROSECOND
    found: dict[str, list[OperatorRun]] = {name: [] for name in WINDOW_FORMS}
    for _ in range(runs):
        for name, (form, groups, subs) in WINDOW_FORMS.items():
            found[name].append(run_operator(SlideByTuple(reach, form.every, form.in_time_order), stream_, groups, subs))
    return found


def measure_bins(bins: int, rows: int, runs: int) -> tuple[list[OperatorRun], list[OperatorRun]]:
    """Run operator and bins in turns over the same rows, and compare the answers."""
    stream_, reach = make_stream(rows, bins // 2), bins * 6 // 10 * MICROSECOND
    found: tuple[list[OperatorRun], list[OperatorRun]] = [], []
    for _ in range(runs):
        found[0].append(run_operator(SlideByTuple(reach), stream_))
        found[1].append(run_bins(reach, stream_, 2 * (rows + 2) if bins == MANY else 4 * (BLOCK + bins)))
        if found[0][-1].total != found[1][-1].total:
            raise RuntimeError(f"the sweep counts {found[0][-1].total} rows in all windows, bins {found[1][-1].total}")
    return found


def min_seconds(runs: list[OperatorRun]) -> float:
    """Return the CPU seconds of the fastest run."""
    return min(run.seconds for run in runs)


def run(setting: Setting) -> Report:
    """Measure the forms, and compare the operator with the bins."""
    rows, runs = setting.packets(1_000_000), setting.runs(3)
    forms = on_one_core(measure_forms, rows, runs)
    report = Report("slide_by_tuple")
    report.table(
        f"{rows:,} rows, blocks of {BLOCK:,}",
        ("windows", "M rows/s", "open bins", "open rows", "bytes each"),
        [
            (
                name,
                f"{rows / min_seconds(found) / 1e6:.2f}",
                f"{found[0].open_bins:,}",
                f"{found[0].open_rows:,}",
                f"{found[0].bytes / found[0].open_rows:.1f}",
            )
            for name, found in forms.items()
        ],
    )
    compared = {
        FEW: on_one_core(measure_bins, FEW, setting.packets(300_000), runs),
        MANY: on_one_core(measure_bins, MANY, 20_000 if setting.quick else 150_000, setting.runs(2)),
    }
    report.table(
        "the sweep against bins, the same rows",
        ("open bins", "sweep, M rows/s", "bins, M rows/s", "sweep / bins"),
        [
            (
                f"{bins[0].open_bins:,}",
                f"{count / min_seconds(swept) / 1e6:.2f}",
                f"{count / min_seconds(bins) / 1e6:.3f}",
                f"{min_seconds(bins) / min_seconds(swept):.1f}",
            )
            for (swept, bins), count in zip(
                compared.values(), (setting.packets(300_000), 20_000 if setting.quick else 150_000), strict=True
            )
        ],
    )
    plain, by_two = forms["each row"], forms["each row, by two groups"]
    full = not setting.quick
    report.add_information("100 000 open bins, one core, M rows/s", f"{rows / min_seconds(plain) / 1e6:.3g}")
    slowest = max(min_seconds(forms[name]) for name in WINDOW_FORMS)
    report.add_criterion("rows/s, the slowest of the forms / each row", min_seconds(plain) / slowest, ">= 0.4", full)
    report.add_criterion(
        "open bins of each form, the fewest", min(form[0].open_bins for form in forms.values()), ">= 100000", full
    )
    swept, bins = compared[FEW]
    report.add_criterion(
        "tuples/s, sweep / bins, 1 000 open bins", min_seconds(bins) / min_seconds(swept), ">= 1", full
    )
    swept, bins = compared[MANY]
    report.add_criterion(
        "tuples/s, sweep / bins, 100 000 open bins", min_seconds(bins) / min_seconds(swept), ">= 50", full
    )
    report.add_criterion(
        "bytes beside the key of an open row, one count", by_two[0].bytes / by_two[0].open_rows, "<= 64", full
    )
    return report
