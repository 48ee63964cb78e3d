"""The twin of the walk to an IP header: slices of bytes, one method for each header, from the formats' documents.

It shares no code with the product. A slice that runs past the end is just shorter, so nothing here can read beyond a
frame. Values of headers on the way (tags, labels, addresses) are stored in the attributes of the walk.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import dpkt

Found = tuple[int, bytes] | None
"""EtherType of the IP header that was found, and the bytes from its beginning. None if there is no IP header."""

VLAN_TAGS = {0x8100, 0x88A8, 0x9100, 0x9200}
FAMILIES = {2: 0x0800} | dict.fromkeys((10, 23, 24, 28, 30), 0x86DD)
BARE = {12, 14, 101}
WRAPPERS = {192, 149, 258}
UNSUPPORTED = "unsupported_link_type"


def number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def little(data: bytes) -> int:
    return int.from_bytes(data, "little")


def by_version(rest: bytes) -> Found:
    kind = {4: 0x0800, 6: 0x86DD}.get(rest[0] >> 4) if rest else None
    return None if kind is None else (kind, rest)


@dataclass
class Walk:
    """One walk. Values that were not found are None."""

    vlan: int | None = None
    mpls: int | None = None
    ethertype: int | None = None
    source: int | None = None
    destination: int | None = None

    def columns(self) -> dict[str, int | None]:
        names = ("vlan", "mpls", "ethertype", "srcMAC", "destMAC")
        values = (self.vlan, self.mpls, self.ethertype, self.source, self.destination)
        return dict(zip(names, values, strict=True))

    def frame(self, link_type: int, frame: bytes) -> Found | str:
        """The outermost IP header of a frame; UNSUPPORTED for an unknown link type."""
        if link_type == 192:
            if len(frame) < 8:
                return None
            length, link_type = struct.unpack("<2xHI", frame[:8])
            least = 8
        elif link_type in WRAPPERS:
            if len(frame) < 12:
                return None
            length, link_type = struct.unpack("<I4xI", frame[:12])
            least = 12
        else:
            return self.unwrapped(link_type, frame)
        if link_type in WRAPPERS or not least <= length <= len(frame):
            return None
        return self.unwrapped(link_type, frame[length:])

    def unwrapped(self, link_type: int, frame: bytes) -> Found | str:
        match link_type:
            case 1:
                return self.ethernet(frame)
            case 282:
                return self.ethernet(frame[4:])
            case 281 | 284 | 285:
                return self.tagged(frame, link_type)
            case 12 | 14 | 101:
                return by_version(frame)
            case 8:
                return by_version(frame[16:])
            case 219:
                return self.label_stack(frame)
            case 228 | 229:
                return {228: 0x0800, 229: 0x86DD}[link_type], frame
            case 9 | 50:
                return self.cisco_hdlc(frame) if frame[:1] in (b"\x0f", b"\x8f") else self.ppp(frame)
            case 51:
                return self.ppp(frame[6:])
            case 166:
                return self.ppp(frame[2:])
            case 204:
                return self.ppp(frame[1:])
            case 104:
                return self.cisco_hdlc(frame)
            case 205:
                return self.cisco_hdlc(frame[1:])
            case 107:
                return self.frame_relay(frame)
            case 206:
                return self.frame_relay(frame[1:])
            case 178 | 179 | 180 | 181:
                return self.juniper(link_type, frame)
            case 0 | 108 | 109:
                header = 12 if link_type == 109 else 4
                family = number(frame[:4]) if len(frame) >= header else -1
                if link_type != 108 and family > 0xFFFF:
                    family = little(frame[:4])
                return (FAMILIES[family], frame[header:]) if family in FAMILIES else None
            case 117:
                if len(frame) < 2 or frame[0] < 4 or frame[1] not in FAMILIES:
                    return None
                return FAMILIES[frame[1]], frame[-(-frame[0] // 4) * 4 :]
            case 226:
                kind = {2: 0x0800, 26: 0x86DD}.get(frame[1]) if len(frame) >= 24 else None
                return (kind, frame[24:]) if kind else None
            case 113 | 276:
                return self.cooked(dpkt.sll.SLL if link_type == 113 else dpkt.sll2.SLL2, frame)
            case 105:
                return self.wlan(frame)
            case 127:
                return self.radiotap(frame)
            case 119 | 163:
                return self.monitored(link_type, frame)
            case 100:
                return self.llc(frame)
            case 106:
                return self.llc(frame) if frame[:3] == b"\xaa\xaa\x03" else (0x0800, frame)
            case 123:
                if frame and frame[0] % 16 == 1:
                    lane = frame[4:]
                    return None if len(lane) < 2 or lane[:2] == b"\xff\x00" else self.ethernet(lane[2:])
                return self.llc(frame[4:])
            case 129:
                kind = frame[4] if len(frame) >= 5 else 0
                return {240: (0x0800, frame[5:]), 212: (0x0800, frame[8:]), 196: (0x86DD, frame[8:])}.get(kind)
            case 239:
                return self.nflog(frame)
            case 242:
                return self.ethertype_layer(number(frame[40:42]), frame[44:]) if len(frame) >= 44 else None
        return UNSUPPORTED

    def ethernet(self, frame: bytes) -> Found:
        if len(frame) < 14:
            return None
        if self.source is None:
            self.destination, self.source = number(frame[:6]), number(frame[6:12])
        return self.type_or_length(number(frame[12:14]), frame[14:])

    def tagged(self, frame: bytes, link_type: int) -> Found:
        """Ethernet with the tag of a switch between its addresses and its type."""
        before, tag, rest = frame[:12], frame[12:16], frame[16:]
        if link_type == 285:
            tag, rest = frame[16:20], frame[20:]
        if len(rest) < 2:
            return None
        self.destination, self.source = number(before[:6]), number(before[6:])
        if link_type != 281 and tag[0] & 0x20:
            self.vlan = number(tag[2:]) % 4096
        return self.type_or_length(number(rest[:2]), rest[2:])

    def type_or_length(self, kind: int, rest: bytes) -> Found:
        return self.llc(rest) if kind <= 1500 else self.ethertype_layer(kind, rest)

    def ethertype_layer(self, kind: int, rest: bytes) -> Found:
        while kind in VLAN_TAGS:
            if len(rest) < 4:
                return None
            self.vlan = number(rest[:2]) % 4096 if self.vlan is None else self.vlan
            kind, rest = number(rest[2:4]), rest[4:]
            if kind <= 1500:
                return self.llc(rest)
        if self.ethertype is None and kind > 1500:
            self.ethertype = kind
        match kind:
            case 0x0800 | 0x86DD:
                return kind, rest
            case 0x8847 | 0x8848:
                return self.label_stack(rest)
            case 0x8864:
                return self.ppp(rest[6:])
            case 0x8903:
                self.ethertype = self.source = self.destination = None  # what switches put around the frame
                return self.ethernet(rest[2:])
        return None

    def label_stack(self, rest: bytes) -> Found:
        if self.mpls is None and len(rest) >= 4:
            self.mpls = number(rest[:4]) >> 12
        while len(rest) >= 4 and not rest[2] & 1:
            rest = rest[4:]
        return by_version(rest[4:])

    def ppp(self, rest: bytes) -> Found:
        rest = rest.removeprefix(b"\xff\x03")
        if len(rest) < 2:
            return None
        size = 1 if rest[0] & 1 else 2
        protocol, rest = number(rest[:size]), rest[size:]
        if protocol in (0x281, 0x283):
            return self.label_stack(rest)
        kind = {0x21: 0x0800, 0x57: 0x86DD}.get(protocol)
        return None if kind is None else (kind, rest)

    def cisco_hdlc(self, frame: bytes) -> Found:
        return self.ethertype_layer(number(frame[2:4]), frame[4:]) if len(frame) >= 4 else None

    def llc(self, rest: bytes) -> Found:
        if len(rest) >= 3 and rest[:2] == b"\x06\x06":
            return by_version(rest[3:])
        if rest[:3] == b"\xaa\xaa\x03":
            return self.snap(rest[3:], 2)
        return self.nlpid(rest[3:]) if rest[:3] == b"\xfe\xfe\x03" else None

    def snap(self, rest: bytes, padding: int) -> Found:
        organisation, protocol = rest[:3], rest[3:5]
        if len(protocol) < 2:
            return None
        if organisation in (b"\0\0\0", b"\0\0\xf8"):
            return self.ethertype_layer(number(protocol), rest[5:])
        bridged = organisation == b"\0\x80\xc2" and protocol in (b"\0\x01", b"\0\x07")
        return self.ethernet(rest[5 + padding :]) if bridged else None

    def nlpid(self, rest: bytes) -> Found:
        match rest[:1]:
            case b"\xcc":
                return 0x0800, rest[1:]
            case b"\x8e":
                return 0x86DD, rest[1:]
            case b"\xcf":
                return self.ppp(rest[1:])
        return None

    def frame_relay(self, frame: bytes) -> Found:
        ends = [size for size in (1, 2, 3, 4) if frame[size - 1 : size] and frame[size - 1] & 1]
        if not ends or ends[0] == 1 or len(frame) < ends[0] + 2:
            return None
        rest = frame[ends[0] :]
        if rest[0] != 3:
            kind = number(rest[:2])
            return self.ethertype_layer(kind, rest[2:]) if kind > 1500 else None
        rest = rest[1:].removeprefix(b"\0") if rest[1] == 0 else rest[1:]
        return self.snap(rest[1:], 0) if rest[:1] == b"\x80" else self.nlpid(rest)

    def juniper(self, link_type: int, frame: bytes) -> Found:
        if len(frame) < 6 or frame[:3] != b"MGC":
            return None
        flags = frame[3]
        rest = frame[6 + number(frame[4:6]) :] if flags & 0x80 else frame[4:]
        if flags & 2:
            return by_version(rest[4:])
        return {178: self.ethernet, 179: self.ppp, 180: self.frame_relay, 181: self.cisco_hdlc}[link_type](rest)

    def cooked(self, layout: type, frame: bytes) -> Found:
        if len(frame) < layout.__hdr_len__:
            return None
        header = layout(frame[: layout.__hdr_len__])
        if header.hlen == 6:
            self.source = number(header.hdr[:6])
        rest = frame[layout.__hdr_len__ :]
        if header.ethtype == 4:
            return self.llc(rest)
        return self.ethertype_layer(header.ethtype, rest) if header.ethtype > 1500 else None

    def radiotap(self, frame: bytes) -> Found:
        length = little(frame[2:4])
        if len(frame) < 8 or not 8 <= length <= len(frame):
            return None
        header, words = frame[:length], 1
        while header[4 * words + 3] & 0x80 and 8 + 4 * words <= length:  # bit 31 of the last word announces another
            words += 1
        first, at = little(header[4:8]), 4 + 4 * words
        if first & 1:
            at = -(-at // 8) * 8 + 8
        padded = bool(first & 2) and at < length and bool(header[at] & 0x20)
        return self.wlan(frame[length:], padded)

    def monitored(self, link_type: int, frame: bytes) -> Found:
        if len(frame) < 8:
            return None
        avs = link_type == 163 or number(frame[:4]) // 16 == 0x8021100
        length = number(frame[4:8]) if avs else 144
        return self.wlan(frame[length:]) if 8 <= length <= len(frame) else None

    def wlan(self, frame: bytes, padded: bool = False) -> Found:
        """IEEE 802.11: version, type and subtype in the first byte, flags in the second."""
        if len(frame) < 24:
            return None
        version, kind, subtype = frame[0] % 4, frame[0] // 4 % 4, frame[0] // 16
        to_ds, from_ds, protected, order = (bool(frame[1] & bit) for bit in (0x01, 0x02, 0x40, 0x80))
        one, two, three, four = (frame[at : at + 6] for at in (4, 10, 16, 24))
        if version or kind not in (0, 2) or (to_ds and from_ds and len(four) < 6):
            return None
        addresses = {(0, 0): (one, two), (1, 0): (three, two), (0, 1): (one, three), (1, 1): (three, four)}
        destination, source = addresses[to_ds, from_ds]
        self.destination, self.source = number(destination), number(source)
        if kind == 0 or subtype & 4 or protected or frame[22] % 16:
            return None
        size = 30 if to_ds and from_ds else 24
        aggregate = False
        if subtype & 8:
            if len(frame) < size + 2:
                return None
            aggregate = frame[size] >= 0x80
            size += 6 if order else 2
        rest = frame[-(-size // 4) * 4 if padded else size :]
        if aggregate:
            if len(rest) < 14:
                return None
            self.destination, self.source = number(rest[:6]), number(rest[6:12])
            rest = rest[14:]
        return self.llc(rest)

    def nflog(self, frame: bytes) -> Found:
        kind = {2: 0x0800, 10: 0x86DD}.get(frame[0]) if len(frame) >= 8 else None
        rest = frame[4:]
        order = "<" if little(rest[:2]) <= number(rest[:2]) else ">"
        while kind and len(rest) >= 4:
            length, what = struct.unpack(order + "HH", rest[:4])
            if length < 4:
                return None
            if what == 9:
                return kind, rest[4:]
            if what == 8 and len(rest) >= 14 and rest[4:6] == b"\0\x06":
                self.source = number(rest[8:14])
            rest = rest[-(-length // 4) * 4 :]
        return None
