"""What a spool's writer counts: rows appended = rows written + rows shed + rows that wait."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from capture.metrics import Samples
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
"""Cause: the spool was full, and its caller gave up."""

OLDEST = "oldest"
"""Cause: a full spool dropped its oldest segments."""

DISK, DESCRIPTORS = "disk", "descriptors"
"""Causes of a retry: the disk was full, no file descriptor was free."""


@dataclass(slots=True)
class SpoolCounts:
    """Counters of one writer since its start; items are counted as they stand in segments, dropped ones by cause."""

    segments: int = 0
    bytes: int = 0
    items: int = 0
    rows: int = 0
    segments_dropped: Counter[str] = field(default_factory=Counter)
    items_dropped: Counter[str] = field(default_factory=Counter)
    rows_dropped: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)

    def samples(self, link: str, held: int, disk: int, age: int) -> Samples:
        """Return them as metrics, with segments and bytes on the disk and the oldest uncommitted one's age (ns)."""
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
        samples.set(SPOOL_SEGMENTS, held, link)
        samples.set(SPOOL_BYTES, disk, link)
        samples.set(SPOOL_OLDEST_AGE, age / 1e9, link)
        return samples
