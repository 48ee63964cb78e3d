"""Records of a stream, one by one, for comparison with the mapped reader and with reference implementations."""

from __future__ import annotations

import os
from pathlib import Path

from capture.files.blocks import NO_WATERMARK
from capture.files.byte_source import FileBytes
from capture.files.capture import Capture
from capture.files.read_ahead import CHUNK_BYTES
from capture.files.scan import scan
from capture.files.stream import StreamedCapture
from capture.open import open_capture
from tests.references.capture_oracle import parse_pcap

Record = tuple[bytes, int, int]
"""The bytes of a record with its header, its ts in ns, and its section."""


def as_stream(path: Path, chunk: int = CHUNK_BYTES) -> StreamedCapture:
    """Any file, a plain one too, read as a stream."""
    return StreamedCapture(path, FileBytes(os.open(path, os.O_RDONLY)), chunk)


def records_of(capture: StreamedCapture, block_records: int = 1) -> list[Record]:
    """Its records, read to the end, in blocks of one; larger blocks must be the same bytes."""
    found = []
    for block in capture.blocks(block_records):
        assert block is not None
        assert block.watermark == NO_WATERMARK
        assert 0 < block.records <= block_records
        found.append((capture.data[block.start : block.end].tobytes(), block.min_ts, block.section))
    return found


def mapped_records(path: Path) -> tuple[list[Record], str | None]:
    """The same of the mapped reader, and how the file ends."""
    file = open_capture(path)
    assert isinstance(file, Capture)
    index = scan(file, 1)
    return [
        (file.data[block.start : block.end].tobytes(), block.min_ts, block.section) for block in index.blocks
    ], index.damage


def whole_records(data: bytes) -> int:
    """How many whole records the first bytes of a classic pcap hold, by the oracle."""
    return len(parse_pcap(data).records)
