"""The slow, obvious twin of `capture`: records and rows read with dpkt and slices of bytes, one Python dict per
packet.

It shares no code with the product. dpkt reads what it reads well: the headers of Linux cooked frames, IPv4, TCP, UDP
and ICMP. VLAN stacks, MPLS, PPP, SNAP, IPv6 extension headers and everything that is cut are read here by hand,
because dpkt gives up on a cut header, follows a later fragment as if it had ports, and knows only two tags. A slice
that runs past the end is just shorter, so nothing in this file can read beyond a frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import dpkt

Row = dict[str, Any]
VLAN_TAGS = {0x8100, 0x88A8, 0x9100, 0x9200}
NS = 1_000_000_000
# Magic as stored: byte order, ns for each unit of the fraction, bytes of a record header.
FORMATS = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000, 16),
    b"\xa1\xb2\xc3\xd4": (">", 1000, 16),
    b"\x4d\x3c\xb2\xa1": ("<", 1, 16),
    b"\xa1\xb2\x3c\x4d": (">", 1, 16),
    b"\x34\xcd\xb2\xa1": ("<", 1000, 24),
    b"\xa1\xb2\xcd\x34": (">", 1000, 24),
}


@dataclass
class Capture:
    """What a classic pcap holds: `records` are (ts in ns, bytes on the wire, frame), `damage` how it ends if badly."""

    link_type: int
    records: list[tuple[int, int, bytes]] = field(default_factory=list)
    damage: str | None = None

    def rows(self) -> Iterator[Row | str]:
        """A row for each packet, or why the record is none."""
        for ts, wire, frame in self.records:
            found = packet(self.link_type, frame, wire - len(frame))
            yield found if isinstance(found, str) else {"ts": ts, "len": wire, "caplen": len(frame), **found}


def read_pcap(path: Path) -> Capture:
    """Read a whole file."""
    return parse_pcap(path.read_bytes())


def parse_pcap(data: bytes) -> Capture:
    """Read the bytes of a whole file; ValueError where they are no classic pcap."""
    if data[:4] not in FORMATS or len(data) < 24:
        raise ValueError(f"no classic pcap: {data[:24].hex()}")
    order, unit, header = FORMATS[data[:4]]
    _, _, minor, _, _, _, link = struct.unpack(order + "IHHIIII", data[:24])
    capture = Capture(link & 0xFFFF)
    at = 24
    while at < len(data):
        if len(data) - at < header:
            capture.damage = "cut_in_record_header"
            break
        seconds, fraction, one, two = struct.unpack_from(order + "IIII", data, at)
        captured, wire = {2: (two, one), 3: (min(one, two), max(one, two))}.get(max(2, minor), (one, two))
        if captured > 262_144:
            capture.damage = "impossible_record_length"
            break
        frame = data[at + header : at + header + captured]
        if len(frame) < captured:
            capture.damage = "cut_in_record"
            break
        capture.records.append((seconds * NS + fraction * unit, wire, frame))
        at += header + captured
    return capture


def packet(link_type: int, frame: bytes, not_captured: int = 0) -> Row | str:
    """The columns of one frame below the record header, or the cause for which it is no row.

    `not_captured` bytes of it were on the wire and are not in the capture.
    """
    found = link_layer(link_type, frame)
    if found is None:
        return "non_ip"
    ethertype, rest, vlan = found
    row = ipv4(rest, not_captured) if ethertype == 0x0800 else ipv6(rest)
    return row if isinstance(row, str) else {**row, "vlan": vlan}


def number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def link_layer(link_type: int, frame: bytes) -> tuple[int, bytes, int | None] | None:
    """EtherType of the outermost IP layer, the bytes from there, the outermost VLAN id; None where there is no IP."""
    if link_type == 192:
        if len(frame) < 8:
            return None
        length, link_type = struct.unpack("<2xHI", frame[:8])
        if link_type == 192 or length > len(frame):
            return None
        frame = frame[length:]
    match link_type:
        case 1:
            return ethernet(frame)
        case 12 | 14 | 101:
            return by_version(frame)
        case 228:
            return 0x0800, frame, None
        case 229:
            return 0x86DD, frame, None
        case 9 | 50:
            return ethertype_layer(number(frame[2:4]), frame[4:]) if frame[:1] in (b"\x0f", b"\x8f") else ppp(frame)
        case 51:
            return ppp(frame[6:])
        case 104:
            return ethertype_layer(number(frame[2:4]), frame[4:])
        case 0 | 108:
            family = number(frame[:4]) if len(frame) >= 4 else -1
            if link_type == 0 and family > 0xFFFF:
                family = int.from_bytes(frame[:4], "little")
            if family in (2, 10, 23, 24, 28, 30):
                return 0x0800 if family == 2 else 0x86DD, frame[4:], None
            return None
        case 113 | 276:
            cooked = dpkt.sll.SLL if link_type == 113 else dpkt.sll2.SLL2
            if len(frame) < cooked.__hdr_len__:
                return None
            header = cooked(frame[: cooked.__hdr_len__])
            rest = frame[cooked.__hdr_len__ :]
            return llc(rest) if header.ethtype == 4 else ethertype_layer(header.ethtype, rest)
    return None


def ethernet(frame: bytes) -> tuple[int, bytes, int | None] | None:
    if len(frame) < 14:
        return None
    kind = number(frame[12:14])
    return llc(frame[14:]) if kind <= 1500 else ethertype_layer(kind, frame[14:])


def ethertype_layer(kind: int, rest: bytes) -> tuple[int, bytes, int | None] | None:
    vlan = None
    while kind in VLAN_TAGS:
        if len(rest) < 4:
            return None
        vlan = number(rest[:2]) % 4096 if vlan is None else vlan
        kind, rest = number(rest[2:4]), rest[4:]
        if kind <= 1500:
            return tagged(llc(rest), vlan)
    if kind in (0x0800, 0x86DD):
        return kind, rest, vlan
    if kind in (0x8847, 0x8848):
        return tagged(mpls(rest), vlan)
    if kind == 0x8864:
        return tagged(ppp(rest[6:]), vlan)
    if kind == 0x8903:
        return tagged(ethernet(rest[2:]), vlan)
    return None


def tagged(found: tuple[int, bytes, int | None] | None, vlan: int | None) -> tuple[int, bytes, int | None] | None:
    """Outside tags go before the ones further in."""
    return None if found is None else (found[0], found[1], found[2] if vlan is None else vlan)


def mpls(rest: bytes) -> tuple[int, bytes, int | None] | None:
    while len(rest) >= 4 and not rest[2] & 1:
        rest = rest[4:]
    return by_version(rest[4:])


def by_version(rest: bytes) -> tuple[int, bytes, int | None] | None:
    kind = {4: 0x0800, 6: 0x86DD}.get(rest[0] >> 4) if rest else None
    return None if kind is None else (kind, rest, None)


def ppp(rest: bytes) -> tuple[int, bytes, int | None] | None:
    rest = rest.removeprefix(b"\xff\x03")
    if len(rest) < 2:
        return None
    size = 1 if rest[0] & 1 else 2
    protocol, rest = number(rest[:size]), rest[size:]
    if protocol in (0x281, 0x283):
        return mpls(rest)
    kind = {0x21: 0x0800, 0x57: 0x86DD}.get(protocol)
    return None if kind is None else (kind, rest, None)


def llc(rest: bytes) -> tuple[int, bytes, int | None] | None:
    if len(rest) >= 3 and rest[:2] == b"\x06\x06":
        return by_version(rest[3:])
    if len(rest) >= 8 and rest[:6] == b"\xaa\xaa\x03\0\0\0":
        return ethertype_layer(number(rest[6:8]), rest[8:])
    return None


def ipv4(data: bytes, not_captured: int) -> Row | str:
    if len(data) < 20:
        return "ip_header_cut"
    try:
        ip = dpkt.ip.IP(data[:20])
    except dpkt.UnpackError:
        return "ip_header_malformed"
    if ip.v != 4 or 0 < ip.len < ip.hl * 4:
        return "ip_header_malformed"
    row = {"ip_version": 4, "srcIP": IPv4Address(ip.src), "destIP": IPv4Address(ip.dst), "protocol": ip.p}
    row |= {"ip_len": ip.len or len(data) + not_captured, "ttl": ip.ttl, "tos": ip.tos}
    row |= {"fragment_offset": ip.offset * 8, "more_fragments": ip.mf}
    payload = data[: ip.len or None][ip.hl * 4 :]
    return row | transport(ip.p, b"" if ip.offset else payload)


def ipv6(data: bytes) -> Row | str:
    if len(data) < 40:
        return "ip_header_cut"
    if data[0] >> 4 != 6:
        return "ip_header_malformed"
    length, protocol, hops = number(data[4:6]), data[6], data[7]
    rest = data[40 : 40 + length if length else None]
    offset = more = 0
    while protocol in (0, 43, 44, 60) and len(rest) >= 8 and not offset:
        following = rest[0]
        if protocol == 44:
            offset, more = number(rest[2:4]) // 8 * 8, rest[3] % 2
            rest = rest[8:]
        else:
            rest = rest[8 * (rest[1] + 1) :]
        protocol = following
    row = {"ip_version": 6, "srcIP": IPv6Address(data[8:24]), "destIP": IPv6Address(data[24:40]), "protocol": protocol}
    row |= {"ip_len": length + 40, "ttl": hops, "tos": number(data[:2]) // 16 % 256}
    row |= {"fragment_offset": offset, "more_fragments": more}
    return row | transport(protocol, b"" if offset else rest)


def transport(protocol: int, payload: bytes) -> Row:
    """Ports, flags, type and code, as far as the bytes go; a header that is whole is read by dpkt."""
    row: Row = dict.fromkeys(("srcPort", "destPort", "tcp_flags", "icmp_type", "icmp_code"))
    if protocol == 6 and len(payload) >= 20 and payload[12] >= 0x50:
        tcp = dpkt.tcp.TCP(payload[:20])
        row |= {"srcPort": tcp.sport, "destPort": tcp.dport, "tcp_flags": tcp.flags & 255}
    elif protocol == 17 and len(payload) >= 8:
        udp = dpkt.udp.UDP(payload[:8])
        row |= {"srcPort": udp.sport, "destPort": udp.dport}
    elif protocol in (6, 17) and len(payload) >= 4:
        row |= {"srcPort": number(payload[:2]), "destPort": number(payload[2:4])}
        if protocol == 6 and len(payload) >= 14:
            row["tcp_flags"] = payload[13]
    elif protocol in (1, 58) and len(payload) >= 2:
        row |= {"icmp_type": payload[0], "icmp_code": payload[1]}
    return row
