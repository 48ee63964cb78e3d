"""InterfaceCapture: reads the packets of a live interface from the blocks of its ring, without copies."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from capture.errors import InputError
from capture.files.blocks import BLOCK_RECORDS, BLOCK_WORDS, CONTINUE, NO_WATERMARK, Block, WalkState
from capture.files.byte_source import WAIT_SECONDS
from capture.files.followed import NoBytes
from capture.files.ring_frames import RingFormat
from capture.files.stream import StreamedCapture
from capture.interface_path import BLOCK_BYTES, parse_interface
from capture.live.ring import BLOCK_TIMEOUT, Ring
from capture.metrics import (
    INTERFACE_BLOCKS,
    INTERFACE_DOWN,
    INTERFACE_DROPPED,
    INTERFACE_FREEZES,
    INTERFACE_RECEIVED,
    INTERFACE_RING_BYTES,
    INTERFACE_TRUNCATED,
    INTERFACE_UNREADABLE,
    INTERFACE_WAITING,
    Samples,
)

INTERFACE_GONE = "interface_gone"
"""Damage of an interface that was deleted or moved to another network namespace."""

MAX_DRAIN_SECONDS = 1.0
"""Maximum seconds to wait at the end for packets that the kernel has counted and the ring has not yielded."""


class InterfaceCapture(StreamedCapture):
    """The packets of an interface from now on. The capture ends if it is stopped or the interface disappears.

    * `data` is the kernel's ring. A ring block returns to the kernel **when the next block is requested**. One ring
      block may yield several blocks. Their `watermark` is NO_WATERMARK.
    * `blocks` yields None if the kernel had no block for WAIT_SECONDS. A partly filled block may still contain packets,
      for up to two times BLOCK_TIMEOUT; then the capture is not `is_idle`.
    * If the interface goes down, this is counted, and the capture waits for it. If the interface disappears, the
      capture reads the remaining packets of the ring and ends with `damage` INTERFACE_GONE.
    * After `stop` no packet enters the ring, and the packets in it are read. At the end, every packet that the kernel
      received was a record, or is counted as dropped or unreadable.
    """

    has_writer = False

    def __init__(self, path: Path) -> None:
        """Open `interface:NAME?options` and begin to receive. Needs Linux and the capability CAP_NET_RAW.

        Raises InputError if the interface cannot be captured, SettingError for an invalid path.
        """
        super().__init__(path, NoBytes())
        settings = parse_interface(path)
        self.ring = Ring(settings)
        self.data = self.ring.data
        self._ring_format = RingFormat(settings.name, self.ring.hardware.link_type)
        self._format = self._ring_format
        self._bytes = 0
        self._packets = 0
        self._unreadable = 0
        self._waiting_blocks = 0
        self._waiting_share = 0.0
        self._down_count = 0 if self.ring.is_up else 1

    @property
    def consumed(self) -> int:
        """Bytes of the ring's blocks read so far, with headers."""
        return self._bytes

    @property
    def is_idle(self) -> bool:
        """True if, after a None, the ring is empty: all packets that the kernel has counted have been read."""
        return self._unread <= 0

    @property
    def occupancy(self) -> float:
        """Share of the ring's bytes that waited, without the current block, when the last block was requested.

        Bytes are counted, not blocks, because the kernel also retires nearly empty blocks.
        """
        return self._waiting_share

    def blocks(self, block_records: int = BLOCK_RECORDS) -> Iterator[Block | None]:
        """Yield blocks until the capture is stopped or the interface disappears. Yield None after WAIT_SECONDS.

        Only one iterator may exist. Raises InputError if the socket fails.
        """
        end_time: float | None = None
        try:
            while True:
                if end_time is None and (self._stopped.is_set() or self.ring.is_gone):
                    end_time = time.monotonic()
                    self.damage = None if self._stopped.is_set() else INTERFACE_GONE
                    self.ring.stop()
                ring_block = self._next_block(WAIT_SECONDS if end_time is None else BLOCK_TIMEOUT / 1000)
                self._update_statistics()
                if ring_block is not None:
                    yield from self._walk_ring(*ring_block, block_records)
                    self.ring.return_block()
                elif end_time is None:
                    yield None
                elif self._unread <= 0 or time.monotonic() - end_time > MAX_DRAIN_SECONDS:
                    return
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        finally:
            self._waiting_blocks = 0
            self._waiting_share = 0.0

    def _next_block(self, wait: float) -> tuple[int, int, int] | None:
        try:
            return self.ring.next(wait)
        except OSError as error:
            if error.errno != errno.ENETDOWN:
                raise
            self._down_count += 1
            return None

    @property
    def _unread(self) -> int:
        """Number of packets in the ring, by the last statistics of the kernel."""
        return self.ring.received - self.ring.dropped - self._packets

    def _walk_ring(self, first: int, end: int, packets: int, block_records: int) -> Iterator[Block]:
        """Walk the frames of one retired ring block and yield their blocks."""
        state = WalkState(first)
        row = np.empty((1, BLOCK_WORDS), np.int64)
        walked_records = 0
        while state.status == CONTINUE and first < end:
            if self._ring_format.walk(self.data, end, block_records, row, state):
                begin, after, records, earliest, latest, _ = row[0].tolist()
                walked_records += records
                yield Block(begin, after, records, earliest, latest, NO_WATERMARK)
        self._packets += packets
        self._unreadable += max(0, packets - walked_records)
        self._bytes += end - first

    def _update_statistics(self) -> None:
        self.ring.update_counters()
        self._waiting_blocks, self._waiting_share = self.ring.waiting, self.ring.fill_level

    def samples(self, link: str) -> Samples:
        """Return the ring's statistics and the counters of its packets. Any thread may call this."""
        samples = Samples()
        samples.add(INTERFACE_RECEIVED, self.ring.received, link)
        samples.add(INTERFACE_DROPPED, self.ring.dropped, link)
        samples.add(INTERFACE_FREEZES, self.ring.freezes, link)
        samples.add(INTERFACE_TRUNCATED, self._ring_format.truncated, link)
        samples.add(INTERFACE_UNREADABLE, self._unreadable, link)
        samples.add(INTERFACE_DOWN, self._down_count, link)
        samples.set(INTERFACE_WAITING, self._waiting_blocks, link)
        samples.set(INTERFACE_BLOCKS, self.ring.blocks, link)
        samples.set(INTERFACE_RING_BYTES, self.ring.blocks * BLOCK_BYTES, link)
        return samples

    def close(self) -> None:
        """Close the interface. The iterator of `blocks` must have ended or have been closed."""
        self.data = np.empty(0, np.uint8)
        self.ring.close()
