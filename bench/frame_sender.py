"""Sends UDP frames through an interface at a rate: `python -m bench.frame_sender INTERFACE PACKETS RATE BYTES`.

It is a separate process in the network namespace of its caller. `sendmmsg` sends frames over a packet socket: RATE
packets per second in bursts of a millisecond, or as fast as possible for 0. The frames have MAX_MESSAGES different
address pairs. The program prints one line of JSON: the number of sent frames, and the seconds.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import sys
import time

MAX_MESSAGES = 1024
"""Maximum messages of one call (UIO_MAXIOV). Each message is a separate frame."""


def udp_frame(number: int, size: int, tag: bytes = b"") -> bytes:
    """Make an Ethernet frame of `size` bytes for the address pair `number`, with a VLAN tag unless `tag` is empty."""
    length = size - 14 - len(tag)
    header = struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, length, number & 0xFFFF, 0, 64, 17, 0,
        bytes((10, 0, number >> 8 & 255, number & 255)), bytes((10, 1, 0, 1)),
    )  # fmt: skip
    ports = struct.pack(">HHHH", 1024 + number % 1000, 9, length - 20, 0)
    return (b"\x02\0\0\0\0\2\x02\0\0\0\0\1" + tag + b"\x08\x00" + header + ports).ljust(size, b"\0")


class Frames:
    """Messages for sendmmsg (64-bit Linux), each with a frame."""

    def __init__(self, sending: socket.socket, size: int) -> None:
        """Prepare MAX_MESSAGES messages."""
        self._socket = sending
        self._frames = [ctypes.create_string_buffer(udp_frame(number, size), size) for number in range(MAX_MESSAGES)]
        vectors = b"".join(struct.pack("@PQ", ctypes.addressof(frame), size) for frame in self._frames)
        self._vectors = ctypes.create_string_buffer(vectors, len(vectors))
        at = ctypes.addressof(self._vectors)
        messages = b"".join(
            struct.pack("@PI4xPQPQi4xI4x", 0, 0, at + 16 * number, 1, 0, 0, 0, 0) for number in range(MAX_MESSAGES)
        )
        self._messages = ctypes.create_string_buffer(messages, len(messages))
        self._at = 0
        self._send = ctypes.CDLL(None, use_errno=True).sendmmsg
        self._send.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int)

    def send(self, count: int) -> None:
        """Send `count` frames, with the address pairs in rotation."""
        while count:
            first = ctypes.addressof(self._messages) + 64 * self._at
            sent = self._send(self._socket.fileno(), first, min(count, MAX_MESSAGES - self._at), 0)
            if sent < 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            count -= sent
            self._at = (self._at + sent) % MAX_MESSAGES


def main(interface: str, packets: int, rate: float, size: int) -> None:
    """Send frames. Print the number of sent frames and the seconds."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sending:
        sending.bind((interface, 0))
        frames = Frames(sending, size)
        begin, sent = time.perf_counter(), 0
        while sent < packets:
            due = int((time.perf_counter() - begin) * rate) + 1 if rate else packets
            now = min(due, packets) - sent
            if now <= 0:
                time.sleep(0.001)
                continue
            frames.send(now)
            sent += now
        print(json.dumps({"sent": sent, "seconds": time.perf_counter() - begin}))


if __name__ == "__main__":
    to, *amounts = sys.argv[1:]
    main(to, int(amounts[0]), float(amounts[1]), int(amounts[2]))
