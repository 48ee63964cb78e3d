"""The slow, obvious twin of `capture`: records and rows read with dpkt and slices of bytes, one Python dict per
packet.

It shares no code with the product. dpkt reads what it reads well: the headers of IPv4, TCP, UDP and ICMP.
`tests.references.link_oracle` reads the headers before an IP header, `tests.references.tunnel_oracle` the headers
between two of them. IPv6 extension headers and cut headers are read here by hand. dpkt stops at a cut header and reads
ports in a later fragment. A slice that runs past the end is just shorter, so nothing here can read beyond a frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import dpkt

from tests.references.link_oracle import Walk, number
from tests.references.tunnel_oracle import inside

Row = dict[str, Any]
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
    """Contents of a classic pcap.

    `records` are (ts in ns, bytes on the wire, frame); `damage` is the reason of a bad end.
    """

    link_type: int
    records: list[tuple[int, int, bytes]] = field(default_factory=list)
    damage: str | None = None

    def rows(self, inner: bool = False, every_frame: bool = False) -> Iterator[Row | str]:
        """Yield a row per packet, or the reason why a record has no row. With `every_frame` every record has a row.

        The columns of the innermost layer are included if `inner` is set.
        """
        for ts, wire, frame in self.records:
            found = packet(self.link_type, frame, wire - len(frame))
            if isinstance(found, str):
                if not every_frame:
                    yield found
                    continue
                found = no_packet(self.link_type, frame)
            row = {"ts": ts, "len": wire, "caplen": len(frame), "interface": 0} | found
            yield row if inner else {name: value for name, value in row.items() if not name.startswith("inner.")}


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
    walk = Walk()
    found = walk.frame(link_type, frame)
    if not isinstance(found, tuple):
        return found or "non_ip"
    layer = ip_layer(found, max(0, not_captured))
    if isinstance(layer, str):
        return layer
    outer = layer.row | walk.columns()
    tunnels, tunnel_id = 0, None
    while tunnels < 8 and layer.carried is not None:
        inner_walk = Walk()
        found, next_id = inside(layer.row["protocol"], layer.carried, inner_walk)
        next_layer = ip_layer(found, layer.more) if found else ""
        if isinstance(next_layer, str):
            break
        layer, walk, tunnel_id = next_layer, inner_walk, next_id
        tunnels += 1
    inner = {f"inner.{name}": value for name, value in (layer.row | walk.columns()).items()}
    return outer | inner | {"tunnels": tunnels, "tunnel_id": tunnel_id}


def no_packet(link_type: int, frame: bytes) -> Row:
    """Return the row of a frame without a readable IP header: the columns of the link layer, the others NULL."""
    walk = Walk()
    walk.frame(link_type, frame)
    row = dict.fromkeys(PACKET) | walk.columns()
    return row | {f"inner.{name}": value for name, value in row.items()} | {"tunnels": None, "tunnel_id": None}


@dataclass
class Layer:
    """Return the columns of an IP packet, its payload (None: a later fragment), and the number of missing bytes."""

    row: Row
    carried: bytes | None
    more: int


def ip_layer(found: tuple[int, bytes], not_captured: int) -> Layer | str:
    return ipv4(found[1], not_captured) if found[0] == 0x0800 else ipv6(found[1], not_captured)


def ipv4(data: bytes, not_captured: int) -> Layer | str:
    if len(data) < 20:
        return "ip_header_cut"
    try:
        ip = dpkt.ip.IP(data[:20])
    except dpkt.UnpackError:
        return "ip_header_malformed"
    if ip.v != 4 or 0 < ip.len < ip.hl * 4:
        return "ip_header_malformed"
    row = {"ip_version": 4, "srcIP": IPv4Address(ip.src), "destIP": IPv4Address(ip.dst), "protocol": ip.p}
    row |= {"ip_len": ip.len or len(data) + not_captured, "ttl": ip.ttl, "tos": ip.tos, "ip_id": ip.id}
    row |= {"fragment_offset": ip.offset * 8, "more_fragments": ip.mf}
    kept = data[: ip.len or None]
    payload = kept[ip.hl * 4 :] if ip.hl * 4 <= len(kept) else None
    more = ip.len - len(kept) if ip.len else not_captured
    if ip.offset:
        return Layer(row | transport(ip.p, b"") | {"payload": payload}, None, more)
    return Layer(row | transport(ip.p, payload), payload or b"", more)


def ipv6(data: bytes, not_captured: int) -> Layer | str:
    if len(data) < 40:
        return "ip_header_cut"
    if data[0] >> 4 != 6:
        return "ip_header_malformed"
    length, protocol, hops = number(data[4:6]), data[6], data[7]
    kept = data[: 40 + length if length else None]
    more = 40 + length - len(kept) if length else not_captured
    rest: bytes | None = kept[40:]
    offset = more_fragments = 0
    identification = None
    while protocol in (0, 43, 44, 60) and rest and len(rest) >= 8 and not offset:
        following, size = rest[0], 8 * (rest[1] + 1)
        if protocol == 44:
            offset, more_fragments = number(rest[2:4]) // 8 * 8, rest[3] % 2
            identification, size = number(rest[4:8]), 8
        rest = rest[size:] if size <= len(rest) else None
        protocol = following
    row = {"ip_version": 6, "srcIP": IPv6Address(data[8:24]), "destIP": IPv6Address(data[24:40]), "protocol": protocol}
    row |= {"ip_len": length + 40, "ttl": hops, "tos": number(data[:2]) // 16 % 256, "ip_id": identification}
    row |= {"fragment_offset": offset, "more_fragments": more_fragments}
    if offset:
        return Layer(row | transport(protocol, b"") | {"payload": rest}, None, more)
    return Layer(row | transport(protocol, rest), rest or b"", more)


TRANSPORT = (
    "srcPort",
    "destPort",
    "tcp_flags",
    "tcp_seq",
    "tcp_ack",
    "tcp_window",
    "icmp_type",
    "icmp_code",
    "payload",
)
PACKET = (
    "ip_version", "srcIP", "destIP", "protocol", "ip_len", "ttl", "tos", "ip_id", "fragment_offset", "more_fragments",
    *TRANSPORT,
)  # fmt: skip


def transport(protocol: int, payload: bytes | None) -> Row:
    """Return the captured columns of the header at the front of a payload. dpkt reads complete headers.

    None is a payload whose beginning was not captured.
    """
    row: Row = dict.fromkeys(TRANSPORT)
    if payload is None:
        return row
    if protocol == 6 and len(payload) >= 20 and payload[12] >= 0x50:
        tcp = dpkt.tcp.TCP(payload[:20])
        row |= {"srcPort": tcp.sport, "destPort": tcp.dport, "tcp_flags": tcp.flags & 255}
        row |= {"tcp_seq": tcp.seq, "tcp_ack": tcp.ack, "tcp_window": tcp.win}
    elif protocol == 17 and len(payload) >= 8:
        udp = dpkt.udp.UDP(payload[:8])
        row |= {"srcPort": udp.sport, "destPort": udp.dport}
    elif protocol in (6, 17) and len(payload) >= 4:
        row |= {"srcPort": number(payload[:2]), "destPort": number(payload[2:4])}
        if protocol == 6:
            places = {"tcp_seq": (4, 8), "tcp_ack": (8, 12), "tcp_flags": (13, 14), "tcp_window": (14, 16)}
            row |= {name: number(payload[a:b]) for name, (a, b) in places.items() if b <= len(payload)}
    elif protocol in (1, 58):
        row |= dict(zip(("icmp_type", "icmp_code"), payload, strict=False))
    header = {1: 8, 58: 8, 17: 8, 6: 0}.get(protocol, 0)
    if protocol == 6:
        header = payload[12] // 16 * 4 if len(payload) >= 13 else 0
        if header < 20:
            return row
    if header <= len(payload):
        row["payload"] = payload[header:]
    return row
