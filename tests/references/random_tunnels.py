"""Seeded random tunnels around random packets, made with scapy where it has the layer, and the rows of both layers."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from scapy.contrib.erspan import ERSPAN_II, ERSPAN_III, ERSPAN_PlatformSpecific
from scapy.contrib.geneve import GENEVE, GeneveOptions
from scapy.contrib.gtp import GTP_U_Header, GTPPDUSessionContainer
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import UDP
from scapy.layers.l2 import GRE, GRE_PPTP
from scapy.layers.ppp import PPP
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

from tests.references.random_ethernet import NOTHING_BELOW, ethernet, ethernet_with_tags
from tests.references.random_packets import NO_TRANSPORT, Carried, Row, ip_packet, no_length

PORTS = {1701, 2152, 3544, 4789, 4790, 6081, 8472}
ETHERTYPES = {4: 0x0800, 6: 0x86DD}
PPP_PROTOCOLS = {4: 0x21, 6: 0x57}


@dataclass
class Tunnelled:
    """An IP packet and what is in it: `inner` is the row of the innermost layer, the same as `outer` without tunnels.

    Neither row of an outermost layer has the columns of the link layer yet.
    """

    data: bytes
    outer: Row
    inner: Row
    tunnels: int = 0
    tunnel_id: int | None = None


def tunnelled(random: Random, version: int, depth: int) -> Tunnelled:
    """Return a packet of `version` with `depth` tunnels in it, or fewer if an IP packet is a later fragment."""
    if depth == 0:
        data, row = ip_packet(random, version)
        return Tunnelled(data, row, row)
    inside = tunnelled(random, random.choice([4, 6]), depth - 1)
    carried, below, tunnel_id = wrapped(random, inside)
    data, row = ip_packet(random, version, carried)
    if row["fragment_offset"]:
        return Tunnelled(data, row, row)
    if inside.tunnels:
        return Tunnelled(data, row, inside.inner, inside.tunnels + 1, inside.tunnel_id)
    return Tunnelled(data, row, inside.outer | below, 1, tunnel_id)


Wrapping = tuple[Carried, Row, int | None]
"""Return the payload of the outer packet, the bytes below the inner IP header, and the id of the tunnel."""


def wrapped(random: Random, inside: Tunnelled) -> Wrapping:
    """Any tunnel, now and then behind an authentication header."""
    version = inside.data[0] >> 4
    ways = [way for way in WAYS if way is not l2tp_3 or not no_length(inside.data)]
    carried, below, tunnel_id = random.choice(ways)(random, inside.data, version)
    if random.random() < 0.05:
        value = random.randbytes(4 * random.randrange(1, 5))
        header = struct.pack(">BBHII", carried[0], len(value) // 4 + 1, 0, 1, 1) + value
        carried = plain(51, header + carried[1])
    return carried, below, tunnel_id


def plain(protocol: int, payload: bytes) -> Carried:
    return protocol, payload, NO_TRANSPORT | {"payload": payload}


def over_udp(random: Random, port: int, payload: bytes, either: bool = False) -> Carried:
    other = random.choice(sorted(set(random.sample(range(65536), 9)) - PORTS))
    ports = (port, other) if either and random.random() < 0.5 else (other, port)
    layer = UDP(sport=ports[0], dport=ports[1], chksum=random.choice([0, 1]), len=8 + len(payload))
    columns = {"srcPort": ports[0], "destPort": ports[1], "payload": payload}
    return 17, bytes(layer) + payload, NO_TRANSPORT | columns


def ip_in_ip(random: Random, data: bytes, version: int) -> Wrapping:
    return plain({4: 4, 6: 41}[version], data), NOTHING_BELOW, None


def ppp(random: Random, data: bytes, version: int) -> bytes:
    protocol = PPP_PROTOCOLS[version]
    return (
        random.choice([bytes(PPP(proto=protocol)), b"\xff\x03" + struct.pack(">H", protocol), bytes([protocol])]) + data
    )


def labelled(random: Random, data: bytes) -> tuple[bytes, Row]:
    labels = [random.randrange(2**20) for _ in range(random.randrange(1, 4))]
    stack = [bytes(MPLS(label=label, s=place == len(labels) - 1, ttl=9)) for place, label in enumerate(labels)]
    return b"".join(stack) + data, NOTHING_BELOW | {"mpls": labels[0]}


def any_ethertype(random: Random, data: bytes, version: int) -> tuple[int, bytes, Row]:
    """An EtherType, what follows it, and what that puts below the inner IP header."""
    match random.randrange(4):
        case 0 | 1:
            return ETHERTYPES[version], data, NOTHING_BELOW | {"ethertype": ETHERTYPES[version]}
        case 2:
            inside, below = labelled(random, data)
            return 0x8847, inside, below | {"ethertype": 0x8847}
    frame, below = ethernet(random, data, ETHERTYPES[version])
    return 0x6558, frame, below


def gre(random: Random, data: bytes, version: int) -> Wrapping:
    kind, inside, below = any_ethertype(random, data, version)
    if random.random() < 0.15:
        kind, inside, below = 0x880B, ppp(random, data, version), NOTHING_BELOW
    checksum, routing, key, sequence = (random.random() < share for share in (0.3, 0.2, 0.5, 0.3))
    tunnel_id = random.randrange(2**32) if key else None
    header = GRE(proto=kind, chksum_present=int(checksum), key_present=int(key), seqnum_present=int(sequence))
    header.chksum, header.key, header.sequence_number = 1, tunnel_id, 7
    front = bytes(header)
    if routing:  # scapy would put the routes behind the whole header but has no room for their offset
        flags, kind = struct.unpack(">HH", front[:4])
        front = struct.pack(">HHHH", flags | 0x4000, kind, 1, 0) + front[8 if checksum else 4 :]
        for _ in range(random.randrange(3)):
            address = random.randbytes(random.choice([4, 8]))
            front += struct.pack(">HBB", 0x0800, 0, len(address)) + address
        front += bytes(4)
    return plain(47, front + inside), below, tunnel_id


def erspan(random: Random, data: bytes, version: int) -> Wrapping:
    frame, below = ethernet(random, data, ETHERTYPES[version])
    session = random.randrange(1024)
    key = random.choice([None, random.randrange(2**32)])
    header = GRE(proto=0x88BE, key_present=int(key is not None), key=key)
    kind = random.randrange(3)
    if kind == 0:
        return plain(47, bytes(header) + frame), below, key
    header.seqnum_present, header.sequence_number = 1, 5
    if kind == 1:
        front = header / ERSPAN_II(session_id=session, vlan=random.randrange(4096), index=3)
    else:
        header.proto = 0x22EB
        more, bare = random.randrange(2), random.random() < 0.2
        front = header / ERSPAN_III(session_id=session, vlan=random.randrange(4096), o=more, ft=2 if bare else 0)
        frame, below = (data, NOTHING_BELOW) if bare else (frame, below)
        front = front / ERSPAN_PlatformSpecific(platf_id=1, info1=9) if more else front
    return plain(47, bytes(front) + frame), below, session


def pptp(random: Random, data: bytes, version: int) -> Wrapping:
    call = random.randrange(65536)
    inside = ppp(random, data, version)
    header = GRE_PPTP(call_id=call, payload_len=len(inside), seqnum_present=1, sequence_number=5)
    header.acknum_present, header.ack_number = random.randrange(2), 4
    return plain(47, bytes(header) + inside), NOTHING_BELOW, call


def vxlan(random: Random, data: bytes, version: int) -> Wrapping:
    frame, below = ethernet(random, data, ETHERTYPES[version])
    vni = random.randrange(2**24)
    header = VXLAN(flags=0x08 | random.choice([0, 0x80]), vni=vni)
    return over_udp(random, random.choice([4789, 8472]), bytes(header) + frame), below, vni


def vxlan_gpe(random: Random, data: bytes, version: int) -> Wrapping:
    vni = random.choice([None, random.randrange(2**24)])
    following = random.choice([0, 1, 3, 5])
    inside, below = data, NOTHING_BELOW
    if following in (0, 3):
        inside, below = ethernet(random, data, ETHERTYPES[version])
    elif following == 5:
        inside, below = labelled(random, data)
    elif version == 6:
        following = 2
    flags = (8 if vni is not None else 0) | (4 if following else 0)
    header = struct.pack(">BHBI", flags, 0, following, (vni or 0) << 8)
    return over_udp(random, 4790, header + inside), below, vni


def geneve(random: Random, data: bytes, version: int) -> Wrapping:
    kind, inside, below = any_ethertype(random, data, version)
    vni = random.randrange(2**24)
    options = [
        GeneveOptions(classid=1, type=2, data=bytes(4 * random.randrange(5))) for _ in range(random.randrange(4))
    ]
    header = bytes(GENEVE(vni=vni, proto=kind, options=options))
    return over_udp(random, 6081, header + inside), below, vni


def gtp(random: Random, data: bytes, version: int) -> Wrapping:
    teid = random.randrange(2**32)
    header = GTP_U_Header(teid=teid, gtp_type=255, S=random.randrange(2), PN=random.randrange(2), E=0)
    if random.random() < 0.4:
        header = GTP_U_Header(teid=teid, gtp_type=255, E=1, next_ex=0x85) / GTPPDUSessionContainer(
            type=random.randrange(2), QFI=9
        )
    front = bytes(header / Raw(data))
    inside = data
    if random.random() < 0.2:
        front, inside = struct.pack(">BBHI", 0x30, 255, len(data), teid), ppp(random, data, version)
        front += inside
    return over_udp(random, 2152, front), NOTHING_BELOW, teid


def teredo(random: Random, data: bytes, version: int) -> Wrapping:
    if version == 4:
        return gtp(random, data, version)
    front = b""
    if random.random() < 0.4:
        client, value = random.randbytes(random.randrange(9)), random.randbytes(random.randrange(9))
        front += bytes([0, 1, len(client), len(value)]) + client + value + bytes(9)
    if random.random() < 0.4:
        front += b"\0\0" + random.randbytes(6)
    return over_udp(random, 3544, front + data, either=True), NOTHING_BELOW, None


def l2tp_2(random: Random, data: bytes, version: int) -> Wrapping:
    session = random.randrange(65536)
    length, sequence, offset = (random.random() < 0.5 for _ in range(3))
    inside = struct.pack(">HH", 7, session) + (struct.pack(">HH", 1, 2) if sequence else b"")
    if offset:
        padding = random.randrange(6)
        inside += struct.pack(">H", padding) + bytes(padding)
    inside += ppp(random, data, version)
    flags = 0x4000 * length | 0x0800 * sequence | 0x0200 * offset | 2
    header = struct.pack(">HH", flags, 4 + len(inside)) if length else struct.pack(">H", flags)
    return over_udp(random, 1701, header + inside, either=True), NOTHING_BELOW, session


def l2tp_3(random: Random, data: bytes, version: int) -> Wrapping:
    session = random.randrange(1, 2**32)
    inside, below = data, NOTHING_BELOW
    if random.random() < 0.7:
        inside, below = ethernet_with_tags(random, data, ETHERTYPES[version], random.randrange(3))
    message = struct.pack(">I", session) + bytes(random.choice([0, 4, 8, 12])) + inside
    if random.random() < 0.5:
        return plain(115, message), below, session
    return over_udp(random, 1701, struct.pack(">HH", 3, 0) + message, either=True), below, session


WAYS: tuple[Callable[[Random, bytes, int], Wrapping], ...] = (
    ip_in_ip, ip_in_ip, gre, gre, erspan, pptp, vxlan, vxlan_gpe, geneve, gtp, teredo, l2tp_2, l2tp_3,
)  # fmt: skip
