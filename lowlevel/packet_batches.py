"""A capture's packets as Arrow batches, row by row: for looking, and for other tools. Queries never go this way."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from capture.files.blocks import BLOCK_RECORDS
from capture.files.capture import open_mapped
from capture.files.scan import scan
from capture.packets.columns import COLUMNS, PACKET_COLUMNS
from lowlevel.arrow import arrow_column
from lowlevel.expressions import Type
from lowlevel.plan import ARROW_TYPES
from lowlevel.readers import Rows, make_reader


def packet_schema(columns: Iterable[str]) -> pa.Schema:
    """Schema of the batches; raises KeyError for an unknown column."""
    return pa.schema([pa.field(name, ARROW_TYPES[Type(PACKET_COLUMNS[name].type)]) for name in columns])


def packet_batches(path: Path, columns: Iterable[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Decode a capture, a batch per block, in file order. Addresses are 4 or 16 bytes, an absent field is NULL.

    Names of columns are taken without regard to case. Raises ValueError for an unknown one, InputError for a file
    that is no capture; warns (RuntimeWarning) of one that is damaged, whose whole records are read.
    """
    names = [_column_name(name) for name in (COLUMNS if columns is None else columns)]
    file = open_mapped(path, "packets()")
    index = scan(file)
    if index.damage:
        text = f"{path}: {index.damage.replace('_', ' ')}, after {index.records} whole records"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    reader = make_reader("packets", path.stem, file, {"ts", *names}, BLOCK_RECORDS)
    return (row_batch(rows, names) for block in index.blocks for rows in reader.read(block))


def _column_name(name: str) -> str:
    for known in PACKET_COLUMNS:
        if known.lower() == name.lower():
            return known
    raise ValueError(f"no column is named {name}; the columns are {', '.join(COLUMNS)}")


def row_batch(rows: Rows, names: Sequence[str]) -> pa.RecordBatch:
    """Copy the columns `names` of some packets into one batch."""
    arrays = [arrow_column(rows.columns[name], rows.count, Type(PACKET_COLUMNS[name].type)) for name in names]
    return pa.RecordBatch.from_arrays(arrays, schema=packet_schema(names))
