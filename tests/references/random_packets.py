"""Seeded random IP packets, made with scapy, and the columns that each must give: known from its making."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from random import Random
from typing import Any

from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption
from scapy.layers.inet6 import (
    ICMPv6Unknown,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    PadN,
)
from scapy.packet import Raw

Row = dict[str, Any]
Carried = tuple[int, bytes, Row]
"""Protocol number, bytes and columns of the payload after the IP headers of a packet."""

EXTENSIONS = {0: IPv6ExtHdrHopByHop, 43: IPv6ExtHdrRouting, 44: IPv6ExtHdrFragment, 60: IPv6ExtHdrDestOpt}
NO_TRANSPORT: Row = dict.fromkeys(
    ("srcPort", "destPort", "tcp_flags", "tcp_seq", "tcp_ack", "tcp_window", "icmp_type", "icmp_code")
)


def transport(random: Random, icmp: int) -> Carried:
    """Return the payload of an unfragmented packet or first fragment that is not a tunnel."""
    protocol = random.choice([6, 6, 17, 17, icmp, icmp, 47, 50, 132])
    ports = {"srcPort": random.randrange(65536), "destPort": random.randrange(65536)}
    kind, code = random.randrange(256), random.randrange(256)
    rest = random.randbytes(random.randrange(24))
    match protocol:
        case 6:
            names = ("tcp_flags", "tcp_seq", "tcp_ack", "tcp_window")
            flags, seq, ack, window = values = [random.randrange(2**bits) for bits in (8, 32, 32, 16)]
            options = [("NOP", None)] * 4 * random.randrange(5)
            layer = TCP(**dict(zip(("sport", "dport"), ports.values(), strict=True)), flags=flags, seq=seq, ack=ack)
            layer.window, layer.chksum, layer.options = window, 1, options
            columns = ports | dict(zip(names, values, strict=True))
            return protocol, bytes(layer) + rest, NO_TRANSPORT | columns | {"payload": rest}
        case 17:
            layer = UDP(sport=ports["srcPort"], dport=ports["destPort"], chksum=1, len=8 + len(rest))
            return protocol, bytes(layer) + rest, NO_TRANSPORT | ports | {"payload": rest}
        case 1 | 58:
            layer = ICMP(type=kind, code=code, chksum=1) if icmp == 1 else ICMPv6Unknown(type=kind, code=code, cksum=1)
            whole = bytes(layer) + rest
            payload = whole[8:] if len(whole) >= 8 else None
            return protocol, whole, NO_TRANSPORT | {"icmp_type": kind, "icmp_code": code, "payload": payload}
    return protocol, rest, NO_TRANSPORT | {"payload": rest}


def ip_packet(random: Random, version: int, carried: Carried | None = None, offload: bool = True) -> tuple[bytes, Row]:
    """A packet of `version` around `carried` or a random payload; `offload` allows a total length of 0 in IPv4."""
    return ipv4(random, carried, offload) if version == 4 else ipv6(random, carried)


def ipv4(random: Random, carried: Carried | None = None, offload: bool = True) -> tuple[bytes, Row]:
    protocol, payload, columns = carried or transport(random, 1)
    fragment = random.choice([0, 0, 0, random.randrange(1, 8192)]) if carried is None or random.random() < 0.1 else 0
    more = int(random.random() < 0.2)
    source, destination = IPv4Address(random.randbytes(4)), IPv4Address(random.randbytes(4))
    ttl, tos, identification = random.randrange(256), random.randrange(256), random.randrange(65536)
    options = [IPOption(b"\x01" * 4 * random.randrange(11))] if random.random() < 0.3 else []
    no_length = offload and random.random() < 0.05  # what segmentation offload leaves
    layer = IP(
        src=str(source), dst=str(destination), proto=protocol, ttl=ttl, tos=tos, frag=fragment, flags=more,
        id=identification, options=options, chksum=1, len=0 if no_length else None,
    )  # fmt: skip
    data = bytes(layer / Raw(payload))
    row = {"ip_version": 4, "srcIP": source, "destIP": destination, "protocol": protocol, "ip_len": len(data)}
    row |= {"ttl": ttl, "tos": tos, "ip_id": identification, "fragment_offset": fragment * 8, "more_fragments": more}
    return data, row | (NO_TRANSPORT | {"payload": payload} if fragment else columns)


def ipv6(random: Random, carried: Carried | None = None) -> tuple[bytes, Row]:
    protocol, payload, columns = carried or transport(random, 58)
    source, destination = IPv6Address(random.randbytes(16)), IPv6Address(random.randbytes(16))
    hops, traffic_class, identification = random.randrange(256), random.randrange(256), random.randrange(2**32)
    chain = [random.choice([0, 43, 44, 60]) for _ in range(random.choice([0, 0, 1, 2, 3, 4]))]
    if 44 in chain:  # one fragment header, because a later fragment hides the headers that follow
        chain = [kind for place, kind in enumerate(chain) if kind != 44 or place == chain.index(44)]
    later = 44 in chain and random.random() < (0.5 if carried is None else 0.1)
    offset = random.randrange(1, 8192) if later else 0
    more = random.randrange(2) if 44 in chain else 0
    following = [*chain[1:], protocol] if chain else []
    data, seen, behind = payload, protocol, payload
    for kind, upper in zip(reversed(chain), reversed(following), strict=True):
        header = EXTENSIONS[kind](nh=upper)
        if kind == 44:
            header.offset, header.m, header.id = offset, more, identification
            if offset:
                seen, behind = upper, data
        elif kind == 43:
            header.addresses = [str(IPv6Address(random.randbytes(16))) for _ in range(random.randrange(3))]
        else:
            header.options = [PadN(optdata=bytes(random.randrange(20)))]
        data = bytes(header) + data
    layer = IPv6(src=str(source), dst=str(destination), hlim=hops, tc=traffic_class, nh=[*chain, protocol][0])
    whole = bytes(layer / Raw(data))
    row = {"ip_version": 6, "srcIP": source, "destIP": destination, "protocol": seen, "ip_len": len(whole)}
    row |= {"ttl": hops, "tos": traffic_class, "ip_id": identification if 44 in chain else None}
    row |= {"fragment_offset": offset * 8, "more_fragments": more}
    return whole, row | (NO_TRANSPORT | {"payload": behind} if offset else columns)


def no_length(data: bytes) -> bool:
    """Return whether an IP packet has no length: IPv4 of an offload, or IPv6 that is empty or a jumbogram."""
    return data[2:4] == b"\0\0" if data[0] >> 4 == 4 else data[4:6] == b"\0\0"
