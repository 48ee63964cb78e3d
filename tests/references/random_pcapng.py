"""Seeded random pcapng files: several sections of both byte orders, interfaces of every clock, blocks in disorder."""

from __future__ import annotations

from random import Random

from tests.references.pcapng_bytes import block, custom, enhanced, interface, obsolete, options, section, simple
from tests.references.random_frames import LINK_TYPES, random_frame

RESOLUTIONS = [None, 6, 9, 9, 3, 0, 12, 19, 128, 128 + 9, 128 + 20, 128 + 32, 128 + 33, 128 + 63]
OFFSETS = [None, None, 0, 1, 1_700_000_000, -1, -(10**9), 2**62 // 10**9, 10**12, -(2**63), 2**63 - 1]


def units_of(resolution: int | None) -> int:
    """Units of a clock in a second."""
    if resolution is None:
        return 10**6
    return 2 ** (resolution - 128) if resolution >= 128 else 10**resolution


def random_count(random: Random, resolution: int | None) -> int:
    """A time in a clock's units: of these years, at an edge, or anything that 64 bits hold."""
    units = units_of(resolution)
    usual = random.randrange(1_000_000_000, 2_000_000_000) * units + random.randrange(units)
    odd = [0, 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, random.randrange(2**64), 2**62 * units // 10**9]
    return min(random.choice([usual] * 10 + odd), 2**64 - 1)


def random_pcapng(random: Random, packets: int, link_types: tuple[int, ...] = LINK_TYPES) -> bytes:
    """Return a complete, undamaged file of about `packets` packets.

    New sections and interfaces begin at random positions.
    """
    data = b""
    order = "<"
    known: list[tuple[int, int | None]] = []  # of the section: link type, resolution
    while packets > 0:
        choice = random.random()
        if not data or choice < 0.04:
            order = random.choice("<>")
            length = random.choice([2**64 - 1, 0, 17, 2**63])  # wrong ones too: nobody believes them
            comment = options((1, b"section"), order=order) if random.random() < 0.5 else b""
            data += section(order, version=(1, random.choice([0, 2])), length=length, more=comment)
            known = []
        elif not known or choice < 0.1:
            resolution = random.choice(RESOLUTIONS)
            known.append((random.choice(link_types), resolution))
            data += interface(
                known[-1][0],
                order,
                snaplen=random.choice([0, 0, 65535, 262144, 2**32 - 1]),
                resolution=resolution,
                offset=random.choice(OFFSETS),
                name=random.choice([None, "eth0", "wlan0", "\u00fcber"]),
            )
        elif choice < 0.2:
            kind = random.choice([4, 5, 9, 10, 0x80000001, 0xFFFFFFFF])
            data += random.choice([custom(order), block(kind, random.randbytes(random.randrange(40)), order)])
        else:
            packets -= 1
            number = random.randrange(len(known))
            link_type, resolution = known[number]
            if random.random() < 0.1:
                data += simple(random_frame(random, known[0][0])[0], order)
                continue
            frame = random_frame(random, link_type)[0]
            count = random_count(random, resolution)
            wire = random.choice([None, None, len(frame) + 9, 0, 2**32 - 1])
            if random.random() < 0.2:
                data += obsolete(count, frame, order, number=number, wire=wire)
            else:
                more = options((2, bytes(4)), (1, b"a packet"), order=order) if random.random() < 0.3 else b""
                data += enhanced(count, frame, order, number=number, wire=wire, more=more)
    return data
