"""A batch: the datagrams of one look at a socket, as the receivers leave them and the recorder takes them.

Payloads lie in slots that hold the longest datagram there is, so none is ever cut. What the system tells beside them
is a row of int64 each, whichever receiver it comes from: the part that depends on the system ends here.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from capture.collector.sockets import UdpSocket

BATCH = 256
"""Datagrams taken at a time."""

SLOT = 65_536
"""Bytes of a slot: more than 65 527, the longest payload of UDP without jumbograms."""

STRIDE = SLOT + 192
"""Bytes from slot to slot: at a power of two all of them would fall into the same few sets of the cache."""

LENGTH, TIME, VERSION, SRC_HIGH, SRC_LOW, SRC_PORT, DEST_HIGH, DEST_LOW, ROW = range(9)
"""Places in a row: payload bytes; ns; 4 or 6; sender and the local address it wrote to as two halves; ROW is the width.
"""


class Batch:
    """Slots and rows that are used again for every batch. Memory that no datagram has touched is never allocated."""

    def __init__(self) -> None:
        """Reserve the address space."""
        self.slots: npt.NDArray[np.uint8] = np.empty(BATCH * STRIDE, np.uint8)
        self.rows: npt.NDArray[np.int64] = np.zeros((BATCH, ROW), np.int64)


class Receiver(Protocol):
    """Takes what a socket holds into a batch, without waiting."""

    def receive(self, udp: UdpSocket) -> int:
        """Fill slots and rows from the first on; return how many datagrams there were, 0 to BATCH."""
        ...
