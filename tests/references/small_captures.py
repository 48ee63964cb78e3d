"""Captures small enough to know by heart: packets as a table of addresses, ports and lengths, written as raw IP."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path

from tests.references.pcap_bytes import NS, pcap_bytes

RAW_IP = 101
UDP, ICMP = 17, 1


def udp(source: str, destination: str, source_port: int, destination_port: int, length: int = 100) -> bytes:
    """A UDP packet over IPv4 or IPv6, `length` bytes in all."""
    header = 20 if ip_address(source).version == 4 else 40
    segment = struct.pack(">HHHH", source_port, destination_port, length - header, 0)
    return ip(source, destination, UDP, segment, length)


def icmp(source: str, destination: str, length: int = 100) -> bytes:
    """An echo request: a packet without ports."""
    return ip(source, destination, ICMP, struct.pack(">BBHI", 8, 0, 0, 0), length)


def ip(source: str, destination: str, protocol: int, payload: bytes, length: int) -> bytes:
    """A packet of `length` bytes, filled with zeros behind its payload."""
    sender, receiver = ip_address(source), ip_address(destination)
    if sender.version == 4:
        header = struct.pack(">BBHIBBH", 0x45, 0, length, 0, 64, protocol, 0)
    else:
        header = struct.pack(">IHBB", 6 << 28, length - 40, protocol, 64)
    return (header + sender.packed + receiver.packed + payload).ljust(length, b"\0")


def write(path: Path, packets: Iterable[tuple[float, bytes]]) -> Path:
    """Write packets, each at its seconds since the epoch (thousandths at the finest), in the order given."""
    records = [(round(seconds * 1000) * NS // 1000, frame) for seconds, frame in packets]
    path.write_bytes(pcap_bytes(records, RAW_IP))
    return path
