"""Receiving on Linux: many datagrams with one system call, each with the kernel's time and the address it was sent to.

`recvmmsg(2)` fills an array of `struct mmsghdr`; names and control messages lie beside it. The layouts are those of
64-bit Linux, little-endian, for which alone there are kernels (`capture/native.py`).
"""

from __future__ import annotations

import ctypes
import errno
import ipaddress
import os
import struct
import sys
import time

import numpy as np

from capture.bytes import u16be, u32be, u64be
from capture.collector.chunks import (
    BATCH,
    DEST_HIGH,
    DEST_LOW,
    LENGTH,
    ROW,
    SLOT,
    SRC_HIGH,
    SRC_LOW,
    SRC_PORT,
    STRIDE,
    TIME,
    VERSION,
    Batch,
)
from capture.collector.sockets import UdpSocket
from capture.native import helper, kernel, pointer

# Receiving where there is no recvmmsg (macOS): one datagram with each call.
#
# The time is that of reading and not of arrival, and the local address the one that the socket is bound to: for a
# socket on all addresses that is 0.0.0.0 or ::.


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


MESSAGE = struct.Struct("@PI4xPQPQi4xI4x")
"""struct mmsghdr: msg_name, msg_namelen, msg_iov, msg_iovlen, msg_control, msg_controllen, msg_flags; msg_len."""

VECTOR = struct.Struct("@PQ")
"""struct iovec."""

MESSAGE_BYTES, NAME_LENGTH, CONTROL_LENGTH, RECEIVED = 64, 8, 40, 56
"""Size of a mmsghdr, and where msg_namelen, msg_controllen and msg_len are in it."""

NAME, CONTROL = 32, 128
"""Bytes for a sender's address (28 for IPv6) and for control messages (32 for the time, 40 for the local address)."""

AF_INET6 = 10
MSG_DONTWAIT = 0x40
SOL_SOCKET, SCM_TIMESTAMPNS, IPPROTO_IP, IP_PKTINFO, IPPROTO_IPV6, IPV6_PKTINFO = 1, 35, 0, 8, 41, 50
"""Levels and types of the control messages that are asked for."""

TRANSIENT = {errno.EAGAIN, errno.EINTR, errno.ENOBUFS, errno.ENOMEM, errno.ECONNREFUSED}
"""No datagram now, and no reason to give up."""


@helper
def u16(buf, at):  # type: ignore[no-untyped-def]
    """Two bytes in the machine's order."""
    return np.int64(buf[at]) | np.int64(buf[at + 1]) << 8


@helper
def word(buf, at):  # type: ignore[no-untyped-def]
    """Eight bytes in the machine's order."""
    low = u16(buf, at) | u16(buf, at + 2) << 16
    return low | (u16(buf, at + 4) | u16(buf, at + 6) << 16) << 32


@helper
def put(buf, at, length, value):  # type: ignore[no-untyped-def]
    """Write an integer of `length` bytes in the machine's order."""
    for place in range(length):
        buf[at + place] = (value >> (8 * place)) & 0xFF


@kernel("i64(u8*, i64, u8*, u8*, i64, i64*)")
def unpack_messages(messages, count, names, controls, now, rows):  # type: ignore[no-untyped-def]
    """Turn what recvmmsg left behind into rows, and make the messages ready to be used again; return `count`.

    `now` (ns) stands in for a time that the system did not give. `messages` holds count x MESSAGE_BYTES, `names`
    count x NAME, `controls` count x CONTROL, `rows` count x ROW.
    """
    for place in range(count):
        message = place * MESSAGE_BYTES
        name = place * NAME
        row = place * ROW
        rows[row + LENGTH] = u16(messages, message + RECEIVED) | u16(messages, message + RECEIVED + 2) << 16
        rows[row + TIME] = now
        rows[row + SRC_PORT] = u16be(names, name + 2)
        rows[row + DEST_HIGH] = 0
        rows[row + DEST_LOW] = 0
        if u16(names, name) == AF_INET6:
            rows[row + VERSION] = 6
            rows[row + SRC_HIGH] = np.int64(u64be(names, name + 8))
            rows[row + SRC_LOW] = np.int64(u64be(names, name + 16))
        else:
            rows[row + VERSION] = 4
            rows[row + SRC_HIGH] = 0
            rows[row + SRC_LOW] = u32be(names, name + 4)
        at = place * CONTROL
        end = at + min(word(messages, message + CONTROL_LENGTH), CONTROL)
        while at + 16 <= end:
            length = word(controls, at)
            level = u16(controls, at + 8)
            kind = u16(controls, at + 12)
            if length < 16 or at + length > end:
                break
            if level == SOL_SOCKET and kind == SCM_TIMESTAMPNS and length >= 32:
                rows[row + TIME] = word(controls, at + 16) * 1_000_000_000 + word(controls, at + 24)
            elif level == IPPROTO_IP and kind == IP_PKTINFO and length >= 28:
                rows[row + DEST_LOW] = u32be(controls, at + 24)
            elif level == IPPROTO_IPV6 and kind == IPV6_PKTINFO and length >= 36:
                rows[row + DEST_HIGH] = np.int64(u64be(controls, at + 16))
                rows[row + DEST_LOW] = np.int64(u64be(controls, at + 24))
            at += (length + 7) & ~7
        put(messages, message + NAME_LENGTH, 4, NAME)
        put(messages, message + CONTROL_LENGTH, 8, CONTROL)
    return count


def supported() -> bool:
    """Whether this system has recvmmsg with the layouts of this file."""
    return sys.platform == "linux" and sys.byteorder == "little" and ctypes.sizeof(ctypes.c_void_p) == 8


class RecvmmsgReceiver:
    """Takes up to BATCH datagrams with one call, which runs without the GIL."""

    def __init__(self, batch: Batch) -> None:
        """Lay out the messages for a batch's slots."""
        self.batch = batch
        self._messages = np.zeros(BATCH * MESSAGE_BYTES, np.uint8)
        self._vectors = np.zeros(BATCH * VECTOR.size, np.uint8)
        self._names = np.zeros(BATCH * NAME, np.uint8)
        self._controls = np.zeros(BATCH * CONTROL, np.uint8)
        slots, vectors, names, controls = (
            pointer(array, "u8") for array in (batch.slots, self._vectors, self._names, self._controls)
        )
        for place in range(BATCH):
            VECTOR.pack_into(self._vectors.data, place * VECTOR.size, slots + place * STRIDE, SLOT)
            MESSAGE.pack_into(
                self._messages.data, place * MESSAGE_BYTES, names + place * NAME, NAME,
                vectors + place * VECTOR.size, 1, controls + place * CONTROL, CONTROL, 0, 0,
            )  # fmt: skip
        self._addresses = pointer(self._messages, "u8"), names, controls, pointer(batch.rows, "i64")
        self._call = ctypes.CDLL(None, use_errno=True).recvmmsg
        self._call.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p)

    def receive(self, udp: UdpSocket) -> int:
        """Take what is there, as Receiver says; OSError where the socket itself has failed."""
        messages, names, controls, rows = self._addresses
        count = self._call(udp.socket.fileno(), messages, BATCH, MSG_DONTWAIT, None)
        if count < 0:
            number = ctypes.get_errno()
            if number in TRANSIENT:
                return 0
            raise OSError(number, os.strerror(number), udp.name)
        return unpack_messages(messages, count, names, controls, time.time_ns(), rows)
