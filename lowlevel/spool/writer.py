"""Writing a spool: items are collected in memory, and a thread beside the caller's makes segments of them.

Nothing here waits for the disk but `cut`, `flush` and `close`. What waits for it is bounded; beyond that the spool is
full, whatever the disk holds.
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
from lowlevel.spool.pending import ItemSizes, Pending
from lowlevel.spool.segment import Header, Segment
from lowlevel.spool.segment_thread import SegmentThread, is_full
from lowlevel.spool.takeover import committed_number, take_over

FRAME = 2048
"""Bytes of a segment's file that are neither items nor header, at most: schema, messages, trailer."""

OTHER_FILES = 7 * BLOCK
"""Disk of the files that are not segments: locks, two files with their successors, and the reserve."""

LEAST_WAITING = 1 << 23
"""Bytes that may wait for the disk however small segments are; else it is two segments."""

LOOK = 10**8
"""Time (ns) between two looks at what the reader has committed, and whether a full disk has room again."""

SHORTAGE_PATIENCE = 10.0
"""Seconds that `cut`, `flush` and `close` wait for a free file descriptor before they report a full spool."""


class SpoolWriter:
    """The one writer of a spool. One thread uses it, and closes it.

    Memory: two segments or 8 MiB, and what one item is longer; once more while a segment is encoded. The numbers of
    segments go on where the last writer stopped, and so do promises: a punctuation that says no more than an earlier
    one is not written again.
    """

    def __init__(
        self,
        folder: Path,
        link: str,
        plans: Sequence[tuple[str, str]],
        limits: SpoolLimits | None = None,
        cuts: bool = False,
    ) -> None:
        """Make the folder, take it for this writer, and find where the last one stopped.

        `plans` are names, all different, and fingerprints; items are numbered by their place. With `cuts` segments end
        where `cut` says and nowhere else. Where the link has `ended` in this folder, nothing but `close` can be done.
        Raises SpoolError where another writer is at work, or the spool is another link's, and with `cuts` where the
        newest segment is damaged or missing and reading again from an older one could repeat what was read.
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
        self._most_waiting = max(2 * self.limits.segment_bytes, LEAST_WAITING)
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
        """Take over the position from the newest segment that is whole; return the last promises."""
        if newest is None:
            return {}
        self.position = newest.header.position
        self.ended = newest.ended
        return dict(zip(newest.plans, newest.lows, strict=True))

    @property
    def used(self) -> int:
        """Bytes of disk that the spool takes at most, with what waits to be written; up to `limits.spool_bytes`."""
        waiting = self._disk_of(self._pending.bytes) if self._pending.items else 0
        return OTHER_FILES + self._held.bytes + self._thread.disk + waiting

    @property
    def waiting(self) -> int:
        """Rows that were appended and are not on the disk yet; a crash loses them."""
        return self._pending.rows + self._thread.rows

    @property
    def due(self) -> bool:
        """Whether what waits makes a segment, by its size or by its time; for those who `cut`."""
        first, now = self._pending.first, self._now
        # A clock that was set back must not make a segment wait for it.
        late = first is not None and now is not None and not 0 <= now - first < self.limits.segment_time
        return bool(self._pending.items) and (late or self._pending.bytes >= self.limits.segment_bytes)

    def append(self, number: int, item: Item) -> None:
        """Take in an item of a plan. Partials without rows, and promises that were made before, say nothing.

        Raises SpoolFullError where there is no room for partials, of which then nothing was taken: on the disk, which
        happens with the policy `stop` alone, or in memory, because the disk is slow. Punctuation always has room: where
        the segment has none, a later one says it.
        """
        self._check_open()
        self._settle()
        size = self._sizes.of(number, item)
        if isinstance(item, Punctuation):
            if item.low <= self._lows[number]:
                return
            self._lows = (*self._lows[:number], item.low, *self._lows[number + 1 :])
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
        """Count partials that found no room and will not be appended again. Punctuation is appended all the same."""
        if isinstance(item, Punctuation):
            self.append(number, item)
        else:
            self.counts.items_dropped[SHED] += 1
            self.counts.rows_dropped[SHED] += item.num_rows
            self._shed += item.num_rows

    def tick(self, now: int) -> None:
        """Say what time it is (ns since the epoch); segments that are due are written, committed ones deleted."""
        self._check_open()
        self._now = now
        self._settle()
        if self._looked is None or not 0 <= now - self._looked < LOOK:
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
        """End the segment here, and note what place of the input it goes up to; `position` of the next writer.

        Waits until the segment before is on the disk. Nothing happens where no item came since the last one.
        """
        self._check_open()
        self._wait()
        self._say_what_fits()
        if self._pending.items:
            self._frame += len(json.dumps(position)) - len(json.dumps(self.position))
            self.position = position
            self._rotate()

    def flush(self) -> None:
        """Write what waits, with `cuts` up to the last one, and wait until it is on the disk.

        Raises SpoolFullError where the disk is full.
        """
        self._check_open()
        self._say_what_fits()
        if self._pending.items:
            self._rotate_unless_cut()
        self._wait()

    def close(self, ended: bool = False) -> None:
        """Write what waits, with the end of the link where it has `ended`, and let go of the folder; twice is once.

        With `cuts` what came since the last one is left out, unless the link has ended: it is read again. Raises
        SpoolFullError where the disk has no room even for that; the folder is free all the same.
        """
        if self._lock < 0:
            return
        try:
            self._wait()
            if ended and not self.ended:
                self._ending = True
                self._unsaid.update(number for number, low in enumerate(self._lows) if low != END)
                self._lows = (END,) * len(self.plans)
                self._say_all()  # room was kept for it
            self._say_what_fits()
            if self._ending or (self._pending.items and not self._cuts):
                self._rotate()
            self._wait()
            self.ended |= self._ending
            self._held.delete_committed(self._committed_number())
        finally:
            self._let_go()

    def abandon(self) -> None:
        """Let go of the folder without what waits, as a crash would; with `cuts` it will be read again."""
        if self._lock >= 0:
            self._let_go()

    def _let_go(self) -> None:
        self._thread.close()
        os.close(self._lock)
        self._lock = -1

    def samples(self) -> Samples:
        """Return the counters; the age of the oldest uncommitted segment is that at the last `tick`."""
        number = self._held.oldest_after(self._committed_number())
        trailer = None
        if number is not None:
            with contextlib.suppress(OSError):
                trailer = segment.read_trailer(segment_path(self.folder, number))
        first = trailer.first if trailer is not None else 0
        age = max(0, self._now - first) if first and self._now is not None else 0
        return self.counts.samples(self.link, len(self._held), self.used, age)

    def _committed_number(self) -> int:
        """Return what the reader has committed, or the last known number if there is no free file descriptor."""
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
        """Delete what was committed, and drop the oldest where that is the policy, until `size` bytes have room."""
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
        """Whether there is room for further bytes, and after them for one segment of nothing but punctuation."""
        others = OTHER_FILES + self._held.bytes + self._thread.disk
        return others + self._disk_of(self._pending.bytes + size) + self._disk_of(0) <= self.limits.spool_bytes

    def _disk_of(self, items: int) -> int:
        """Disk that a segment takes at most with so many bytes of items."""
        return disk_bytes(items + self._frame)

    def _drop_oldest(self) -> None:
        """Delete the oldest segment, though nobody has committed it."""
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
        )

    def _promise(self, number: int) -> None:
        """Write down the last punctuation of a plan."""
        self._unsaid.discard(number)
        item = Punctuation(self.link, self._lows[number])
        self._pending.add(number, item, self._sizes.of(number, item), self._now)

    def _say_all(self) -> None:
        """Write down the punctuations that found no room."""
        for number in sorted(self._unsaid):
            self._promise(number)

    def _say_what_fits(self) -> None:
        """Write them down if there is room by now."""
        if self._unsaid and self._fits(self._sizes.punctuations):
            self._say_all()

    def _rotate_unless_cut(self) -> None:
        if not self._cuts:
            self._rotate()

    def _rotate(self) -> None:
        """Give what is pending to the thread that writes."""
        pending = self._pending
        self._thread.submit(self._header(pending), pending, self._disk_of(pending.bytes))
        self._next += 1
        self._rows += pending.rows
        self._pending = Pending(self._lows)

    def _settle(self) -> None:
        """Take note of segments that have been written."""
        for trailer, size in self._thread.written():
            self._held.add(trailer.number, size)
            self.counts.segments += 1
            self.counts.bytes += size
            self.counts.items += trailer.items
            self.counts.rows += trailer.rows

    def _retry(self) -> None:
        """Try again to write what was blocked; if the disk was full, delete what can be deleted before."""
        full = is_full(self._thread.blocked)
        self.counts.retries[DISK if full else DESCRIPTORS] += 1
        self._held.delete_committed(self._committed_number())
        if full and self.limits.when_full is WhenFull.OLDEST and len(self._held) > 1:
            with contextlib.suppress(SpoolFullError):  # no free file descriptor
                self._drop_oldest()
        self._thread.retry()

    def _wait(self) -> None:
        """Wait until nothing is being written.

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
