"""Joins over windows on one core: OA-Join while rows arrive, compared with Arrow's hash join of all rows at once.

Each side has half a million rows per second, up to 50 ms late, in batches of 16,384. The watermark of a file follows
each batch. A tenth of the rows of a side have a partner. Windows of a second to either side contain a million rows. The
measured rows arrive when the window is full. Arrow has all rows of both sides in memory, joins them by the keys only,
and filters by the window. The third method is a Python dictionary with lists of rows, over fewer rows. All figures are
the smallest CPU time of several runs. The methods take turns.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.one_core import on_one_core
from bench.report import Report
from bench.setting import Setting
from bench.undisturbed import time_step
from capture.units import SECOND
from highlevel.joins.oa_join import OAJoin
from highlevel.joins.spec import Band, JoinKind, JoinSpec, Side, Tumbling, WatermarkForm
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.punctuation import END, Punctuation

RATE = 500_000
LATE = SECOND // 20
BATCH = 16_384
FILL_ROWS = 50 * BATCH
"""Rows of each side before the measurement starts: 1.6 seconds."""

PARTNERS = 0.1
ADDRESSES = ("srcIP", "destIP")
PORTS = ("srcPort", "destPort")
SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        *((name, pa.binary()) for name in ADDRESSES),
        *((name, pa.int64()) for name in (*PORTS, "len")),
    ]
)
DICTIONARY = 200_000
"""Rows of each side for the Python dictionary."""


def addresses(values: np.ndarray) -> pa.Array:
    """Return IPv4 addresses."""
    data = values.astype(">u4")
    offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(4)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def side_rows(rows: int, side: int) -> pa.RecordBatch:
    """Return one row for each connection. The share PARTNERS of the connections is also on the other side."""
    random = np.random.default_rng(side)
    number = np.arange(rows)
    times = number * (SECOND // RATE) + random.integers(0, LATE, rows)
    shared = np.random.default_rng(9).random(rows) < PARTNERS
    connection = np.where(shared, number, number + (side + 1) * 2**40).astype(np.uint64)
    mixed = connection * np.uint64(0x9E3779B97F4A7C15)
    return pa.record_batch(
        [
            pa.array(times),
            addresses(mixed >> np.uint64(32)),
            addresses(mixed & np.uint64(0xFFFFFFFF)),
            pa.array((connection % np.uint64(60_000)).astype(np.int64)),
            pa.array((connection % np.uint64(1000)).astype(np.int64)),
            pa.array(random.integers(40, 1500, rows)),
        ],
        schema=SCHEMA,
    )


def watermarks_after(batch: pa.RecordBatch) -> list[int]:
    """Return the watermark after each batch: the smallest time of all later rows."""
    least = np.minimum.accumulate(batch.column("ts").to_numpy()[::-1])[::-1]
    return [int(least[end]) if end < len(least) else END for end in range(BATCH, len(least) + BATCH, BATCH)]


@dataclass(frozen=True)
class JoinForm:
    """A join: its window, the columns that are equal, and the kind."""

    window: Band | Tumbling
    keys: tuple[str, ...] = (*ADDRESSES, *PORTS)
    kind: JoinKind = JoinKind.INNER

    @property
    def spec(self) -> JoinSpec:
        """The specification of the join. The results have all columns of both sides."""
        sides = [Side(SCHEMA, "ts", tuple((name, f"{prefix}_{name}") for name in SCHEMA.names)) for prefix in "lr"]
        columns = [Column(name, Type.ADDRESS if name in ADDRESSES else Type.INT) for name in self.keys]
        return JoinSpec(sides[0], sides[1], self.window, tuple((column, column) for column in columns), None, self.kind)


NEAR = Band(SECOND, SECOND)
FORMS = {
    "addresses and ports": JoinForm(NEAR),
    "addresses and ports, FULL": JoinForm(NEAR, kind=JoinKind.FULL),
    "addresses and ports, SEMI": JoinForm(NEAR, kind=JoinKind.SEMI),
    "addresses and ports, tumbling seconds": JoinForm(Tumbling(SECOND)),
    "one address": JoinForm(NEAR, ADDRESSES[:1]),
    "no key, 1 µs to either side": JoinForm(Band(1000, 1000), ()),
    "one of 1,000 ports, 1 ms to either side": JoinForm(Band(SECOND // 1000, SECOND // 1000), PORTS[1:]),
}


@dataclass(frozen=True)
class OperatorRun:
    """CPU seconds for `rows` rows of both sides, results of the whole input, maximum stored rows, and their bytes."""

    seconds: float
    rows: int
    results: int
    held: int
    bytes: int


def run_operator(form: JoinForm, inputs: list[pa.RecordBatch], watermarks: list[list[int]]) -> OperatorRun:
    """Run the operator. The measurement starts after FILL rows."""
    operator = OAJoin(form.spec, WatermarkForm.LEFT)
    found = [0, 0, 0]

    def feed(first: int, end: int) -> None:
        for begin in range(first, end, BATCH):
            for port, batch in enumerate(inputs):
                for _ in operator.process_rows(port, batch.slice(begin, BATCH)):
                    pass
            if operator.rows_held > found[0]:
                found[:2] = operator.rows_held, operator.bytes
            for port, watermarks_after in enumerate(watermarks):
                for _ in operator.punctuate(port, Punctuation("link", watermarks_after[begin // BATCH])):
                    pass

    rows = inputs[0].num_rows
    fill = min(FILL_ROWS, rows // 2 // BATCH * BATCH)
    feed(0, fill)
    seconds = time_step(lambda: feed(fill, rows)).processor
    if operator.rows_held or operator.late:
        raise RuntimeError(f"a join that has ended holds {operator.rows_held} rows; {operator.late} were late")
    return OperatorRun(seconds, 2 * (rows - fill), operator.results, found[0], found[1])


def run_arrow(form: JoinForm, inputs: list[pa.RecordBatch]) -> OperatorRun:
    """Join all rows with Arrow in one thread, and keep the pairs in the window."""
    tables = [pa.Table.from_batches([batch]) for batch in inputs]
    found = [0]

    def once() -> None:
        pairs = tables[0].join(tables[1], list(form.keys), join_type="inner", right_suffix="_r", use_threads=False)
        apart = pc.abs(pc.subtract(pairs["ts_r"], pairs["ts"]))
        assert isinstance(form.window, Band)
        found[0] = pairs.filter(pc.less_equal(apart, form.window.left_range)).num_rows

    return OperatorRun(time_step(once).processor, 2 * inputs[0].num_rows, found[0], 0, 0)


def run_dictionary(form: JoinForm, inputs: list[pa.RecordBatch], watermarks: list[list[int]]) -> OperatorRun:
    """Join row by row, with a dictionary of lists for each side and a queue that removes old rows."""
    assert isinstance(form.window, Band)
    reach = form.window.left_range
    rows = [
        list(zip(*(batch.column(name).to_pylist() for name in batch.schema.names), strict=True)) for batch in inputs
    ]
    positions = [SCHEMA.names.index(name) for name in form.keys]
    found = [0]

    def once() -> None:
        held: list[dict[tuple, list[tuple]]] = [defaultdict(list), defaultdict(list)]
        queues: list[deque[tuple[tuple, tuple]]] = [deque(), deque()]
        pairs = []
        for begin in range(0, len(rows[0]), BATCH):
            for port in range(2):
                for row in rows[port][begin : begin + BATCH]:
                    key = tuple(row[position] for position in positions)
                    near = held[1 - port].get(key, ())
                    pairs += [row + other for other in near if abs(other[0] - row[0]) <= reach]
                    held[port][key].append(row)
                    queues[port].append((key, row))
            for port in range(2):
                low = watermarks[1 - port][begin // BATCH] - reach - LATE
                while queues[port] and queues[port][0][1][0] < low:
                    key, row = queues[port].popleft()
                    held[port][key].remove(row)
                    if not held[port][key]:
                        del held[port][key]
            found[0] += len(pairs)
            pairs.clear()

    return OperatorRun(time_step(once).processor, 2 * len(rows[0]), found[0], 0, 0)


@dataclass(frozen=True)
class Measurements:
    """The runs of each form, of Arrow and of the dictionary; and the bytes of a row in Arrow."""

    forms: dict[str, list[OperatorRun]]
    arrow: list[OperatorRun]
    dictionary: list[OperatorRun]
    row_bytes: float


def measure(rows: int, runs: int) -> Measurements:
    """Run all methods in turns over the same rows, and compare the answers."""
    inputs = [side_rows(rows, side) for side in range(2)]
    watermarks = [watermarks_after(batch) for batch in inputs]
    few = [batch.slice(0, min(rows, DICTIONARY)) for batch in inputs]
    few_watermarks = [watermarks_after(batch) for batch in few]
    plain = next(iter(FORMS.values()))
    found: dict[str, list[OperatorRun]] = {name: [] for name in FORMS}
    arrow, dictionary = [], []
    for _ in range(runs):
        for name, form in FORMS.items():
            found[name].append(run_operator(form, inputs, watermarks))
        arrow.append(run_arrow(plain, inputs))
        dictionary.append(run_dictionary(plain, few, few_watermarks))
    check_equal(found["addresses and ports"][0].results, arrow[0].results)
    check_equal(run_operator(plain, few, few_watermarks).results, dictionary[0].results)
    return Measurements(found, arrow, dictionary, inputs[0].nbytes / rows)


def check_equal(one: int, other: int) -> None:
    """Raise an error if two join methods give different numbers of pairs."""
    if one != other:
        raise RuntimeError(f"OA-Join found {one} pairs, the other method {other}")


def rate(runs: list[OperatorRun]) -> float:
    """Return million input rows per second of the fastest run."""
    return max(run.rows / run.seconds for run in runs) / 1e6


def run(setting: Setting) -> Report:
    """Measure the forms, Arrow and the dictionary."""
    rows, runs = setting.packets(2_500_000), setting.runs(3)
    measured: Measurements = on_one_core(measure, rows, runs)
    report = Report("join")
    report.table(
        f"{rows:,} rows of each side, batches of {BATCH:,}, {measured.row_bytes:.0f} Arrow bytes a row",
        ("equal", "M input rows/s", "results", "rows held", "bytes each", "of Arrow's"),
        [
            (
                name,
                f"{rate(found):.2f}",
                f"{found[0].results:,}",
                f"{found[0].held:,}",
                f"{found[0].bytes / max(1, found[0].held):.1f}",
                f"{memory(found, measured):.2f}",
            )
            for name, found in measured.forms.items()
        ],
    )
    plain = measured.forms["addresses and ports"]
    ways: dict[str, Callable[[], list[OperatorRun]]] = {
        "OA-Join, as rows come": lambda: plain,
        "Arrow's hash join, all rows at once": lambda: measured.arrow,
        "Python's dictionary, as rows come": lambda: measured.dictionary,
    }
    report.table(
        "addresses and ports, the same rows",
        ("way", "M input rows/s", "OA-Join / this"),
        [(name, f"{rate(way()):.3f}", f"{rate(plain) / rate(way()):.2f}") for name, way in ways.items()],
    )
    full = not setting.quick
    report.add_information("a tenth with partners, 1 M rows held, one core, M input rows/s", f"{rate(plain):.3g}")
    report.add_criterion("rows held, addresses and ports", plain[0].held, ">= 1000000", full)
    most = max(memory(found, measured) for found in measured.forms.values())
    report.add_criterion("memory / Arrow bytes of the rows held, the most", most, "<= 2", full)
    against = rate(plain) / rate(measured.arrow)
    report.add_criterion("input rows/s, OA-Join / Arrow's hash join of all at once", against, ">= 0.5", full)
    slow = rate(plain) / rate(measured.dictionary)
    report.add_criterion("input rows/s, OA-Join / Python's dictionary", slow, ">= 3", full)
    return report


def memory(runs: list[OperatorRun], measured: Measurements) -> float:
    """Return the bytes of the state, as a share of the bytes of its rows in Arrow."""
    return runs[0].bytes / max(1, runs[0].held) / measured.row_bytes
