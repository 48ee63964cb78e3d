"""Recorded files of a collector, decoded by another decoder (dpkt), and datagrams to send to a collector."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import dpkt

from bench.nfcapd import queued_bytes
from capture.collector.sockets import UdpSocket, open_sockets

ROOM = 50_000
"""Bytes that may wait in a buffer for another datagram to be sent; PAUSE are the seconds between two looks."""

PAUSE = 0.001


@dataclass(frozen=True)
class Datagram:
    """One UDP datagram of a capture; `time` in ns."""

    time: int
    source: str
    source_port: int
    destination: str
    destination_port: int
    payload: bytes


def datagrams(path: Path, *, checked: bool = True) -> Iterator[Datagram]:
    """Datagrams of one file up to its end or the first record that is cut; `checked` proves every checksum."""
    with path.open("rb") as file:
        assert struct.unpack("<IHHiIII", file.read(24)) == (0xA1B23C4D, 2, 4, 0, 0, 262144, 101)
        while len(head := file.read(16)) == 16:
            seconds, fraction, captured, length = struct.unpack("<IIII", head)
            frame = file.read(captured)
            if len(frame) < captured:
                return
            assert length == captured
            version = frame[0] >> 4
            packet = (dpkt.ip.IP if version == 4 else dpkt.ip6.IP6)(frame)
            assert isinstance(packet.data, dpkt.udp.UDP)
            if checked:
                assert whole(packet, frame), frame[:48].hex()
            yield Datagram(
                seconds * 10**9 + fraction,
                str(ip_address(packet.src)), packet.data.sport,
                str(ip_address(packet.dst)), packet.data.dport,
                bytes(packet.data.data),
            )  # fmt: skip


def whole(packet: dpkt.ip.IP | dpkt.ip6.IP6, frame: bytes) -> bool:
    """Whether lengths and checksums are those that dpkt computes: of IPv4's header, of IPv6's UDP."""
    udp = packet.data
    if udp.ulen != 8 + len(udp.data):
        return False
    if isinstance(packet, dpkt.ip.IP):
        return dpkt.in_cksum(frame[:20]) == 0 and udp.sum == 0 and packet.len == 20 + udp.ulen == len(frame)
    pseudo = packet.src + packet.dst + udp.ulen.to_bytes(4, "big") + (17).to_bytes(4, "big")
    return udp.sum != 0 and dpkt.in_cksum(pseudo + frame[40:]) == 0 and packet.plen == udp.ulen == len(frame) - 40


def recorded(folder: Path, *, checked: bool = True) -> list[Datagram]:
    """All datagrams of a collector's folder, files in the order of their names."""
    return [each for path in sorted(folder.glob("*.pcap")) for each in datagrams(path, checked=checked)]


def sender(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """A UDP socket to send with, bound to an address of this machine."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((host, port))
    return made


def send(exporter: socket.socket, payload: bytes, host: str, port: int) -> None:
    """Send one datagram when the receive buffer has room for it. So no datagram is lost, even in a small buffer."""
    while (queued_bytes(port) or 0) > ROOM:
        time.sleep(PAUSE)
    exporter.sendto(payload, (host, port))


def port_only() -> UdpSocket:
    """A socket for its port alone: it is closed, and never receives."""
    [opened] = open_sockets([("127.0.0.1", 0)], 4096)
    opened.close()
    return opened
