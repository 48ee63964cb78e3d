"""Convert packet columns to the bytes of pcap records, without a Python object for each packet.

Packets with equal header layouts form a class and are encoded together. The template of the class is repeated, its
varying fields are set column by column, and the rows are copied to their offsets in the output. Payloads are zeros, so
transport checksums are computed from the headers only.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from capture.generate.layers import FRAGMENT_BYTES, PacketKind, Stack, build_stack
from capture.lazy_dataclasses import dataclass
from capture.units import SECOND

RECORD_HEADER = 16
"""Bytes of a record header of a classic pcap file."""
ETHERNET_MINIMUM = 60
"""Shortest Ethernet frame without its check sequence. Shorter packets are padded; the IP length excludes padding."""
VLAN_TAG_COUNTS = 4
"""Number of possible values of `vlan_tags`: a packet has 0 to 3 VLAN tags."""


@dataclass(slots=True)
class Traffic:
    """Columns of consecutive packets, in file order.

    `kind`: a `PacketKind`. `vlan_tags`: number of VLAN tags. Addresses are IPv4 numbers, or the last 32 bits below
    2001:db8::/96. For ICMP the destination port is type * 256 + code, as in NetFlow, and the source port is the echo
    identifier. `length`: requested wire length in bytes; a packet is longer if its headers or the link layer require
    it. `noise`: random bits for identifiers and sequence numbers.
    """

    ts: NDArray[np.int64]
    kind: NDArray[np.uint8]
    vlan_tags: NDArray[np.uint8]
    source: NDArray[np.uint32]
    destination: NDArray[np.uint32]
    source_port: NDArray[np.uint16]
    destination_port: NDArray[np.uint16]
    tcp_flags: NDArray[np.uint8]
    length: NDArray[np.int32]
    noise: NDArray[np.uint64]


class Encoder:
    """Converts traffic into the records of a file."""

    def __init__(self, link_type: int, byte_order: str, tick: int, snap_length: int) -> None:
        """Prepare header stacks. `byte_order`: `<` or `>`. `tick`: ns per unit of ts_frac. `snap_length`: bytes."""
        self._min_frame = ETHERNET_MINIMUM if link_type == 1 else 0
        self._tick = tick
        self._snap_length = snap_length
        tag_counts = range(VLAN_TAG_COUNTS if link_type == 1 else 1)
        self._stacks = {
            kind * VLAN_TAG_COUNTS + vlan_tags: build_stack(link_type, vlan_tags, kind, byte_order)
            for kind in self._kinds(link_type)
            for vlan_tags in tag_counts
        }
        class_count = len(PacketKind) * VLAN_TAG_COUNTS
        self._link_lengths = np.zeros(class_count, dtype=np.int32)
        self._min_lengths = np.zeros(class_count, dtype=np.int32)
        self._max_lengths = np.full(class_count, 65535, dtype=np.int32)
        for index, stack in self._stacks.items():
            self._link_lengths[index] = stack.link_length
            self._min_lengths[index], self._max_lengths[index] = _network_lengths(
                stack, PacketKind(index // VLAN_TAG_COUNTS)
            )

    @staticmethod
    def _kinds(link_type: int) -> list[PacketKind]:
        """Return the kinds that a link type can carry. ARP needs a link layer with a type field."""
        return [kind for kind in PacketKind if kind != PacketKind.ARP or link_type not in (0, 101)]

    def encode(self, traffic: Traffic) -> tuple[NDArray[np.uint8], NDArray[np.int64], int]:
        """Return the bytes of the records, their offsets, and the sum of their wire lengths."""
        classes = traffic.kind * np.uint8(VLAN_TAG_COUNTS) + traffic.vlan_tags
        link_lengths = self._link_lengths[classes]
        network = np.clip(traffic.length - link_lengths, self._min_lengths[classes], self._max_lengths[classes])
        wire = np.maximum(network + link_lengths, self._min_frame)
        captured = np.minimum(wire, self._snap_length)
        ends = np.cumsum(captured + RECORD_HEADER, dtype=np.int64)
        starts = ends - captured - RECORD_HEADER
        output = np.zeros(int(ends[-1]), dtype=np.uint8)
        order = np.argsort(classes, kind="stable")
        counts = np.bincount(classes, minlength=len(self._link_lengths))
        edges = np.concatenate(([0], np.cumsum(counts)))
        for index in np.flatnonzero(counts):
            rows = order[edges[index] : edges[index + 1]]
            stack = self._stacks[int(index)]
            records = np.repeat(stack.template, len(rows))
            records["record.seconds"] = traffic.ts[rows] // SECOND
            records["record.fraction"] = traffic.ts[rows] % SECOND // self._tick
            records["record.captured_length"] = captured[rows]
            records["record.wire_length"] = wire[rows]
            _set_fields(records, stack, PacketKind(int(index) // VLAN_TAG_COUNTS), traffic, rows, network[rows])
            _copy_to_offsets(records, min(stack.header_length, self._snap_length) + RECORD_HEADER, output, starts[rows])
        return output, starts, int(wire.sum())


def _network_lengths(stack: Stack, kind: PacketKind) -> tuple[int, int]:
    """Return the minimum and maximum number of bytes from the network header to the end of the packet."""
    headers = stack.header_length - stack.link_length
    if kind in (PacketKind.UDP4_FIRST_FRAGMENT, PacketKind.UDP6_FIRST_FRAGMENT):
        udp = 8
        length = headers - udp + FRAGMENT_BYTES[6 if kind & 1 else 4]
        return length, length
    if kind == PacketKind.ARP:
        return headers, headers
    return headers + (kind in (PacketKind.UDP4_LAST_FRAGMENT, PacketKind.UDP6_LAST_FRAGMENT)), 65535


def _set_fields(
    records: NDArray[np.void],
    stack: Stack,
    kind: PacketKind,
    traffic: Traffic,
    rows: NDArray[np.int64],
    network: NDArray[np.int32],
) -> None:
    """Set the varying fields of packets of one kind. `network`: bytes from the network header to the packet's end."""
    if kind == PacketKind.ARP:
        records["ip.sender"], records["ip.target"] = traffic.source[rows], traffic.destination[rows]
        return
    noise = traffic.noise[rows]
    records["ip.source"], records["ip.destination"] = traffic.source[rows], traffic.destination[rows]
    if kind & 1:
        records["ip.payload_length"] = network - 40
        if kind in (PacketKind.UDP6_FIRST_FRAGMENT, PacketKind.UDP6_LAST_FRAGMENT):
            records["fragment.identification"] = noise >> np.uint64(32)
        protocol, addresses = {PacketKind.TCP6: 6, PacketKind.ICMP6: 58}.get(kind, 17), stack.network_offset + 8
    else:
        records["ip.total_length"] = network
        records["ip.identification"] = noise >> np.uint64(48)
        records["ip.checksum"] = _fold_and_invert(_sum_words(records, stack.network_offset, 20))
        protocol, addresses = {PacketKind.TCP4: 6, PacketKind.ICMP4: 1}.get(kind, 17), stack.network_offset + 12
    if kind in (PacketKind.UDP4_LAST_FRAGMENT, PacketKind.UDP6_LAST_FRAGMENT):
        return
    transport_length = (network - (stack.transport_offset - stack.network_offset)).astype(np.uint16)
    if kind in (PacketKind.UDP4_FIRST_FRAGMENT, PacketKind.UDP6_FIRST_FRAGMENT):
        # The UDP length includes the whole datagram, also the last fragment, which is in another packet.
        transport_length += np.uint16(8) + (noise & np.uint64(0x3FF)).astype(np.uint16)
    _set_transport_fields(records, kind, traffic, rows, transport_length)
    total = _sum_words(records, stack.transport_offset, records.dtype.itemsize - stack.transport_offset)
    if kind != PacketKind.ICMP4:
        total += _sum_words(records, addresses, 32 if kind & 1 else 8)
        total += _as_words(transport_length) + _as_words(np.array([protocol], dtype=np.uint16))
    checksum = _fold_and_invert(total)
    if protocol == 17:
        checksum[checksum == 0] = 0xFFFF  # 0 means "no checksum" (RFC 768)
    records["transport.checksum"] = checksum


def _set_transport_fields(
    records: NDArray[np.void], kind: PacketKind, traffic: Traffic, rows: NDArray[np.int64], length: NDArray[np.uint16]
) -> None:
    """Set the fields of TCP, UDP or ICMP. `length`: bytes from the transport header to the end of the datagram."""
    if kind in (PacketKind.ICMP4, PacketKind.ICMP6):
        records["transport.type_code"] = traffic.destination_port[rows]
        records["transport.identifier"] = traffic.source_port[rows]
        records["transport.sequence"] = traffic.noise[rows] & np.uint64(0xFFFF)
        return
    records["transport.source_port"] = traffic.source_port[rows]
    records["transport.destination_port"] = traffic.destination_port[rows]
    if kind not in (PacketKind.TCP4, PacketKind.TCP6):
        records["transport.length"] = length
        return
    flags = traffic.tcp_flags[rows]
    noise = traffic.noise[rows]
    records["transport.flags"] = flags
    records["transport.sequence"] = noise & np.uint64(0xFFFFFFFF)
    records["transport.acknowledgment"] = np.where(flags & 0x10, noise >> np.uint64(32), 0)


def _sum_words(records: NDArray[np.void], offset: int, length: int) -> NDArray[np.uint32]:
    """Return the sum of the 16-bit words at `[offset, offset + length)` of each record, in the machine's byte order.

    The checksum fields are in this byte order too. This is correct, because a sum of words with swapped bytes is the
    sum with swapped bytes (RFC 1071 §2 (B)).
    """
    words = np.ndarray(
        (length // 2, len(records)), dtype=np.uint16, buffer=records, offset=offset, strides=(2, records.dtype.itemsize)
    )
    total = words[0].astype(np.uint32)
    for word in words[1:]:
        total += word
    return total


def _as_words(values: NDArray[np.uint16]) -> NDArray[np.uint32]:
    """Return `values` as this machine reads them after they are stored in network order."""
    return (values.byteswap() if sys.byteorder == "little" else values).astype(np.uint32)


def _fold_and_invert(total: NDArray[np.uint32]) -> NDArray[np.uint16]:
    """Fold 32-bit sums to 16 bits with end-around carry and invert them (RFC 1071 §1)."""
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).astype(np.uint16)


def _copy_to_offsets(
    records: NDArray[np.void], length: int, output: NDArray[np.uint8], starts: NDArray[np.int64]
) -> None:
    """Copy the first `length` bytes of each record to its offset in the output.

    The items of `targets` overlap: an item of `length` bytes begins at each byte of the output. So one indexed
    assignment copies whole records to unaligned offsets (5 ns per record).
    """
    item = np.dtype((np.void, length))
    rows = np.ndarray(len(records), dtype=item, buffer=records, strides=(records.dtype.itemsize,))
    targets = np.ndarray(len(output) - length + 1, dtype=item, buffer=output, strides=(1,))
    targets[starts] = rows
