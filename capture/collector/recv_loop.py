"""Receiving where there is no recvmmsg (macOS): one datagram with each call.

The time is that of reading and not of arrival, and the local address the one that the socket is bound to: for a socket
on all addresses that is 0.0.0.0 or ::.
"""

from __future__ import annotations

import ipaddress
import time

import numpy as np

from capture.collector.batch import BATCH, SLOT, STRIDE, Batch
from capture.collector.sockets import UdpSocket


class LoopReceiver:
    """Takes up to BATCH datagrams, one after the other."""

    def __init__(self, batch: Batch) -> None:
        """Fill this batch."""
        self.batch = batch
        view = batch.slots.data
        self._slots = [view[place * STRIDE : place * STRIDE + SLOT] for place in range(BATCH)]

    def receive(self, udp: UdpSocket) -> int:
        """Take what is there, as Receiver says."""
        for place, slot in enumerate(self._slots):
            try:
                length, (host, port, *_) = udp.socket.recvfrom_into(slot)
            except (BlockingIOError, InterruptedError, ConnectionRefusedError):
                return place
            sender = ipaddress.ip_address(host.partition("%")[0])
            self.batch.rows[place] = [
                length, time.time_ns(), sender.version, *halves(sender), port, *halves(udp.address),
            ]  # fmt: skip
        return BATCH


def halves(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> tuple[int, int]:
    """Split an address into its upper and lower 64 bits, as signed numbers of the same bits.

    >>> halves(ipaddress.ip_address("10.0.0.1")), halves(ipaddress.ip_address("::ffff:ffff:ffff:ffff"))
    ((0, 167772161), (0, -1))
    """
    high, low = np.array(divmod(int(address), 2**64), np.uint64).view(np.int64).tolist()
    return high, low
