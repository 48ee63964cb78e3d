"""Joins over windows: OA-Join as rows come, against Arrow's hash join of all rows at once, on one core.

Each side has half a million rows per second, up to 50 ms late, in batches of 16,384. After each batch there is the
watermark that a file gives. A tenth of the rows of a side have a partner. Windows of a second to either side hold a
million rows. The measured rows arrive when the window is full. Arrow has all rows of both sides in memory, joins them
by the keys alone, and filters by the window. The dictionary is Python's, with lists of rows, over fewer of them. All
figures are the least processor time of several runs, by turns.
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
from bench.undisturbed import step
from capture.units import SECOND
from highlevel.joins.oa_join import OAJoin
from highlevel.joins.spec import Band, JoinKind, JoinSpec, Side, Tumbling, WatermarkForm
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.punctuation import END, Punctuation

RATE = 500_000
LATE = SECOND // 20
BATCH = 16_384
FILL = 50 * BATCH
"""Rows of each side that come before the clock starts: 1.6 seconds."""

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
"""Rows of each side that Python's dictionary is given."""


def addresses(values: np.ndarray) -> pa.Array:
    """IPv4 addresses."""
    data = values.astype(">u4")
    offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(4)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def side_rows(rows: int, side: int) -> pa.RecordBatch:
    """Return rows of connections, each with one row. Those of PARTNERS are rows of the other side too."""
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


def lows(batch: pa.RecordBatch) -> list[int]:
    """Return the watermark after each batch: the smallest time of all later rows."""
    least = np.minimum.accumulate(batch.column("ts").to_numpy()[::-1])[::-1]
    return [int(least[end]) if end < len(least) else END for end in range(BATCH, len(least) + BATCH, BATCH)]


@dataclass(frozen=True)
class Form:
    """A join: its window, the columns that are equal, and the kind."""

    window: Band | Tumbling
    keys: tuple[str, ...] = (*ADDRESSES, *PORTS)
    kind: JoinKind = JoinKind.INNER

    @property
    def spec(self) -> JoinSpec:
        """Every column of both sides leaves."""
        sides = [Side(SCHEMA, "ts", tuple((name, f"{prefix}_{name}") for name in SCHEMA.names)) for prefix in "lr"]
        columns = [Column(name, Type.ADDRESS if name in ADDRESSES else Type.INT) for name in self.keys]
        return JoinSpec(sides[0], sides[1], self.window, tuple((each, each) for each in columns), None, self.kind)


NEAR = Band(SECOND, SECOND)
FORMS = {
    "addresses and ports": Form(NEAR),
    "addresses and ports, FULL": Form(NEAR, kind=JoinKind.FULL),
    "addresses and ports, SEMI": Form(NEAR, kind=JoinKind.SEMI),
    "addresses and ports, tumbling seconds": Form(Tumbling(SECOND)),
    "one address": Form(NEAR, ADDRESSES[:1]),
    "no key, 1 µs to either side": Form(Band(1000, 1000), ()),
    "one of 1,000 ports, 1 ms to either side": Form(Band(SECOND // 1000, SECOND // 1000), PORTS[1:]),
}


@dataclass(frozen=True)
class Ran:
    """Processor seconds for `rows` of both sides, results of the whole input, the most rows held, and their bytes."""

    seconds: float
    rows: int
    results: int
    held: int
    bytes: int


def joined(form: Form, inputs: list[pa.RecordBatch], promises: list[list[int]]) -> Ran:
    """Run the operator; the clock runs from FILL on."""
    operator = OAJoin(form.spec, WatermarkForm.LEFT)
    found = [0, 0, 0]

    def feed(first: int, end: int) -> None:
        for begin in range(first, end, BATCH):
            for port, batch in enumerate(inputs):
                for _ in operator.rows(port, batch.slice(begin, BATCH)):
                    pass
            if operator.rows_held > found[0]:
                found[:2] = operator.rows_held, operator.bytes
            for port, lows in enumerate(promises):
                for _ in operator.punctuate(port, Punctuation("link", lows[begin // BATCH])):
                    pass

    rows = inputs[0].num_rows
    fill = min(FILL, rows // 2 // BATCH * BATCH)
    feed(0, fill)
    seconds = step(lambda: feed(fill, rows)).processor
    if operator.rows_held or operator.late:
        raise RuntimeError(f"a join that has ended holds {operator.rows_held} rows; {operator.late} were late")
    return Ran(seconds, 2 * (rows - fill), operator.results, found[0], found[1])


def by_arrow(form: Form, inputs: list[pa.RecordBatch]) -> Ran:
    """Join all rows with Arrow, in one thread, and keep those in the window."""
    tables = [pa.Table.from_batches([batch]) for batch in inputs]
    found = [0]

    def once() -> None:
        pairs = tables[0].join(tables[1], list(form.keys), join_type="inner", right_suffix="_r", use_threads=False)
        apart = pc.abs(pc.subtract(pairs["ts_r"], pairs["ts"]))
        assert isinstance(form.window, Band)
        found[0] = pairs.filter(pc.less_equal(apart, form.window.left_range)).num_rows

    return Ran(step(once).processor, 2 * inputs[0].num_rows, found[0], 0, 0)


def by_dictionary(form: Form, inputs: list[pa.RecordBatch], promises: list[list[int]]) -> Ran:
    """Join with a dictionary of lists for each side, row by row, and a queue by which rows go."""
    assert isinstance(form.window, Band)
    reach = form.window.left_range
    rows = [
        list(zip(*(batch.column(name).to_pylist() for name in batch.schema.names), strict=True)) for batch in inputs
    ]
    places = [SCHEMA.names.index(name) for name in form.keys]
    found = [0]

    def once() -> None:
        held: list[dict[tuple, list[tuple]]] = [defaultdict(list), defaultdict(list)]
        queues: list[deque[tuple[tuple, tuple]]] = [deque(), deque()]
        pairs = []
        for begin in range(0, len(rows[0]), BATCH):
            for port in range(2):
                for row in rows[port][begin : begin + BATCH]:
                    key = tuple(row[place] for place in places)
                    near = held[1 - port].get(key, ())
                    pairs += [row + other for other in near if abs(other[0] - row[0]) <= reach]
                    held[port][key].append(row)
                    queues[port].append((key, row))
            for port in range(2):
                low = promises[1 - port][begin // BATCH] - reach - LATE
                while queues[port] and queues[port][0][1][0] < low:
                    key, row = queues[port].popleft()
                    held[port][key].remove(row)
                    if not held[port][key]:
                        del held[port][key]
            found[0] += len(pairs)
            pairs.clear()

    return Ran(step(once).processor, 2 * len(rows[0]), found[0], 0, 0)


@dataclass(frozen=True)
class Measured:
    """Each form's runs, Arrow's and the dictionary's, and the Arrow bytes of a row."""

    forms: dict[str, list[Ran]]
    arrow: list[Ran]
    dictionary: list[Ran]
    row_bytes: float


def measure(rows: int, runs: int) -> Measured:
    """Run all by turns over the same rows. Answers are compared."""
    inputs = [side_rows(rows, side) for side in range(2)]
    promises = [lows(batch) for batch in inputs]
    few = [batch.slice(0, min(rows, DICTIONARY)) for batch in inputs]
    few_promises = [lows(batch) for batch in few]
    plain = next(iter(FORMS.values()))
    found: dict[str, list[Ran]] = {name: [] for name in FORMS}
    arrow, dictionary = [], []
    for _ in range(runs):
        for name, form in FORMS.items():
            found[name].append(joined(form, inputs, promises))
        arrow.append(by_arrow(plain, inputs))
        dictionary.append(by_dictionary(plain, few, few_promises))
    same(found["addresses and ports"][0].results, arrow[0].results)
    same(joined(plain, few, few_promises).results, dictionary[0].results)
    return Measured(found, arrow, dictionary, inputs[0].nbytes / rows)


def same(one: int, other: int) -> None:
    """Raise an error if two join methods give different numbers of pairs."""
    if one != other:
        raise RuntimeError(f"OA-Join finds {one} pairs, the other way {other}")


def rate(runs: list[Ran]) -> float:
    """Million input rows a second of the fastest run."""
    return max(run.rows / run.seconds for run in runs) / 1e6


def run(setting: Setting) -> Report:
    """Measure the forms, Arrow and the dictionary."""
    rows, runs = setting.packets(2_500_000), setting.runs(3)
    measured: Measured = on_one_core(measure, rows, runs)
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
    ways: dict[str, Callable[[], list[Ran]]] = {
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
    report.inform("a tenth with partners, 1 M rows held, one core, M input rows/s", f"{rate(plain):.3g}")
    report.require("rows held, addresses and ports", plain[0].held, ">= 1000000", full)
    most = max(memory(found, measured) for found in measured.forms.values())
    report.require("memory / Arrow bytes of the rows held, the most", most, "<= 2", full)
    against = rate(plain) / rate(measured.arrow)
    report.require("input rows/s, OA-Join / Arrow's hash join of all at once", against, ">= 0.5", full)
    slow = rate(plain) / rate(measured.dictionary)
    report.require("input rows/s, OA-Join / Python's dictionary", slow, ">= 3", full)
    return report


def memory(runs: list[Ran], measured: Measured) -> float:
    """Return the bytes of the state, as a share of the bytes of its rows in Arrow."""
    return runs[0].bytes / max(1, runs[0].held) / measured.row_bytes
