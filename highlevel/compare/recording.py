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
from lowlevel.rows.readers import Rows, make_reader
from lowlevel.table.reducer import QueryRows

ROW = ".row"
"""Column with the position of a row in its recording."""


@dataclass(frozen=True)
class NumberedRows:
    """Rows with their positions in the input."""

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


class NumberedColumns(Mapping[str, AnyVector]):
    """The columns of rows, and ROW."""

    def __init__(self, columns: Columns, first: int, count: int) -> None:
        """Number rows from `first` on."""
        self._columns = columns
        self._places = Vector(np.arange(first, first + count))

    def __getitem__(self, name: str) -> AnyVector:
        return self._places if name == ROW else self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._columns, ROW])

    def __len__(self) -> int:
        return len(self._columns) + 1


Numbers = npt.NDArray[np.int64]

LIMIT = 20_000_000
"""Default limit of rows in memory; a packet with an address needs about 100 bytes."""


@dataclass(frozen=True)
class Recording:
    """Rows of one kind of one input, in file order, with their times and arrival times.

    The arrival is by the link's clock: the recorded arrival if the format contains it, otherwise the largest time so
    far. `kept` are the rows of each leaf of the input, with their positions in `times`.
    """

    link: str
    times: Numbers
    arrivals: Numbers
    kept: Mapping[int, tuple[pa.RecordBatch, Numbers]]


def record(
    leaves: Sequence[Leaf],
    inputs: Sequence[Input],
    limit: int = LIMIT,
    progress: Callable[[int, int], None] | None = None,
) -> list[Recording]:
    """Read every input once for each kind of rows of its leaves.

    `progress` is called with (bytes done, bytes in total). Raise InputError for a live input, for a file that is no
    capture, and for more than `limit` rows.
    """
    recordings: list[Recording] = []
    rows = done = 0
    captures = [(each, open_finite(each.path, "compare")) for each in inputs]
    sizes = [size_of(capture) for _, capture in captures]
    for number, (each, capture) in enumerate(captures):
        fed = [(place, leaf) for place, leaf in enumerate(leaves) if each.feeds(leaf)]
        for kind in dict.fromkeys(leaf.low.kind for _, leaf in fed):
            asked = [(place, leaf.low) for place, leaf in fed if leaf.low.kind == kind]
            taking = _Taking(each.link, asked)
            reader = make_reader(kind, each.link, capture, taking.columns, BLOCK_RECORDS, asked[0][1].sampling)
            for block in blocks_of(capture):
                for part in reader.read(block):
                    taking.take(part)
                if rows + taking.count > limit:
                    raise InputError(
                        f"{each.name}: more than {limit:,} rows, all stored in memory; raise --limit, or use less input"
                    )
                if progress is not None:
                    progress(min(done + block.end, sum(sizes)), sum(sizes))
            rows += taking.count
            recordings.append(taking.recording())
        done += sizes[number]
    return united(recordings)


def united(recordings: Sequence[Recording]) -> list[Recording]:
    """Join the recordings of one link and kind, for example hourly files of a link, to one recording.

    Otherwise the link would have no watermark before its last file begins.
    """
    of_link: dict[tuple[str, tuple[int, ...]], list[Recording]] = {}
    for each in recordings:
        of_link.setdefault((each.link, tuple(each.kept)), []).append(each)
    return [parts[0] if len(parts) == 1 else _one_after_another(parts) for parts in of_link.values()]


def _one_after_another(parts: Sequence[Recording]) -> Recording:
    arrivals = np.concatenate([each.arrivals for each in parts])
    order = np.argsort(arrivals, kind="stable")
    became = np.empty(len(order), np.int64)
    became[order] = np.arange(len(order))
    firsts = np.cumsum([0, *(len(each.times) for each in parts)])
    kept = {}
    for leaf in parts[0].kept:
        rows = pa.concat_batches([each.kept[leaf][0] for each in parts])
        places = np.concatenate([each.kept[leaf][1] + first for each, first in zip(parts, firsts, strict=False)])
        moved = np.argsort(became[places], kind="stable")
        kept[leaf] = (rows.take(pa.array(moved)), became[places][moved])
    times = np.concatenate([each.times for each in parts])
    return Recording(parts[0].link, times[order], arrivals[order], kept)


class _Taking:
    """Records the rows of one input for its leaves."""

    def __init__(self, link: str, asked: Sequence[tuple[int, LowLevelPlan]]) -> None:
        self.link = link
        key = Key(ROW, Column(ROW, Type.INT))
        self.columns = {name for _, low in asked for name in low.columns} | {"ts"}
        self.nodes = {place: QueryRows(link, replace(low, keys=(*low.keys, key))) for place, low in asked}
        self.batches: dict[int, list[pa.RecordBatch]] = {place: [] for place, _ in asked}
        self.times: list[Numbers] = []
        self.arrivals: list[Numbers] = []
        self.count = 0

    def take(self, rows: Rows) -> None:
        if rows.count == 0:
            return
        times = rows.columns["ts"]
        assert isinstance(times, Vector)
        placed = NumberedRows(rows, NumberedColumns(rows.columns, self.count, rows.count))
        for place, node in self.nodes.items():
            self.batches[place] += node.add(placed)
        self.times.append(times.data.copy())
        self.arrivals.append((times.data if rows.arrivals is None else rows.arrivals).copy())
        self.count += rows.count

    def recording(self) -> Recording:
        nothing = [np.empty(0, np.int64)]
        arrivals = np.concatenate(self.arrivals or nothing)
        arrivals = np.maximum.accumulate(arrivals) if len(arrivals) else arrivals
        kept = {}
        for place, node in self.nodes.items():
            table = pa.Table.from_batches(self.batches.pop(place), node.plan.schema).combine_chunks()
            batch = pa.RecordBatch.from_arrays(
                [_one(column) for column in table.columns], schema=table.schema.remove_metadata()
            )
            kept[place] = (batch.drop_columns([ROW]), batch.column(ROW).to_numpy())
        return Recording(self.link, np.concatenate(self.times or nothing), arrivals, kept)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([*column.chunks, pa.array([], column.type)])


def blocks_of(capture: AnyCapture) -> Iterator[Block]:
    """Yield the blocks of records of a finite capture, in their order."""
    if isinstance(capture, Capture):
        yield from scan(capture).blocks
    else:
        yield from (block for block in capture.blocks() if block is not None)


def size_of(capture: AnyCapture) -> int:
    """Return the bytes of a capture; 0 if unknown."""
    return len(capture.data) if isinstance(capture, Capture) else capture.size


def first_arrival(recordings: Sequence[Recording]) -> int:
    """Return the arrival of the first row of any link, BEGINNING without rows."""
    return min((int(each.arrivals[0]) for each in recordings if len(each.arrivals)), default=BEGINNING)
