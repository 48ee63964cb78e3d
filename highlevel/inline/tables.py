"""Arrow tables as streams: their columns, their rows as a node of a plan, and the run of a plan over them.

    table ──► batches in the order of the table ──► Pipeline ──► rows of final windows

In the plan a table is a source (`Leaf`) that returns rows, not partials. Its time column is returned as the column
`pane`. The watermark before a batch is the smallest time in this batch and all later batches. So no row is late, and
windows close early if the table is sorted.
"""

from __future__ import annotations

import heapq
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.lazy_dataclasses import dataclass
from capture.metrics import Samples
from highlevel.aggregation import Output
from highlevel.plan.nodes import PANE, Apply, Leaf, Node, TimeOutput
from highlevel.plan.pipeline import Pipeline
from highlevel.plan.plan import Plan
from highlevel.results.user_types import pack_addresses
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.kinds import KINDS, TABLE, row_kind_of
from lowlevel.node.node_watchlists import find_watched_files
from lowlevel.plan import ARROW_TYPES, Key, LowLevelPlan
from lowlevel.punctuation import BEGINNING, END, GraphItem, Punctuation
from lowlevel.watch.watched_file import Watchlists

EndCallback = Callable[[Samples], None]
"""Called with the counters at the end of a run."""

BATCH_ROWS = 1 << 16
"""Maximum number of rows of a batch. A window can close after every batch."""

PACKED_TYPES = (Type.ADDRESS, Type.MAC)
"""Types that are text in tables of users and bytes in queries."""

RESERVED_COLUMNS = {"ts": Type.TIME, "link": Type.TEXT}
"""Column names with a fixed meaning in queries, and the types that these columns must have."""


@dataclass(frozen=True)
class Stream(ABC):
    """Rows with the internal types of queries.

    `times`: the columns over which windows are possible, the default first.
    """

    name: str
    columns: tuple[Column, ...]
    times: tuple[str, ...]

    def node(self, time: str | None) -> Node:
        """Return the plan node that reads the rows. Its watermarks are for `time`, by default the first of `times`."""
        time = time or next(iter(self.times), "")
        columns = [(each.name, replace(each, name=f"{TABLE}.{each.name}")) for each in self.columns]
        keys = tuple(Key(column.name, column) for _, column in columns)
        leaf = Leaf(self.name, (self.name, time), LowLevelPlan(None, keys, (), 1, kind=TABLE, reduced=False))
        outputs = tuple(Output(name, column) for name, column in columns)
        return Apply(leaf, outputs, (TimeOutput(time, PANE),) if time else ())

    @abstractmethod
    def check(self) -> None:
        """Raise InputError for an input that cannot be read."""

    @abstractmethod
    def batches(self, leaf: Leaf) -> Iterator[tuple[int, pa.RecordBatch, int]]:
        """Yield the rows of a leaf in batches: the watermark before the batch, the batch, the watermark after it."""


@dataclass(frozen=True)
class TableStream(Stream):
    """A table in memory."""

    table: pa.Table

    @classmethod
    def read(cls, name: str, frame: Any) -> TableStream:
        """Convert a table, or an object with the Arrow PyCapsule interface, such as a frame of pandas or Polars.

        Timestamps and dates are times, in UTC if they have no time zone. Times without NULL can have windows. Text in a
        column with the name of an address or MAC column (`srcIP`) becomes an address. Columns of types that queries do
        not support are omitted. Raises ValueError for an object that is not a table, for two names that differ only in
        case, for names that begin with a dot, for values that cannot be converted, and if no column remains.
        """
        try:
            table = arrow_table(frame)
        except pa.ArrowInvalid as error:
            raise ValueError(f"{name}: got {type(frame).__name__}, expected a table with named columns") from error
        columns: list[Column] = []
        arrays = []
        for field, values in zip(table.schema, table.columns, strict=True):
            kind = type_of(field.name, values.type)
            if kind is None:
                continue
            if RESERVED_COLUMNS.get(field.name.lower(), kind) is not kind:
                expected = RESERVED_COLUMNS[field.name.lower()]
                raise ValueError(f"column {field.name}: got {values.type}, expected a {expected}; rename or convert it")
            if field.name.startswith("."):
                raise ValueError(f"column {field.name}: got a name that begins with a dot; rename the column")
            if any(field.name.lower() == other.name.lower() for other in columns):
                raise ValueError(f"column {field.name}: got two columns with this name (case is ignored); rename one")
            columns.append(Column(field.name, kind, nullable=values.null_count > 0))
            arrays.append(convert_column(field.name, values, kind))
        if not columns:
            raise ValueError(f"got a table with the columns {table.schema.names}, expected numbers, times or text")
        times = [column.name for column in columns if column.type is Type.TIME and not column.nullable]
        times.sort(key=lambda time: time.lower() != "ts")
        table = pa.table(arrays, [column.name for column in columns])
        return cls(name, tuple(columns), tuple(times), table)

    def check(self) -> None:
        """Do nothing, because `read` has checked the table."""

    def batches(self, leaf: Leaf) -> Iterator[tuple[int, pa.RecordBatch, int]]:
        """Yield the rows of a leaf in batches: the watermark before the batch, the batch, the watermark after it."""
        time = leaf.streams[1]
        batches = [rows_of_leaf(leaf, batch) for batch in self.table.to_batches(BATCH_ROWS)]
        smallest = [pc.min(batch["pane"]).as_py() if time and batch.num_rows else BEGINNING for batch in batches]
        watermarks = np.minimum.accumulate(np.array(smallest, np.int64)[::-1])[::-1].tolist()
        yield from zip(watermarks, batches, [*watermarks[1:], END], strict=False)


def arrow_table(frame: Any) -> pa.Table:
    """Convert an object with the Arrow PyCapsule interface. The rows of a Spark DataFrame are collected.

    The interface of Spark 4.3 raises an AssertionError for timestamps, so its method `toArrow` is preferred.
    """
    if isinstance(frame, pa.Table):
        return frame
    return frame.toArrow() if hasattr(frame, "toArrow") else pa.table(frame)


def rows_of_leaf(leaf: Leaf, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a stream as rows of its leaf: `link`, which is NULL, the time as `pane`, and the columns."""
    time = leaf.streams[1]
    pane = rows[time] if time else pa.array(np.zeros(rows.num_rows, np.int64))
    arrays = [pa.nulls(rows.num_rows, pa.string()), pane, *rows.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=leaf.low.schema)


def run_tables(
    plan: Plan, tables: Mapping[str, Stream], on_end: EndCallback | None = None
) -> Generator[pa.RecordBatch, None, None]:
    """Run a plan over the tables of its leaves (by name in lower case), and yield rows of final windows.

    `on_end` is called with the counters at the end.
    """
    watchlists = Watchlists()
    watchlists.read(find_watched_files((plan,)))
    names = [leaf.streams[0] for leaf in plan.leaves]
    pipeline = Pipeline(plan, [[name] for name in names], watchlists=watchlists)
    for item in _run_together(pipeline, [tables[name.lower()] for name in names]):
        if isinstance(item, pa.RecordBatch):
            yield item
        elif plan.ends_early and isinstance(item, Punctuation) and item.watermark == END:
            break
    if on_end is not None:
        on_end(pipeline.samples(BEGINNING))


def _run_together(pipeline: Pipeline, tables: Sequence[Stream]) -> Iterator[GraphItem]:
    """Yield the results and watermarks of a plan. The tables advance together."""
    feeds = [
        zip(itertools.repeat(port), _until_end(table.batches(leaf)))
        for port, (table, leaf) in enumerate(zip(tables, pipeline.plan.leaves, strict=True))
    ]
    newest = [BEGINNING] * len(tables)
    for port, (before, batch, after) in heapq.merge(*feeds, key=lambda fed: fed[1][0]):
        if before > newest[port]:
            yield from pipeline.punctuate(port, Punctuation(tables[port].name, before))
        if batch is not None:
            yield from pipeline.process_rows(port, batch)
        if after > max(before, newest[port]):
            yield from pipeline.punctuate(port, Punctuation(tables[port].name, after))
        newest[port] = max(before, after)


def _until_end(batches: Iterator[tuple[int, pa.RecordBatch, int]]) -> Iterator[tuple[int, pa.RecordBatch | None, int]]:
    """Yield batches with their watermarks, then None for the end of the stream, with the last watermark and END."""
    last = BEGINNING
    for before, batch, after in batches:
        yield before, batch, after
        last = max(before, after)
    yield last, None, END


def type_of(name: str, arrow_type: pa.DataType) -> Type | None:
    """Return the type of a column in queries, None if no type fits."""
    if pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    if any(is_text(arrow_type) for is_text in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)):
        columns = (row_kind_of(kind).column(name) for kind in KINDS)
        return next((column.type for column in columns if column and column.type in PACKED_TYPES), Type.TEXT)
    tests = {
        pa.types.is_boolean: Type.BOOL,
        pa.types.is_integer: Type.INT,
        pa.types.is_floating: Type.FLOAT,
        pa.types.is_timestamp: Type.TIME,
        pa.types.is_date: Type.TIME,
    }
    return next((kind for test, kind in tests.items() if test(arrow_type)), None)


def convert_column(name: str, values: pa.ChunkedArray, column_type: Type) -> pa.ChunkedArray:
    """Convert a column to the internal values of its type. Raises ValueError for a value that does not fit."""
    try:
        if column_type in PACKED_TYPES:
            return pa.chunked_array([pack_addresses(values.cast(pa.string()))])
        if column_type is Type.TIME:
            zone = values.type.tz if pa.types.is_timestamp(values.type) else None
            values = values.cast(pa.timestamp("ns", zone))
        return values.cast(ARROW_TYPES[column_type])
    except (OSError, ValueError) as error:
        advice = f"convert the values to {column_type}, or rename the column if its name means this type"
        raise ValueError(f"column {name}: got a value that is no {column_type}: {error}; {advice}") from error
