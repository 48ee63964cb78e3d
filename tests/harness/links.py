"""Seeded captures of several links that go wrong together: late, skewed, silent, empty, and years apart."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

from highlevel.inline.engine import Input
from tests.references.pcap_bytes import NS, Record, pcap_bytes

START = 1_700_000_000 * NS
YEAR = 365 * 86_400 * NS


def packet(random: Random) -> bytes:
    """An Ethernet frame: UDP over IPv4 or IPv6 between few addresses, now and then ARP or a cut packet."""
    kind = random.random()
    ports = struct.pack(">HHHH", random.randrange(1, 5), random.choice([53, 80, 443]), 8, 0)
    if kind < 0.05:
        return bytes(12) + b"\x08\x06" + bytes(28)
    if kind < 0.25:
        ends = b"".join(bytes.fromhex("20010db8") + bytes(11) + bytes([random.randrange(1, 4)]) for _ in range(2))
        return bytes(12) + b"\x86\xdd" + struct.pack(">IHBB", 6 << 28, 8, 17, 64) + ends + ports
    ends = bytes([10, 0, 0, random.randrange(1, 6), random.choice([10, 192]), 168, 0, random.randrange(1, 6)])
    cut = random.choice([None] * 9 + [-6])  # without ports, but with addresses
    return (bytes(12) + b"\x08\x00" + struct.pack(">BBHHHBBH", 69, 0, 28, 0, 0, 64, 17, 0) + ends + ports)[:cut]


def traffic(random: Random, count: int, start: int, seconds: int, late: int) -> list[Record]:
    """`count` packets over `seconds`, each arriving up to `late` seconds after its time."""
    arriving = []
    for _ in range(count):
        ts = start + random.randrange(seconds * NS)
        arriving.append((ts + random.randrange(late * NS + 1), ts, packet(random)))
    return [(ts, frame) for _, ts, frame in sorted(arriving)]


def write_links(folder: Path, seed: int) -> list[Input]:
    """Six inputs of five links: two busy ones with skew and disorder, one in two files, one silent, one empty, one
    that jumps by years."""
    random = Random(seed)
    skew = random.choice([0, 7, 90]) * NS
    late = random.choice([0, 3, 200])
    lull = START + 1500 * NS
    files = {
        "main1": traffic(random, 1500, START, 1200, late) + traffic(random, 300, lull, 400, late),
        "main2": traffic(random, 900, START + skew, 1500, late),
        "main2b": traffic(random, 400, START + skew + 1500 * NS, 500, late),
        "control": traffic(random, random.choice([1, 3]), START, 1800, 0),
        "silent": [],
        "jumps": traffic(random, 20, START, 60, 0)
        + traffic(random, 20, START + YEAR, 60, 0)
        + traffic(random, 20, START - 20 * YEAR, 60, 0)
        + traffic(random, 20, START + 300 * NS, 60, 0),
    }
    inputs = []
    for name, records in files.items():
        path = folder / f"{name}.pcap"
        path.write_bytes(pcap_bytes(records, more_on_wire=random.randrange(3)))
        inputs.append(Input("main2" if name == "main2b" else name, path))
    return inputs
