"""Target `frames`: link layers, IP and tunnels of one frame.

The first byte of an input chooses the link type, the second how much longer the frame was on the wire.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from capture.files.blocks import Block
from capture.files.capture import Capture
from capture.files.pcap import PcapFormat
from capture.packets.columns import FRAME_COLUMNS, PACKET_COLUMNS
from capture.packets.decoder import Decoder
from tests.fuzz.agreement import Sound, same
from tests.fuzz.plain import both
from tests.references.random_frames import LINK_TYPES as MADE
from tests.references.random_frames import random_frame

CHOICES = (
    65535, 0, 1, 8, 9, 12, 14, 50, 51, 100, 101, 104, 105, 106, 107, 108, 109, 113, 117, 119, 123, 127, 129, 149, 163,
    166, 178, 179, 180, 181, 192, 204, 205, 206, 226, 228, 229, 239, 242, 258, 276, 281, 282, 284, 285, 219,
)  # fmt: skip
"""Link types by the first byte.

The first entry means no link type. Entries are only appended, so that stored inputs keep their meaning.
"""

RECORD = 16
TIME = 1_700_000_000


def capture_of(link_type: int, frame: bytes, wire: int) -> Any:
    """A capture of one record, at the beginning of its data."""
    head = b"".join(number.to_bytes(4, "little") for number in (TIME, 0, len(frame), wire))
    form = PcapFormat(False, True, RECORD, 0, 65535, link_type)
    return Capture(Path("fuzz"), form, np.frombuffer(head + frame, np.uint8), None)


KINDS = [(every, Sound(FRAME_COLUMNS if every else PACKET_COLUMNS)) for every in (False, True)]
EMPTY = capture_of(1, b"", 0)
DECODERS = both(
    lambda plain: [Decoder(EMPTY, PACKET_COLUMNS.keys() - {"link"}, 1, every_frame) for every_frame in (False, True)]
)


def check(data: bytes) -> None:
    """Decode a frame, as a packet and as any frame."""
    link_type = CHOICES[data[0] % len(CHOICES)] if data else CHOICES[-1]
    frame = data[2:]
    wire = len(frame) + data[1] * 7 if len(data) > 1 and data[1] < 255 else len(frame) // 2
    capture = capture_of(link_type, frame, wire)
    for every, sound in KINDS:

        def decode(plain: bool, every: bool = every) -> tuple[np.ndarray, list[int]]:
            decoder = DECODERS[plain][every]
            decoder.file = capture
            decoder.counts[:] = 0
            block = Block(0, len(capture.data), 1, TIME * 10**9, TIME * 10**9, 0)
            packets = decoder.decode(block)
            return packets, decoder.counts.tolist()

        (native, counts), (plain, plain_counts) = both(decode)
        same("counts", counts, plain_counts)
        same("rows", native.row_count, plain.row_count)
        same("columns", native.matrix[:, : native.row_count], plain.matrix[:, : plain.row_count])
        sound(native, [(RECORD, len(capture.data))] * native.row_count)
        assert native.row_count == 1 or not every


def seeds() -> dict[str, bytes]:
    """Two frames of every link type that the tests can make, and none of each other one."""
    random = Random(1)
    made = {}
    for link_type in CHOICES:
        for number in range(2 if link_type in MADE else 1):
            frame = random_frame(random, link_type)[0][:300] if link_type in MADE else random.randbytes(60)
            made[f"{link_type}-{number}"] = bytes([CHOICES.index(link_type), number]) + frame
    return made
