"""The writer of a spool: it collects items in memory; another thread writes them as segments.

Only `cut`, `flush` and `close` wait for the disk. The data that waits for the disk is bounded. Beyond the bound the
spool is full, even if the disk is not.
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
from lowlevel.spool.folder import BLOCK, SpoolError, SpoolFullError, disk_bytes, keep_reserve, segment_path
from lowlevel.spool.limits import DESCRIPTORS, DISK, OLDEST, SHED, SpoolCounts, SpoolLimits, WhenFull
from lowlevel.spool.pending import SKIPPED_BYTES, ItemSizes, Pending, with_skipped
from lowlevel.spool.segment import Header, Segment
from lowlevel.spool.segment_thread import SegmentThread, is_full
from lowlevel.spool.takeover import committed_number, take_over

FRAME = 2048 + SKIPPED_BYTES
"""Largest size of schema, messages, trailer and skipped times of a segment, in bytes."""

OTHER_FILES = 7 * BLOCK
"""Disk space of other files: locks, two files with their successors, and the reserve."""

MIN_WAITING_BYTES = 1 << 23
"""Bytes that may wait for the disk, if two segments are smaller."""

CHECK_INTERVAL = 10**8
"""Time (ns) between two reads of the commits, and between two retries on a full disk."""

SHORTAGE_PATIENCE = 10.0
"""Seconds that `cut`, `flush` and `close` wait for a free file descriptor before they report a full spool."""


class SpoolWriter:
    """The one writer of a spool. One thread uses it, and closes it.

    Memory: two segments or 8 MiB, or more for a longer item; twice that while a segment is encoded. The numbers of
    segments continue those of the last writer. Watermarks continue too: a punctuation that is not above the last one is
    not written again.
    """

    def __init__(
        self,
        folder: Path,
        link: str,
        plans: Sequence[tuple[str, str]],
        limits: SpoolLimits | None = None,
        cuts: bool = False,
    ) -> None:
        """Create or take over the folder, and continue after the last writer.

        `plans`: different names, with fingerprints; the number of an item is the index of its plan. With `cuts`,
        segments end only at calls of `cut`. If the link has `ended` in this folder, only `close` is allowed. Raises
        SpoolError if another writer is active, or the spool belongs to another link. With `cuts` also if the newest
        segment is damaged or missing and reading again could repeat rows.
        """
        self.folder = Path(folder)
        self.link = link
        self.plans = tuple((name, print_of) for name, print_of in plans)
        if len(dict(self.plans)) != len(self.plans):
            raise ValueError(f"got plans named {', '.join(name for name, _ in self.plans)}, expected different names")
        self.limits = limits or SpoolLimits()
        self.counts = SpoolCounts()
        self.ended = self._ending = False
        self.position: str | None = None
        self._cuts = cuts
        self._sizes = ItemSizes([name for name, _ in self.plans])
        self._most_waiting = max(2 * self.limits.segment_bytes, MIN_WAITING_BYTES)
        self._committed = -1
        self._now: int | None = None
        self._looked: int | None = None
        self._unsaid: set[int] = set()
        taken = take_over(self.folder, link, again=cuts)
        self._lock, self._held, self._next = taken.lock, taken.held, taken.written.number + 1
        self._epoch, self._rows, self._shed = taken.written.epoch + 1, taken.written.rows, taken.written.shed
        lows = self._resume(taken.newest)
        self._lows = tuple(lows.get(plan, BEGINNING) for plan in self.plans)
        self._pending = Pending(self._lows)
        self._frame = FRAME + len(self._header(self._pending).encode()) + self._sizes.punctuations
        self._thread = SegmentThread(self.folder)

    def _resume(self, newest: Segment | None) -> dict[tuple[str, str], int]:
        """Take the position from the newest whole segment; return the last watermarks."""
        if newest is None:
            return {}
        self.position = newest.header.position
        self.ended = newest.ended
        return dict(zip(newest.plans, newest.lows, strict=True))

    @property
    def used(self) -> int:
        """Disk space of the spool with the waiting data, at most; up to `limits.spool_bytes`."""
        waiting = self._disk_of(self._pending.bytes) if self._pending.items else 0
        return OTHER_FILES + self._held.bytes + self._thread.disk + waiting

    @property
    def waiting(self) -> int:
        """Number of rows that were appended and are not on the disk yet; a crash loses them."""
        return self._pending.rows + self._thread.rows

    @property
    def due(self) -> bool:
        """Whether the waiting items should become a segment, by size or time; for callers of `cut`."""
        first, now = self._pending.first, self._now
        # A clock that was set back must not delay a segment.
        late = first is not None and now is not None and not 0 <= now - first < self.limits.segment_time
        return bool(self._pending.items) and (late or self._pending.bytes >= self.limits.segment_bytes)

    def append(self, number: int, item: Item) -> None:
        """Append an item of a plan. Partials without rows and repeated watermarks are ignored.

        Raises SpoolFullError, without storing any part of the item, if there is no room for partials: on the disk (only
        with the policy `stop`), or in memory because the disk is slow. Punctuation is always accepted: if the segment
        has no room, a later segment contains it.
        """
        self._check_open()
        self._settle()
        size = self._sizes.of(number, item)
        if isinstance(item, Punctuation):
            if item.watermark <= self._lows[number]:
                return
            self._lows = (*self._lows[:number], item.watermark, *self._lows[number + 1 :])
            self._unsaid.add(number)
            with contextlib.suppress(SpoolFullError):
                self._make_room(size)
                self._promise(number)
        elif item.num_rows:
            if size > self.limits.spool_bytes // 4:
                raise SpoolError(
                    f"{self.folder}: got {size} bytes of partials at once, expected at most a quarter of the spool's "
                    f"{self.limits.spool_bytes}: make it larger, or the tables smaller"
                )
            self._make_room(size)
            self._pending.add(number, item, size, self._now)
        if self._pending.bytes >= self.limits.segment_bytes:
            self._rotate_unless_cut()

    def shed(self, number: int, item: Item) -> None:
        """Count partials that found no room and are dropped. Punctuation is appended."""
        if isinstance(item, Punctuation):
            self.append(number, item)
        else:
            self.counts.items_dropped[SHED] += 1
            self.counts.rows_dropped[SHED] += item.num_rows
            self._shed += item.num_rows

    def skip(self, start: int, end: int) -> None:
        """Record that packets with times in `[start, end)`, in ns, are not in the partials.

        The next segment with an item, or the last one, contains the times.
        """
        self._check_open()
        self._pending.skipped = with_skipped(self._pending.skipped, start, end)

    def tick(self, now: int) -> None:
        """Advance the time (ns since the epoch): write segments that are due, delete committed ones."""
        self._check_open()
        self._now = now
        self._settle()
        if self._looked is None or not 0 <= now - self._looked < CHECK_INTERVAL:
            self._looked = now
            self._held.delete_committed(self._committed_number())
            keep_reserve(self.folder)
            if self._thread.blocked:
                self._retry()
        self._say_what_fits()
        if self._pending.items and self._pending.first is None:
            self._pending.first = self._pending.last = now
        if self.due:
            self._rotate_unless_cut()

    def cut(self, position: str) -> None:
        """End the segment, and store the `position` in the input up to which it is complete.

        Waits until the segment before is on the disk. Has no effect without a new item.
        """
        self._check_open()
        self._wait()
        self._say_what_fits()
        if self._pending.items:
            self._frame += len(json.dumps(position)) - len(json.dumps(self.position))
            self.position = position
            self._rotate()

    def flush(self) -> None:
        """Write the waiting items, with `cuts` up to the last cut, and wait until they are on the disk.

        Raises SpoolFullError if the disk is full.
        """
        self._check_open()
        self._say_what_fits()
        if self._pending.items:
            self._rotate_unless_cut()
        self._wait()

    def close(self, ended: bool = False) -> None:
        """Write the waiting items, and the end of the link if it has `ended`; release the folder. May be called twice.

        With `cuts`, items since the last cut are dropped, unless the link has ended: they are read again. Raises
        SpoolFullError if the disk has no room; the folder is released even then.
        """
        if self._lock < 0:
            return
        try:
            self._wait()
            if ended and not self.ended:
                self._ending = True
                self._unsaid.update(number for number, low in enumerate(self._lows) if low != END)
                self._lows = (END,) * len(self.plans)
                self._say_all()  # there is always room for it
            self._say_what_fits()
            unwritten = self._pending.items or (self._pending.skipped and self._fits(0))
            if self._ending or (unwritten and not self._cuts):
                self._rotate()
            self._wait()
            self.ended |= self._ending
            self._held.delete_committed(self._committed_number())
        finally:
            self._let_go()

    def abandon(self) -> None:
        """Release the folder without the waiting items, as after a crash; with `cuts` they are read again."""
        if self._lock >= 0:
            self._let_go()

    def _let_go(self) -> None:
        self._thread.close()
        os.close(self._lock)
        self._lock = -1

    def samples(self) -> Samples:
        """Return the counters, and the age of the oldest uncommitted segment at the last `tick`."""
        try:
            committed = committed_number(self.folder)
        except OSError as error:
            if not is_shortage(error):
                raise
            committed = self._committed
        number = self._held.oldest_after(committed)
        trailer = None
        if number is not None:
            with contextlib.suppress(OSError):
                trailer = segment.read_trailer(segment_path(self.folder, number))
        first = trailer.first if trailer is not None else 0
        age = max(0, self._now - first) if first and self._now is not None else 0
        return self.counts.samples(self.link, len(self._held), self.used, age)

    def _committed_number(self) -> int:
        """Return the last commit, or the last known one if there is no free file descriptor."""
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
        """Delete committed segments, and drop the oldest if that is the policy, until `size` bytes fit."""
        if len(self._thread) and self._thread.bytes + self._pending.bytes + size > self._most_waiting:
            raise SpoolFullError(f"{self.folder}: the disk is slower than what comes for link {self.link}")
        if self._fits(size):
            return
        self._held.delete_committed(self._committed_number())
        while not self._fits(size):
            if self.limits.when_full is WhenFull.STOP or len(self._held) < 2:
                raise SpoolFullError(
                    f"{self.folder}: full: {self.used} of {self.limits.spool_bytes} bytes, of nothing that the reader"
                    " has committed"
                )
            self._drop_oldest()

    def _fits(self, size: int) -> bool:
        """Return whether `size` more bytes fit, and a segment of punctuation after them."""
        others = OTHER_FILES + self._held.bytes + self._thread.disk
        return others + self._disk_of(self._pending.bytes + size) + self._disk_of(0) <= self.limits.spool_bytes

    def _disk_of(self, items: int) -> int:
        """Return the largest disk space of a segment with this many bytes of items."""
        return disk_bytes(items + self._frame)

    def _drop_oldest(self) -> None:
        """Delete the oldest segment, though it is not committed."""
        number = self._held.oldest
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
        self._held.delete(number)

    def _header(self, pending: Pending) -> Header:
        return Header(
            link=self.link,
            number=self._next,
            epoch=self._epoch,
            plans=self.plans,
            lows=pending.lows,
            rows_before=self._rows,
            shed_before=self._shed,
            ended=self._ending,
            position=self.position,
            skipped=tuple(pending.skipped),
        )

    def _promise(self, number: int) -> None:
        """Add the last punctuation of a plan to the segment."""
        self._unsaid.discard(number)
        item = Punctuation(self.link, self._lows[number])
        self._pending.add(number, item, self._sizes.of(number, item), self._now)

    def _say_all(self) -> None:
        """Add the punctuations that found no room before."""
        for number in sorted(self._unsaid):
            self._promise(number)

    def _say_what_fits(self) -> None:
        """Add them if there is room now."""
        if self._unsaid and self._fits(self._sizes.punctuations):
            self._say_all()

    def _rotate_unless_cut(self) -> None:
        if not self._cuts:
            self._rotate()

    def _rotate(self) -> None:
        """Pass the pending segment to the thread."""
        pending = self._pending
        self._thread.submit(self._header(pending), pending, self._disk_of(pending.bytes))
        self._next += 1
        self._rows += pending.rows
        self._pending = Pending(self._lows)

    def _settle(self) -> None:
        """Account for segments that have been written."""
        for trailer, size in self._thread.written():
            self._held.add(trailer.number, size)
            self.counts.segments += 1
            self.counts.bytes += size
            self.counts.items += trailer.items
            self.counts.rows += trailer.rows

    def _retry(self) -> None:
        """Write blocked segments again; if the disk was full, first delete segments that may be deleted."""
        full = is_full(self._thread.blocked)
        self.counts.retries[DISK if full else DESCRIPTORS] += 1
        self._held.delete_committed(self._committed_number())
        if full and self.limits.when_full is WhenFull.OLDEST and len(self._held) > 1:
            with contextlib.suppress(SpoolFullError):  # no free file descriptor
                self._drop_oldest()
        self._thread.retry()

    def _wait(self) -> None:
        """Wait until all segments are written.

        Raises SpoolFullError if the disk is full, or if no file descriptor was free for SHORTAGE_PATIENCE seconds.
        """
        self._thread.wait()
        self._settle()
        if self._thread.blocked:
            self._try_again()
        until, pause = time.monotonic() + SHORTAGE_PATIENCE, FIRST_PAUSE
        while is_shortage(self._thread.blocked) and time.monotonic() < until:
            time.sleep(pause)
            pause = min(2 * pause, 0.5)
            self._try_again()
        if is_full(self._thread.blocked):
            raise SpoolFullError(f"{self.folder}: the disk is full; free some space")
        if self._thread.blocked:
            raise SpoolFullError(
                f"{self.folder}: no free file descriptor for {SHORTAGE_PATIENCE:g} s; raise the limit (ulimit -n)"
            )

    def _try_again(self) -> None:
        self._retry()
        self._thread.wait()
        self._settle()
