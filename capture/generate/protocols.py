"""Packets of conversations, built with scapy. Lengths and checksums are valid, and contents are realistic.

Clients are in 172.16.0.0/12, servers in 203.0.113.0/24 (RFC 5737) with names below example.com (RFC 2606). So no
conversation shares an address with the background traffic. Values that scapy would choose at random are drawn from
`chance`, so equal seeds generate equal bytes. TLS records are written as bytes, because scapy's TLS classes need
another package.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from email.utils import formatdate
from random import Random
from typing import Any

from scapy.contrib.gtp import GTP_U_Header
from scapy.layers.dns import DNS, DNSQR, DNSRR
from scapy.layers.http import HTTP, HTTPRequest, HTTPResponse
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import GRE, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

from capture.generate.conversations import LINK_TYPES, Conversations, Frame, conversation_starts
from capture.generate.timeline import Piece
from capture.lazy_dataclasses import dataclass
from capture.units import SECOND

MILLISECOND = 1_000_000
"""Nanoseconds of a millisecond."""
MSS = 1400
"""Data bytes of a TCP segment."""
HOST_NAMES = ("www", "api", "mail", "cdn", "login", "static", "shop", "news")
ETHERNET = next(iter(LINK_TYPES))


@dataclass
class _Exchange:
    """The packets of one conversation between a client and a server. Their times count from the beginning.

    `start_time`: time of the beginning, ns since 1970.
    """

    chance: Random
    link_type: int
    start_time: int
    packets: list[tuple[int, bytes]] = field(default_factory=list)
    time: int = 0

    def __post_init__(self) -> None:
        """Choose the client, the server, and the round-trip time at random."""
        self.client = f"172.{self.chance.randint(16, 31)}.{self.chance.randint(0, 255)}.{self.chance.randint(1, 254)}"
        self.server = f"203.0.113.{self.chance.randint(1, 254)}"
        self.port = self.chance.randint(32768, 60998)
        self.round_trip = self.chance.randint(2 * MILLISECOND, 40 * MILLISECOND)

    def ip(self, from_client: bool) -> Packet:
        """Return an IP header for one direction."""
        ends = (self.client, self.server) if from_client else (self.server, self.client)
        return IP(src=ends[0], dst=ends[1], id=self.chance.getrandbits(16), ttl=64 if from_client else 57)

    def add(self, from_client: bool, payload: Packet, pause: int = 0) -> None:
        """Add a packet `pause` ns after the previous packet, by default about half of the round-trip time."""
        packet = self.ip(from_client) / payload
        if self.link_type == ETHERNET:
            macs = ("02:00:00:00:10:01", "02:00:00:00:10:02")
            packet = Ether(src=macs[not from_client], dst=macs[from_client]) / packet
        if self.packets:
            self.time += pause or self.round_trip // 2 + self.chance.randint(0, MILLISECOND)
        self.packets.append((self.time, bytes(packet)))


class _Connection:
    """A TCP connection: handshake, data segments with acknowledgments, and close."""

    def __init__(self, exchange: _Exchange, port: int) -> None:
        self.exchange, self.port = exchange, port
        self.next_sequence = {True: exchange.chance.getrandbits(32), False: exchange.chance.getrandbits(32)}
        mss = [("MSS", 1460)]
        exchange.add(True, TCP(**self._ports(True), flags="S", seq=self.next_sequence[True], window=64240, options=mss))
        self._advance(True, 1)
        exchange.add(False, self._tcp_header(False, "SA", options=mss))
        self._advance(False, 1)
        exchange.add(True, self._tcp_header(True, "A"))

    def send(self, from_client: bool, data: bytes) -> None:
        """Send data. The other end acknowledges all of it at once."""
        for start in range(0, len(data), MSS):
            segment = data[start : start + MSS]
            flags = "PA" if start + MSS >= len(data) else "A"
            self.exchange.add(from_client, self._tcp_header(from_client, flags) / Raw(segment), MILLISECOND // 10)
            self._advance(from_client, len(segment))
        self.exchange.add(not from_client, self._tcp_header(not from_client, "A"))

    def close(self) -> None:
        """Close both directions; the client closes first."""
        for from_client in (True, False):
            self.exchange.add(from_client, self._tcp_header(from_client, "FA"))
            self._advance(from_client, 1)
        self.exchange.add(True, self._tcp_header(True, "A"))

    def _tcp_header(self, from_client: bool, flags: str, **fields: Any) -> Packet:
        seq, ack = self.next_sequence[from_client], self.next_sequence[not from_client]
        return TCP(**self._ports(from_client), flags=flags, seq=seq, ack=ack, window=64240, **fields)

    def _ports(self, from_client: bool) -> dict[str, Any]:
        ports = (self.exchange.port, self.port)
        return {"sport": ports[not from_client], "dport": ports[from_client]}

    def _advance(self, from_client: bool, amount: int) -> None:
        self.next_sequence[from_client] = (self.next_sequence[from_client] + amount) & 0xFFFFFFFF


def _host_name(chance: Random) -> str:
    return f"{chance.choice(HOST_NAMES)}{chance.randint(1, 40)}.example.com"


def _dns_messages(chance: Random) -> tuple[Packet, Packet]:
    """Return a DNS query for an address, and its answer. On average, one of ten names does not exist."""
    name, message_id = _host_name(chance).encode(), chance.getrandbits(16)
    ipv6, missing = chance.random() < 0.3, chance.random() < 0.1
    question = DNSQR(qname=name, qtype="AAAA" if ipv6 else "A")
    address = f"2001:db8::{chance.getrandbits(16):x}" if ipv6 else f"203.0.113.{chance.randint(1, 254)}"
    answer = [] if missing else [DNSRR(rrname=name, type="AAAA" if ipv6 else "A", ttl=300, rdata=address)]
    query = DNS(id=message_id, rd=1, qd=[question])
    return query, DNS(id=message_id, qr=1, rd=1, ra=1, rcode=3 if missing else 0, qd=[question], an=answer)


def _write_dns(exchange: _Exchange) -> None:
    query, answer = _dns_messages(exchange.chance)
    exchange.add(True, UDP(sport=exchange.port, dport=53) / query)
    exchange.add(False, UDP(sport=53, dport=exchange.port) / answer)


def _write_http(exchange: _Exchange) -> None:
    chance = exchange.chance
    connection = _Connection(exchange, 80)
    path = f"/items/{chance.randint(1, 9999)}".encode()
    request = HTTPRequest(
        Method=b"GET", Path=path, Host=_host_name(chance).encode(), User_Agent=b"curl/8.5.0", Accept=b"*/*"
    )
    body = b"<p>item</p>\n" * chance.randint(5, 300)
    status, reason = chance.choice(((b"200", b"OK"),) * 8 + ((b"404", b"Not Found"), (b"503", b"Service Unavailable")))
    response = HTTPResponse(
        Status_Code=status,
        Reason_Phrase=reason,
        Date=formatdate(exchange.start_time // SECOND, usegmt=True).encode(),  # scapy would write the current time
        Content_Type=b"text/html",
        Content_Length=str(len(body)).encode(),
    )
    connection.send(True, bytes(HTTP() / request))
    connection.send(False, bytes(HTTP() / response / Raw(body)))
    connection.close()


def _with_length(width: int, data: bytes) -> bytes:
    """Return the length of `data` in `width` bytes, followed by `data`: a TLS vector (RFC 8446 §3.4)."""
    return len(data).to_bytes(width, "big") + data


def _tls_extension(kind: int, data: bytes) -> bytes:
    return kind.to_bytes(2, "big") + _with_length(2, data)


def _tls_record(content: int, version: int, data: bytes) -> bytes:
    return bytes([content]) + version.to_bytes(2, "big") + _with_length(2, data)


def _write_tls(exchange: _Exchange) -> None:
    """Write a TLS 1.3 handshake as seen on the wire (RFC 8446 appendix D.4): two hellos, then encrypted records."""
    chance = exchange.chance
    connection = _Connection(exchange, 443)
    session, key = chance.randbytes(32), chance.randbytes(32)
    share = b"\x00\x1d" + _with_length(2, key)  # x25519
    extensions = (
        _tls_extension(0, _with_length(2, b"\x00" + _with_length(2, _host_name(chance).encode())))  # server_name
        + _tls_extension(10, _with_length(2, b"\x00\x1d"))  # supported_groups
        + _tls_extension(13, _with_length(2, b"\x04\x03\x08\x04"))  # signature_algorithms
        + _tls_extension(16, _with_length(2, _with_length(1, b"h2") + _with_length(1, b"http/1.1")))  # ALPN
        + _tls_extension(43, _with_length(1, b"\x03\x04"))  # supported_versions
        + _tls_extension(51, _with_length(2, share))  # key_share
    )
    suites = b"\x13\x01\x13\x02\x13\x03"
    hello = b"\x03\x03" + chance.randbytes(32) + _with_length(1, session) + _with_length(2, suites) + b"\x01\x00"
    connection.send(True, _tls_record(22, 0x0301, b"\x01" + _with_length(3, hello + _with_length(2, extensions))))
    answer = b"\x03\x03" + chance.randbytes(32) + _with_length(1, session) + suites[:2] + b"\x00"
    share = b"\x00\x1d" + _with_length(2, chance.randbytes(32))
    extensions = _tls_extension(43, b"\x03\x04") + _tls_extension(51, share)
    server = _tls_record(22, 0x0303, b"\x02" + _with_length(3, answer + _with_length(2, extensions)))
    server += _tls_record(20, 0x0303, b"\x01")
    connection.send(False, server + _tls_record(23, 0x0303, chance.randbytes(chance.randint(900, 3200))))
    connection.send(True, _tls_record(20, 0x0303, b"\x01") + _tls_record(23, 0x0303, chance.randbytes(53)))
    connection.send(True, _tls_record(23, 0x0303, chance.randbytes(chance.randint(60, 600))))
    connection.send(False, _tls_record(23, 0x0303, chance.randbytes(chance.randint(200, 6000))))
    connection.close()


def _write_sip(exchange: _Exchange) -> None:
    """Write REGISTER and its answer, then a call from INVITE to BYE (RFC 3261 §24)."""
    chance = exchange.chance
    user, peer, call = (chance.randint(1000, 9999) for _ in range(3))
    branch = f"{chance.getrandbits(64):016x}"
    sequence = 0

    def message(first: str, method: str, tags: str, body: str = "") -> Packet:
        content = "Content-Type: application/sdp\r\n" if body else ""
        target, kind = (user, "r") if method == "REGISTER" else (peer, "c")
        text = (
            f"{first}\r\nVia: SIP/2.0/UDP {exchange.client}:5060;branch=z9hG4bK{branch}{sequence}\r\n"
            f"Max-Forwards: 70\r\nFrom: <sip:{user}@example.com>;tag={branch[:8]}\r\n"
            f"To: <sip:{target}@example.com>{tags}\r\nCall-ID: {call}{kind}@{exchange.client}\r\n"
            f"CSeq: {sequence} {method}\r\n"
            f"Contact: <sip:{user}@{exchange.client}:5060>\r\n{content}Content-Length: {len(body)}\r\n\r\n{body}"
        )
        return UDP(sport=5060, dport=5060) / Raw(text.encode())

    def media(address: str) -> str:
        return (
            f"v=0\r\no=- {call} 1 IN IP4 {address}\r\ns=-\r\nc=IN IP4 {address}\r\nt=0 0\r\n"
            f"m=audio {exchange.port & ~1} RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n"
        )

    tag = f";tag={branch[8:]}"
    sequence = 1
    exchange.add(True, message("REGISTER sip:example.com SIP/2.0", "REGISTER", ""))
    exchange.add(False, message("SIP/2.0 200 OK", "REGISTER", tag))
    sequence = 2
    exchange.add(
        True, message(f"INVITE sip:{peer}@example.com SIP/2.0", "INVITE", "", media(exchange.client)), 50 * MILLISECOND
    )
    exchange.add(False, message("SIP/2.0 100 Trying", "INVITE", ""))
    exchange.add(False, message("SIP/2.0 180 Ringing", "INVITE", tag), 80 * MILLISECOND)
    exchange.add(False, message("SIP/2.0 200 OK", "INVITE", tag, media(exchange.server)), 900 * MILLISECOND)
    exchange.add(True, message(f"ACK sip:{peer}@example.com SIP/2.0", "ACK", tag))
    sequence = 3
    exchange.add(
        True, message(f"BYE sip:{peer}@example.com SIP/2.0", "BYE", tag), chance.randint(500, 1500) * MILLISECOND
    )
    exchange.add(False, message("SIP/2.0 200 OK", "BYE", tag))


def _inner_packet(exchange: _Exchange, from_client: bool, payload: Packet) -> Packet:
    """Return an inner packet of a tunnel, between private addresses (10.200.0.0/16)."""
    client, server = (
        f"10.200.{end.rpartition('.')[2]}.{side}" for side, end in enumerate((exchange.client, exchange.server), 1)
    )
    source, destination = (client, server) if from_client else (server, client)
    return IP(src=source, dst=destination, id=exchange.chance.getrandbits(16)) / payload


def _write_pings(exchange: _Exchange, tunnel: Callable[[], Packet | None]) -> None:
    """Write four echo requests and their replies in a tunnel."""
    identifier, data = exchange.chance.getrandbits(16), bytes(range(48))
    for sequence in range(1, 5):
        for from_client in (True, False):
            echo = ICMP(type="echo-request" if from_client else "echo-reply", id=identifier, seq=sequence) / Raw(data)
            inner, header = _inner_packet(exchange, from_client, echo), tunnel()
            exchange.add(from_client, inner if header is None else header / inner)


def _write_gre(exchange: _Exchange) -> None:
    key = exchange.chance.getrandbits(32)
    _write_pings(exchange, lambda: GRE(key_present=1, key=key, proto=0x0800))


def _write_ipip(exchange: _Exchange) -> None:
    _write_pings(exchange, lambda: None)


def _write_vxlan(exchange: _Exchange) -> None:
    network, macs = exchange.chance.getrandbits(24), ("02:00:00:00:20:01", "02:00:00:00:20:02")
    for from_client, port, message in zip(
        (True, False), (53, exchange.port), _dns_messages(exchange.chance), strict=True
    ):
        other = exchange.port if from_client else 53
        frame = Ether(src=macs[not from_client], dst=macs[from_client]) / _inner_packet(
            exchange, from_client, UDP(sport=other, dport=port) / message
        )
        exchange.add(from_client, UDP(sport=exchange.port, dport=4789) / VXLAN(flags=8, vni=network) / frame)


def _write_gtp(exchange: _Exchange) -> None:
    tunnels = exchange.chance.getrandbits(32), exchange.chance.getrandbits(32)
    for from_client, message in zip((True, False), _dns_messages(exchange.chance), strict=True):
        ports = (exchange.port, 53) if from_client else (53, exchange.port)
        inner = _inner_packet(exchange, from_client, UDP(sport=ports[0], dport=ports[1]) / message)
        header = GTP_U_Header(teid=tunnels[from_client], gtp_type=255)
        exchange.add(from_client, UDP(sport=2152, dport=2152) / header / inner)


_WRITERS: dict[str, Callable[[_Exchange], None]] = {
    "dns": _write_dns,
    "http": _write_http,
    "tls": _write_tls,
    "sip": _write_sip,
    "gre": _write_gre,
    "ipip": _write_ipip,
    "vxlan": _write_vxlan,
    "gtp": _write_gtp,
}


def conversation_packets(kind: str, chance: Random, link_type: int, start_time: int) -> Iterator[tuple[int, bytes]]:
    """Yield the packets of a conversation of `kind`: time from its beginning (ns), and bytes.

    `start_time`: time of the beginning, ns since 1970. HTTP servers report it.
    """
    exchange = _Exchange(chance, link_type, start_time)
    _WRITERS[kind](exchange)
    yield from exchange.packets


def frames(
    conversations: Sequence[Conversations], pieces: Sequence[Piece], seed: int, link_type: int, origin: int
) -> Iterator[Frame]:
    """Yield the packets of all conversations in time order. Times are relative to `origin`, which is in ns since 1970.

    Only packets of active conversations are in memory.
    """

    def starts_of(kind_index: int, conversation: Conversations) -> Iterator[tuple[int, int, int, int, str]]:
        chance = Random(f"{seed}/{kind_index}/{conversation.kind}")
        for conversation_index, (start, end) in enumerate(conversation_starts(pieces, conversation.rate, chance)):
            yield start, kind_index, conversation_index, end, conversation.kind

    waiting: list[tuple[int, int, int, int, bytes]] = []
    starts = map(starts_of, range(len(conversations)), conversations)
    for start, kind_index, conversation_index, end, kind in heapq.merge(*starts):
        while waiting and waiting[0][0] < start:
            time, *_, frame = heapq.heappop(waiting)
            yield time, frame
        chance = Random(f"{seed}/{kind_index}/{kind}/{conversation_index}")
        for packet_index, (offset, frame) in enumerate(conversation_packets(kind, chance, link_type, origin + start)):
            heapq.heappush(waiting, (min(start + offset, end - 1), kind_index, conversation_index, packet_index, frame))
    while waiting:
        time, *_, frame = heapq.heappop(waiting)
        yield time, frame
