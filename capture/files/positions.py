"""Positions of inputs: a position states, as a text, how far an input has been read. Another process continues there.

Only inputs that can be read again have positions. The position of a mapped or compressed file is the number of records
read. The position of followed files lists all files by device and inode, as `capture.files.rotation` stores them. It is
compressed, because a spool stores it in every segment.

A position contains the number of its text format, because another version of Wiretide may have written it. Positions
in other formats are rejected, because their meaning is unknown.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Protocol

from capture.errors import InputError
from capture.files.blocks import Block
from capture.files.capture import AnyCapture, Capture
from capture.files.followed import FollowedCapture
from capture.files.scan import scan
from capture.files.stream import StreamedCapture

FILE_FORMAT, FOLLOWED_FORMAT = 1, 2
"""Numbers of the text formats of positions. A position without a number has format 1."""


class Position(Protocol):
    """The current position in one input. The input can be read again."""

    def resume(self, text: str) -> None:
        """Move to the position in `text`, before the first block is read.

        Raises InputError if it belongs to another input or has another format.
        """
        ...

    def advance(self, block: Block) -> None:
        """Move to the end of `block`, the last yielded block."""
        ...

    def text(self) -> str:
        """Return the position as text."""
        ...


class FilePosition:
    """The position in a complete file: the number of records read."""

    def __init__(self, capture: Capture | StreamedCapture) -> None:
        """Begin at the first record."""
        self.capture = capture
        self.records = 0
        self.size = len(capture.data) if isinstance(capture, Capture) else capture.size

    def resume(self, text: str) -> None:
        """Skip the records that have been read."""
        stored = json.loads(text)
        if stored.get("size") != self.size:
            raise InputError(
                f"{self.capture.path}: got a file of {self.size:,} bytes, expected the file whose partials the spool "
                f"contains: it had {stored.get('size', 'another number of')} bytes; use another spool for this file"
            )
        check_format(self.capture, stored, FILE_FORMAT)
        self.records = stored["records"]
        if isinstance(self.capture, StreamedCapture):
            self.capture.skip = self.records

    def advance(self, block: Block) -> None:
        """Add the records of the block."""
        self.records += block.records

    def text(self) -> str:
        """Return the size of the file and the number of records read, as JSON."""
        return json.dumps({"form": FILE_FORMAT, "size": self.size, "records": self.records})


class FollowedPosition:
    """The position in followed files."""

    def __init__(self, capture: FollowedCapture) -> None:
        """Begin with the first file."""
        self.capture = capture

    def resume(self, text: str) -> None:
        """Restore the position of each file."""
        stored = json.loads(text)
        if "files" not in stored:
            raise InputError(
                f"{self.capture.path}: got a folder or a file to follow, expected the complete file whose partials the "
                "spool contains; use another spool"
            )
        check_format(self.capture, stored, FOLLOWED_FORMAT)
        self.capture.resume(json.loads(zlib.decompress(b64decode(stored["files"]))))

    def advance(self, block: Block) -> None:
        """Do nothing: the capture counts the records of each file."""

    def text(self) -> str:
        """Return JSON that contains the positions of all files as compressed JSON: about 40 bytes per file."""
        positions = json.dumps(self.capture.position(), separators=(",", ":")).encode()
        return json.dumps({"form": FOLLOWED_FORMAT, "files": b64encode(zlib.compress(positions)).decode()})


def check_format(capture: AnyCapture, stored: Mapping[str, object], format_number: int) -> None:
    """Raise InputError, with possible remedies, if the format of a stored position is not `format_number`."""
    stored_number = stored.get("form", 1)
    if stored_number != format_number:
        raise InputError(
            f"{capture.path}: the newest segment of the spool stores the position in format {stored_number}, expected "
            f"format {format_number}: another version of Wiretide has written it; continue with that version, or use "
            "another folder for the spool; the node then reads the whole input that still exists"
        )


def initial_position(capture: AnyCapture) -> Position | None:
    """Return the position at the beginning of an input. Return None if the input can be read only once."""
    if isinstance(capture, FollowedCapture):
        return FollowedPosition(capture)
    if isinstance(capture, StreamedCapture) and capture.live:
        return None
    return FilePosition(capture)


def add_waiting_sets(text: str, set_count: int) -> str:
    """Add to a position the number of sets of flow records that wait in memory for their template.

    >>> add_waiting_sets('{"records": 7}', 2)
    '{"records": 7, "sets_waiting": 2}'
    """
    return json.dumps(json.loads(text) | {"sets_waiting": set_count}) if set_count else text


def count_waiting_sets(text: str) -> int:
    """Return how many sets of flow records waited for their template, as the position states."""
    return int(json.loads(text).get("sets_waiting", 0))


def blocks_after(capture: Capture, records: int) -> tuple[list[Block], str | None]:
    """Return the blocks of a mapped file after its first `records` records, and the file's damage.

    Raises InputError if no block begins at this record, because the block size has changed.
    """
    index = scan(capture)
    records_before = 0
    for block_index, block in enumerate(index.blocks):
        if records_before == records:
            return index.blocks[block_index:], index.damage
        records_before += block.records
    if records_before != records:
        raise InputError(f"{capture.path}: cannot continue after {records} records; use another spool for this file")
    return [], index.damage
