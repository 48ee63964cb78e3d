"""How far an input has been read, as a text that another process can go on from: of inputs that can be read again.

What of a mapped or compressed file has been read are its first records. Of files that are followed it is that of each,
by its device and inode, as `capture.files.rotation` remembers it, compressed: a spool has it in every segment.

A position says of which form it is, for a spool may be older or newer than the build that goes on with it: one of
another form is refused, as nothing but a guess could be made of how far it leads.
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

FILE_FORM, FOLLOWED_FORM = 1, 2
"""Forms of a position, raised with every change of what is in it; one that says none is of form 1."""


class Positions(Protocol):
    """The place in one input that can be read again."""

    def resume(self, text: str) -> None:
        """Go to where `text` says, before the first block is read.

        InputError where that is of another input, or of another form.
        """
        ...

    def taken(self, block: Block) -> None:
        """Move on behind a block, the one that was yielded last."""
        ...

    def text(self) -> str:
        """Say where this is."""
        ...


class FilePosition:
    """The place in a file that is complete: how many of its records have been read."""

    def __init__(self, capture: Capture | StreamedCapture) -> None:
        """Begin at the first record."""
        self.capture = capture
        self.records = 0
        self.size = len(capture.data) if isinstance(capture, Capture) else capture.size

    def resume(self, text: str) -> None:
        """Pass over the records that have been read."""
        said = json.loads(text)
        if said.get("size") != self.size:
            raise InputError(
                f"{self.capture.path}: got a file of {self.size:,} bytes, expected the one of which the spool holds a "
                f"part, which had {said.get('size', 'other')}; begin another spool for this one"
            )
        check_form(self.capture, said, FILE_FORM)
        self.records = said["records"]
        if isinstance(self.capture, StreamedCapture):
            self.capture.skip = self.records

    def taken(self, block: Block) -> None:
        """Count its records."""
        self.records += block.records

    def text(self) -> str:
        """Return size and records, as JSON."""
        return json.dumps({"form": FILE_FORM, "size": self.size, "records": self.records})


class FollowedPosition:
    """The place in files that are followed."""

    def __init__(self, capture: FollowedCapture) -> None:
        """Begin with the first file."""
        self.capture = capture

    def resume(self, text: str) -> None:
        """Know again what has been read."""
        said = json.loads(text)
        if "files" not in said:
            raise InputError(f"{self.capture.path}: got a folder or a file to follow, expected the file that was read")
        check_form(self.capture, said, FOLLOWED_FORM)
        self.capture.resume(json.loads(zlib.decompress(b64decode(said["files"]))))

    def taken(self, block: Block) -> None:
        """Nothing: the capture counts itself."""

    def text(self) -> str:
        """Return what is known of each file, as JSON in compressed JSON: some 40 bytes for each."""
        places = json.dumps(self.capture.position(), separators=(",", ":")).encode()
        return json.dumps({"form": FOLLOWED_FORM, "files": b64encode(zlib.compress(places)).decode()})


def check_form(capture: AnyCapture, said: Mapping[str, object], form: int) -> None:
    """Refuse a position that is not of this form: InputError, which says what can be done."""
    found = said.get("form", 1)
    if found != form:
        raise InputError(
            f"{capture.path}: got a spool whose newest segment says in form {found} how far this was read, expected "
            f"form {form}: another version of Wiretide has written it; go on with that one, or name another folder for "
            "the spool, into which all that is still there is read from its beginning"
        )


def positions(capture: AnyCapture) -> Positions | None:
    """Return the place in an input, at its beginning; None for one that is gone with being read."""
    if isinstance(capture, FollowedCapture):
        return FollowedPosition(capture)
    if isinstance(capture, StreamedCapture) and capture.live:
        return None
    return FilePosition(capture)


def with_sets_waiting(text: str, sets: int) -> str:
    """Add to a position how many sets of flow records wait for their template at it, in memory only.

    >>> with_sets_waiting('{"records": 7}', 2)
    '{"records": 7, "sets_waiting": 2}'
    """
    return json.dumps(json.loads(text) | {"sets_waiting": sets}) if sets else text


def sets_waiting(text: str) -> int:
    """Return how many sets of flow records waited for their template at a position."""
    return int(json.loads(text).get("sets_waiting", 0))


def blocks_behind(capture: Capture, records: int) -> tuple[list[Block], str | None]:
    """Return the blocks of a mapped file behind its first records, and how the file ends.

    Raises InputError where a block begins before that place and ends behind it: blocks are cut otherwise now.
    """
    index = scan(capture)
    done = 0
    for number, block in enumerate(index.blocks):
        if done == records:
            return index.blocks[number:], index.damage
        done += block.records
    if done != records:
        raise InputError(f"{capture.path}: cannot be gone on with behind {records} records; begin another spool for it")
    return [], index.damage
