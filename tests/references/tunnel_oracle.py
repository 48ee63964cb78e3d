"""The twin of the walk through tunnels: from what an IP packet carries to the first header inside, and an id."""

from __future__ import annotations

import struct

from tests.references.link_oracle import Found, Walk, by_version, number

Inside = tuple[Found, int | None]
NOTHING: Inside = (None, None)


def inside(protocol: int, data: bytes, walk: Walk) -> Inside:
    """Return the content of `data`, the payload of an IP packet. `walk` stores values of the headers between."""
    while protocol == 51 and len(data) >= 12:
        protocol, data = data[0], data[4 * (data[1] + 2) :]
    match protocol:
        case 4:
            return (0x0800, data), None
        case 41:
            return (0x86DD, data), None
        case 47 if len(data) >= 4:
            return gre(data, walk)
        case 115:
            return l2tp_3(data, walk)
        case 17 if len(data) >= 16:
            source, destination = struct.unpack(">HH", data[:4])
            return udp(source, destination, data[8:], walk)
    return NOTHING


def udp(source: int, destination: int, data: bytes, walk: Walk) -> Inside:
    if destination in (4789, 8472):
        return walk.ethernet(data[8:]) if data[0] & 8 else None, number(data[4:7])
    if destination == 4790:
        vni = number(data[4:7]) if data[0] & 8 else None
        if data[0] & 0b110001:
            return NOTHING
        kind = data[3] if data[0] & 4 else 3
        match kind:
            case 1 | 2:
                return ({1: 0x0800, 2: 0x86DD}[kind], data[8:]), vni
            case 3:
                return walk.ethernet(data[8:]), vni
            case 5:
                return walk.label_stack(data[8:]), vni
        return NOTHING
    if destination == 6081:
        kind, rest = number(data[2:4]), data[8 + 4 * (data[0] % 64) :]
        if data[0] >> 6 or kind <= 1500:
            return NOTHING
        return walk.ethernet(rest) if kind == 0x6558 else walk.ethertype_layer(kind, rest), number(data[4:7])
    if destination == 2152:
        return gtp(data, walk)
    if 1701 in (source, destination) and data[1] % 16 in (2, 3):
        if data[1] % 16 == 2:
            return l2tp_2(data, walk)
        if data[0] < 0x80:
            return l2tp_3(data[4:], walk)
    return teredo(data) if 3544 in (source, destination) else NOTHING


def gtp(data: bytes, walk: Walk) -> Inside:
    flags, kind, _, teid = struct.unpack(">BBHI", data[:8])
    if flags // 16 != 0b0011 or kind != 255:
        return NOTHING
    rest = data[8:]
    if flags & 7:
        following = rest[3] if flags & 4 and len(rest) >= 4 else 0
        rest = rest[4:]
        while following and rest:
            size = 4 * rest[0]
            if not 0 < size <= len(rest):
                return NOTHING
            following, rest = rest[size - 1], rest[size:]
    return by_version(rest) or walk.ppp(rest), teid


def teredo(data: bytes) -> Inside:
    if data[:2] == b"\0\1":
        data = data[13 + data[2] + data[3] :]
    if data[:2] == b"\0\0" and len(data) >= 8:
        data = data[8:]
    return (0x86DD, data) if data and data[0] >> 4 == 6 else None, None


def l2tp_2(data: bytes, walk: Walk) -> Inside:
    flags = number(data[:2])
    rest = data[4 if flags & 0x4000 else 2 :]
    session = number(rest[2:4]) if len(rest) >= 4 else None
    rest = rest[8 if flags & 0x0800 else 4 :]
    if flags & 0x0200:
        rest = rest[2 + number(rest[:2]) :] if len(rest) >= 2 else b""
    return None if flags & 0x8000 else walk.ppp(rest), session


def l2tp_3(data: bytes, walk: Walk) -> Inside:
    """Try every possible layout. Exactly one of them must end at the end of the message."""
    session = number(data[:4]) if len(data) >= 4 else 0
    readings: dict[int, tuple[bool, bytes]] = {}  # length of the packet: (has Ethernet header, data)
    for size in (4, 8, 12, 16) if session else ():
        rest = data[size:]
        if packet_length(rest) == len(rest) > 0:
            readings.setdefault(len(rest), (False, rest))
        tags = 12
        while rest[tags : tags + 2] in (b"\x81\0", b"\x88\xa8", b"\x91\0", b"\x92\0") and len(rest) >= tags + 6:
            tags += 4
        packet = rest[tags + 2 :]
        if rest[tags : tags + 2] in (b"\x08\0", b"\x86\xdd") and packet:
            length = packet_length(packet)
            if length == len(packet) or (0 <= length < len(packet) and len(rest) == 60):
                readings.setdefault(len(packet), (True, rest))
    if len(readings) != 1:
        return NOTHING
    [(ethernet, rest)] = readings.values()
    return walk.ethernet(rest) if ethernet else by_version(rest), session


def packet_length(data: bytes) -> int:
    """Return the length in a complete and valid IP header, 0 if it contains no length, or -1."""
    if data[:1] and data[0] >> 4 == 4 and len(data) >= 20:
        length, header = number(data[2:4]), data[0] % 16 * 4
        return length if header >= 20 and (length >= header or not length) else -1
    if data[:1] and data[0] >> 4 == 6 and len(data) >= 40:
        return number(data[4:6]) and number(data[4:6]) + 40
    return -1


def gre(data: bytes, walk: Walk) -> Inside:
    flags, protocol = struct.unpack(">HH", data[:4])
    checksum, routing, key, sequence = (bool(flags & bit) for bit in (0x8000, 0x4000, 0x2000, 0x1000))
    rest, version, tunnel = data[4:], flags & 7, None
    if checksum or routing:
        rest = rest[4:]
    if key:
        tunnel, rest = number(rest[:4]) if len(rest) >= 4 else None, rest[4:]
    if sequence:
        rest = rest[4:]
    if version == 1:
        rest = rest[4 if flags & 0x80 else 0 :]
        payload = protocol == 0x880B and key and sequence
        return walk.ppp(rest) if payload else None, tunnel and tunnel & 0xFFFF
    while routing:
        routing = len(rest) >= 4 and rest[:2] + rest[3:4] != b"\0\0\0"
        rest = rest[4 + rest[3] :] if len(rest) >= 4 else b""
    if version or not rest:
        return NOTHING
    match protocol:
        case 0x6558:
            return walk.ethernet(rest), tunnel
        case 0x880B:
            return walk.ppp(rest), tunnel
        case 0x88BE if not sequence:
            return walk.ethernet(rest), tunnel
        case 0x88BE | 0x22EB:
            size = 8 if protocol == 0x88BE else 12
            if len(rest) < size or rest[0] >> 4 != (1 if size == 8 else 2):
                return NOTHING
            kind, more = divmod(number(rest[10:12]) % 2**15, 2**10) if size == 12 else (0, 0)
            frame = rest[size + 8 * (more % 2) :]
            found = {0: walk.ethernet, 2: by_version}.get(kind)
            return found(frame) if found else None, number(rest[2:4]) % 1024
    return walk.ethertype_layer(protocol, rest) if protocol > 1500 else None, tunnel
