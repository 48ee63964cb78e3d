"""Receivers of datagrams. On Linux, one system call returns many datagrams with their arrival times and destinations.

`recvmmsg(2)` fills an array of `struct mmsghdr`. Sender addresses (names) and control messages are in separate arrays.
This module uses the struct layouts of 64-bit little-endian Linux.
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
    BATCH_DATAGRAMS,
    DEST_HIGH,
    DEST_LOW,
    LENGTH,
    ROW_WORDS,
    SLOT_BYTES,
    SLOT_STRIDE,
    SRC_HIGH,
    SRC_LOW,
    SRC_PORT,
    TIME,
    VERSION,
    Batch,
)
from capture.collector.records import put_little_endian
from capture.collector.sockets import UdpSocket
from capture.native import helper, kernel, pointer


class LoopReceiver:
    """Receiver for systems without recvmmsg (macOS), where each system call returns one datagram.

    The time of a datagram is the time of this call, not of its arrival. Its local address is the address of the socket:
    0.0.0.0 or :: if the socket is bound to all addresses.
    """

    def __init__(self, batch: Batch) -> None:
        """Prepare to fill `batch`."""
        self.batch = batch
        view = batch.slots.data
        self._slots = [view[index * SLOT_STRIDE : index * SLOT_STRIDE + SLOT_BYTES] for index in range(BATCH_DATAGRAMS)]

    def receive(self, udp: UdpSocket) -> int:
        """Read the waiting datagrams. Implements Receiver.receive."""
        for index, slot in enumerate(self._slots):
            try:
                length, (host, port, *_) = udp.socket.recvfrom_into(slot)
            except (BlockingIOError, InterruptedError, ConnectionRefusedError):
                return index
            sender = ipaddress.ip_address(host.partition("%")[0])
            self.batch.rows[index] = [
                length, time.time_ns(), sender.version, *halves(sender), port, *halves(udp.address),
            ]  # fmt: skip
        return BATCH_DATAGRAMS


def halves(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> tuple[int, int]:
    """Return the upper and the lower 64 bits of an address as signed integers.

    >>> halves(ipaddress.ip_address("10.0.0.1")), halves(ipaddress.ip_address("::ffff:ffff:ffff:ffff"))
    ((0, 167772161), (0, -1))
    """
    high, low = np.array(divmod(int(address), 2**64), np.uint64).view(np.int64).tolist()
    return high, low


MESSAGE = struct.Struct("@PI4xPQPQi4xI4x")
"""struct mmsghdr: msg_name, msg_namelen, msg_iov, msg_iovlen, msg_control, msg_controllen, msg_flags, msg_len."""

VECTOR = struct.Struct("@PQ")
"""struct iovec."""

MESSAGE_BYTES, NAMELEN_OFFSET, CONTROLLEN_OFFSET, MSG_LEN_OFFSET = 64, 8, 40, 56
"""Size of a mmsghdr, and offsets of msg_namelen, msg_controllen and msg_len in it."""

NAME_BYTES, CONTROL_BYTES = 32, 128
"""Bytes reserved for a sender's address (IPv6: 28) and for control messages (time: 32, local address: 40)."""

AF_INET6 = 10
MSG_DONTWAIT = 0x40
SOL_SOCKET, SCM_TIMESTAMPNS, IPPROTO_IP, IP_PKTINFO, IPPROTO_IPV6, IPV6_PKTINFO = 1, 35, 0, 8, 41, 50
"""Levels and types of the requested control messages."""

TRANSIENT_ERRORS = {errno.EAGAIN, errno.EINTR, errno.ENOBUFS, errno.ENOMEM, errno.ECONNREFUSED}
"""Errors after which a later call may return datagrams."""


@helper
def u16(buf, offset):  # type: ignore[no-untyped-def]
    """Read two bytes in the machine's byte order."""
    return np.int64(buf[offset]) | np.int64(buf[offset + 1]) << 8


@helper
def u64(buf, offset):  # type: ignore[no-untyped-def]
    """Read eight bytes in the machine's byte order."""
    low = u16(buf, offset) | u16(buf, offset + 2) << 16
    return low | (u16(buf, offset + 4) | u16(buf, offset + 6) << 16) << 32


@kernel("i64(u8*, i64, u8*, u8*, i64, i64*)")
def unpack_messages(messages, count, names, controls, now, rows):  # type: ignore[no-untyped-def]
    """Convert the results of recvmmsg into rows, and reset the messages for the next call. Return `count`.

    * `messages`: count x MESSAGE_BYTES. `names`: count x NAME_BYTES. `controls`: count x CONTROL_BYTES.
    * `now`: time (ns) of datagrams for which the system reports no arrival time.
    * `rows`: count x ROW_WORDS.
    """
    for index in range(count):
        message = index * MESSAGE_BYTES
        name = index * NAME_BYTES
        row = index * ROW_WORDS
        rows[row + LENGTH] = u16(messages, message + MSG_LEN_OFFSET) | u16(messages, message + MSG_LEN_OFFSET + 2) << 16
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
        offset = index * CONTROL_BYTES
        end = offset + min(u64(messages, message + CONTROLLEN_OFFSET), CONTROL_BYTES)
        while offset + 16 <= end:
            length = u64(controls, offset)
            level = u16(controls, offset + 8)
            kind = u16(controls, offset + 12)
            if length < 16 or offset + length > end:
                break
            if level == SOL_SOCKET and kind == SCM_TIMESTAMPNS and length >= 32:
                rows[row + TIME] = u64(controls, offset + 16) * 1_000_000_000 + u64(controls, offset + 24)
            elif level == IPPROTO_IP and kind == IP_PKTINFO and length >= 28:
                rows[row + DEST_LOW] = u32be(controls, offset + 24)
            elif level == IPPROTO_IPV6 and kind == IPV6_PKTINFO and length >= 36:
                rows[row + DEST_HIGH] = np.int64(u64be(controls, offset + 16))
                rows[row + DEST_LOW] = np.int64(u64be(controls, offset + 24))
            offset += (length + 7) & ~7
        put_little_endian(messages, message + NAMELEN_OFFSET, 4, NAME_BYTES)
        put_little_endian(messages, message + CONTROLLEN_OFFSET, 8, CONTROL_BYTES)
    return count


def recvmmsg_is_supported() -> bool:
    """Return whether this system has recvmmsg, with the struct layouts of this module."""
    return sys.platform == "linux" and sys.byteorder == "little" and ctypes.sizeof(ctypes.c_void_p) == 8


class RecvmmsgReceiver:
    """Receiver that reads up to BATCH_DATAGRAMS datagrams with one system call, without the GIL."""

    def __init__(self, batch: Batch) -> None:
        """Prepare the array of `struct mmsghdr` for the slots of `batch`."""
        self.batch = batch
        self._messages = np.zeros(BATCH_DATAGRAMS * MESSAGE_BYTES, np.uint8)
        self._vectors = np.zeros(BATCH_DATAGRAMS * VECTOR.size, np.uint8)
        self._names = np.zeros(BATCH_DATAGRAMS * NAME_BYTES, np.uint8)
        self._controls = np.zeros(BATCH_DATAGRAMS * CONTROL_BYTES, np.uint8)
        slots, vectors, names, controls = (
            pointer(array, "u8") for array in (batch.slots, self._vectors, self._names, self._controls)
        )
        for index in range(BATCH_DATAGRAMS):
            VECTOR.pack_into(self._vectors.data, index * VECTOR.size, slots + index * SLOT_STRIDE, SLOT_BYTES)
            MESSAGE.pack_into(
                self._messages.data, index * MESSAGE_BYTES, names + index * NAME_BYTES, NAME_BYTES,
                vectors + index * VECTOR.size, 1, controls + index * CONTROL_BYTES, CONTROL_BYTES, 0, 0,
            )  # fmt: skip
        self._pointers = pointer(self._messages, "u8"), names, controls, pointer(batch.rows, "i64")
        self._recvmmsg = ctypes.CDLL(None, use_errno=True).recvmmsg
        self._recvmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p)

    def receive(self, udp: UdpSocket) -> int:
        """Read the waiting datagrams. Implements Receiver.receive. Raises OSError if the socket has failed."""
        messages, names, controls, rows = self._pointers
        count = self._recvmmsg(udp.socket.fileno(), messages, BATCH_DATAGRAMS, MSG_DONTWAIT, None)
        if count < 0:
            error_number = ctypes.get_errno()
            if error_number in TRANSIENT_ERRORS:
                return 0
            raise OSError(error_number, os.strerror(error_number), udp.name)
        return unpack_messages(messages, count, names, controls, time.time_ns(), rows)
