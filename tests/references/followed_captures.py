"""Captures that grow while they are read."""

import os
from pathlib import Path

from capture.files.followed import FollowedCapture
from capture.files.positions import initial_position
from capture.metrics import FILES_DAMAGED, FILES_FOLLOWED, FILES_REFUSED, FILES_REPLACED
from capture.open import open_capture
from tests.references.pcap_bytes import pcap_bytes


def capture_of(times: range, link_type: int = 1) -> bytes:
    """A capture with a record of each time, ns."""
    return pcap_bytes([(ts, bytes(60)) for ts in times], link_type)


OLD = 10**9
"""An old modification time in ns. Files get small offsets from it, which define their order."""


def write(path: Path, data: bytes, changed: int | None = None) -> None:
    """Write a whole file; `changed` is its time of change above OLD, in seconds."""
    path.write_bytes(data)
    if changed is not None:
        os.utime(path, ns=(OLD + changed * 10**9,) * 2)


class Follower:
    """A followed input and the times of the records read so far. Each block has one record."""

    def __init__(self, path: Path, position: str | None = None) -> None:
        capture = open_capture(path, follow=True)
        assert isinstance(capture, FollowedCapture)
        assert capture.live
        self.place = initial_position(capture)
        assert self.place is not None
        if position is not None:
            self.place.resume(position)
        self.capture = capture
        self.blocks = capture.blocks(1)
        self.times: list[int] = []

    def read(self, records: int) -> list[int]:
        """Wait for `records` more records and return their times."""
        wanted = len(self.times) + records
        while len(self.times) < wanted:
            self.idle(once=True)
        return self.times[wanted - records :]

    def idle(self, once: bool = False) -> None:
        """Read until the input is idle. Only with `once` may this read return a record."""
        block = next(self.blocks)
        if block is not None:
            assert once, f"got a record of {block.min_ts}, expected none"
            self.times.append(block.min_ts)

    def again(self) -> "Follower":
        """Follow the same in another process, which has the position alone."""
        assert self.place is not None
        position = self.place.text()
        self.leave()
        return Follower(self.capture.path, position)

    def leave(self) -> None:
        """Stop reading, even if there is more data."""
        self.blocks.close()
        self.capture.close()

    def end(self) -> dict[str, float]:
        """Stop; how many files were begun, replaced and refused, and damage by cause."""
        self.capture.stop()
        assert [block for block in self.blocks if block is not None] == []
        assert self.capture.damage is None
        self.capture.close()
        samples = self.capture.samples("x")
        counted = {
            "files": samples.total(FILES_FOLLOWED),
            "replaced": samples.total(FILES_REPLACED),
            "refused": samples.total(FILES_REFUSED),
        }
        counted |= {labels[1]: count for (name, labels), count in samples.items() if name == FILES_DAMAGED.name}
        return {name: count for name, count in counted.items() if count}
