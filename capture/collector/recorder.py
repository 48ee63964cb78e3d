"""Recorder: writes batches into chunks with a kernel. It owns the exporter table, allow-list and state of the kernel.

The exporter table counts datagrams by sender. An exporter gets an index with its first datagram, until the limit is
reached. All later exporters are counted together as `other`. They never get an index later, because then their counters
would jump and the rates in Prometheus would be wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import numpy as np
import numpy.typing as npt

from capture.collector.chunks import BATCH_DATAGRAMS, CHUNK_BYTES, TIME, Batch, Chunk
from capture.collector.records import (
    BYTES,
    CHUNK_OFFSET,
    COUNT_WORDS,
    DATAGRAMS,
    EXPORTER_COUNT,
    FILE_BYTES,
    FILE_END,
    FILE_FULL,
    FILE_START,
    KEY_WORDS,
    LONGEST_RECORD,
    NEWEST,
    PREFIX_WORDS,
    RECORDED,
    REFUSED,
    STATE_WORDS,
    STATUS,
    record_datagrams,
)
from capture.collector.settings import Settings
from capture.collector.sockets import UdpSocket
from capture.files.pcap import FILE_HEADER_BYTES
from capture.lazy_dataclasses import dataclass
from capture.native import pointer

OTHER_LABEL = "other"
"""Label of all exporters without an index."""

TWO_64 = 2**64


@dataclass(frozen=True)
class ExporterCounts:
    """Counters of one exporter: datagrams, payload bytes, and arrival time of the newest datagram (ns)."""

    datagrams: int
    bytes: int
    newest: int


class Exporters:
    """The kernel's hash table of exporters, and their counters. It uses open addressing and is at most half full."""

    def __init__(self, limit: int) -> None:
        """Create a table for `limit` exporters."""
        slots = 1 << (2 * limit - 1).bit_length()
        self.limit = limit
        self.mask = slots - 1
        self.keys: npt.NDArray[np.int64] = np.zeros((slots, KEY_WORDS), np.int64)
        self.counts: npt.NDArray[np.int64] = np.zeros((limit + 1, COUNT_WORDS), np.int64)

    def copy(self) -> Exporters:
        """Return a copy of the table, which can be read while the kernel continues."""
        table_copy = Exporters(self.limit)
        table_copy.keys[:], table_copy.counts[:] = self.keys, self.counts
        return table_copy

    def snapshot(self) -> dict[str, ExporterCounts]:
        """Return the counters by address (as text, RFC 5952), and the counters of `other` if it has datagrams."""
        counters = {}
        for version, high, low, index in self.keys[self.keys[:, 0] != 0].tolist():
            counters[_address_text(version, high % TWO_64, low % TWO_64)] = _exporter_counts(self.counts[index])
        if self.counts[self.limit, DATAGRAMS]:
            counters[OTHER_LABEL] = _exporter_counts(self.counts[self.limit])
        return counters


def _address_text(version: int, high: int, low: int) -> str:
    return str(IPv4Address(low) if version == 4 else IPv6Address(high * TWO_64 + low))


def _exporter_counts(row: npt.NDArray[np.int64]) -> ExporterCounts:
    return ExporterCounts(int(row[DATAGRAMS]), int(row[BYTES]), int(row[NEWEST]))


def allowed_prefixes(networks: Sequence[IPv4Network | IPv6Network]) -> npt.NDArray[np.int64]:
    """Return the allow-list for the kernel: PREFIX_WORDS words per network."""
    rows = np.zeros((len(networks), PREFIX_WORDS), np.uint64)
    for row, network in zip(rows, networks, strict=True):
        mask = (
            int(network.netmask)
            if network.version == 6
            else int(network.netmask) | (TWO_64 - 1) << 64 | 0xFFFFFFFF << 32
        )
        row[:] = [network.version, *divmod(int(network.network_address), TWO_64), *divmod(mask, TWO_64)]
    return rows.view(np.int64).reshape(-1)


assert CHUNK_BYTES >= LONGEST_RECORD


class Recorder:
    """Writes batches into chunks. It counts the datagrams, and decides with which datagram a file begins."""

    def __init__(self, settings: Settings, batch: Batch) -> None:
        """Record the datagrams that receivers write to `batch`."""
        self.exporters = Exporters(settings.exporters)
        self._settings = settings
        self._batch = batch
        self._prefixes = allowed_prefixes(settings.allow)
        self._state = np.zeros(STATE_WORDS, np.int64)
        self._state[FILE_BYTES] = settings.rotate_size  # a full file, so that the first datagram begins another file
        self._batch_pointers = pointer(batch.slots, "u8"), pointer(batch.rows, "i64")
        self._table_pointers = pointer(self.exporters.keys, "i64"), pointer(self.exporters.counts, "i64")

    @property
    def refused(self) -> int:
        """Number of datagrams from senders that are not allowed."""
        return int(self._state[REFUSED])

    @property
    def exporter_count(self) -> int:
        """Number of exporters with separate counters."""
        return int(self._state[EXPORTER_COUNT])

    def record(self, udp: UdpSocket, first: int, count: int, chunk: Chunk) -> int:
        """Record datagrams `[first, count)` of the batch. Return the index of the next datagram, or `count`.

        `udp` is the socket that received them. If fewer datagrams than `count` fit into `chunk`, call this again with
        another chunk. If `file_due` is True, this other chunk must begin a new file.
        """
        slots, rows = self._batch_pointers
        keys, counts = self._table_pointers
        exporters, state = self.exporters, self._state
        state[CHUNK_OFFSET] = chunk.used_bytes
        recorded_before = int(state[RECORDED])
        next_datagram = record_datagrams(
            slots, rows, first, count, udp.port, keys, exporters.mask, counts, exporters.limit, self._prefixes,
            len(self._settings.allow), chunk.data, CHUNK_BYTES, self._settings.rotate_size, self._settings.rotate_every,
            state,
        )  # fmt: skip
        chunk.used_bytes = int(state[CHUNK_OFFSET])
        chunk.datagram_count += int(state[RECORDED]) - recorded_before
        return next_datagram

    @property
    def file_due(self) -> bool:
        """True if the next datagram must begin a new file."""
        return int(self._state[STATUS]) == FILE_FULL

    def begin_file(self, index: int) -> int:
        """Begin a file with the datagram at `index` of the batch. Return the time of the datagram (ns)."""
        assert 0 <= index < BATCH_DATAGRAMS
        time = int(self._batch.rows[index, TIME])
        interval = self._settings.rotate_every
        start = time // interval * interval if interval else time
        self._state[FILE_START], self._state[FILE_END], self._state[FILE_BYTES] = (
            start,
            start + interval,
            FILE_HEADER_BYTES,
        )
        return time
