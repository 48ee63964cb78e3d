"""Search for IP headers after link layers that only dpkt reads. Importing this module imports dpkt.

dpkt has no classes for the link types of `candidates.LINK_TYPES`, but it has classes for the headers that follow them:
LLC and Ethernet. So this module defines each of these link headers as a dpkt field table, and uses dpkt's classes for
the headers after it. dpkt reads Cisco ISL, Ethernet in MPLS and the EtherTypes of bridged Ethernet and PPP. Subclasses
replace dpkt's tables of EtherTypes and PPP protocols, so that dpkt stops at IP.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import dpkt

from capture.lazy_dataclasses import dataclass
from capture.packets.candidates import HEADERS
from capture.packets.fields import NULL
from capture.packets.link_headers import LARGEST_LENGTH, OUI_ETHERTYPE, UNNUMBERED

READ_ERRORS = (
    dpkt.Error, IndexError, KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError,
    dpkt.dpkt.struct.error,
)  # fmt: skip
"""Exceptions that dpkt raises for invalid bytes: dpkt's own errors, and errors that its parsers do not catch."""

MAX_LAYERS = 16
"""Maximum number of headers before the IP header."""

ADDRESS_BYTES = 6
"""Bytes of a MAC address."""

SNAP_BYTES = 8
SNAP = b"\xaa\xaa"
"""Bytes of an LLC and SNAP header, and its first two bytes."""

ISL_ADDRESSES = (b"\x01\x00\x0c\x00\x00", b"\x03\x00\x0c\x00\x00")
"""First five bytes of the destination address of a Cisco ISL frame."""


@dataclass(frozen=True, slots=True)
class LocatedHeader:
    """An IP header of `version` at `offset` of a frame, and fields of its link layer (NULL if missing)."""

    offset: int
    version: int
    vlan: int = NULL
    mpls: int = NULL
    ethertype: int = NULL
    source: int = NULL
    destination: int = NULL


class IPv4Start:
    """The bytes from an IPv4 header on. A kernel reads these bytes, so dpkt does not parse them and cannot fail."""

    version = 4

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __len__(self) -> int:
        """Return the number of bytes; dpkt calls it for nested layers."""
        return len(self.data)


class IPv6Start(IPv4Start):
    """The bytes from an IPv6 header on."""

    version = 6


class Ppp(dpkt.ppp.PPP):
    """dpkt's PPP, changed to stop at IP."""

    _protosw: ClassVar[dict[int, Any]] = {dpkt.ppp.PPP_IP: IPv4Start, dpkt.ppp.PPP_IP6: IPv6Start}


class Ethernet(dpkt.ethernet.Ethernet):
    """dpkt's Ethernet, changed to stop at IP."""

    data: Any
    _typesw: ClassVar[dict[int, Any]] = {
        dpkt.ethernet.ETH_TYPE_IP: IPv4Start,
        dpkt.ethernet.ETH_TYPE_IP6: IPv6Start,
        dpkt.ethernet.ETH_TYPE_PPP: Ppp,
    }

    def unpack(self, buf: bytes) -> None:
        """Read a frame. LLC and SNAP are read here, because dpkt would parse the IP packet after them."""
        length = int.from_bytes(buf[12:14], "big")
        if length > LARGEST_LENGTH or buf[14:16] != SNAP or buf[:5] in ISL_ADDRESSES:
            super().unpack(buf)
            return
        dpkt.Packet.unpack(self, buf)
        self.data = _read_llc(self.data)


Ethernet._typesw[dpkt.ethernet.ETH_TYPE_TEB] = Ethernet


class _Layer(dpkt.Packet):
    """A header. dpkt sets its fields as attributes."""

    data: Any
    src: Any
    type: Any
    frame_control: Any


def _read_llc(data: bytes) -> Any:
    """Read LLC and SNAP, and the payload if `Ethernet` supports its EtherType."""
    llc = dpkt.llc.LLC(data[:SNAP_BYTES])
    if llc.is_snap and llc.ctl == UNNUMBERED and llc.oui in OUI_ETHERTYPE and llc.type in Ethernet._typesw:
        llc.data = Ethernet.get_type(llc.type)(data[SNAP_BYTES:])
    return llc


class TokenRing(_Layer):
    """IEEE 802.5 (LINKTYPE 6). If the first bit of the source address is set, routing information follows."""

    __hdr__ = (("access_control", "B", 0), ("frame_control", "B", 0), ("dst", "6s", b""), ("src", "6s", b""))

    def unpack(self, buf: bytes) -> None:
        """Read an LLC frame."""
        super().unpack(buf)
        if self.frame_control >> 6 != 1:
            raise dpkt.UnpackError("not an LLC frame")
        if self.src[0] & 0x80:
            length = self.data[0] & 0x1F
            if length < 2:
                raise dpkt.UnpackError("routing information without a length")
            self.data = self.data[length:]
            self.src = bytes([self.src[0] & 0x7F]) + self.src[1:]
        self.data = _read_llc(self.data)


class Fddi(_Layer):
    """FDDI (LINKTYPE 10): frame control, addresses, LLC."""

    __hdr__ = (("frame_control", "B", 0x50), ("dst", "6s", b""), ("src", "6s", b""))

    def unpack(self, buf: bytes) -> None:
        """Read an asynchronous LLC frame."""
        super().unpack(buf)
        if self.frame_control & 0xF0 != 0x50:
            raise dpkt.UnpackError("not an LLC frame")
        self.data = _read_llc(self.data)


class FibreChannel(_Layer):
    """Network header of RFC 2625 §3.2 (LINKTYPE 122): authorities, addresses, LLC."""

    __hdr__ = (("dst_naa", "H", 0x1000), ("dst", "6s", b""), ("src_naa", "H", 0x1000), ("src", "6s", b""))

    def unpack(self, buf: bytes) -> None:
        """Read a frame."""
        super().unpack(buf)
        self.data = _read_llc(self.data)


class Ieee1394(_Layer):
    """Apple's IP over IEEE 1394 (LINKTYPE 138): addresses of 64 bits, EtherType."""

    __hdr__ = (("dst_eui", "8s", b""), ("src_eui", "8s", b""), ("type", "H", 0x0800))

    def unpack(self, buf: bytes) -> None:
        """Read a frame. Parse the payload if dpkt supports its EtherType."""
        super().unpack(buf)
        if self.type in Ethernet._typesw:
            self.data = Ethernet.get_type(self.type)(self.data)


def _reader_after(length: int) -> Callable[[bytes], Any]:
    """Return a reader of Ethernet frames that begin after `length` bytes."""
    return lambda frame: Ethernet(frame[length:])


def _read_mpacket(frame: bytes) -> Any:
    """Read the Ethernet frame after preamble and delimiter (LINKTYPE 274). Fragments have another delimiter."""
    if frame[7:8] != b"\xd5":
        raise dpkt.UnpackError("not an express frame")
    return Ethernet(frame[8:])


_READERS: dict[str, Callable[[bytes], Any]] = {
    "token_ring": TokenRing,
    "fddi": Fddi,
    "ip_over_fibre_channel": FibreChannel,
    "ip_over_ieee_1394": Ieee1394,
    "netanalyzer": _reader_after(4),
    "netanalyzer_transparent": _reader_after(12),
    "ethernet_mpacket": _read_mpacket,
    "cisco_isl": Ethernet,
    "ethernet_in_mpls": Ethernet,
    "bridged_ethernet": Ethernet,
    "ppp_ethertype": Ethernet,
}
READERS = tuple(_READERS[name] for name in HEADERS)
"""Frame readers in the order of HEADERS."""


def find_ip(frame: bytes, header: int) -> LocatedHeader | None:
    """Return the outermost IP header of a frame, or None if dpkt finds none.

    Raises one of READ_ERRORS if dpkt cannot read the bytes.
    """
    layer = READERS[header](frame)
    link = _LinkFields()
    for _ in range(MAX_LAYERS):
        if isinstance(layer, IPv4Start):
            return LocatedHeader(len(frame) - len(layer.data), layer.version, **link.values)
        if not isinstance(layer, dpkt.Packet):
            return None
        link.add(layer)
        layer = layer.data
    return None


class _LinkFields:
    """Link layer fields before an IP header: the outermost value of each field."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    def add(self, layer: Any) -> None:
        """Store the fields of a layer, except fields that an outer layer has."""
        for name, field in (("source", "src"), ("destination", "dst")):
            address = getattr(layer, field, None)
            if isinstance(address, bytes) and len(address) == ADDRESS_BYTES:
                self.values.setdefault(name, int.from_bytes(address, "big"))
        if tags := getattr(layer, "vlan_tags", None):
            self.values.setdefault("vlan", tags[0].id & 0xFFF)
        if labels := getattr(layer, "mpls_labels", None):
            self.values.setdefault("mpls", labels[0].val)
        kind = getattr(layer, "type", 0)
        if tags and isinstance(tags[-1], dpkt.ethernet.VLANtag8021Q):
            kind = tags[-1].type
        if isinstance(kind, int) and kind > LARGEST_LENGTH:
            self.values.setdefault("ethertype", kind)
