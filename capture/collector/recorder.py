"""From batches to chunks of records: the recording kernel with its tables and state."""

from __future__ import annotations

import numpy as np

from capture.collector.batch import BATCH, TIME, Batch
from capture.collector.chunks import CHUNK_BYTES, Chunk
from capture.collector.exporters import Exporters, allowed_prefixes
from capture.collector.records import (
    AT,
    FILE_BYTES,
    FILE_FULL,
    HIGH,
    KNOWN,
    LONGEST_RECORD,
    LOW,
    RECORDED,
    REFUSED,
    STATES,
    STATUS,
    record_datagrams,
)
from capture.collector.settings import Settings
from capture.collector.sockets import UdpSocket
from capture.files.pcap import FILE_HEADER
from capture.native import pointer

assert CHUNK_BYTES >= LONGEST_RECORD


class Recorder:
    """Writes the datagrams of one batch into chunks, counts them, and says where files begin."""

    def __init__(self, settings: Settings, batch: Batch) -> None:
        """Record what receivers leave in `batch`."""
        self.exporters = Exporters(settings.exporters)
        self._settings = settings
        self._batch = batch
        self._prefixes = allowed_prefixes(settings.allow)
        self._state = np.zeros(STATES, np.int64)
        self._state[FILE_BYTES] = settings.rotate_size  # there is no file yet: the first datagram begins one
        self._from_batch = pointer(batch.slots, "u8"), pointer(batch.rows, "i64")
        self._tables = pointer(self.exporters.keys, "i64"), pointer(self.exporters.counts, "i64")

    @property
    def refused(self) -> int:
        """Datagrams of senders that are not allowed."""
        return int(self._state[REFUSED])

    @property
    def known(self) -> int:
        """Exporters that are counted one by one."""
        return int(self._state[KNOWN])

    def record(self, udp: UdpSocket, first: int, count: int, chunk: Chunk) -> int:
        """Record datagrams `[first, count)` that came to `udp`; return the first that needs another chunk, or `count`.

        Where `file_due` says so, that chunk begins a file.
        """
        slots, rows = self._from_batch
        keys, counts = self._tables
        exporters, state = self.exporters, self._state
        state[AT] = chunk.used
        before = int(state[RECORDED])
        left = record_datagrams(
            slots, rows, first, count, udp.port, keys, exporters.mask, counts, exporters.limit, self._prefixes,
            len(self._settings.allow), chunk.data, CHUNK_BYTES, self._settings.rotate_size, self._settings.rotate_every,
            state,
        )  # fmt: skip
        chunk.used = int(state[AT])
        chunk.datagrams += int(state[RECORDED]) - before
        return left

    @property
    def file_due(self) -> bool:
        """Whether the datagram that was left belongs into another file."""
        return int(self._state[STATUS]) == FILE_FULL

    def begin_file(self, place: int) -> int:
        """Let the next file begin with the datagram at `place` of the batch; return its time (ns)."""
        assert 0 <= place < BATCH
        time = int(self._batch.rows[place, TIME])
        every = self._settings.rotate_every
        low = time // every * every if every else time
        self._state[LOW], self._state[HIGH], self._state[FILE_BYTES] = low, low + every, FILE_HEADER
        return time
