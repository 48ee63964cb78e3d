"""Target `ring`: a block of a live interface's ring with arbitrary numbers in its headers.

The first byte of an input chooses the link type. The other bytes are the frames of a block, in the kernel's format.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from capture.files.blocks import BLOCK_WORDS, CONTINUE, NO_WATERMARK, Block, WalkState
from capture.files.ring_frames import BLOCK_HEADER, RingFormat
from capture.files.stream import StreamedCapture
from capture.live.hardware import HARDWARE
from capture.packets.columns import PACKET_COLUMNS
from capture.packets.decoder import Decoder
from tests.fuzz.agreement import Sound, same
from tests.fuzz.plain import both
from tests.references.random_frames import random_frame
from tests.references.ring_bytes import random_sent, ring_block

CHOICES = sorted({hardware.link_type for hardware in HARDWARE.values()})
"""Link types by the first byte."""

BLOCK = 4
"""Frames that are decoded at once."""

SOUND = Sound(PACKET_COLUMNS)


class Held(StreamedCapture):
    """A capture that is one block."""

    def __init__(self, data: np.ndarray, form: RingFormat) -> None:
        self.path, self.data, self._format = Path("interface:fuzz"), data, form


def read(plain: bool, content: bytes, link_type: int) -> tuple[Any, ...]:
    """The runs of a block and how it ends, its rows, what was counted, and what became of its bytes."""
    data = np.frombuffer(bytes(BLOCK_HEADER) + content, np.uint8).copy()
    form = RingFormat("fuzz", link_type)
    decoder = Decoder(Held(data, form), PACKET_COLUMNS.keys() - {"link"}, BLOCK)
    state, row = WalkState(BLOCK_HEADER), np.empty((1, BLOCK_WORDS), np.int64)
    runs, rows = [], []
    while state.status == CONTINUE:
        if form.walk(data, len(data), BLOCK, row, state):
            start, end, records, first, last, _ = row[0].tolist()
            assert BLOCK_HEADER <= start < end <= len(data)
            packets = decoder.decode(Block(start, end, records, first, last, NO_WATERMARK))
            if not plain:
                SOUND(packets)
            runs.append(row[0].tolist())
            rows += packets.matrix[:, : packets.row_count].T.tolist()
    assert len(rows) + int(decoder.skipped.sum()) == sum(records for _, _, records, *_ in runs)
    return [*runs, state.words.tolist()], rows, [*decoder.counts.tolist(), form.truncated], data.tobytes()


def check(data: bytes) -> None:
    """Walk and decode a block."""
    link_type = CHOICES[data[0] % len(CHOICES)] if data else CHOICES[0]
    native, plain = both(lambda plain: read(plain, data[1:], link_type))
    for what, one, other in zip(("runs", "rows", "counts", "bytes"), native, plain, strict=True):
        same(what, one, other)


def seeds() -> dict[str, bytes]:
    """Two blocks of each link type."""
    random = Random(4)
    made = {}
    for place, link_type in enumerate(CHOICES):
        inside = 101 if link_type == 113 else link_type
        for number in range(2):
            frames = [random_sent(random, random_frame(random, inside)[0][:200]) for _ in range(1 + 5 * number)]
            made[f"{link_type}-{number}"] = bytes([place]) + bytes(ring_block(frames)[BLOCK_HEADER:])
    return made
