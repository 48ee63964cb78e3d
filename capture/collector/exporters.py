"""Who sends: the exporters that are counted one by one, in tables of fixed size, and who may send at all.

An exporter has a number from its first datagram on, as long as there are numbers; all that come later are counted
together, as `other`. Nobody ever moves from `other` to a number of his own or back: his counters would jump, and the
rates that Prometheus computes from them with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import numpy as np
import numpy.typing as npt

from capture.collector.records import BYTES, COUNTS, DATAGRAMS, KEY, NEWEST, PREFIX

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
