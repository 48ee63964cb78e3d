"""Limits of a spool, the policies for a full spool, and the counters of a writer."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from enum import StrEnum

from capture.lazy_dataclasses import dataclass
from capture.metrics import Samples
from capture.units import MEBIBYTE, SECOND
from lowlevel.metrics import (
    SPOOL_BYTES,
    SPOOL_BYTES_WRITTEN,
    SPOOL_ITEMS_DROPPED,
    SPOOL_ITEMS_WRITTEN,
    SPOOL_OLDEST_AGE,
    SPOOL_RETRIES,
    SPOOL_ROWS_DROPPED,
    SPOOL_ROWS_WRITTEN,
    SPOOL_SEGMENTS,
    SPOOL_SEGMENTS_DROPPED,
    SPOOL_SEGMENTS_WRITTEN,
)

SHED = "shed"
"""Cause of a dropped item: the spool was full, so the caller dropped the item."""

OLDEST = "oldest"
"""Cause of a dropped item: a full spool dropped its oldest segments."""

DISK, DESCRIPTORS = "disk", "descriptors"
"""Causes of a retry: the disk was full, or no file descriptor was free."""


@dataclass(slots=True)
class SpoolCounts:
    """Counters of one writer since its start: what it has written, and what was dropped by cause."""

    segments: int = 0
    bytes: int = 0
    items: int = 0
    rows: int = 0
    segments_dropped: Counter[str] = field(default_factory=Counter)
    items_dropped: Counter[str] = field(default_factory=Counter)
    rows_dropped: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)

    def samples(self, link: str, segments: int, disk: int, age: int) -> Samples:
        """Return the metrics. `segments` and `disk`: number and bytes of files. `age`: see SPOOL_OLDEST_AGE, in ns."""
        samples = Samples()
        samples.add(SPOOL_SEGMENTS_WRITTEN, self.segments, link)
        samples.add(SPOOL_BYTES_WRITTEN, self.bytes, link)
        samples.add(SPOOL_ITEMS_WRITTEN, self.items, link)
        samples.add(SPOOL_ROWS_WRITTEN, self.rows, link)
        for metric, dropped in (
            (SPOOL_SEGMENTS_DROPPED, self.segments_dropped),
            (SPOOL_ITEMS_DROPPED, self.items_dropped),
            (SPOOL_ROWS_DROPPED, self.rows_dropped),
            (SPOOL_RETRIES, self.retries),
        ):
            for cause, amount in dropped.items():
                samples.add(metric, amount, link, cause)
        samples.set(SPOOL_SEGMENTS, segments, link)
        samples.set(SPOOL_BYTES, disk, link)
        samples.set(SPOOL_OLDEST_AGE, age / 1e9, link)
        return samples


MAX_SEGMENT_BYTES = 1 << 30
OVERHEAD_BYTES = 1 << 16
"""Maximum bytes of a spool in addition to its items: headers, the file of commits, unused parts of disk blocks."""


class WhenFull(StrEnum):
    """The policy for a full spool.

    `STOP` rejects new partials; `OLDEST` drops the oldest segments, even if they are unread.
    """

    STOP = "stop"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True)
class SpoolLimits:
    """Bounds of one spool. Raises ValueError if the bounds contradict each other.

    * `segment_bytes`, `segment_time`: a segment is written when its items have `segment_bytes` in memory, or
      `segment_time` ns after its first item. Its file has about a third of the bytes in memory.
    * `spool_bytes`: bound of the disk space of all files, in whole disk blocks, with the data that waits for the disk.
    """

    segment_bytes: int = 16 * MEBIBYTE
    segment_time: int = SECOND
    spool_bytes: int = 4096 * MEBIBYTE
    when_full: WhenFull = WhenFull.STOP

    def __post_init__(self) -> None:
        if not 1 <= self.segment_bytes <= MAX_SEGMENT_BYTES:
            raise ValueError(f"got segments of {self.segment_bytes} bytes, expected 1 to {MAX_SEGMENT_BYTES}")
        if self.segment_time < 1:
            raise ValueError(f"got a segment time of {self.segment_time} ns, expected at least 1")
        minimum = 4 * self.segment_bytes + OVERHEAD_BYTES
        if self.spool_bytes < minimum:
            raise ValueError(
                f"got a spool of {self.spool_bytes} bytes, expected at least {minimum}: four segments, so that one"
                " can be written while others are read"
            )
        if self.when_full not in tuple(WhenFull):
            choices = " or ".join(WhenFull)
            raise ValueError(f"got {self.when_full!r} for a spool that is full, expected {choices}")
