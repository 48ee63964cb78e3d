"""The columns of the stream `flows`: core columns that all export versions share, and all information elements.

A row is one flow record. A core column is filled from the first of its source elements that the template contains. So
one query works for NetFlow v5, v9 and IPFIX. In addition, every information element is a column with its IANA name,
case-insensitive (`postNATSourceIPv4Address`). Unregistered elements have names made of their numbers
(`capture.flows.elements`). A field that a record does not contain is NULL.
"""

from __future__ import annotations

import functools

from capture.flows.elements import DataType, Element, element_named, registered_elements
from capture.lazy_dataclasses import dataclass
from capture.packets.columns import ColumnSpec


@dataclass(frozen=True, slots=True)
class Source:
    """A source element of a core column. `byte` selects byte 0 or 1 of its two bytes; None means the whole value."""

    id: int
    byte: int | None = None


def _sources(*ids: int) -> tuple[Source, ...]:
    return tuple(Source(element_id) for element_id in ids)


@dataclass(frozen=True, slots=True)
class FlowColumn:
    """A core column and its source elements in order of preference. Without sources, its value is in the header."""

    spec: ColumnSpec
    sources: tuple[Source, ...] = ()


def _core(name: str, kind: str, bits: int, nullable: bool, text: str, *sources: Source) -> FlowColumn:
    return FlowColumn(ColumnSpec(name, kind, bits, nullable, text, is_layered=False), sources)


PACKETS = _sources(2, 86, 24, 172, 298, 402)
BYTES = _sources(1, 85, 23, 171, 231, 352, 353)
"""Elements that contain the number of packets, or of bytes, of a flow."""

CORE_COLUMNS: dict[str, FlowColumn] = {
    column.spec.name: column
    for column in (
        _core("ts", "time", 64, False, "end of the flow, the same as end_ts; the time column of windows"),
        _core("start_ts", "time", 64, False, "time of the flow's first packet, ns since the epoch, UTC"),
        _core("end_ts", "time", 64, False, "time of the flow's last packet, ns since the epoch, UTC"),
        _core("export_ts", "time", 64, False, "time in the header of the export datagram, ns"),
        _core("arrival_ts", "time", 64, False, "time at which the datagram was captured, ns"),
        _core("link", "text", 0, False, "name of the input that contains the flow"),
        _core("exporter", "address", 128, True, "address that sent the datagram; NULL in files of bare datagrams"),
        _core("exporter_port", "integer", 16, True, "UDP port that sent the datagram"),
        _core(
            "observation_domain",
            "integer",
            32,
            False,
            "observation domain (IPFIX), source ID (v9), or engine type * 256 + engine ID (v5)",
        ),
        _core("version", "integer", 8, False, "version of the export: 5, 7, 9, or 10 for IPFIX"),
        _core("srcIP", "address", 128, True, "source address", *_sources(8, 27, 44, 170)),
        _core("destIP", "address", 128, True, "destination address", *_sources(12, 28, 45, 169)),
        _core("ip_version", "integer", 8, True, "4 or 6: the version of the addresses"),
        _core("srcPort", "integer", 16, True, "source port", *_sources(7, 182, 180)),
        _core("destPort", "integer", 16, True, "destination port", *_sources(11, 183, 181)),
        _core("protocol", "integer", 8, True, "IP protocol number", *_sources(4)),
        _core("tos", "integer", 8, True, "IPv4 type of service, or IPv6 traffic class", *_sources(5)),
        _core("tcp_flags", "integer", 16, True, "TCP flags seen in the flow, ORed (SYN = 2, ACK = 16)", *_sources(6)),
        _core(
            "icmp_type", "integer", 8, True, "ICMP or ICMPv6 type", *_sources(176, 178), Source(32, 0), Source(139, 0)
        ),
        _core(
            "icmp_code", "integer", 8, True, "ICMP or ICMPv6 code", *_sources(177, 179), Source(32, 1), Source(139, 1)
        ),
        _core("packets", "integer", 64, True, "packets of the flow, multiplied by the sampling rate", *PACKETS),
        _core("bytes", "integer", 64, True, "bytes of the flow, multiplied by the sampling rate", *BYTES),
        _core("raw_packets", "integer", 64, True, "packets as the exporter counted them", *PACKETS),
        _core("raw_bytes", "integer", 64, True, "bytes as the exporter counted them", *BYTES),
        _core(
            "sampling_rate",
            "integer",
            64,
            True,
            "number of packets that a counted packet represents, rounded; NULL: not announced",
        ),
        _core("input", "integer", 32, True, "SNMP index of the ingress interface", *_sources(10, 252)),
        _core("output", "integer", 32, True, "SNMP index of the egress interface", *_sources(14, 253)),
        _core("nextHop", "address", 128, True, "address of the next hop", *_sources(15, 62)),
        _core("srcAS", "integer", 32, True, "autonomous system of the source", *_sources(16)),
        _core("destAS", "integer", 32, True, "autonomous system of the destination", *_sources(17)),
        _core("srcMask", "integer", 8, True, "prefix length of the source's route", *_sources(9, 29)),
        _core("destMask", "integer", 8, True, "prefix length of the destination's route", *_sources(13, 30)),
        _core("vlan", "integer", 16, True, "VLAN ID", *_sources(58, 243)),
        _core("srcMAC", "mac", 48, True, "source MAC address", *_sources(56, 81)),
        _core("destMAC", "mac", 48, True, "destination MAC address", *_sources(80, 57)),
        _core("direction", "integer", 8, True, "0: seen at the ingress, 1: at the egress", *_sources(61)),
    )
}
"""Core columns by name. The numbers are the source elements (IANA numbers)."""

FLOW_COLUMNS: dict[str, ColumnSpec] = {name: column.spec for name, column in CORE_COLUMNS.items()}
"""Core columns without their sources, for queries and lists."""

_TYPES: dict[DataType, tuple[str, int]] = {
    DataType.FLOAT32: ("float", 0),
    DataType.FLOAT64: ("float", 0),
    DataType.BOOLEAN: ("boolean", 0),
    DataType.MAC_ADDRESS: ("mac", 48),
    DataType.IPV4_ADDRESS: ("address", 128),
    DataType.IPV6_ADDRESS: ("address", 128),
    DataType.SECONDS: ("time", 64),
    DataType.MILLISECONDS: ("time", 64),
    DataType.MICROSECONDS: ("time", 64),
    DataType.NANOSECONDS: ("time", 64),
    DataType.STRING: ("text", 0),
    DataType.OCTET_ARRAY: ("text", 0),
    DataType.UNSIGNED256: ("text", 0),
    DataType.BASIC_LIST: ("text", 0),
    DataType.SUB_TEMPLATE_LIST: ("text", 0),
    DataType.SUB_TEMPLATE_MULTI_LIST: ("text", 0),
}
"""Column type and bits of elements by data type. Data types that are not listed become integers of 64 bits, because
exporters may send more bits than the data type declares."""

_HELP_SUFFIXES: dict[DataType, str] = {
    DataType.OCTET_ARRAY: "; its bytes in hexadecimal",
    DataType.UNSIGNED256: "; its bytes in hexadecimal",
    DataType.BASIC_LIST: "; not decoded, its bytes in hexadecimal",
    DataType.SUB_TEMPLATE_LIST: "; not decoded, its bytes in hexadecimal",
    DataType.SUB_TEMPLATE_MULTI_LIST: "; not decoded, its bytes in hexadecimal",
    DataType.SECONDS: "; ns since the epoch",
    DataType.MILLISECONDS: "; ns since the epoch",
    DataType.MICROSECONDS: "; ns since the epoch",
    DataType.NANOSECONDS: "; ns since the epoch",
    DataType.UNKNOWN: "; up to eight bytes as an unsigned integer",
}


def element_column(element: Element) -> ColumnSpec:
    """Return the column of one element."""
    kind, bits = _TYPES.get(element.type, ("integer", 64))
    owner = f"of enterprise {element.enterprise}" if element.enterprise else ""
    text = f"information element {element.id} {owner}".rstrip() + _HELP_SUFFIXES.get(element.type, "")
    return ColumnSpec(element.name, kind, bits, True, text, is_layered=False)


def flow_column(name: str) -> ColumnSpec | None:
    """Find a core column or an information element by its name, case-insensitive. Return None if unknown."""
    if (core := _core_names().get(name.lower())) is not None:
        return FLOW_COLUMNS[core]
    element = element_named(name)
    return None if element is None else element_column(element)


@functools.cache
def _core_names() -> dict[str, str]:
    return {name.lower(): name for name in CORE_COLUMNS}


def flow_columns() -> dict[str, ColumnSpec]:
    """Return the core columns and the columns of all registered elements."""
    elements = {element_.name: element_column(element_) for element_ in registered_elements().values()}
    return FLOW_COLUMNS | elements
