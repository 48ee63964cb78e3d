"""The description of a synthetic link: immutable, and validated on construction."""

from __future__ import annotations

import math
from functools import cached_property

from capture.generate.attacks import Attack
from capture.generate.conversations import LINK_TYPES as CONVERSATION_LINK_TYPES
from capture.generate.conversations import MAX_CONVERSATIONS, Conversations, conversation_count
from capture.generate.timeline import Piece, periodic_lulls, pieces
from capture.lazy_dataclasses import dataclass
from capture.units import SECOND

LINK_TYPES = {0: "null", 1: "Ethernet", 101: "raw IP", 113: "Linux cooked v1", 276: "Linux cooked v2"}
DISORDERS = ("none", "band", "blocks")
MAX_GROUPS = 10_000_000
TIME_LIMIT = 2**32 * SECOND
"""The smallest time in ns that does not fit into the 32-bit seconds of a classic pcap record."""


@dataclass(frozen=True)
class Profile:
    """A synthetic link. Times in ns, lengths in bytes, shares in 0..1. Raises `ValueError` for impossible settings.

    Amount: exactly one of `packets` (in the file, with attacks of a constant rate) and `duration` (with lulls), at
    `rate` packets/s outside lulls.

    Addresses: at most `groups` distinct (source, destination) pairs in the background traffic. The pair of rank k is
    drawn with probability ~ `1 / k**skew`. `ipv6` is the share of IPv6 among the pairs. The share among the packets is
    close to it only if no pair dominates.

    Protocols: `arp` and `fragments` are shares of the background packets. `tcp`, `udp` and `icmp` (ICMPv6 over IPv6)
    are shares of the remaining packets; their sum is 1. `sizes` are (lowest wire length, highest wire length, share),
    both ends included. A packet is never shorter than its headers, and on Ethernet never shorter than 60 bytes.
    `vlan_depths[d]` is the share of packets with d VLAN tags.

    Times: packets are evenly spread, each at a random time in its slot. `lulls` are silent intervals `[start, end)`
    from the start of the capture. In addition, the last `lull_length` ns of every `lull_every` ns are silent.
    `clock_offset` is added to every timestamp. Disorder never moves a packet over the edge of a lull or an attack.
    `disorder` is

    * `none`;
    * `band`: each packet is late by U(0, `disorder_span`);
    * `blocks`: the file consists of blocks of length `disorder_span`. Blocks are in order. Packets in a block are
      shuffled, as if a router purges its flow cache (Li 2008, Fig. 6-9).

    Other traffic: `conversations` of application protocols and tunnels, built with scapy, and attacks in stages.
    `packets` and `rate` do not include their packets, which are always in order and have no VLAN tags.

    File: `snap_length` limits the captured bytes of a packet. `byte_order` is `little` or `big`, `precision` is `us` or
    `ns`.
    """

    packets: int | None = None
    duration: int | None = None
    rate: float = 100_000.0
    groups: int = 100_000
    skew: float = 1.0
    ipv6: float = 0.1
    tcp: float = 0.8
    udp: float = 0.17
    icmp: float = 0.03
    arp: float = 0.0
    fragments: float = 0.0
    sizes: tuple[tuple[int, int, float], ...] = ((66, 66, 0.35), (67, 1513, 0.3), (1514, 1514, 0.35))
    vlan_depths: tuple[float, ...] = (1.0,)
    start: int = 1_700_000_000 * SECOND
    clock_offset: int = 0
    disorder: str = "none"
    disorder_span: int = 0
    lulls: tuple[tuple[int, int], ...] = ()
    lull_every: int = 0
    lull_length: int = 0
    attacks: tuple[Attack, ...] = ()
    conversations: tuple[Conversations, ...] = ()
    snap_length: int = 86
    link_type: int = 1
    byte_order: str = "little"
    precision: str = "ns"
    seed: int = 1

    def __post_init__(self) -> None:
        """Reject settings that cannot be written, or that would have no effect."""
        self._check_amount()
        self._check_traffic()
        self._check_times()
        self._check_file()
        if not self.pieces:
            raise ValueError(
                f"duration: got {(self.duration or 0) / SECOND:g} s at {self.rate} packets/s, expected time for one "
                "packet outside lulls: the file would be empty"
            )
        for rate_index, attack in enumerate(self.floods, 1):
            if not any(piece.rates[rate_index] for piece in self.pieces):
                raise ValueError(
                    f"attack: got {attack.kind} in [{attack.start}, {attack.end}), expected a time in which the link "
                    f"sends: the last packets end at {self.pieces[-1].end} ns from the start of the capture, and "
                    "lulls are silent"
                )
        self._check_staged_attacks()
        self._check_conversations()
        first, last = self.start + self.clock_offset, self.start + self.clock_offset + self.pieces[-1].end
        if first < 0 or last > TIME_LIMIT:
            raise ValueError(
                f"start, clock_offset: the capture would span {first}..{last} ns, expected 0..{TIME_LIMIT}: "
                "a pcap record counts seconds from 1970 in 32 bits"
            )

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces of constant rate that contain the packets, in order."""
        end = self.duration or 0
        if self.packets is not None:
            silent = sum(stop - start for start, stop in self.lulls)
            active_length = self.lull_every - self.lull_length
            lull_factor = self.lull_every / active_length if self.lull_length else 1.0
            end = math.ceil((self.packets / self.rate * SECOND + silent) * lull_factor) + silent + self.lull_every + 1
        bursts = [(attack.start, attack.end, attack.rate) for attack in self.floods]
        silences = [*self.lulls, *periodic_lulls(self.lull_every, self.lull_length, end)]
        return pieces(self.rate, bursts, silences, end, self.packets)

    @property
    def floods(self) -> tuple[Attack, ...]:
        """The attacks with a constant rate of packets. Their packets are part of the pieces."""
        return tuple(attack for attack in self.attacks if not attack.is_staged)

    @property
    def total(self) -> int:
        """Number of packets in the file, without conversations and staged attacks."""
        return self.pieces[-1].last

    def _check_amount(self) -> None:
        if (self.packets is None) == (self.duration is None):
            raise ValueError(
                f"packets, duration: got {'both' if self.packets is not None else 'neither'}, expected one of them: "
                "the other follows from rate"
            )
        for name, value in (("packets", self.packets), ("duration", self.duration)):
            if value is not None and value <= 0:
                given = f"{value / SECOND:g} s" if name == "duration" else f"{value}"
                raise ValueError(f"{name}: got {given}, expected more than 0: the file would be empty")
        if not 0 < self.rate <= SECOND:
            raise ValueError(
                f"rate: got {self.rate} packets/s, expected more than 0, at most {SECOND}: timestamps count nanoseconds"
            )
        # Compared without a division, because the quotient may overflow a float.
        if self.packets is not None and self.packets > self.rate * (TIME_LIMIT // SECOND):
            raise ValueError(
                f"rate: got {self.rate} packets/s, expected {self.packets} packets within {TIME_LIMIT // SECOND} s: "
                "a pcap record counts seconds from 1970 in 32 bits"
            )
        if not 1 <= self.groups <= MAX_GROUPS:
            raise ValueError(f"groups: got {self.groups}, expected 1..{MAX_GROUPS}: each rank takes 9 bytes of memory")
        if not 0 <= self.skew <= 10:
            raise ValueError(f"skew: got {self.skew}, expected 0 (all pairs alike) .. 10 (one pair has nearly all)")
        if self.seed < 0:
            raise ValueError(f"seed: got {self.seed}, expected 0 or more")

    def _check_traffic(self) -> None:
        for name in ("ipv6", "tcp", "udp", "icmp", "arp", "fragments"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected a share in 0..1")
        _check_shares("tcp + udp + icmp", (self.tcp, self.udp, self.icmp))
        if self.arp + self.fragments > 1:
            raise ValueError(
                f"arp + fragments: got {self.arp + self.fragments}, expected at most 1: "
                "both are shares of the same packets"
            )
        if self.arp and self.link_type in (0, 101):
            raise ValueError(
                f"arp: got {self.arp}, expected 0 with link type {self.link_type} ({LINK_TYPES[self.link_type]}): "
                "it carries IP only"
            )
        for low, high, _ in self.sizes:
            if not 1 <= low <= high <= 65535:
                raise ValueError(
                    f"sizes: got lengths {low}..{high}, expected 1 <= lowest <= highest <= 65535: "
                    "no IPv4 packet is longer"
                )
        _check_shares("sizes", tuple(share for _, _, share in self.sizes))
        if not 1 <= len(self.vlan_depths) <= 4:
            raise ValueError(
                f"vlan_depths: got {len(self.vlan_depths)} shares, expected 1..4: the shares of 0, 1, 2 and 3 tags"
            )
        _check_shares("vlan_depths", self.vlan_depths)
        if sum(self.vlan_depths[1:]) and self.link_type != 1:
            raise ValueError(
                f"vlan_depths: got {self.vlan_depths}, expected (1.0,) with link type {self.link_type}: "
                "only Ethernet carries VLAN tags here"
            )

    def _check_times(self) -> None:
        edges = [edge for interval in (*self.lulls, *((a.start, a.end) for a in self.attacks)) for edge in interval]
        spans = [self.duration or 0, self.disorder_span, self.lull_every, self.lull_length]
        for time in (self.start, self.clock_offset, *spans, *edges):
            if abs(time) > TIME_LIMIT:
                raise ValueError(
                    f"times: got {time} ns, expected {TIME_LIMIT} at most: "
                    "a pcap record counts seconds from 1970 in 32 bits"
                )
        for start, end in self.lulls:
            if not 0 <= start < end:
                raise ValueError(
                    f"lulls: got [{start}, {end}), expected 0 <= start < end, in ns from the start of the capture"
                )
        if self.lull_length and not 0 < self.lull_length < self.lull_every:
            raise ValueError(
                f"lull_length: got {self.lull_length} of every {self.lull_every} ns, expected 0 < lull_length < "
                "lull_every: "
                "the link would never send"
            )
        if self.lull_every and not self.lull_length:
            raise ValueError(f"lull_every: got {self.lull_every} ns without a lull_length: no lull would happen")
        if self.disorder not in DISORDERS:
            raise ValueError(f"disorder: got {self.disorder!r}, expected one of {', '.join(DISORDERS)}")
        if (self.disorder == "none") != (self.disorder_span == 0) or self.disorder_span < 0:
            raise ValueError(
                f"disorder_span: got {self.disorder_span} ns with disorder {self.disorder!r}, expected 0 with none, "
                "more than 0 with band and blocks"
            )
        if self.precision == "us":
            for time in (self.start, self.clock_offset, *spans[1:], *edges):
                if time % 1000:
                    raise ValueError(
                        f"precision: got us and a time of {time} ns, expected whole microseconds (or precision ns): "
                        "truncating timestamps would move packets into lulls"
                    )

    def _check_staged_attacks(self) -> None:
        for attack in self.attacks:
            inside = [piece for piece in self.pieces if piece.start < attack.end and attack.start < piece.end]
            covered = sum(min(piece.end, attack.end) - max(piece.start, attack.start) for piece in inside)
            if attack.is_staged and covered < attack.end - attack.start:
                raise ValueError(
                    f"attack: got {attack.kind} in [{attack.start}, {attack.end}), expected an interval in which the "
                    f"link sends all the time: the last packets end at {self.pieces[-1].end} ns from the start of the "
                    "capture, and lulls are silent"
                )

    def _check_conversations(self) -> None:
        if self.conversations and self.link_type not in CONVERSATION_LINK_TYPES:
            known = " or ".join(f"{number} ({name})" for number, name in CONVERSATION_LINK_TYPES.items())
            raise ValueError(
                f"traffic: got link type {self.link_type}, expected {known}: conversations need one of these"
            )
        count = sum(conversation_count(self.pieces, conversation.rate) for conversation in self.conversations)
        if count > MAX_CONVERSATIONS:
            raise ValueError(
                f"traffic: got {count} conversations, expected at most {MAX_CONVERSATIONS}: scapy builds some hundred"
                " of them per second"
            )
        for conversation in self.conversations:
            if not conversation_count(self.pieces, conversation.rate):
                raise ValueError(
                    f"traffic: got {conversation.rate} conversations/s of {conversation.kind}, expected a rate"
                    f" with at least one conversation before the link ends, {self.pieces[-1].end} ns from the start of"
                    " the capture"
                )

    def _check_file(self) -> None:
        if self.link_type not in LINK_TYPES:
            known = ", ".join(f"{number} ({name})" for number, name in LINK_TYPES.items())
            raise ValueError(f"link_type: got {self.link_type}, expected one of {known}")
        if self.byte_order not in ("little", "big"):
            raise ValueError(f"byte_order: got {self.byte_order!r}, expected little or big")
        if self.precision not in ("us", "ns"):
            raise ValueError(f"precision: got {self.precision!r}, expected us or ns")
        if not 1 <= self.snap_length <= 262144:
            raise ValueError(
                f"snap_length: got {self.snap_length} bytes, expected 1..262144: "
                "libpcap refuses files with longer records"
            )


def _check_shares(name: str, shares: tuple[float, ...]) -> None:
    """Reject shares that are negative or do not add up to 1."""
    if any(share < 0 for share in shares) or not math.isclose(sum(shares), 1, abs_tol=1e-6):
        raise ValueError(f"{name}: got shares {shares}, expected none below 0 and a sum of 1")
