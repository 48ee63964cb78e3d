"""Background traffic: address pairs, protocols, ports, flags and lengths."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from capture.generate.addresses import MIXING_FACTOR, AddressPairs
from capture.generate.layers import PacketKind
from capture.generate.packets import Traffic
from capture.generate.profile import Profile

TCP_SERVICES = np.array(
    [443, 443, 443, 443, 80, 80, 22, 25, 53, 143, 993, 3306, 5432, 8080, 8443, 9092], dtype=np.uint16
)
UDP_SERVICES = np.array(
    [53, 53, 53, 443, 443, 123, 161, 514, 1194, 1812, 2055, 3478, 4500, 4739, 5353, 51820], dtype=np.uint16
)
"""Server ports. Popular ports are repeated. Each conversation uses one of the ports."""
CLIENT_PORTS = range(32768, 60999)
"""Linux's range of ephemeral ports. Each conversation uses four of them."""
ACK, SYN, FIN, PSH = 0x10, 0x02, 0x01, 0x08
TCP_FLAGS = np.array([ACK] * 40 + [ACK | PSH] * 20 + [SYN, SYN, FIN | ACK, FIN | ACK], dtype=np.uint8)
"""TCP flags by the lowest six bits of a random draw."""
LENGTH_STEPS = 1 << 16
"""Number of values of a random 16-bit draw. Each class of lengths, and each number of VLAN tags, has its share of these
values."""


class Background:
    """Generator of background traffic. Each packet uses four random 64-bit draws."""

    def __init__(self, profile: Profile) -> None:
        self.groups = AddressPairs(profile.groups, profile.skew, profile.ipv6, profile.seed)
        remaining_share = 1 - profile.arp - profile.fragments
        shares = [profile.arp, profile.fragments, remaining_share * profile.tcp, remaining_share * profile.udp]
        self._kind_edges = np.minimum(np.cumsum(shares) * 2.0**32, 2**32).astype(np.uint64)
        self._depth_edges = np.round(np.cumsum(profile.vlan_depths)[:-1] * LENGTH_STEPS).astype(np.uint64)
        shares_of_lengths = np.array([share for _, _, share in profile.sizes])
        edges = np.round(np.cumsum(shares_of_lengths) * LENGTH_STEPS).astype(np.int64)
        size_class = np.searchsorted(edges, np.arange(LENGTH_STEPS), side="right").clip(max=len(profile.sizes) - 1)
        self._min_length = np.array([low for low, _, _ in profile.sizes], dtype=np.int32)[size_class]
        self._length_count = np.array([high - low + 1 for low, high, _ in profile.sizes], dtype=np.uint32)[size_class]

    def traffic(
        self, ts: NDArray[np.int64], draws: NDArray[np.uint64], is_background: NDArray[np.bool_] | None
    ) -> Traffic:
        """Return the columns of packets at the times `ts` (ns). `draws`: random 64-bit integers, shape (4, packets).

        `is_background`: mask of the background packets (None: all). Only their address pairs are marked, because the
        caller overwrites the other packets.
        """
        pair, kinds, lengths, noise = draws
        ranks = self.groups.ranks(pair)
        ends = self.groups.ends(ranks)
        kind = self._choose_kinds(kinds, ends.ipv6)
        has_pair = kind != PacketKind.ARP
        if is_background is not None:
            has_pair &= is_background
        self.groups.mark(ranks if has_pair.all() else ranks[has_pair])
        flags = TCP_FLAGS[(lengths & np.uint64(63)).astype(np.int64)]
        flags[(flags == SYN) & ~ends.from_client] = SYN | ACK
        source_port, destination_port = self._choose_ports(ends.conversation, lengths, kind, ends.from_client)
        length_draw = (lengths >> np.uint64(48)).astype(np.int64)
        position = ((lengths >> np.uint64(32)) & np.uint64(0xFFFF)).astype(np.uint32)
        length = self._min_length[length_draw] + (position * self._length_count[length_draw] >> np.uint32(16)).astype(
            np.int32
        )
        length[(flags & SYN != 0) & (kind <= PacketKind.TCP6)] = 0  # packets of a TCP handshake have no data
        return Traffic(
            ts=ts,
            kind=kind,
            vlan_tags=np.searchsorted(self._depth_edges, kinds & np.uint64(0xFFFF), side="right").astype(np.uint8),
            source=np.where(ends.from_client, ends.client, ends.server),
            destination=np.where(ends.from_client, ends.server, ends.client),
            source_port=source_port,
            destination_port=destination_port,
            tcp_flags=flags,
            length=length,
            noise=noise,
        )

    def _choose_kinds(self, draws: NDArray[np.uint64], ipv6: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """Return the kind of each packet, by the upper half of its draw. Bit 16 selects the first or last fragment."""
        draw = draws >> np.uint64(32)
        arp, fragment, tcp, udp = (draw < edge for edge in self._kind_edges)
        kind = np.full(len(draws), PacketKind.ICMP4, dtype=np.uint8)
        kind[udp] = PacketKind.UDP4
        kind[tcp] = PacketKind.TCP4
        last = (draws >> np.uint64(16)) & np.uint64(1) != 0
        kind[fragment] = np.where(last, PacketKind.UDP4_LAST_FRAGMENT, PacketKind.UDP4_FIRST_FRAGMENT)[fragment]
        kind += ipv6
        kind[arp] = PacketKind.ARP
        return kind

    def _choose_ports(
        self,
        conversation: NDArray[np.uint64],
        draws: NDArray[np.uint64],
        kind: NDArray[np.uint8],
        from_client: NDArray[np.bool_],
    ) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
        """Return source and destination ports (for ICMP as in `Traffic`). A conversation has one server port."""
        connection = (draws >> np.uint64(6)) & np.uint64(3)
        hashed = (conversation * np.uint64(4) + connection + np.uint64(1)) * np.uint64(MIXING_FACTOR) >> np.uint64(32)
        client = (np.uint64(CLIENT_PORTS.start) + (hashed * np.uint64(len(CLIENT_PORTS)) >> np.uint64(32))).astype(
            np.uint16
        )
        service = (conversation * np.uint64(MIXING_FACTOR) >> np.uint64(60)).astype(np.int64)
        server = np.where(kind <= PacketKind.TCP6, TCP_SERVICES[service], UDP_SERVICES[service])
        source, destination = np.where(from_client, client, server), np.where(from_client, server, client)
        echo = np.flatnonzero((kind == PacketKind.ICMP4) | (kind == PacketKind.ICMP6))
        source[echo] = client[echo]
        ipv6, request = kind[echo] == PacketKind.ICMP6, from_client[echo]
        destination[echo] = np.where(ipv6, np.where(request, 128, 129), np.where(request, 8, 0)) << 8
        return source, destination
