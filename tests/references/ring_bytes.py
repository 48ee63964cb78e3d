"""Blocks of a TPACKET_V3 ring made of bytes, as the kernel leaves them, and a slow reader of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

BLOCK = struct.Struct("<IIIIIIQIIII")
FRAME = struct.Struct("<IIIIIIHHIIHHB7x")
ADDRESS = struct.Struct("<H2siHBB8s")
HEADER = FRAME.size + ADDRESS.size
VLAN_VALID, VLAN_TPID_VALID = 0x10, 0x40


@dataclass(frozen=True)
class Sent:
    """One frame as the kernel is given it: without its tag, which is (type or None, control information)."""

    ts: int
    frame: bytes
    more_on_wire: int = 0
    tag: tuple[int | None, int] | None = None
    protocol: int = 0x0800
    hardware: int = 1
    kind: int = 0
    address: bytes = b"\2\0\0\0\0\1"


def ring_block(frames: Sequence[Sent], room: int = 30) -> bytearray:
    """Return a retired block. `room`: bytes between the kernel's header of a frame and the frame."""
    data = bytearray(48)
    for number, sent in enumerate(frames):
        mac = HEADER + room
        length = -(-(mac + len(sent.frame)) // 16) * 16
        status = 1 | (VLAN_VALID | (VLAN_TPID_VALID if sent.tag[0] is not None else 0) if sent.tag else 0)
        tpid, tci = sent.tag or (0, 0)
        last = number == len(frames) - 1
        seconds, ns = divmod(sent.ts, 10**9)
        data += FRAME.pack(
            0 if last else length, seconds, ns, len(sent.frame), len(sent.frame) + sent.more_on_wire, status, mac,
            mac + 14, 0, tci, tpid or 0, 0, 0,
        )  # fmt: skip
        data += ADDRESS.pack(
            17, struct.pack(">H", sent.protocol), 2, sent.hardware, sent.kind, len(sent.address), sent.address
        )  # fmt: skip
        data += (bytes(room) + sent.frame).ljust(length - HEADER, b"\0")
    data[:48] = BLOCK.pack(3, 48, 1, len(frames), 48, len(data), 7, 0, 0, 0, 0)
    return data


Read = tuple[int, bytes, int]
"""Time, the captured bytes as they were on the wire, and the length on the wire."""


def expected(sent: Sent, link_type: int) -> Read:
    """Return the expected row of a frame."""
    frame = sent.frame
    if link_type == 113:
        header = struct.pack(">HHH", sent.kind, sent.hardware, len(sent.address)) + sent.address.ljust(8, b"\0")
        frame = header + struct.pack(">H", sent.protocol) + frame
    elif link_type == 1 and sent.tag and len(frame) >= 12:
        frame = (
            frame[:12] + struct.pack(">HH", 0x8100 if sent.tag[0] is None else sent.tag[0], sent.tag[1]) + frame[12:]
        )
    return sent.ts, frame, len(frame) + sent.more_on_wire


def completed_frames(data: bytes | np.ndarray, start: int, end: int) -> list[Read]:
    """Read the frames of `data[start:end]` by their current headers, with struct."""
    data = bytes(data)
    found = []
    while start < end:
        following, seconds, ns, captured, wire, _, mac, *_ = FRAME.unpack_from(data, start)
        begin = start + mac
        found.append((seconds * 10**9 + ns, data[begin : begin + captured], wire))
        start = start + following if following else end
    return found


def random_sent(random: Random, frame: bytes) -> Sent:
    """Give a frame a time, and often a tag or bytes that were not captured."""
    tag = random.choice([None, None, (0x8100, 7), (0x88A8, 0xFFFF), (None, random.randrange(65536))])
    return Sent(
        random.randrange(2**32) * 10**9 + random.randrange(10**9), frame, random.choice([0, 0, 5]), tag,
        random.choice([0x0800, 0x86DD, 0x0806]), random.choice([1, 776]), random.randrange(5),
        random.randbytes(random.choice([0, 4, 6, 8])),
    )  # fmt: skip
