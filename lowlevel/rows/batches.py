"""Read the rows of a capture as Arrow batches, for users and other tools. Queries do not use this module."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from capture.files.blocks import BLOCK_RECORDS, Block
from capture.files.capture import AnyCapture, Capture
from capture.files.scan import scan
from capture.open import open_capture
from lowlevel.expressions.arrow import arrow_column
from lowlevel.expressions.tree import Column
from lowlevel.kinds import row_kind_of
from lowlevel.plan import ARROW_TYPES
from lowlevel.rows.readers import Rows, make_reader


def row_batches(path: Path, columns: Iterable[str] | None = None, kind: str = "packets") -> Iterator[pa.RecordBatch]:
    """Yield a capture's rows of one kind as batches, in file order. A block becomes one or more batches.

    Addresses have 4 or 16 bytes, MAC addresses have 6. A missing field is NULL. Names of columns are case-insensitive.
    The default columns are listed in docs/guide/columns.md. Raises ValueError for an unknown column, InputError for a
    file that is not a capture. A damaged capture is read up to the damage, with a RuntimeWarning.
    """
    selected_columns = named_columns(kind, columns)
    file = open_capture(path)
    reader = make_reader(kind, path.stem, file, {"ts", *(column.name for column in selected_columns)}, BLOCK_RECORDS)
    return (row_batch(rows, selected_columns) for block in _blocks(file) for rows in reader.read(block))


def _blocks(file: AnyCapture) -> Iterator[Block]:
    """Yield the blocks of a capture; warn at the end if it is damaged."""
    records = 0
    if isinstance(file, Capture):
        index = scan(file)
        yield from index.blocks
        damage, records = index.damage, index.records
    else:
        for block in file.blocks():
            if block is not None:
                records += block.records
                yield block
        damage = file.damage
    if damage:
        text = f"{file.path}: {damage.replace('_', ' ')}, after {records} whole records"
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def named_columns(kind: str, names: Iterable[str] | None) -> list[Column]:
    """Return columns of a kind of rows by name. None means all `listed_names` of the kind."""
    row_kind = row_kind_of(kind)
    columns = []
    for name in row_kind.listed_names if names is None else names:
        column = row_kind.column(name)
        if column is None:
            raise ValueError(f"no column of {kind} is named {name}; the columns are {', '.join(row_kind.listed_names)}")
        columns.append(column)
    return columns


def row_batch(rows: Rows, columns: Sequence[Column]) -> pa.RecordBatch:
    """Return a batch with copies of the given columns."""
    arrays = [arrow_column(rows.columns[column.name], rows.count, column.type) for column in columns]
    fields = [pa.field(column.name, ARROW_TYPES[column.type]) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
