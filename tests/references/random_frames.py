"""Seeded random frames of every link type, and the row each must become: known from its making, not from reading it.

Nearly half of the packets are tunnels, and their rows have the columns of both layers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

from scapy.layers.dot11 import Dot11, Dot11QoS, RadioTap
from scapy.layers.l2 import LLC, SNAP, CookedLinux, CookedLinuxV2
from scapy.layers.ppp import PPP, PPPoE
from scapy.packet import Raw

from tests.references.random_ethernet import NOTHING_BELOW, Row, ethernet, mac, tagged
from tests.references.random_packets import no_length
from tests.references.random_tunnels import tunnelled

WRAPPERS = (149, 192, 258)
Frame = tuple[bytes, Row]
"""A frame, and what it puts below its outermost IP header."""


def random_frame(random: Random, link_type: int, depth: int | None = None) -> Frame:
    """A frame of `link_type` around a random packet, and its row without `ts`, `len`, `caplen` and `interface`.

    `depth` is the number of tunnels, by default none in most frames.
    """
    version = {228: 4, 229: 6, 106: 4}.get(link_type, random.choice([4, 6]))
    depth = random.choice([0, 0, 0, 1, 1, 2, 3]) if depth is None else depth
    packet = tunnelled(random, version, depth)
    # Ethernet pads short frames; the padding belongs to no packet. Without a length nobody can tell.
    padding = b"" if no_length(packet.data) else bytes(random.choice([0, 0, 9]))
    frame, below = around(random, link_type, packet.data + padding, version)
    outer = packet.outer | below
    inner = packet.inner if packet.tunnels else outer
    tunnels = {"tunnels": packet.tunnels, "tunnel_id": packet.tunnel_id}
    return frame, outer | {f"inner.{name}": value for name, value in inner.items()} | tunnels


def around(random: Random, link_type: int, data: bytes, version: int) -> Frame:
    """The headers of a link type before a packet."""
    if link_type in WRAPPERS:
        inside = random.choice([kind for kind in LINK_TYPES if kind not in (*WRAPPERS, 228, 229, 106)])
        frame, below = around(random, inside, data, version)
        if link_type == 192:
            # radio information that 802.11 cards add to a frame
            fields = random.choice([b"", struct.pack("<HH", 2, 20) + bytes(20)])
            return struct.pack("<BBHI", 0, 0, 8 + len(fields), inside) + fields + frame, below
        fields = b"en0".ljust(24, b"\0") + bytes(72) + random.randbytes(4 * random.randrange(4))
        return struct.pack("<III", 12 + len(fields), 1, inside) + fields + frame, below
    return MAKERS[link_type](random, data, 0x0800 if version == 4 else 0x86DD)


def bare(random: Random, data: bytes, ethertype: int) -> Frame:
    return data, NOTHING_BELOW


def after(front: Callable[[Random, bytes], bytes]) -> Callable[[Random, bytes, int], Frame]:
    """A maker of frames that are a packet behind a header without anything to learn from it."""
    return lambda random, data, ethertype: (front(random, data) + data, NOTHING_BELOW)


def behind(
    front: Callable[[Random], bytes], inside: Callable[[Random, bytes, int], Frame]
) -> Callable[[Random, bytes, int], Frame]:
    """A maker of frames of another kind behind a header."""

    def made(random: Random, data: bytes, ethertype: int) -> Frame:
        frame, below = inside(random, data, ethertype)
        return front(random) + frame, below

    return made


def ppp(random: Random, data: bytes, ethertype: int) -> Frame:
    protocol = PPP_PROTOCOL[ethertype]
    compressed = bytes([protocol]) + data
    return random.choice([bytes(PPP(proto=protocol) / Raw(data)), compressed, b"\xff\x03" + compressed]), NOTHING_BELOW


def hdlc(random: Random, data: bytes, ethertype: int) -> Frame:
    return bytes(PPP(proto=PPP_PROTOCOL[ethertype]) / Raw(data)), NOTHING_BELOW


PPP_PROTOCOL = {0x0800: 0x21, 0x86DD: 0x57}
NLPID = {0x0800: 0xCC, 0x86DD: 0x8E}


def family(random: Random, ethertype: int) -> int:
    return 2 if ethertype == 0x0800 else random.choice([10, 23, 24, 28, 30])


def loopback(random: Random, data: bytes, ethertype: int) -> Frame:
    return struct.pack(random.choice("<>") + "I", family(random, ethertype)) + data, NOTHING_BELOW


def openbsd_loop(random: Random, data: bytes, ethertype: int) -> Frame:
    return struct.pack(">I", family(random, ethertype)) + data, NOTHING_BELOW


def enc(random: Random, data: bytes, ethertype: int) -> Frame:
    return struct.pack(random.choice("<>") + "I", family(random, ethertype)) + random.randbytes(8) + data, NOTHING_BELOW


def pflog(random: Random, data: bytes, ethertype: int) -> Frame:
    length = random.randrange(28, 72)
    header = bytes([length, family(random, ethertype)]) + random.randbytes(length - 2)
    return header + bytes(-length % 4) + data, NOTHING_BELOW


def ipnet(random: Random, data: bytes, ethertype: int) -> Frame:
    header = struct.pack(">BBHI", 1, 2 if ethertype == 0x0800 else 26, random.randrange(2), len(data))
    return header + random.randbytes(16) + data, NOTHING_BELOW


def cisco_hdlc(random: Random, data: bytes, ethertype: int) -> Frame:
    return struct.pack(">BBH", random.choice([0x0F, 0x8F]), 0, ethertype) + data, NOTHING_BELOW | {
        "ethertype": ethertype
    }


def mpls(random: Random, data: bytes, ethertype: int) -> Frame:
    labels = [random.randrange(2**20) for _ in range(random.randrange(1, 4))]
    entries = [label << 12 | (place == len(labels) - 1) << 8 | 64 for place, label in enumerate(labels)]
    return struct.pack(f">{len(entries)}I", *entries) + data, NOTHING_BELOW | {"mpls": labels[0]}


def cooked(random: Random, data: bytes, ethertype: int) -> Frame:
    source, _ = mac(random)
    size = random.choice([0, 6, 6, 8])
    header = CookedLinux(proto=ethertype, lladdrlen=size, src=source.to_bytes(6) + b"\0\0")
    below = NOTHING_BELOW | {"ethertype": ethertype, "srcMAC": source if size == 6 else None}
    return bytes(header / Raw(data)), below


def cooked_2(random: Random, data: bytes, ethertype: int) -> Frame:
    source, _ = mac(random)
    size = random.choice([0, 6, 6, 8])
    header = CookedLinuxV2(proto=ethertype, lladdrlen=size, src=source.to_bytes(6) + b"\0\0", ifindex=3)
    below = NOTHING_BELOW | {"ethertype": ethertype, "srcMAC": source if size == 6 else None}
    return bytes(header / Raw(data)), below


def snap(random: Random, data: bytes, ethertype: int) -> Frame:
    return bytes(LLC(dsap=0xAA, ssap=0xAA, ctrl=3) / SNAP(OUI=0, code=ethertype) / Raw(data)), (
        NOTHING_BELOW | {"ethertype": ethertype}
    )


def atm(random: Random, data: bytes, ethertype: int) -> Frame:
    """LLC with SNAP, with a bridged frame, with an NLPID, with PPP."""
    match random.randrange(4):
        case 0:
            frame, below = ethernet(random, data, ethertype)
            return bytes.fromhex("aaaa03 0080c2 0007 0000") + frame, below
        case 1:
            return bytes([0xFE, 0xFE, 3, NLPID[ethertype]]) + data, NOTHING_BELOW
        case 2:
            return bytes.fromhex("fefe03 cf") + struct.pack(">H", PPP_PROTOCOL[ethertype]) + data, NOTHING_BELOW
    return snap(random, data, ethertype)


def sun_atm(random: Random, data: bytes, ethertype: int) -> Frame:
    address = struct.pack(">BH", random.randrange(256), random.randrange(65536))
    if random.random() < 0.5:
        frame, below = ethernet(random, data, ethertype)
        return bytes([random.choice([0x01, 0x81])]) + address + b"\0\5" + frame, below
    frame, below = snap(random, data, ethertype)
    return bytes([random.choice([0x02, 0x82])]) + address + frame, below


def frame_relay(random: Random, data: bytes, ethertype: int) -> Frame:
    upper = [random.randrange(128) * 2 for _ in range(random.randrange(1, 4))]
    address = bytes([*upper, random.randrange(128) * 2 + 1])
    pad = random.choice([b"", b"\0"])
    match random.randrange(4):
        case 0:
            return address + struct.pack(">H", ethertype) + data, NOTHING_BELOW | {"ethertype": ethertype}
        case 1:
            header = address + b"\3" + pad + bytes.fromhex("80 000000") + struct.pack(">H", ethertype)
            return header + data, NOTHING_BELOW | {"ethertype": ethertype}
        case 2:
            frame, below = ethernet(random, data, ethertype)
            return address + b"\3" + pad + bytes.fromhex("80 0080c2 0007") + frame, below
    return address + b"\3" + pad + bytes([NLPID[ethertype]]) + data, NOTHING_BELOW


def arcnet(random: Random, data: bytes, ethertype: int) -> Frame:
    front = random.randbytes(4)
    if ethertype == 0x0800 and random.random() < 0.5:
        return front + b"\xf0" + data, NOTHING_BELOW
    return front + bytes([212 if ethertype == 0x0800 else 196, 0, 0, 9]) + data, NOTHING_BELOW


def juniper(inside: Callable[[Random, bytes, int], Frame]) -> Callable[[Random, bytes, int], Frame]:
    def made(random: Random, data: bytes, ethertype: int) -> Frame:
        extensions = random.randbytes(random.randrange(20)) if random.random() < 0.6 else None
        flags = random.randrange(2) | (0x80 if extensions is not None else 0)
        header = b"" if extensions is None else struct.pack(">H", len(extensions)) + extensions
        if random.random() < 0.2:
            protocol = struct.pack("<I", 2 if ethertype == 0x0800 else 6)
            return b"MGC" + bytes([flags | 2]) + header + protocol + data, NOTHING_BELOW
        frame, below = inside(random, data, ethertype)
        return b"MGC" + bytes([flags]) + header + frame, below

    return made


def nflog(random: Random, data: bytes, ethertype: int) -> Frame:
    order = random.choice("<>")
    source, _ = mac(random)
    size = random.choice([6, 6, 8])
    hardware = struct.pack(">HH", size, 0) + source.to_bytes(6) + b"\0\0"
    attributes = [(1, struct.pack(">HBB", ethertype, 1, 0)), (10, random.choice([b"\0", b"prefix\0"]))]
    below = NOTHING_BELOW
    if random.random() < 0.6:
        attributes.append((8, hardware))
        below = below | {"srcMAC": source if size == 6 else None}
    body = bytes([2 if ethertype == 0x0800 else 10, 0, 0, 0])
    for kind, value in [*attributes, (9, data)]:
        body += struct.pack(order + "HH", 4 + len(value), kind) + value
        body += b"" if kind == 9 and no_length(data) else bytes(-len(value) % 4)
    return body, below


def infiniband(random: Random, data: bytes, ethertype: int) -> Frame:
    return random.randbytes(40) + struct.pack(">HH", ethertype, 0) + data, NOTHING_BELOW | {"ethertype": ethertype}


def switch_tag(link_type: int) -> Callable[[Random, bytes, int], Frame]:
    """Ethernet with a switch's tag before its type; Marvell's may hold the VLAN."""

    def made(random: Random, data: bytes, ethertype: int) -> Frame:
        frame, below = tagged(random, 0)
        addresses = bytes(frame)[:12]
        vlan = random.randrange(4096)
        taken = random.random() < 0.5 and link_type != 281
        tag = struct.pack(">BBH", 0xC0 | 0x20 * taken, 0x08, vlan)
        front = bytes.fromhex("dada0000") + tag if link_type == 285 else tag
        below |= {"ethertype": ethertype, "vlan": vlan if taken else None}
        return addresses + front + struct.pack(">H", ethertype) + data, below

    return made


def wlan_frame(random: Random, data: bytes, ethertype: int, padded: bool = False) -> Frame:
    """An 802.11 data frame: of three or four addresses, with QoS and HT control, aggregated, padded."""
    numbers, texts = zip(*(mac(random) for _ in range(4)), strict=True)
    to_ds, from_ds = random.randrange(2), random.randrange(2)
    qos = random.random() < 0.7
    order = qos and random.random() < 0.4
    aggregated = qos and random.random() < 0.3
    names = {(0, 0): (0, 1), (1, 0): (2, 1), (0, 1): (0, 2), (1, 1): (2, 3)}
    destination, source = (numbers[place] for place in names[to_ds, from_ds])
    flags = to_ds | from_ds << 1 | (0x80 if order else 0) | random.choice([0, 0x08, 0x20])
    header = Dot11(type=2, subtype=8 if qos else 0, FCfield=flags, SC=random.randrange(4096) << 4)
    header.addr1, header.addr2, header.addr3, header.addr4 = texts
    front = bytes(header)
    if qos:  # scapy reads HT control but does not write it
        front = bytes(Dot11(front[: 30 if to_ds and from_ds else 24]))
        front += bytes(Dot11QoS(A_MSDU_Present=int(aggregated), TID=random.randrange(8)))
        front += random.randbytes(4) if order else b""
    if padded:
        front += bytes(-len(front) % 4)
    body, below = snap(random, data, ethertype)
    if aggregated:
        (destination, _), (source, _) = mac(random), mac(random)
        body = destination.to_bytes(6) + source.to_bytes(6) + struct.pack(">H", len(body)) + body
    return front + body, below | {"srcMAC": source, "destMAC": destination}


def radiotap(random: Random, data: bytes, ethertype: int) -> Frame:
    padded = random.random() < 0.3
    check = random.random() < 0.3 and not no_length(data)
    flags = (0x20 if padded else 0) | (0x10 if check else 0)
    present = ["Flags"] if flags or random.random() < 0.5 else []
    fields = {"Flags": flags} if present else {}
    if random.random() < 0.5:
        present, fields = ["TSFT", *present], fields | {"mac_timestamp": random.randrange(2**64)}
    if random.random() < 0.5:
        present, fields = [*present, "Rate"], fields | {"Rate": 2}
    header = bytes(RadioTap(present="+".join(present), **fields))
    frame, below = wlan_frame(random, data, ethertype, padded)
    return header + frame + (random.randbytes(4) if check else b""), below


def monitored(avs: Callable[[Random], bool]) -> Callable[[Random, bytes, int], Frame]:
    """802.11 behind an AVS header, else behind a Prism header of 144 bytes."""

    def made(random: Random, data: bytes, ethertype: int) -> Frame:
        frame, below = wlan_frame(random, data, ethertype)
        if avs(random):
            size = random.choice([64, 72])
            return struct.pack(">II", 0x80211000 | random.choice([1, 2]), size) + bytes(size - 8) + frame, below
        return struct.pack("<II", 0x44, 144) + random.randbytes(136) + frame, below

    return made


MAKERS: dict[int, Callable[[Random, bytes, int], Frame]] = {
    0: loopback,
    1: ethernet,
    8: after(lambda random, data: random.randbytes(16)),
    9: ppp,
    12: bare,
    14: bare,
    50: lambda random, data, ethertype: (bytes(PPP(proto=PPP_PROTOCOL[ethertype]) / Raw(data)), NOTHING_BELOW),
    51: lambda random, data, ethertype: (
        bytes(PPPoE() / PPP(proto=PPP_PROTOCOL[ethertype]) / Raw(data)),
        NOTHING_BELOW,
    ),
    100: atm,
    101: bare,
    104: cisco_hdlc,
    105: wlan_frame,
    106: lambda random, data, ethertype: random.choice([bare, snap])(random, data, ethertype),
    107: frame_relay,
    108: openbsd_loop,
    109: enc,
    113: cooked,
    117: pflog,
    119: monitored(lambda random: random.random() < 0.5),
    123: sun_atm,
    127: radiotap,
    129: arcnet,
    163: monitored(lambda random: True),
    166: lambda random, data, ethertype: (
        struct.pack(">BBH", random.randrange(2), 3, PPP_PROTOCOL[ethertype]) + data,
        NOTHING_BELOW,
    ),
    178: juniper(ethernet),
    179: juniper(ppp),
    180: juniper(frame_relay),
    181: juniper(cisco_hdlc),
    204: behind(lambda random: bytes([random.randrange(2)]), ppp),
    205: behind(lambda random: bytes([random.randrange(2)]), cisco_hdlc),
    206: behind(lambda random: bytes([random.randrange(2)]), frame_relay),
    219: mpls,
    226: ipnet,
    228: bare,
    229: bare,
    239: nflog,
    242: infiniband,
    276: cooked_2,
    281: switch_tag(281),
    282: behind(lambda random: random.randbytes(4), ethernet),
    284: switch_tag(284),
    285: switch_tag(285),
}

LINK_TYPES = tuple(sorted((*MAKERS, *WRAPPERS)))
