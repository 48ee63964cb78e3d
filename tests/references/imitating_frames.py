"""Frames whose payload imitates record headers."""

import struct
from random import Random

from capture.files.split import CHAIN_LENGTH
from tests.references.pcap_bytes import NS

START = 1_700_000_000 * NS


IMITATION = struct.pack("<IIII", START // NS, 5, 4, 60) + b"fake"
"""A record of 4 bytes that could be in any capture."""


def imitating_frames(seed: int) -> list[bytes]:
    """Packets whose payloads are records: a capture of captures being sent over a network."""
    random = Random(seed)
    return [
        random.randbytes(random.randrange(20)) + IMITATION * random.randrange(CHAIN_LENGTH, 3 * CHAIN_LENGTH)
        for _ in range(random.randrange(2, 60))
    ]
