"""sFlow version 5 datagrams made of bytes, from the structures of the specification, and the frames that carry them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

Interface = tuple[int, int]
"""Format and value: 0 an ifIndex, 1 discarded (why), 2 several interfaces (how many)."""


def words(*numbers: int) -> bytes:
    """32-bit numbers in network order."""
    return struct.pack(f">{len(numbers)}I", *numbers)


def opaque(data: bytes) -> bytes:
    """Opaque data of variable length: its length, the bytes, and zeros up to a multiple of 4."""
    return words(len(data)) + data + bytes(-len(data) % 4)


def record(form: int, data: bytes, enterprise: int = 0) -> bytes:
    """A record of a sample, or a sample of a datagram: both are a data format and opaque data."""
    return words(enterprise << 12 | form) + opaque(data)


def header_record(frame: bytes, protocol: int = 1, wire: int | None = None, stripped: int = 0) -> bytes:
    """A sampled_header of `wire` bytes on the wire."""
    return record(1, words(protocol, len(frame) + stripped if wire is None else wire, stripped) + opaque(frame))


def ip_record(
    source: str, destination: str, length: int, protocol: int, ports: tuple[int, int], tcp_flags: int, tos: int
) -> bytes:
    """A sampled_ipv4 or sampled_ipv6."""
    ends = [ip_address(source), ip_address(destination)]
    form = 3 if ends[0].version == 4 else 4
    addresses = b"".join(end.packed for end in ends)
    return record(form, words(length, protocol) + addresses + words(*ports, tcp_flags, tos))


def switch_record(input_vlan: int, output_vlan: int) -> bytes:
    """An extended_switch, all priorities 0."""
    return record(1001, words(input_vlan, 0, output_vlan, 0))


def flow_sample(
    records: Sequence[bytes],
    *,
    expanded: bool = False,
    sequence: int = 1,
    source: tuple[int, int] = (0, 1),
    rate: int = 1,
    pool: int = 0,
    drops: int = 0,
    input_if: Interface = (0, 0),
    output_if: Interface = (0, 0),
    count: int | None = None,
) -> bytes:
    """Return a flow_sample or flow_sample_expanded. `count` replaces the number of its records."""
    body = words(sequence)
    body += words(*source) if expanded else words(source[0] << 24 | source[1])
    body += words(rate, pool, drops)
    for form, value in (input_if, output_if):
        body += words(form, value) if expanded else words(form << 30 | value)
    body += words(len(records) if count is None else count) + b"".join(records)
    return record(3 if expanded else 1, body)


def counter_sample(*, expanded: bool = False, sequence: int = 1) -> bytes:
    """A counters sample of one interface with a generic record of zeros."""
    body = words(sequence, 0, 1) if expanded else words(sequence, 1)
    return record(4 if expanded else 2, body + words(1) + record(1, bytes(88)))


def datagram(
    samples: Sequence[bytes],
    *,
    agent: str | None = "192.0.2.1",
    sub_agent: int = 0,
    sequence: int = 1,
    uptime: int = 0,
    version: int = 5,
    count: int | None = None,
) -> bytes:
    """Return a complete datagram. `count` replaces the number of its samples."""
    address = None if agent is None else ip_address(agent)
    kind = 0 if address is None else 1 if isinstance(address, IPv4Address) else 2
    head = words(version, kind) + (b"" if address is None else address.packed)
    return head + words(sub_agent, sequence, uptime, len(samples) if count is None else count) + b"".join(samples)


def udp_frame(
    payload: bytes, port: int = 6343, source: str = "198.51.100.1", destination: str = "198.51.100.9"
) -> bytes:
    """An Ethernet frame around one datagram."""
    network = IPv6 if isinstance(ip_address(source), IPv6Address) else IP
    link = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    return bytes(link / network(src=source, dst=destination) / UDP(sport=40000, dport=port) / Raw(payload))
