"""Captures whose records are of different sizes."""

from random import Random

from tests.references.disordered_captures import disordered
from tests.references.imitating_frames import imitating_frames
from tests.references.pcap_bytes import NS


def mixed(seed: int) -> list[tuple[int, bytes]]:
    """Records out of order, and some whose payloads are records."""
    random = Random(seed)
    plain = disordered(seed, random.randrange(1, 700))
    frames = imitating_frames(seed)
    records = plain + [(max(0, random.choice(plain)[0] - random.randrange(NS)), frame) for frame in frames]
    random.shuffle(records)
    return records
