"""From batches to chunks of records: the recording kernel with its tables and state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import numpy as np
import numpy.typing as npt

from capture.collector.chunks import BATCH, CHUNK_BYTES, TIME, Batch, Chunk
from capture.collector.records import (
    AT,
    BYTES,
    COUNTS,
    DATAGRAMS,
    FILE_BYTES,
    FILE_FULL,
    HIGH,
    KEY,
    KNOWN,
    LONGEST_RECORD,
    LOW,
    NEWEST,
    PREFIX,
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

# Who sends: the exporters that are counted one by one, in tables of fixed size, and who may send at all.
#
# An exporter has a number from its first datagram on, as long as there are numbers; all that come later are counted
# together, as `other`. Nobody ever moves from `other` to a number of his own or back: his counters would jump, and the
# rates that Prometheus computes from them with them.


OTHER = "other"
"""Name of all exporters that have no number."""

HALF = 2**64


@dataclass(frozen=True)
class ExporterCounts:
    """What one exporter sent: datagrams, bytes of payload, and the newest time of arrival (ns)."""

    datagrams: int
    bytes: int
    newest: int


class Exporters:
    """The table that the kernel looks exporters up in, and their counters. Open addressing, at most half full."""

    def __init__(self, limit: int) -> None:
        """Make room for `limit` exporters."""
        slots = 1 << (2 * limit - 1).bit_length()
        self.limit = limit
        self.mask = slots - 1
        self.keys: npt.NDArray[np.int64] = np.zeros((slots, KEY), np.int64)
        self.counts: npt.NDArray[np.int64] = np.zeros((limit + 1, COUNTS), np.int64)

    def copy(self) -> Exporters:
        """Copy the table as it is now, to be read while the kernel goes on."""
        copied = Exporters(self.limit)
        copied.keys[:], copied.counts[:] = self.keys, self.counts
        return copied

    def snapshot(self) -> dict[str, ExporterCounts]:
        """Counters by exporter, addresses in the form of RFC 5952; `other` is there when anybody is counted in it."""
        found = {}
        for version, high, low, number in self.keys[self.keys[:, 0] != 0].tolist():
            found[_text(version, high % HALF, low % HALF)] = _counts(self.counts[number])
        if self.counts[self.limit, DATAGRAMS]:
            found[OTHER] = _counts(self.counts[self.limit])
        return found


def _text(version: int, high: int, low: int) -> str:
    return str(IPv4Address(low) if version == 4 else IPv6Address(high * HALF + low))


def _counts(row: npt.NDArray[np.int64]) -> ExporterCounts:
    return ExporterCounts(int(row[DATAGRAMS]), int(row[BYTES]), int(row[NEWEST]))


def allowed_prefixes(networks: Sequence[IPv4Network | IPv6Network]) -> npt.NDArray[np.int64]:
    """Lay out an allow-list for the kernel: PREFIX words for each."""
    rows = np.zeros((len(networks), PREFIX), np.uint64)
    for row, network in zip(rows, networks, strict=True):
        mask = (
            int(network.netmask) if network.version == 6 else int(network.netmask) | (HALF - 1) << 64 | 0xFFFFFFFF << 32
        )
        row[:] = [network.version, *divmod(int(network.network_address), HALF), *divmod(mask, HALF)]
    return rows.view(np.int64).reshape(-1)


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
