"""Captures whose records are out of order."""

from random import Random

from tests.references.pcap_bytes import NS


def disordered(seed: int, count: int) -> list[tuple[int, bytes]]:
    """Records whose times mostly grow, with equal neighbours, lateness, and jumps of years both ways."""
    random = Random(seed)
    now = 1_700_000_000 * NS
    records = []
    for _ in range(count):
        now += random.choice([0, 0, 1, 1000, NS])
        ts = now - random.choice([0, 0, 0, random.randrange(60 * NS)])
        ts = random.choice([ts] * 30 + [0, 2**31 * NS, (2**32 - 1) * NS])
        records.append((ts, bytes(random.randrange(40))))
    return records
