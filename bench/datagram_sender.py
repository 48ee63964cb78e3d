"""Sends NetFlow v5 datagrams in bursts at a rate: `python -m bench.datagram_sender HOST PORT DATAGRAMS BURST RATE`.

It is a separate process, so that it does not slow down the Python interpreter of the collector. On Linux it sends a
burst with `sendmmsg`, up to 1024 datagrams per call. It prints one line of JSON: the number of sent datagrams, and the
seconds.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import sys
import time

RECORDS = 30
"""Flow records in each datagram: the maximum of v5. A datagram has 1464 bytes."""

MAX_MESSAGES = 1024
"""Maximum messages of one call (UIO_MAXIOV)."""


def datagram() -> bytes:
    """Make a v5 datagram of RECORDS records, all of one packet and 100 bytes between different hosts."""
    header = struct.pack(">HHIIIIBBH", 5, RECORDS, 1000, 1_700_000_000, 0, 0, 0, 0, 0)
    record = struct.Struct(">IIIHHIIIIHHBBBBHHBBH")
    return header + b"".join(
        record.pack(0x0A000001 + host, 0x0A010001, 0, 1, 2, 1, 100, 0, 900, 1024, 53, 0, 0, 17, 0, 0, 0, 24, 24, 0)
        for host in range(RECORDS)
    )


class Burst:
    """Sends the same datagram many times, with few system calls."""

    def __init__(self, connected: socket.socket, payload: bytes) -> None:
        """Lay out the messages (`struct mmsghdr` of 64-bit Linux)."""
        self._socket = connected
        self._payload = ctypes.create_string_buffer(payload, len(payload))
        self._vector = ctypes.create_string_buffer(struct.pack("@PQ", ctypes.addressof(self._payload), len(payload)))
        message = struct.pack("@PI4xPQPQi4xI4x", 0, 0, ctypes.addressof(self._vector), 1, 0, 0, 0, 0)
        self._messages = ctypes.create_string_buffer(message * MAX_MESSAGES)
        self._send = getattr(ctypes.CDLL(None, use_errno=True), "sendmmsg", None)

    def send(self, count: int) -> None:
        """Send `count` datagrams."""
        while count:
            if self._send is None:
                sent = bool(self._socket.send(self._payload.raw))
            else:
                sent = self._send(self._socket.fileno(), self._messages, min(count, MAX_MESSAGES), 0)
                if sent < 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            count -= int(sent)


def main(host: str, port: int, datagrams: int, burst: int, rate: float) -> None:
    """Send `rate` datagrams per second (0: as fast as possible) in bursts. Print their number."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect((host, port))
        sending = Burst(sender, datagram())
        begin, sent = time.perf_counter(), 0
        while sent < datagrams:
            now = min(burst, datagrams - sent)
            sending.send(now)
            sent += now
            early = begin + sent / rate - time.perf_counter() if rate else 0
            if early > 0:
                time.sleep(early)
        print(json.dumps({"sent": sent, "seconds": time.perf_counter() - begin}))


if __name__ == "__main__":
    to, *amounts = sys.argv[1:]
    main(to, int(amounts[0]), int(amounts[1]), int(amounts[2]), float(amounts[3]))
