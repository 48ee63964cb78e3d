"""Seeded random frames, made with scapy, and the row each must become: known from its making, not from reading it."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address
from random import Random
from typing import Any

from scapy.contrib.mpls import MPLS
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
from scapy.layers.l2 import LLC, SNAP, CookedLinux, CookedLinuxV2, Dot1AD, Dot1Q, Ether
from scapy.layers.ppp import PPP, PPPoE
from scapy.packet import Packet, Raw

Row = dict[str, Any]
LINK_TYPES = (0, 1, 9, 12, 14, 50, 51, 101, 104, 108, 113, 192, 228, 229, 276)
EXTENSIONS = {0: IPv6ExtHdrHopByHop, 43: IPv6ExtHdrRouting, 44: IPv6ExtHdrFragment, 60: IPv6ExtHdrDestOpt}
NO_TRANSPORT: Row = dict.fromkeys(("srcPort", "destPort", "tcp_flags", "icmp_type", "icmp_code"))


def transport(random: Random, icmp: int) -> tuple[int, bytes, Row]:
    """Protocol number, bytes and columns of what an unfragmented packet or a first fragment carries."""
    protocol = random.choice([6, 6, 17, 17, icmp, icmp, 47, 50, 132])
    ports = {"srcPort": random.randrange(65536), "destPort": random.randrange(65536)}
    kind, code = random.randrange(256), random.randrange(256)
    rest = random.randbytes(random.randrange(24))
    match protocol:
        case 6:
            flags = random.randrange(256)
            layer = TCP(sport=ports["srcPort"], dport=ports["destPort"], flags=flags, chksum=1)
            return protocol, bytes(layer) + rest, NO_TRANSPORT | ports | {"tcp_flags": flags}
        case 17:
            layer = UDP(sport=ports["srcPort"], dport=ports["destPort"], chksum=1, len=8 + len(rest))
            return protocol, bytes(layer) + rest, NO_TRANSPORT | ports
        case 1 | 58:
            layer = ICMP(type=kind, code=code, chksum=1) if icmp == 1 else ICMPv6Unknown(type=kind, code=code, cksum=1)
            return protocol, bytes(layer) + rest, NO_TRANSPORT | {"icmp_type": kind, "icmp_code": code}
    return protocol, rest, NO_TRANSPORT


def ipv4(random: Random) -> tuple[bytes, Row]:
    protocol, payload, columns = transport(random, 1)
    fragment = random.choice([0, 0, 0, random.randrange(1, 8192)])
    more = int(random.random() < 0.2)
    source, destination = IPv4Address(random.randbytes(4)), IPv4Address(random.randbytes(4))
    ttl, tos = random.randrange(256), random.randrange(256)
    options = [IPOption(b"\x01" * 4 * random.randrange(11))] if random.random() < 0.3 else []
    offload = random.random() < 0.05  # segmentation offload leaves a total length of 0
    layer = IP(
        src=str(source), dst=str(destination), proto=protocol, ttl=ttl, tos=tos, frag=fragment, flags=more,
        options=options, chksum=1, len=0 if offload else None,
    )  # fmt: skip
    data = bytes(layer / Raw(payload))
    row = {"ip_version": 4, "srcIP": source, "destIP": destination, "protocol": protocol, "ip_len": len(data)}
    row |= {"ttl": ttl, "tos": tos, "fragment_offset": fragment * 8, "more_fragments": more}
    # Ethernet pads short frames; the padding belongs to no packet. With a length of 0 nobody can tell.
    padding = b"" if offload else bytes(random.choice([0, 0, 9]))
    return data + padding, row | (NO_TRANSPORT if fragment else columns)


def ipv6(random: Random) -> tuple[bytes, Row]:
    protocol, payload, columns = transport(random, 58)
    source, destination = IPv6Address(random.randbytes(16)), IPv6Address(random.randbytes(16))
    hops, traffic_class = random.randrange(256), random.randrange(256)
    chain = [random.choice([0, 43, 44, 60]) for _ in range(random.choice([0, 0, 1, 2, 3, 4]))]
    if 44 in chain:  # one fragment header, and a later fragment hides what comes behind it
        chain = [kind for place, kind in enumerate(chain) if kind != 44 or place == chain.index(44)]
    offset = random.choice([0, random.randrange(1, 8192)]) if 44 in chain else 0
    more = random.randrange(2) if 44 in chain else 0
    following = [*chain[1:], protocol] if chain else []
    data, seen = payload, protocol
    for kind, upper in zip(reversed(chain), reversed(following), strict=True):
        header = EXTENSIONS[kind](nh=upper)
        if kind == 44:
            header.offset, header.m = offset, more
            seen = upper if offset else seen
        elif kind == 43:
            header.addresses = [str(IPv6Address(random.randbytes(16))) for _ in range(random.randrange(3))]
        else:
            header.options = [PadN(optdata=bytes(random.randrange(20)))]
        data = bytes(header) + data
    layer = IPv6(src=str(source), dst=str(destination), hlim=hops, tc=traffic_class, nh=[*chain, protocol][0])
    whole = bytes(layer / Raw(data))
    row = {"ip_version": 6, "srcIP": source, "destIP": destination, "protocol": seen, "ip_len": len(whole)}
    row |= {"ttl": hops, "tos": traffic_class, "fragment_offset": offset * 8, "more_fragments": more}
    padding = bytes(random.choice([0, 9])) if data else b""  # a payload length of 0 may be a jumbogram's
    return whole + padding, row | (NO_TRANSPORT if offset else columns)


def random_frame(random: Random, link_type: int) -> tuple[bytes, Row]:
    """A frame of `link_type` around a random packet, and its row without `ts`, `len` and `caplen`."""
    version = {228: 4, 229: 6}.get(link_type, random.choice([4, 6]))
    data, row = ipv4(random) if version == 4 else ipv6(random)
    ethertype = 0x0800 if version == 4 else 0x86DD
    row["vlan"] = None
    if link_type == 192:
        inner = random.choice([kind for kind in LINK_TYPES if kind not in (192, 228, 229)])
        frame, row = random_frame(random, inner)
        fields = random.randbytes(4 * random.randrange(4))
        return struct.pack("<BBHI", 0, 0, 8 + len(fields), inner) + fields + frame, row
    match link_type:
        case 1:
            return ethernet(random, data, ethertype, row)
        case 113 | 276:
            cooked = CookedLinux if link_type == 113 else CookedLinuxV2
            return bytes(cooked(proto=ethertype) / Raw(data)), row
        case 9:
            protocol = 0x21 if version == 4 else 0x57
            compressed = struct.pack("B", protocol) + data
            return random.choice([bytes(PPP(proto=protocol) / Raw(data)), compressed, b"\xff\x03" + compressed]), row
        case 50:
            return bytes(PPP(proto=0x21 if version == 4 else 0x57) / Raw(data)), row
        case 51:
            return bytes(PPPoE() / PPP(proto=0x21 if version == 4 else 0x57) / Raw(data)), row
        case 104:
            return struct.pack(">BBH", random.choice([0x0F, 0x8F]), 0, ethertype) + data, row
        case 0 | 108:
            family = 2 if version == 4 else random.choice([10, 23, 24, 28, 30])
            order = ">" if link_type == 108 else random.choice("<>")
            return struct.pack(order + "I", family) + data, row
    return data, row


def ethernet(random: Random, data: bytes, ethertype: int, row: Row) -> tuple[bytes, Row]:
    """Ethernet with 0 to 3 VLAN tags, and below them IP itself, SNAP, MPLS or a PPPoE session."""
    frame: Packet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    for _ in range(random.choice([0, 0, 1, 2, 3])):
        tag = random.randrange(4096)
        row["vlan"] = tag if row["vlan"] is None else row["vlan"]
        frame /= random.choice([Dot1Q, Dot1AD])(vlan=tag, prio=random.randrange(8))
    match random.randrange(5):
        case 0:
            inside = LLC(dsap=0xAA, ssap=0xAA, ctrl=3) / SNAP(OUI=0, code=ethertype) / Raw(data)
            frame.lastlayer().type = len(inside)
            return bytes(frame / inside), row
        case 1:
            labels = [MPLS(label=random.randrange(2**20), s=0, ttl=64) for _ in range(random.randrange(3))]
            frame.lastlayer().type = 0x8847
            for label in [*labels, MPLS(label=16, s=1, ttl=64)]:
                frame /= label
            return bytes(frame / Raw(data)), row
        case 2:
            frame.lastlayer().type = 0x8864
            return bytes(frame / PPPoE() / PPP(proto=0x21 if ethertype == 0x0800 else 0x57) / Raw(data)), row
    frame.lastlayer().type = ethertype
    return bytes(frame / Raw(data)), row
