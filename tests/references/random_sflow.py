"""sFlow datagrams of random structures, and harm done to them."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from random import Random

from tests.references.random_frames import random_frame
from tests.references.sflow_bytes import (
    counter_sample,
    datagram,
    flow_sample,
    header_record,
    ip_record,
    record,
    switch_record,
)

PROTOCOLS = {1: 1, 5: 107, 7: 9, 9: 100, 10: 101, 11: 228, 12: 229, 13: 219, 14: 50, 15: 105}
"""LINKTYPE_ number of the header protocols that frames are made for."""


def number(random: Random, bits: int = 32) -> int:
    return random.choice([0, 1, random.randrange(2**bits), 2**bits - 1])


def random_header(random: Random) -> bytes:
    """A packet header cut where agents cut it, at 128 bytes, or earlier."""
    protocol = random.choice([1, 1, 1, 1, *PROTOCOLS])
    frame, _ = random_frame(random, PROTOCOLS[protocol])
    cut = random.choice([128, 128, random.randrange(129)])
    return header_record(frame[:cut], random.choice([protocol] * 9 + [number(random)]), len(frame) + 4, 4)


def random_ip_record(random: Random) -> bytes:
    make = random.choice([IPv4Address, IPv6Address])
    ends = [str(make(random.randbytes(4 if make is IPv4Address else 16))) for _ in range(2)]
    protocol = random.choice([1, 6, 17, 58, 132])
    ports = (number(random, 16), number(random, 16))
    return ip_record(*ends, number(random, 16), protocol, ports, number(random, 8), number(random, 8))


def random_record(random: Random) -> bytes:
    match random.randrange(8):
        case 0 | 1 | 2 | 3:
            return random_header(random)
        case 4:
            return random_ip_record(random)
        case 5:
            return switch_record(number(random, 12), number(random, 12))
        case 6:
            return record(random.choice([2, 1002, 1003]), random.randbytes(random.randrange(40)))
    return record(random.randrange(4096), random.randbytes(random.randrange(9)), random.randrange(1, 2**20))


def random_sample(random: Random) -> bytes:
    kind = random.randrange(10)
    if kind == 0:
        return counter_sample(expanded=random.random() < 0.5, sequence=number(random))
    if kind == 1:
        return record(random.choice([5, 77]), random.randbytes(random.randrange(50)), random.choice([0, 4413]))
    expanded = random.random() < 0.5
    wide = 32 if expanded else 30
    return flow_sample(
        [random_record(random) for _ in range(random.choice([1, 1, 2, 3, 0]))],
        expanded=expanded,
        sequence=random.choice([random.randrange(100), number(random)]),
        source=(random.choice([0, 0, 1, 2]), random.choice([1, 2, number(random, 24)])),
        rate=random.choice([1, 512, number(random)]),
        pool=number(random),
        drops=number(random),
        input_if=(random.choice([0, 0, 0, 3]), number(random, wide)),
        output_if=(random.choice([0, 0, 1, 2]), number(random, wide)),
    )


def random_datagram(random: Random) -> bytes:
    """A datagram of up to 6 samples, from one of a few agents."""
    return datagram(
        [random_sample(random) for _ in range(random.randrange(7))],
        agent=random.choice([None, "192.0.2.1", "192.0.2.2", "2001:db8::2"]),
        sub_agent=random.choice([0, 0, 1, number(random)]),
        sequence=random.choice([random.randrange(100), number(random)]),
        uptime=random.choice([random.randrange(10**6), number(random)]),
    )


def harmed(random: Random, payload: bytes) -> bytes:
    """Change up to four bytes, or whole words to lengths that lie; sometimes cut or lengthen."""
    data = bytearray(payload)
    for _ in range(random.randrange(5)):
        place = random.randrange(random.choice([32, 100, len(data)])) % len(data)
        if random.random() < 0.5:
            data[place] = random.choice([0, 1, 3, 4, 5, 0xFF, random.randrange(256)])
        else:
            place -= place % 4
            lie = random.choice([0, 1, 2, 3, 4, 15, 16, 17, 32, 56, len(data), 2**31, 2**32 - 1])
            data[place : place + 4] = lie.to_bytes(4, "big")
    size = random.choice([len(data)] * 3 + [random.randrange(len(data) + 1)])
    return bytes(data[:size]) + random.randbytes(random.choice([0, 0, 0, 7]))
