"""A packet socket and its ring of blocks, which the kernel fills with frames (packet(7), packet_mmap.rst).

    kernel fills ──► retired: full, or BLOCK_TIMEOUT has passed ──► read in place ──► returned

The ring is mapped into this process, so frames are not copied after the kernel has written them. If all blocks are
retired and none is returned, the kernel drops frames and counts them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import select
import socket
import struct
import weakref

import numpy as np
import numpy.typing as npt

from capture.errors import InputError
from capture.files.ring_frames import BLOCK_FIRST, BLOCK_HEADER, BLOCK_PACKETS, BLOCK_STATUS, BLOCK_USED, GAP_BYTES
from capture.interface_path import BLOCK_BYTES, INTERFACE_PREFIX, InterfaceSettings
from capture.live.hardware import LOOPBACK, Hardware, hardware_of
from capture.live.packet_socket import explain_ring_error, open_socket

BLOCK_TIMEOUT = 100
"""Milliseconds between two checks of the current block by the kernel. The kernel retires a partly filled block at the
second check, so a packet can be delayed by twice this time."""

SOL_PACKET, SO_ATTACH_FILTER = 263, 26
ADD_MEMBERSHIP, RX_RING, STATISTICS, VERSION, PACKET_RESERVE, IGNORE_OUTGOING = 1, 5, 6, 10, 12, 23
TPACKET_V3, PROMISCUOUS, ETH_P_ALL = 2, 1, 3
GET_FLAGS, GET_HARDWARE = 0x8913, 0x8927
"""Values of these constants in Linux (linux/if_packet.h, linux/sockios.h). Python does not define them."""

REQUEST_STRUCT = struct.Struct("@7I")
"""struct tpacket_req3: size and number of blocks, size and number of frames, timeout, private bytes, features."""

MEMBERSHIP_STRUCT = struct.Struct("@iHH8x")
STATISTICS_STRUCT = struct.Struct("@3I")
"""struct tpacket_stats_v3: packets, including dropped packets; drops; number of times that the ring became full."""

FRAME_BYTES = 2048
"""Frame size in the ring request. The kernel only checks that all frames together have the size of the ring."""

RETURN = 0x06
"""BPF instruction that returns the number of bytes to capture."""

RETIRED = 1
"""Bit of a block's status: the kernel has retired the block."""

UP = 1
"""Bit of an interface's flags: the interface is up."""


def compute_waiting_share(status: npt.NDArray[np.uint32], used: npt.NDArray[np.uint32], current: int) -> float:
    """Return the share (0 to 1) of a ring's bytes that wait in retired blocks other than `current`.

    The kernel retires a block after a timeout, even if the block contains a single packet. So many waiting blocks of a
    quiet link may contain few bytes.
    """
    waiting = np.minimum(used, BLOCK_BYTES) * ((status & RETIRED) != 0)
    return float(waiting.sum(dtype=np.int64) - waiting[current]) / ((len(status) - 1) * BLOCK_BYTES)


class Ring:
    """The ring of one interface. `data`: all its blocks. The content of returned blocks may change at any time.

    `received`: packets for the ring, including dropped packets. `dropped`: packets that did not fit. `freezes`:
    number of times that the ring became full. `update_counters` updates these numbers. Only one thread may use the
    ring.
    """

    def __init__(self, settings: InterfaceSettings) -> None:
        """Open and bind the socket. Raises InputError if this fails, or if the interface is unknown or unsupported."""
        self.settings = settings
        self.name = INTERFACE_PREFIX + settings.name
        self.received = self.dropped = self.freezes = 0
        self.blocks = settings.blocks
        self._next = 0
        with contextlib.ExitStack() as undo:
            self._socket = undo.enter_context(contextlib.closing(open_socket(self.name)))
            number, self.is_up = self._inspect()
            self.hardware: Hardware = hardware_of(number, self.name)
            if self.hardware.cooked:
                self._socket.close()
                self._socket = undo.enter_context(contextlib.closing(open_socket(self.name, cooked=True)))
            try:
                self._set_up(loopback=number == LOOPBACK)
            except OSError as error:
                raise InputError(f"{self.name}: cannot be captured: {explain_ring_error(error, settings)}") from error
            undo.pop_all()
        self._close = weakref.finalize(self, self._socket.close)
        self._status = self.data.reshape(self.blocks, BLOCK_BYTES)[:, BLOCK_STATUS : BLOCK_STATUS + 4].view(np.uint32)
        self._used = self.data.reshape(self.blocks, BLOCK_BYTES)[:, BLOCK_USED : BLOCK_USED + 4].view(np.uint32)
        self._readable = select.poll()
        self._readable.register(self._socket, select.POLLIN | select.POLLERR)

    def _inspect(self) -> tuple[int, bool]:
        """Return the interface's hardware type and whether it is up."""
        request = struct.pack("16s16x8x", os.fsencode(self.settings.name))
        try:
            (number,) = struct.unpack_from("=H", fcntl.ioctl(self._socket, GET_HARDWARE, request), 16)
            (flags,) = struct.unpack_from("=H", fcntl.ioctl(self._socket, GET_FLAGS, request), 16)
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise InputError(f"{self.name}: cannot be inspected: {error.strerror}") from error
            names = ", ".join(sorted(name for _, name in socket.if_nameindex()))
            raise InputError(f"{self.name}: no such interface; this machine has: {names}") from error
        return number, bool(flags & UP)

    def _set_up(self, *, loopback: bool) -> None:
        """Create the ring and map it into memory. Then start to receive packets."""
        option = self._socket.setsockopt
        option(SOL_PACKET, VERSION, TPACKET_V3)
        option(SOL_PACKET, PACKET_RESERVE, GAP_BYTES)
        if loopback:  # the interface receives its own packets, so every packet would be captured twice
            option(SOL_PACKET, IGNORE_OUTGOING, 1)
        self._filter(self.settings.snaplen)
        size = self.blocks * BLOCK_BYTES
        option(
            SOL_PACKET, RX_RING,
            REQUEST_STRUCT.pack(BLOCK_BYTES, self.blocks, FRAME_BYTES, size // FRAME_BYTES, BLOCK_TIMEOUT, 0, 0),
        )  # fmt: skip
        mapped = mmap.mmap(self._socket.fileno(), size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self.data: npt.NDArray[np.uint8] = np.frombuffer(mapped, np.uint8)
        self._socket.bind((self.settings.name, ETH_P_ALL))
        if self.settings.promiscuous:
            index = socket.if_nametoindex(self.settings.name)
            option(SOL_PACKET, ADD_MEMBERSHIP, MEMBERSHIP_STRUCT.pack(index, PROMISCUOUS, 0))

    def _filter(self, max_bytes: int) -> None:
        """Capture up to `max_bytes` bytes of each packet. With 0, packets are neither captured nor counted."""
        program = ctypes.create_string_buffer(struct.pack("=HBBI", RETURN, 0, 0, max_bytes))
        program_struct = struct.pack("@HP", 1, ctypes.addressof(program))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program_struct)

    def next(self, wait: float) -> tuple[int, int, int] | None:
        """Wait for the next retired block. Return the offset of its first frame, the end of its bytes, and its packets.

        Returns None if no block is retired within `wait` seconds. Raises OSError ENETDOWN if the interface goes down.
        """
        if not self._is_retired() and self._readable.poll(wait * 1000):
            self._raise_error()
        if not self._is_retired():
            return None
        base = self._next * BLOCK_BYTES
        header = self.data[base : base + BLOCK_HEADER].view(np.uint32)
        packets, first, used = (int(header[word // 4]) for word in (BLOCK_PACKETS, BLOCK_FIRST, BLOCK_USED))
        end = base + min(used, BLOCK_BYTES)
        return min(base + max(first, BLOCK_HEADER), end), end, packets

    def return_block(self) -> None:
        """Return the current block, the last result of `next`, to the kernel."""
        self._status[self._next] = 0
        self._next = (self._next + 1) % self.blocks

    def _is_retired(self) -> bool:
        return bool(self._status[self._next, 0] & RETIRED)

    def _raise_error(self) -> None:
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise OSError(number, os.strerror(number))

    @property
    def waiting(self) -> int:
        """Number of retired blocks that have not been returned, including the current block."""
        return int((self._status & RETIRED).sum())

    @property
    def fill_level(self) -> float:
        """Share (0 to 1) of the ring's bytes that wait to be read, without the current block."""
        return compute_waiting_share(self._status[:, 0], self._used[:, 0], self._next)

    @property
    def is_gone(self) -> bool:
        """True if the interface has been deleted or moved out of this network namespace."""
        return not self._socket.getsockname()[0]

    def update_counters(self) -> None:
        """Update `received`, `dropped` and `freezes`."""
        received, dropped, freezes = STATISTICS_STRUCT.unpack(
            self._socket.getsockopt(SOL_PACKET, STATISTICS, STATISTICS_STRUCT.size)
        )
        self.received += received  # the kernel resets its counters at each call
        self.dropped += dropped
        self.freezes += freezes

    def stop(self) -> None:
        """Stop capturing. The packets in the ring can still be read."""
        self._filter(0)

    def close(self) -> None:
        """Close the socket and release the ring. Its memory is freed when no array refers to `data` any more."""
        if self._close.alive:
            with contextlib.suppress(OSError):
                self.stop()  # arrays may keep the ring alive; it must not be filled any more
            self.data = np.empty(0, np.uint8)
            self._status = self._used = np.empty((0, 1), np.uint32)
            self._close()
