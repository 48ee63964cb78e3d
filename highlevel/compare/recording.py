"""The rows that a query's leaves read, recorded once after the low level, with their arrival times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture.errors import InputError
from capture.files.blocks import BLOCK_RECORDS, Block
from capture.files.capture import AnyCapture, Capture
from capture.files.scan import scan
from capture.lazy_dataclasses import dataclass
from capture.open import open_finite
from highlevel.inline.engine import Input
from highlevel.plan.nodes import Leaf
from lowlevel.expressions.columns import AnyVector, Columns, Vector
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.plan import Key, LowLevelPlan
from lowlevel.punctuation import BEGINNING
from lowlevel.rows.readers import Exports, Rows, make_reader
from lowlevel.table.reducer import QueryRows

ROW_COLUMN = ".row"
"""Name of the column with the index of a row in its recording."""


@dataclass(frozen=True)
class NumberedRows:
    """Rows, and their indexes in the input."""

    rows: Rows
    columns: Columns

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.rows.count

    @property
    def earliest(self) -> int:
        """Lower bound of all ts, in ns."""
        return self.rows.earliest

    @property
    def arrivals(self) -> npt.NDArray[np.int64] | None:
        """Recorded arrival times of the rows, or None."""
        return self.rows.arrivals

    @property
    def exports(self) -> Exports | None:
        """The exports that contained the rows, or None."""
        return self.rows.exports


class NumberedColumns(Mapping[str, AnyVector]):
    """The columns of rows, and the column ROW."""

    def __init__(self, columns: Columns, first: int, count: int) -> None:
        """`first`: the index of the first of `count` rows."""
        self._columns = columns
        self._positions = Vector(np.arange(first, first + count))

    def __getitem__(self, name: str) -> AnyVector:
        return self._positions if name == ROW_COLUMN else self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._columns, ROW_COLUMN])

    def __len__(self) -> int:
        return len(self._columns) + 1


Numbers = npt.NDArray[np.int64]

DEFAULT_LIMIT = 20_000_000
"""Default maximum number of rows in memory. A packet with an address needs about 100 bytes."""


@dataclass(frozen=True)
class Recording:
    """Rows of one kind (packets, flows) of one input, in file order, with their times and arrival times in ns.

    The arrival time is the recorded one if the format contains it, otherwise the largest time so far. `leaf_rows`: by
    leaf number, the selected rows and their indexes in `times`.
    """

    link: str
    times: Numbers
    arrivals: Numbers
    leaf_rows: Mapping[int, tuple[pa.RecordBatch, Numbers]]


def record(
    leaves: Sequence[Leaf],
    inputs: Sequence[Input],
    limit: int = DEFAULT_LIMIT,
    progress: Callable[[int, int], None] | None = None,
) -> list[Recording]:
    """Read every input once for each kind of rows of its leaves.

    `progress` is called with (bytes read so far, bytes in total). Raise InputError for a live input, for a file that is
    not a capture, and for more than `limit` rows.
    """
    recordings: list[Recording] = []
    rows = finished_bytes = 0
    captures = [(source, open_finite(source.path, "compare")) for source in inputs]
    sizes = [size_of(capture) for _, capture in captures]
    for index, (source, capture) in enumerate(captures):
        input_leaves = [(leaf_number, leaf) for leaf_number, leaf in enumerate(leaves) if source.feeds(leaf)]
        for kind in dict.fromkeys(leaf.low.kind for _, leaf in input_leaves):
            plans = [(leaf_number, leaf.low) for leaf_number, leaf in input_leaves if leaf.low.kind == kind]
            recorder = _Recorder(source.link, plans)
            reader = make_reader(kind, source.link, capture, recorder.columns, BLOCK_RECORDS, plans[0][1].sampling)
            name, blocks = source.name, blocks_of(capture)
            for block in blocks:
                for part in reader.read(block):
                    recorder.add(part)
                if rows + recorder.count > limit:
                    raise InputError(
                        f"{name}: more than {limit:,} rows, all stored in memory; raise --limit, or use less input"
                    )
                if progress is not None:
                    progress(min(finished_bytes + block.end, sum(sizes)), sum(sizes))
            rows += recorder.count
            recordings.append(recorder.recording())
        finished_bytes += sizes[index]
    return join_recordings(recordings)


def join_recordings(recordings: Sequence[Recording]) -> list[Recording]:
    """Return one recording for each link and kind of rows, even if a link has several files.

    With one recording per file, the link would have no watermark before its last file begins.
    """
    groups: dict[tuple[str, tuple[int, ...]], list[Recording]] = {}
    for recording in recordings:
        groups.setdefault((recording.link, tuple(recording.leaf_rows)), []).append(recording)
    return [parts[0] if len(parts) == 1 else _concatenate(parts) for parts in groups.values()]


def _concatenate(recordings: Sequence[Recording]) -> Recording:
    """Return one recording in the order of arrivals."""
    arrivals = np.concatenate([part.arrivals for part in recordings])
    order = np.argsort(arrivals, kind="stable")
    new_positions = np.empty(len(order), np.int64)
    new_positions[order] = np.arange(len(order))
    starts = np.cumsum([0, *(len(part.times) for part in recordings)])
    leaf_rows = {}
    for leaf in recordings[0].leaf_rows:
        rows = pa.concat_batches([part.leaf_rows[leaf][0] for part in recordings])
        pairs = zip(recordings, starts, strict=False)
        positions = new_positions[np.concatenate([part.leaf_rows[leaf][1] + start for part, start in pairs])]
        row_order = np.argsort(positions, kind="stable")
        leaf_rows[leaf] = (rows.take(pa.array(row_order)), positions[row_order])
    times = np.concatenate([part.times for part in recordings])
    return Recording(recordings[0].link, times[order], arrivals[order], leaf_rows)


class _Recorder:
    """Records the rows of one input for its leaves. `plans`: pairs of leaf number and low-level plan."""

    def __init__(self, link: str, plans: Sequence[tuple[int, LowLevelPlan]]) -> None:
        self.link = link
        key = Key(ROW_COLUMN, Column(ROW_COLUMN, Type.INT))
        self.columns = {name for _, plan in plans for name in plan.columns} | {"ts"}
        self.nodes = {leaf: QueryRows(link, replace(plan, keys=(*plan.keys, key))) for leaf, plan in plans}
        self.batches: dict[int, list[pa.RecordBatch]] = {leaf: [] for leaf, _ in plans}
        self.times: list[Numbers] = []
        self.arrivals: list[Numbers] = []
        self.count = 0

    def add(self, rows: Rows) -> None:
        if rows.count == 0:
            return
        times = rows.columns["ts"]
        assert isinstance(times, Vector)
        numbered_rows = NumberedRows(rows, NumberedColumns(rows.columns, self.count, rows.count))
        for leaf, node in self.nodes.items():
            self.batches[leaf] += node.add(numbered_rows)
        self.times.append(times.data.copy())
        self.arrivals.append((times.data if rows.arrivals is None else rows.arrivals).copy())
        self.count += rows.count

    def recording(self) -> Recording:
        no_rows = [np.empty(0, np.int64)]
        arrivals = np.concatenate(self.arrivals or no_rows)
        arrivals = np.maximum.accumulate(arrivals) if len(arrivals) else arrivals
        leaf_rows = {}
        for leaf, node in self.nodes.items():
            table = pa.Table.from_batches(self.batches.pop(leaf), node.plan.schema).combine_chunks()
            batch = pa.RecordBatch.from_arrays(
                [_as_array(column) for column in table.columns], schema=table.schema.remove_metadata()
            )
            leaf_rows[leaf] = (batch.drop_columns([ROW_COLUMN]), batch.column(ROW_COLUMN).to_numpy())
        return Recording(self.link, np.concatenate(self.times or no_rows), arrivals, leaf_rows)


def _as_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([*column.chunks, pa.array([], column.type)])


def blocks_of(capture: AnyCapture) -> Iterator[Block]:
    """Yield the blocks of records of a finite capture, in their order."""
    if isinstance(capture, Capture):
        yield from scan(capture).blocks
    else:
        yield from (block for block in capture.blocks() if block is not None)


def size_of(capture: AnyCapture) -> int:
    """Return the size of a capture in bytes; 0 if unknown."""
    return len(capture.data) if isinstance(capture, Capture) else capture.size


def first_arrival(recordings: Sequence[Recording]) -> int:
    """Return the arrival of the first row of any link, BEGINNING without rows."""
    return min((int(recording.arrivals[0]) for recording in recordings if len(recording.arrivals)), default=BEGINNING)
