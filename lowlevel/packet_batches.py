"""A capture's packets as Arrow batches, row by row: for looking, and for other tools. Queries never go this way."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from capture.files.blocks import BLOCK_RECORDS, Block
from capture.files.capture import open_capture
from capture.files.scan import scan
from capture.packets.columns import COLUMNS
from capture.packets.decoder import Decoder
from lowlevel.addresses import to_arrow
from lowlevel.evaluate import AddressVector
from lowlevel.expressions import Type
from lowlevel.packet_columns import PacketColumns
from lowlevel.plan import ARROW_TYPES


def packet_schema(columns: Iterable[str]) -> pa.Schema:
    """Schema of the batches; raises KeyError for an unknown column."""
    return pa.schema([pa.field(name, ARROW_TYPES[Type(COLUMNS[name].type)]) for name in columns])


def packet_batches(path: Path, columns: Iterable[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Decode a capture, a batch per block, in file order. Addresses are 4 or 16 bytes, an absent field is NULL.

    Names of columns are taken without regard to case. Raises ValueError for an unknown one, InputError for a file
    that is no capture; warns (RuntimeWarning) of one that is damaged, whose whole records are read.
    """
    names = [_column_name(name) for name in (COLUMNS if columns is None else columns)]
    file = open_capture(path)
    index = scan(file)
    if index.damage:
        text = f"{path}: {index.damage.replace('_', ' ')}, after {index.records} whole records"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    decoder = Decoder(file, names, BLOCK_RECORDS)
    return (block_batch(path.stem, decoder, block, names) for block in index.blocks)


def _column_name(name: str) -> str:
    for known in COLUMNS:
        if known.lower() == name.lower():
            return known
    raise ValueError(f"no column is named {name}; the columns are {', '.join(COLUMNS)}")


def block_batch(link: str, decoder: Decoder, block: Block, names: list[str]) -> pa.RecordBatch:
    """Decode one block into one batch of the columns `names`."""
    packets = decoder.decode(block)
    columns = PacketColumns(link, packets)
    arrays = []
    for name in names:
        vector = columns[name]
        if isinstance(vector, AddressVector):
            arrays.append(_addresses(vector))
            continue
        data = np.broadcast_to(vector.data, packets.rows)
        absent = None if vector.valid is None else ~vector.valid
        arrays.append(pa.array(data.copy() if data.ndim else data, mask=absent))
    return pa.RecordBatch.from_arrays(arrays, schema=packet_schema(names))


def _addresses(vector: AddressVector) -> pa.Array:
    """Bring the addresses of both versions into one column, in their order."""
    narrow = np.asarray(vector.version == 4)
    both = pa.concat_arrays(
        [to_arrow(version, vector.high[rows], vector.low[rows]) for version, rows in ((4, narrow), (6, ~narrow))]
    )
    places = np.empty(len(narrow), np.int64)
    places[narrow] = np.arange(np.count_nonzero(narrow))
    places[~narrow] = np.arange(np.count_nonzero(narrow), len(narrow))
    return both.take(pa.array(places))
