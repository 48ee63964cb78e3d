"""The bounds of a spool, and what happens where they are reached."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from capture.units import MEBIBYTE, SECOND

LARGEST_SEGMENT = 1 << 30
LEAST = 1 << 16
"""Bytes for what is in a spool beside items: headers, what the reader has committed, unfinished blocks."""


class WhenFull(StrEnum):
    """What a full spool does: `STOP` takes no more partials, `OLDEST` drops the oldest segments that were not read."""

    STOP = "stop"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class SpoolLimits:
    """Bounds of one spool, checked when they are made (ValueError).

    A segment is written when its items take `segment_bytes` of memory, or `segment_time` ns after its first item; its
    file is smaller, about a third. `spool_bytes` bounds what the files take on the disk, in whole blocks, what waits to
    be written included.
    """

    segment_bytes: int = 16 * MEBIBYTE
    segment_time: int = SECOND
    spool_bytes: int = 4096 * MEBIBYTE
    when_full: WhenFull = WhenFull.STOP

    def __post_init__(self) -> None:
        if not 1 <= self.segment_bytes <= LARGEST_SEGMENT:
            raise ValueError(f"got segments of {self.segment_bytes} bytes, expected 1 to {LARGEST_SEGMENT}")
        if self.segment_time < 1:
            raise ValueError(f"got a segment time of {self.segment_time} ns, expected at least 1")
        least = 4 * self.segment_bytes + LEAST
        if self.spool_bytes < least:
            raise ValueError(
                f"got a spool of {self.spool_bytes} bytes, expected at least {least}: four segments, so that one can be"
                " written while others are read"
            )
        if self.when_full not in tuple(WhenFull):
            choices = " or ".join(WhenFull)
            raise ValueError(f"got {self.when_full!r} for a spool that is full, expected {choices}")
