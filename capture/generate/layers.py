"""Header stacks as numpy record types: each layer is a table of (RFC field name, format, constant value).

A stack consists of a record header, a link layer, its VLAN tags, a network layer and a transport layer, without gaps.
Fields are named `layer.field`. Values that differ between packets are 0 here and set by `capture.generate.packets`.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from capture.lazy_dataclasses import dataclass

Field = tuple[str, str, object]


class PacketKind(IntEnum):
    """Network and transport protocol of a packet. Odd numbers are IPv6.

    The last kinds before ARP are the first and the last fragment of a UDP datagram that consists of two fragments.
    """

    TCP4 = 0
    TCP6 = 1
    UDP4 = 2
    UDP6 = 3
    ICMP4 = 4
    ICMP6 = 5
    UDP4_FIRST_FRAGMENT = 6
    UDP6_FIRST_FRAGMENT = 7
    UDP4_LAST_FRAGMENT = 8
    UDP6_LAST_FRAGMENT = 9
    ARP = 10


FRAGMENT_BYTES = {4: 1480, 6: 1448}
"""Data bytes of a first fragment by IP version: the largest multiple of 8 that fits into a packet of 1500 bytes."""

RECORD: tuple[Field, ...] = (
    ("seconds", "@u4", 0),
    ("fraction", "@u4", 0),
    ("captured_length", "@u4", 0),
    ("wire_length", "@u4", 0),
)
"""Record header of a classic pcap file. `@` means the byte order of the file."""

LINK_HEADERS: dict[int, tuple[Field, ...]] = {
    0: (("family", "@u4", 0),),
    1: (("destination", ">u2,>u4", (0x0200, 1)), ("source", ">u2,>u4", (0x0200, 2)), ("type", ">u2", 0)),
    101: (),
    113: (
        ("packet_type", ">u2", 0),
        ("arphrd_type", ">u2", 1),
        ("address_length", ">u2", 6),
        ("address", ">u2,>u4,>u2", (0x0200, 2, 0)),
        ("type", ">u2", 0),
    ),
    276: (
        ("type", ">u2", 0),
        ("reserved", ">u2", 0),
        ("interface_index", ">u4", 1),
        ("arphrd_type", ">u2", 1),
        ("packet_type", "u1", 0),
        ("address_length", "u1", 6),
        ("address", ">u2,>u4,>u2", (0x0200, 2, 0)),
    ),
}
"""Link layers by link type. The family field of a null link has the byte order of the capturing host, like the file. So
its format begins with `@`."""

VLAN_TAG: tuple[Field, ...] = (("control", ">u2", 0), ("type", ">u2", 0))
"""A VLAN tag, after the type field of the link layer or of another tag."""

IPV4: tuple[Field, ...] = (
    ("version_ihl", "u1", 0x45),
    ("type_of_service", "u1", 0),
    ("total_length", ">u2", 0),
    ("identification", ">u2", 0),
    ("flags_offset", ">u2", 0x4000),
    ("time_to_live", "u1", 64),
    ("protocol", "u1", 0),
    ("checksum", "=u2", 0),
    ("source", ">u4", 0),
    ("destination", ">u4", 0),
)
IPV6: tuple[Field, ...] = (
    ("version_class_flow", ">u4", 0x60000000),
    ("payload_length", ">u2", 0),
    ("next_header", "u1", 0),
    ("hop_limit", "u1", 64),
    ("source_prefix", ">u4,>u4,>u4", (0x20010DB8, 0, 0)),
    ("source", ">u4", 0),
    ("destination_prefix", ">u4,>u4,>u4", (0x20010DB8, 0, 0)),
    ("destination", ">u4", 0),
)
IPV6_FRAGMENT: tuple[Field, ...] = (
    ("next_header", "u1", 17),
    ("reserved", "u1", 0),
    ("offset_flags", ">u2", 0),
    ("identification", ">u4", 0),
)
ARP: tuple[Field, ...] = (
    ("hardware_type", ">u2", 1),
    ("protocol_type", ">u2", 0x0800),
    ("lengths", "u1,u1", (6, 4)),
    ("operation", ">u2", 1),
    ("sender_hardware", ">u2,>u4", (0x0200, 2)),
    ("sender", ">u4", 0),
    ("target_hardware", ">u2,>u4", (0, 0)),
    ("target", ">u4", 0),
)
TCP: tuple[Field, ...] = (
    ("source_port", ">u2", 0),
    ("destination_port", ">u2", 0),
    ("sequence", ">u4", 0),
    ("acknowledgment", ">u4", 0),
    ("data_offset", "u1", 0x50),
    ("flags", "u1", 0),
    ("window", ">u2", 64240),
    ("checksum", "=u2", 0),
    ("urgent_pointer", ">u2", 0),
)
UDP: tuple[Field, ...] = (
    ("source_port", ">u2", 0),
    ("destination_port", ">u2", 0),
    ("length", ">u2", 0),
    ("checksum", "=u2", 0),
)
ICMP: tuple[Field, ...] = (
    ("type_code", ">u2", 0),
    ("checksum", "=u2", 0),
    ("identifier", ">u2", 0),
    ("sequence", ">u2", 0),
)

ETHERTYPES = {4: 0x0800, 6: 0x86DD, 0: 0x0806}
"""EtherTypes by IP version. Version 0 means ARP."""
FAMILIES = {4: 2, 6: 24}
"""Address families of the null link by IP version: AF_INET, and AF_INET6 of OpenBSD and NetBSD."""
PROTOCOLS = {PacketKind.TCP4: 6, PacketKind.TCP6: 6, PacketKind.ICMP4: 1, PacketKind.ICMP6: 58}
"""IP protocol numbers by kind. All other IP kinds are UDP (17)."""


@dataclass(frozen=True, slots=True)
class Stack:
    """The headers of one kind of packet. `template`: one record with the constant values.

    `network_offset`, `transport_offset`: byte offsets of these layers in the record. `link_length`, `header_length`:
    bytes from the start of the packet to the network layer, and to the end of the headers.
    """

    template: NDArray[np.void]
    network_offset: int
    transport_offset: int
    link_length: int
    header_length: int


def build_stack(link_type: int, vlan_tags: int, kind: PacketKind, byte_order: str) -> Stack:
    """Join the layers of a packet of `kind` with `vlan_tags` VLAN tags. `byte_order`: `<` or `>`, as in the file."""
    version = 0 if kind == PacketKind.ARP else 6 if kind & 1 else 4
    fragment = IPV6_FRAGMENT if kind in (PacketKind.UDP6_FIRST_FRAGMENT, PacketKind.UDP6_LAST_FRAGMENT) else ()
    network = {0: ARP, 4: IPV4, 6: IPV6}[version]
    layers = [
        ("record", RECORD),
        ("link", LINK_HEADERS[link_type]),
        *((f"tag{tag}", VLAN_TAG) for tag in range(vlan_tags)),
        ("ip", network),
        ("fragment", fragment),
        ("transport", _transport_fields(kind)),
    ]
    fields = [
        (f"{layer}.{name}", field_format.replace("@", byte_order), value)
        for layer, table in layers
        for name, field_format, value in table
    ]
    template = np.zeros(1, dtype=np.dtype([(name, field_format) for name, field_format, _ in fields]))
    for name, _, value in fields:
        template[name] = value
    _set_types(template, vlan_tags, version, kind)
    sizes = {
        layer: np.dtype([(name, field_format.replace("@", ">")) for name, field_format, _ in table]).itemsize
        for layer, table in layers
    }
    record, transport = sizes["record"], sizes["transport"]
    link = sizes["link"] + sum(sizes[f"tag{tag}"] for tag in range(vlan_tags))
    record_length = template.dtype.itemsize
    return Stack(template, record + link, record_length - transport, link, record_length - record)


def _transport_fields(kind: PacketKind) -> tuple[Field, ...]:
    """Return the fields of the transport layer, none for ARP and last fragments."""
    if kind in (PacketKind.UDP4_LAST_FRAGMENT, PacketKind.UDP6_LAST_FRAGMENT, PacketKind.ARP):
        return ()
    return {PacketKind.TCP4: TCP, PacketKind.TCP6: TCP, PacketKind.ICMP4: ICMP, PacketKind.ICMP6: ICMP}.get(kind, UDP)


def _set_types(template: NDArray[np.void], vlan_tags: int, version: int, kind: PacketKind) -> None:
    """Set the fields that name the next layer (EtherTypes, families, protocols) and the offset of a fragment."""
    names = template.dtype.names or ()
    chain = ["link.type", *(f"tag{tag}.type" for tag in range(vlan_tags))]
    for tag, name in enumerate(chain[:-1]):
        template[name] = 0x88A8 if vlan_tags - tag > 1 else 0x8100  # IEEE 802.1Q: outer tags are service tags
        template[f"tag{tag}.control"] = 100 + tag
    if "link.type" in names:
        template[chain[-1]] = ETHERTYPES[version]
    if "link.family" in names:
        template["link.family"] = FAMILIES[version]
    protocol = PROTOCOLS.get(kind, 17)
    if version == 4:
        template["ip.protocol"] = protocol
        units = FRAGMENT_BYTES[4] // 8
        template["ip.flags_offset"] = {
            PacketKind.UDP4_FIRST_FRAGMENT: 0x2000,
            PacketKind.UDP4_LAST_FRAGMENT: units,
        }.get(kind, 0x4000)
    if version == 6:
        template["ip.next_header"] = 44 if "fragment.next_header" in names else protocol
        if kind in (PacketKind.UDP6_FIRST_FRAGMENT, PacketKind.UDP6_LAST_FRAGMENT):
            template["fragment.offset_flags"] = 1 if kind == PacketKind.UDP6_FIRST_FRAGMENT else FRAGMENT_BYTES[6]
