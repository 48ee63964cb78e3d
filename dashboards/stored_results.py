"""Results of `wiretide run` as the tables of queries: the result files in a folder, or the stored windows of the page.

    state/                      a table for each query, all of its rows:   output/talkers/date=…/part-00000007.parquet
    state/history.sqlite        a table for each query, its newest windows

A table has the name of its query. `-s today=state` makes it `today.talkers`. A hyphen in a name may be written
as an underscore, because SQL would read `top-talkers` as a difference.

Rows are read window by window, in the order of time. So windows over them close early, and memory is bounded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from dashboards.page.stored_windows import StoredWindows
from dashboards.request import is_results
from dashboards.tables import Tables, tables_by_name
from highlevel.aggregation import BOUNDS
from highlevel.inline.table_files import Progress
from highlevel.inline.tables import BATCH_ROWS, Stream, convert_column, rows_of_leaf, type_of
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.nodes import Leaf, Node
from highlevel.results.stored_columns import COLUMNS_KEY, decode_columns, key_of_rows, times_of
from highlevel.results.stored_files import list_files, stored_batches
from highlevel.speculation.consistency import FINAL, WEIGHT
from lowlevel.expressions.tree import Column
from lowlevel.kinds import TABLE
from lowlevel.punctuation import BEGINNING

OUTPUT = "output"
"""The folder of the results in the folder of a run."""


def tables_of(files: Sequence[str], streams: Mapping[str, Sequence[str]]) -> Tables | None:
    """Return results of runs as tables; None if no input is a result.

    `streams`: inputs by the name before the dot in FROM.

    Raises InputError for results together with other inputs, for two tables with one name, and for results that cannot
    be read.
    """
    given = [(None, file) for file in files] + [(name, path) for name, paths in streams.items() for path in paths]
    others = [path for _, path in given if not is_results(path)]
    if len(others) == len(given):
        return None
    if others:
        results = next(path for _, path in given if path not in others)
        expected = "only results of `wiretide run`, or only captures"
        raise InputError(f"got {results}, which has results, together with {others[0]}; expected {expected}")
    progress: list[Progress] = []
    tables: dict[str, Stream] = {}
    for name, path in given:
        opened = open_results(Path(path), name, progress)
        if twice := tables.keys() & opened.keys():
            expected = "a name for each with -s, such as -s today=PATH: then FROM is today.NAME"
            raise InputError(f"{path}: got a second table {min(twice)}; expected {expected}")
        tables |= opened
    return Tables(tables, progress, stream_groups={name.lower() for name, _ in given if name is not None})


def open_results(path: Path, group: str | None, progress: list[Progress]) -> dict[str, Stream]:
    """Return the tables of a folder or a file by their names in lower case.

    With `group` the names begin with `group` and a dot.

    Raises InputError for results that cannot be read.
    """
    streams = _files_of(path, progress) if path.is_dir() else _windows_of(path)
    if group is not None:
        streams = [replace(stream, name=f"{group}.{stream.name}") for stream in streams]
    return tables_by_name(streams)


def _files_of(folder: Path, progress: list[Progress]) -> list[Stream]:
    streams: list[Stream] = []
    for query in sorted((folder / OUTPUT).glob("*/")):
        files = list_files(query)
        if files:
            streams.append(ResultFiles.make(unquote(query.name), files, progress))
    if not streams:
        raise InputError(f"{folder}: the run has no results yet")
    return streams


def _windows_of(path: Path) -> list[Stream]:
    stored = StoredWindows.open(path)
    return [
        StoredStream(query.name, query.columns, times_of(query.columns), stored, query.name)
        for query in stored.queries()
    ]


@dataclass(frozen=True)
class StoredStream(Stream):
    """The stored windows of `query`."""

    stored: StoredWindows
    query: str

    def check(self) -> None:
        """Do nothing, because the file was checked when it was opened."""

    def batches(self, leaf: Leaf) -> Iterator[tuple[int, pa.RecordBatch, int]]:
        """Yield the rows of a leaf in batches: the watermark before the batch, the batch, the watermark after it.

        Windows are read in the order of their ends. All windows of a query have one length, or one start.
        """
        time = leaf.streams[1]
        names = [column.name for column in self.columns]
        for window in self.stored.in_order(self.query):
            low = {WINDOW_START: window.start, WINDOW_END: window.end}.get(time)
            for batch in window.rows.select(names).to_batches():
                watermark = BEGINNING if low is None else low
                yield watermark, rows_of_leaf(leaf, batch), watermark


@dataclass(frozen=True)
class ResultFiles(Stream):
    """The result files of a query, by date, and in the order of their micro-batches."""

    files: tuple[Path, ...]
    progress: list[Progress]
    key: tuple[str, ...] = ()
    """The columns that identify a row. Empty if rows have no key, as in files of earlier versions."""

    @classmethod
    def make(cls, name: str, files: Sequence[Path], progress: list[Progress]) -> ResultFiles:
        """Return the files with the columns of the newest one. Raises InputError for a file that cannot be read.

        Files of earlier versions do not contain types. In such files, a text column with the name of an address column
        contains addresses.
        """
        with _convert_read_errors(files[-1]):
            schema = pq.read_schema(files[-1])
            stored = (schema.metadata or {}).get(COLUMNS_KEY)
            columns = decode_columns(stored) if stored is not None else _columns_by_name(schema)
        return cls(name, columns, times_of(columns), tuple(files), progress, key_of_rows(schema))

    def node(self, time: str | None) -> Node:
        """Return the plan node that reads the rows, with their key."""
        key = tuple(f"{TABLE}.{name}" for name in self.key)

        def add_key(node: Node) -> Node:
            return replace(node, key=key) if isinstance(node, Leaf) else node

        return super().node(time).transform(add_key)

    @property
    def has_changes(self) -> bool:
        """True if the rows are changes."""
        return [column.name for column in self.columns[-2:]] == [WEIGHT, FINAL]

    def check(self) -> None:
        """Do nothing: `make` has read the newest file, and the other files are checked when they are read."""

    def batches(self, leaf: Leaf) -> Iterator[tuple[int, pa.RecordBatch, int]]:
        """Yield the rows of a leaf in batches: the watermark before the batch, the batch, the watermark after it.

        The watermark before a file is the smallest time in this file and in all later files.
        """
        time = leaf.streams[1]
        names = [column.name for column in self.columns]
        lows = [_smallest_time(path, time) if time else BEGINNING for path in self.files]
        lows = np.minimum.accumulate(np.array(lows, np.int64)[::-1])[::-1].tolist()
        sizes = np.cumsum([path.stat().st_size for path in self.files]).tolist()
        for path, low, size in zip(self.files, lows, sizes, strict=True):
            with _convert_read_errors(path):
                table = pq.read_table(path, columns=names, partitioning=None)
                arrays = [convert_column(column.name, table[column.name], column.type) for column in self.columns]
                batches = _split_by_micro_batch(path, pa.table(arrays, names)) if self.has_changes else None
            for batch in batches or pa.table(arrays, names).combine_chunks().to_batches(BATCH_ROWS):
                yield low, rows_of_leaf(leaf, batch), low
            for report in self.progress:
                report(size, sizes[-1])


def _split_by_micro_batch(path: Path, table: pa.Table) -> list[pa.RecordBatch]:
    """Return the changes of each micro-batch as one batch, because a correction consists of two rows of one batch."""
    begin, batches = 0, []
    for _, count in stored_batches(path, pq.read_metadata(path)):
        batches += table.slice(begin, count).combine_chunks().to_batches()
        begin += count
    return batches


def _smallest_time(path: Path, time: str) -> int:
    """Return the smallest value of a time column of a file, in ns, from its statistics."""
    with _convert_read_errors(path):
        file = pq.read_metadata(path)
        index = file.schema.names.index(time)
        groups = [file.row_group(number).column(index).statistics for number in range(file.num_row_groups)]
        return min((group.min_raw for group in groups if group is not None and group.has_min_max), default=BEGINNING)


def _columns_by_name(schema: pa.Schema) -> tuple[Column, ...]:
    kinds = [(field.name, type_of(field.name, field.type)) for field in schema]
    return tuple(Column(name, kind, nullable=name not in BOUNDS) for name, kind in kinds if kind is not None)


@contextlib.contextmanager
def _convert_read_errors(path: Path) -> Iterator[None]:
    """Raise InputError for a result file that is damaged, or that was deleted meanwhile."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: the file was deleted while it was read; repeat the query") from None
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as results of `wiretide run`: {error}") from error
