"""The record of the newest segment of a spool, in a file, so that no segment number is used twice.

The names of the segments do not suffice: the newest segment may have been deleted. The file `written` has two slots of
48 bytes, each with a checksum. The record of segment N is written into slot N % 2, after the segment is renamed:

    segment N renamed  ->  folder on the disk  ->  slot N % 2 overwritten and on the disk

After a crash between these steps, the record contains N - 1, but segment N exists: the larger number is right. If a
slot is damaged, its number may have been one above the number of the other slot, so a writer skips this number.
Overwriting a slot needs no free block on the disk.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import astuple
from pathlib import Path

from capture.lazy_dataclasses import dataclass
from capture.private_files import open_private
from lowlevel.spool.folder import SpoolError, part_path, write_durably

RECORD_NAME = "written"
MAGIC = b"WTWRIT\x01\n"
SLOT_FIELDS = struct.Struct("<8sqqqq")
SLOT_CHECKSUM = struct.Struct("<Q")
SLOT_BYTES = SLOT_FIELDS.size + SLOT_CHECKSUM.size
SLOT_COUNT = 2


@dataclass(frozen=True, slots=True)
class WriterRecord:
    """The newest segment ever written: number (-1: none), epoch, total rows up to its end, and total shed rows."""

    number: int = -1
    epoch: int = -1
    rows: int = 0
    shed: int = 0


def read_record(folder: Path, cautious: bool = False) -> WriterRecord:
    """Read the record; WriterRecord() if there is none. Raises SpoolError if both slots are damaged.

    `cautious`: if one slot is damaged, return the largest number that this slot can have contained.
    """
    path = folder / RECORD_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return WriterRecord()
    slots = [_decode(content[start : start + SLOT_BYTES]) for start in range(0, SLOT_COUNT * SLOT_BYTES, SLOT_BYTES)]
    undamaged = [record for record in slots if record is not None]
    if not undamaged or len(content) != SLOT_COUNT * SLOT_BYTES:
        raise SpoolError(
            f"{path}: damaged: got {len(content)} bytes without a valid checksum, expected the number of the newest "
            "segment; if no segment was deleted by hand, delete this file"
        )
    newest = max(undamaged, key=lambda record: record.number)
    if cautious and len(undamaged) < SLOT_COUNT:
        return WriterRecord(newest.number + 1, newest.epoch, newest.rows, newest.shed)
    return newest


def replace_record(folder: Path, record: WriterRecord) -> None:
    """Replace the file by a new file with the record in both slots."""
    write_durably(part_path(folder / RECORD_NAME), folder / RECORD_NAME, [_encode(record) * SLOT_COUNT])


def update_record(folder: Path, record: WriterRecord) -> None:
    """Overwrite the slot of the segment's number and sync it to the disk. A missing file is created."""
    path = folder / RECORD_NAME
    try:
        descriptor = open_private(path, os.O_WRONLY) if path.stat().st_size == SLOT_COUNT * SLOT_BYTES else -1
    except FileNotFoundError:
        descriptor = -1
    if descriptor < 0:
        replace_record(folder, record)
        return
    try:
        os.pwrite(descriptor, _encode(record), record.number % SLOT_COUNT * SLOT_BYTES)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _encode(record: WriterRecord) -> bytes:
    fields = SLOT_FIELDS.pack(MAGIC, *astuple(record))
    return fields + SLOT_CHECKSUM.pack(zlib.crc32(fields))


def _decode(slot: bytes) -> WriterRecord | None:
    """Return the record of a slot; None if its checksum is wrong."""
    if len(slot) != SLOT_BYTES or SLOT_CHECKSUM.unpack(slot[SLOT_FIELDS.size :])[0] != zlib.crc32(
        slot[: SLOT_FIELDS.size]
    ):
        return None
    magic, *fields = SLOT_FIELDS.unpack(slot[: SLOT_FIELDS.size])
    return WriterRecord(*fields) if magic == MAGIC else None
