"""The writer of a spool. It collects items in memory, and another thread writes them to segments.

An item is a batch of partials (the partial aggregates of a group and a pane) or a punctuation. Only `cut`, `flush` and
`close` wait for the disk. The memory of items that wait for the disk is limited. At the limit the writer reports a full
spool, even if the disk has room.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from capture.descriptors import FIRST_PAUSE, is_shortage
from capture.metrics import Samples
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation
from lowlevel.spool import segment
from lowlevel.spool.folder import BLOCK_BYTES, SpoolError, SpoolFullError, disk_bytes, keep_reserve, segment_path
from lowlevel.spool.limits import DESCRIPTORS, DISK, OLDEST, SHED, SpoolCounts, SpoolLimits, WhenFull
from lowlevel.spool.pending import MAX_SKIPPED_BYTES, ItemSizes, PendingItems, add_skipped_range
from lowlevel.spool.segment import COUNTS_BYTES, Header, LinkCounts, Segment
from lowlevel.spool.segment_thread import SegmentThread, is_full
from lowlevel.spool.takeover import committed_number, take_over

SEGMENT_OVERHEAD = 2048 + MAX_SKIPPED_BYTES + COUNTS_BYTES
"""Maximum bytes of a segment in addition to its items: schema, trailer, skipped times and counters."""

OTHER_FILES_BYTES = 7 * BLOCK_BYTES
"""Disk space of the other files of a spool: locks, commits, record of the writer, and the reserve."""

MIN_WAITING_BYTES = 1 << 23
"""Minimum of the limit of bytes that wait for the disk. The limit is two segments if these are larger."""

CHECK_INTERVAL = 10**8
"""Time (ns) between two reads of the commits, and between two retries on a full disk."""

SHORTAGE_PATIENCE = 10.0
"""Seconds that `cut`, `flush` and `close` wait for a free file descriptor before they report a full spool."""


class SpoolWriter:
    """The only writer of a spool. One thread may use it.

    Memory: two segments, at least 8 MiB, or more for a longer item; twice this size while a segment is encoded. A new
    writer continues the segment numbers and the watermarks of the last writer. So it ignores a punctuation whose
    watermark is not above the last watermark.
    """

    def __init__(
        self,
        folder: Path,
        link: str,
        plans: Sequence[tuple[str, str]],
        limits: SpoolLimits | None = None,
        cuts: bool = False,
    ) -> None:
        """Create the folder, or take it over from the last writer.

        * `plans`: the name and fingerprint of each plan. All names must be different.
        * `cuts`: segments end only at calls of `cut`.

        If the link has `ended` in this folder, only `close` is allowed. Raises SpoolError if another writer is active,
        or if the folder is the spool of another link. With `cuts`, SpoolError is also raised if rows could be
        repeated, because the newest segment is damaged or missing.
        """
        self.folder = Path(folder)
        self.link = link
        self.plans = tuple((name, fingerprint) for name, fingerprint in plans)
        if len(dict(self.plans)) != len(self.plans):
            raise ValueError(f"got plans named {', '.join(name for name, _ in self.plans)}, expected different names")
        self.limits = limits or SpoolLimits()
        self.counts = SpoolCounts()
        self.ended = self._ending = False
        self.position: str | None = None
        self.link_counts: LinkCounts | None = None
        """The counters of the link, for the headers of the next segments."""
        self._cuts = cuts
        self._sizes = ItemSizes([name for name, _ in self.plans])
        self._max_waiting_bytes = max(2 * self.limits.segment_bytes, MIN_WAITING_BYTES)
        self._committed = -1
        self._now: int | None = None
        self._checked_at: int | None = None
        self._waiting_punctuations: set[int] = set()
        takeover = take_over(self.folder, link, rereads_input=cuts)
        self._lock, self._segment_files, self._next_number = takeover.lock, takeover.files, takeover.written.number + 1
        self._epoch, self._rows, self._shed = takeover.written.epoch + 1, takeover.written.rows, takeover.written.shed
        watermarks = self._resume(takeover.newest)
        self._watermarks = tuple(watermarks.get(plan, BEGINNING) for plan in self.plans)
        self._pending = PendingItems(self._watermarks)
        self._segment_overhead = SEGMENT_OVERHEAD + len(self._header(self._pending).encode()) + self._sizes.punctuations
        self._thread = SegmentThread(self.folder)

    def _resume(self, newest: Segment | None) -> dict[tuple[str, str], int]:
        """Continue from the position of the newest undamaged segment. Return the last watermark of each plan."""
        if newest is None:
            return {}
        self.position = newest.header.position
        self.ended = newest.ended
        return dict(zip(newest.plans, newest.watermarks, strict=True))

    @property
    def used(self) -> int:
        """Upper bound of the disk space of the spool, with the waiting data; at most `limits.spool_bytes`."""
        waiting = self._disk_bytes(self._pending.bytes) if self._pending.items else 0
        return OTHER_FILES_BYTES + self._segment_files.bytes + self._thread.disk + waiting

    @property
    def waiting(self) -> int:
        """Number of appended rows that are not on the disk yet. A crash loses them."""
        return self._pending.rows + self._thread.rows

    @property
    def is_due(self) -> bool:
        """True if the size or the age of the waiting items requires that the segment ends."""
        first, now = self._pending.first, self._now
        # A clock that was set back must not delay a segment.
        too_old = first is not None and now is not None and not 0 <= now - first < self.limits.segment_time
        return bool(self._pending.items) and (too_old or self._pending.bytes >= self.limits.segment_bytes)

    def append(self, plan_index: int, item: Item) -> None:
        """Append an item of plan `plan_index`. Partials without rows and repeated watermarks are ignored.

        Raises SpoolFullError, and stores nothing, if there is no room for partials: the disk is full (with the policy
        `stop`), or the memory is full because the disk is slow. Punctuation is always accepted. If the segment has no
        room, a later segment contains the punctuation.
        """
        self._check_open()
        self._count_written()
        size = self._sizes.item_bytes(plan_index, item)
        if isinstance(item, Punctuation):
            if item.watermark <= self._watermarks[plan_index]:
                return
            self._watermarks = (*self._watermarks[:plan_index], item.watermark, *self._watermarks[plan_index + 1 :])
            self._waiting_punctuations.add(plan_index)
            with contextlib.suppress(SpoolFullError):
                self._make_room(size)
                self._add_punctuation(plan_index)
        elif item.num_rows:
            if size > self.limits.spool_bytes // 4:
                raise SpoolError(
                    f"{self.folder}: got {size} bytes of partials at once, expected at most a quarter of the spool's "
                    f"{self.limits.spool_bytes}: make it larger, or the tables smaller"
                )
            self._make_room(size)
            self._pending.add(plan_index, item, size, self._now)
        if self._pending.bytes >= self.limits.segment_bytes:
            self._end_segment_unless_cuts()

    def shed(self, plan_index: int, item: Item) -> None:
        """Count partials that the caller drops because they have no room; append punctuation."""
        if isinstance(item, Punctuation):
            self.append(plan_index, item)
        else:
            self.counts.items_dropped[SHED] += 1
            self.counts.rows_dropped[SHED] += item.num_rows
            self._shed += item.num_rows

    def skip(self, start: int, end: int) -> None:
        """Record that packets with times in `[start, end)` (ns) were not processed.

        The times are stored in the next segment that has an item, or in the last segment.
        """
        self._check_open()
        self._pending.skipped = add_skipped_range(self._pending.skipped, start, end)

    def tick(self, now: int) -> None:
        """Set the time (ns since the epoch). Write segments that are due, and delete committed segments."""
        self._check_open()
        self._now = now
        self._count_written()
        if self._checked_at is None or not 0 <= now - self._checked_at < CHECK_INTERVAL:
            self._checked_at = now
            self._segment_files.delete_committed(self._committed_number())
            keep_reserve(self.folder)
            if self._thread.blocking_error:
                self._retry()
        self._add_punctuations_if_room()
        if self._pending.items and self._pending.first is None:
            self._pending.first = self._pending.last = now
        if self.is_due:
            self._end_segment_unless_cuts()

    def cut(self, position: str) -> None:
        """End the segment, and store `position` in its header.

        The segments so far contain all rows before this position.

        Waits until the previous segment is on the disk. Has no effect if there is no new item.
        """
        self._check_open()
        self._wait()
        self._add_punctuations_if_room()
        if self._pending.items:
            self._segment_overhead += len(json.dumps(position)) - len(json.dumps(self.position))
            self.position = position
            self._end_segment()

    def flush(self) -> None:
        """Write the waiting items (with `cuts`, only items before the last cut) and wait until they are on the disk.

        Raises SpoolFullError if the disk is full.
        """
        self._check_open()
        self._add_punctuations_if_room()
        if self._pending.items:
            self._end_segment_unless_cuts()
        self._wait()

    def close(self, has_ended: bool = False) -> None:
        """Write the waiting items, and the end of the link if it has `has_ended`. Release the folder.

        With `cuts`, items after the last cut are dropped unless the link has ended: the next node computes them again.
        Raises SpoolFullError if the disk has no room; the folder is released even then. A second call has no effect.
        """
        if self._lock < 0:
            return
        try:
            self._wait()
            if has_ended and not self.ended:
                self._ending = True
                self._waiting_punctuations.update(number for number, low in enumerate(self._watermarks) if low != END)
                self._watermarks = (END,) * len(self.plans)
                self._add_all_punctuations()  # `_fits` has always left room for them
            self._add_punctuations_if_room()
            unwritten = self._pending.items or (self._pending.skipped and self._fits(0))
            if self._ending or (unwritten and not self._cuts):
                self._end_segment()
            self._wait()
            self.ended |= self._ending
            self._segment_files.delete_committed(self._committed_number())
        finally:
            self._release()

    def abandon(self) -> None:
        """Release the folder and drop the waiting items. With `cuts`, the next node computes them again."""
        if self._lock >= 0:
            self._release()

    def _release(self) -> None:
        self._thread.close()
        os.close(self._lock)
        self._lock = -1

    def samples(self) -> Samples:
        """Return the counters, and the age of the oldest uncommitted segment at the time of the last `tick`."""
        try:
            committed = committed_number(self.folder)
        except OSError as error:
            if not is_shortage(error):
                raise
            committed = self._committed
        number = self._segment_files.oldest_after(committed)
        trailer = None
        if number is not None:
            with contextlib.suppress(OSError):
                trailer = segment.read_trailer(segment_path(self.folder, number))
        first = trailer.first if trailer is not None else 0
        age = max(0, self._now - first) if first and self._now is not None else 0
        return self.counts.samples(self.link, len(self._segment_files), self.used, age)

    def _committed_number(self) -> int:
        """Return the number of the last committed segment; without a free file descriptor, the last known number."""
        try:
            self._committed = committed_number(self.folder)
        except OSError as error:
            if not is_shortage(error):
                raise
            self.counts.retries[DESCRIPTORS] += 1
        return self._committed

    def _check_open(self) -> None:
        if self._lock < 0:
            raise ValueError(f"{self.folder}: this writer has been closed")
        if self.ended:
            raise SpoolError(f"{self.folder}: link {self.link} has ended here; name another folder, or delete this one")

    def _make_room(self, size: int) -> None:
        """Delete committed segments until `size` bytes fit; with the policy `oldest`, then drop the oldest segments."""
        if len(self._thread) and self._thread.bytes + self._pending.bytes + size > self._max_waiting_bytes:
            raise SpoolFullError(f"{self.folder}: the disk is slower than the partials of link {self.link} arrive")
        if self._fits(size):
            return
        self._segment_files.delete_committed(self._committed_number())
        while not self._fits(size):
            if self.limits.when_full is WhenFull.STOP or len(self._segment_files) < 2:
                raise SpoolFullError(
                    f"{self.folder}: full: {self.used} of {self.limits.spool_bytes} bytes, and the reader has not"
                    " committed any of them"
                )
            self._drop_oldest()

    def _fits(self, size: int) -> bool:
        """Return whether `size` more bytes fit, and in addition a segment with only punctuation."""
        others = OTHER_FILES_BYTES + self._segment_files.bytes + self._thread.disk
        return others + self._disk_bytes(self._pending.bytes + size) + self._disk_bytes(0) <= self.limits.spool_bytes

    def _disk_bytes(self, items: int) -> int:
        """Return the maximum disk space of a segment with `items` bytes of items."""
        return disk_bytes(items + self._segment_overhead)

    def _drop_oldest(self) -> None:
        """Delete the oldest segment, which is not committed, and count its rows."""
        number = self._segment_files.oldest
        assert number is not None
        try:
            trailer = segment.read_trailer(segment_path(self.folder, number))
        except FileNotFoundError:
            trailer = None
        except OSError as error:
            if not is_shortage(error):
                raise
            self.counts.retries[DESCRIPTORS] += 1
            raise SpoolFullError(f"{self.folder}: full, and no free file descriptor to count what to drop") from error
        if trailer is not None:
            self.counts.items_dropped[OLDEST] += trailer.items
            self.counts.rows_dropped[OLDEST] += trailer.rows
        self.counts.segments_dropped[OLDEST] += 1
        self._segment_files.delete(number)

    def _header(self, pending: PendingItems) -> Header:
        return Header(
            link=self.link,
            number=self._next_number,
            epoch=self._epoch,
            plans=self.plans,
            lows=pending.lows,
            rows_before=self._rows,
            shed_before=self._shed,
            ended=self._ending,
            position=self.position,
            skipped=tuple(pending.skipped),
            counts=self.link_counts,
        )

    def _add_punctuation(self, plan_index: int) -> None:
        """Add the last punctuation of a plan to the segment."""
        self._waiting_punctuations.discard(plan_index)
        item = Punctuation(self.link, self._watermarks[plan_index])
        self._pending.add(plan_index, item, self._sizes.item_bytes(plan_index, item), self._now)

    def _add_all_punctuations(self) -> None:
        """Add the waiting punctuations to the segment."""
        for number in sorted(self._waiting_punctuations):
            self._add_punctuation(number)

    def _add_punctuations_if_room(self) -> None:
        """Add the waiting punctuations to the segment if all of them fit."""
        if self._waiting_punctuations and self._fits(self._sizes.punctuations):
            self._add_all_punctuations()

    def _end_segment_unless_cuts(self) -> None:
        if not self._cuts:
            self._end_segment()

    def _end_segment(self) -> None:
        """Pass the pending segment to the thread and begin a new segment."""
        pending = self._pending
        self._thread.submit(self._header(pending), pending, self._disk_bytes(pending.bytes))
        self._next_number += 1
        self._rows += pending.rows
        self._pending = PendingItems(self._watermarks)

    def _count_written(self) -> None:
        """Count the segments that have been written since the last call."""
        for trailer, size in self._thread.written():
            self._segment_files.add(trailer.number, size)
            self.counts.segments += 1
            self.counts.bytes += size
            self.counts.items += trailer.items
            self.counts.rows += trailer.rows

    def _retry(self) -> None:
        """Write blocked segments again. If the disk was full, first delete segments as the policy allows."""
        full = is_full(self._thread.blocking_error)
        self.counts.retries[DISK if full else DESCRIPTORS] += 1
        self._segment_files.delete_committed(self._committed_number())
        if full and self.limits.when_full is WhenFull.OLDEST and len(self._segment_files) > 1:
            with contextlib.suppress(SpoolFullError):  # no free file descriptor
                self._drop_oldest()
        self._thread.retry()

    def _wait(self) -> None:
        """Wait until all segments are written.

        Raises SpoolFullError if the disk is full, or if no file descriptor was free for SHORTAGE_PATIENCE seconds.
        """
        self._thread.wait()
        self._count_written()
        if self._thread.blocking_error:
            self._try_again()
        until, pause = time.monotonic() + SHORTAGE_PATIENCE, FIRST_PAUSE
        while is_shortage(self._thread.blocking_error) and time.monotonic() < until:
            time.sleep(pause)
            pause = min(2 * pause, 0.5)
            self._try_again()
        if is_full(self._thread.blocking_error):
            raise SpoolFullError(f"{self.folder}: the disk is full; free some space")
        if self._thread.blocking_error:
            raise SpoolFullError(
                f"{self.folder}: no free file descriptor for {SHORTAGE_PATIENCE:g} s; raise the limit (ulimit -n)"
            )

    def _try_again(self) -> None:
        self._retry()
        self._thread.wait()
        self._count_written()
