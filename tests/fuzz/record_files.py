"""Shared steps of the targets for capture files: scan, cut and decode the input as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from capture.errors import InputError
from capture.files.blocks import Index
from capture.files.capture import Capture
from capture.files.formats import HEAD_BYTES, record_format
from capture.files.scan import scan
from capture.files.split import RangeScan, ranges_are_contiguous, split
from capture.packets.columns import PACKET_COLUMNS
from capture.packets.decoder import Decoder
from tests.fuzz.agreement import Sound, same
from tests.fuzz.plain import both

BLOCK = 16
"""Records of a block."""

NAMES = PACKET_COLUMNS.keys() - {"link"}
SOUND = Sound(PACKET_COLUMNS)


def open_bytes(data: bytes) -> Any:
    """A capture as if its file had been mapped. Raises InputError."""
    return Capture(Path("fuzz"), record_format(data[:HEAD_BYTES], "fuzz"), np.frombuffer(data, np.uint8), None)


def read(plain: bool, data: bytes) -> tuple[Any, ...]:
    """The index of a file, its interfaces, its rows and what was counted on the way."""
    file = open_bytes(data)
    index = scan(file, BLOCK)
    decoder = Decoder(file, NAMES, BLOCK)
    rows = []
    for block in index.blocks:
        packets = decoder.decode(block)
        if not plain:
            SOUND(packets)
        rows += packets.matrix[:, : packets.row_count].T.tolist()
    return index, file.format.interface_names, rows, decoder.counts.tolist(), decoder.replaced_time_counts.tolist()


def check_file(data: bytes) -> None:
    """Read a capture whole and in three ranges."""
    try:
        native, plain = both(lambda plain: read(plain, data))
    except InputError:
        return
    for what, one, other in zip(("index", "interfaces", "rows", "counts", "times"), native, plain, strict=True):
        same(what, one, other)
    if len(data) % 8 == 0:  # threads take longer than all the rest
        check_ranges(data, native[0])


def check_ranges(data: bytes, index: Index) -> None:
    """The ranges that a file is cut into hold its records, each once, and tell how it ends."""
    file = open_bytes(data)
    first = file.format.first_record
    ranges = split(file, 3)
    records = 0
    for each in ranges:
        scan = RangeScan(file, each.start, each.end, BLOCK, each.section, each.interfaces)
        records += sum(block.records for block in scan)
    assert records == index.records, f"{records} records in ranges, {index.records} in the file"
    assert ranges_are_contiguous(ranges, first, len(data)) or len(data) <= first, ranges
    assert (ranges[-1].damage if ranges else None) == index.damage, (ranges, index.damage)
