"""Conversations built with scapy: decoded by dpkt and tshark, found by queries, and in the order of their times.

dpkt finds wrong lengths, checksums and fields in each packet. tshark finds contradictions between packets: sequence
numbers, answers without questions, a call that does not end.
"""

from __future__ import annotations

import struct
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address, ip_network
from itertools import pairwise
from pathlib import Path
from typing import Any

import dpkt
import pytest

import wiretide
from capture.generate import Attack, Conversations, Profile, generate
from capture.generate.conversations import CONVERSATION_KINDS, LINK_TYPES
from tests.harness.command_line import run
from tests.references.generated import records
from tests.references.tshark_oracle import require_tshark

SECOND = 1_000_000_000
CLIENTS, SERVERS = ip_network("172.16.0.0/12"), ip_network("203.0.113.0/24")
MIXED = Profile(
    duration=10 * SECOND,
    rate=100.0,
    groups=50,
    conversations=tuple(Conversations(kind, 2.0) for kind in CONVERSATION_KINDS),
    snap_length=65535,
)


def conversation_frames(path: Path) -> Iterator[tuple[int, bytes]]:
    """Time, and bytes from the IP header on, of every record that has an end among the clients of conversations."""
    for record in records(path):
        packet = dpkt.ethernet.Ethernet(record.data).data
        if isinstance(packet, dpkt.ip.IP) and any(ip_address(end) in CLIENTS for end in (packet.src, packet.dst)):
            assert len(record.data) == record.wire_length
            yield record.ts, record.data[14:]


def conversation_packets(path: Path) -> Iterator[tuple[int, dpkt.ip.IP]]:
    """The same with parsed packets."""
    yield from ((ts, dpkt.ip.IP(data)) for ts, data in conversation_frames(path))


def checksum(data: bytes) -> int:
    """RFC 1071; 0 over data that contain their own checksum."""
    total = sum(struct.unpack(f">{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def check_ip(data: bytes) -> dpkt.ip.IP:
    """Check lengths and checksums of an IPv4 packet and its payload, through its tunnels. Return the packet."""
    packet = dpkt.ip.IP(data)
    assert packet.len == len(data)
    assert checksum(data[:20]) == 0
    above = data[20:]
    pseudo = packet.src + packet.dst + struct.pack(">HH", packet.p, len(above))
    if packet.p == dpkt.ip.IP_PROTO_TCP:
        assert checksum(pseudo + above) == 0
    elif packet.p == dpkt.ip.IP_PROTO_UDP:
        _, destination, length, found = struct.unpack_from(">HHHH", above)
        assert length == len(above)
        assert found == 0 or checksum(pseudo + above) == 0
        if destination == 4789:
            assert above[8] == 8
            assert above[8 + 8 + 12 : 8 + 8 + 14] == b"\x08\x00"
            check_ip(above[8 + 8 + 14 :])
        if destination == 2152:
            assert struct.unpack_from(">BBH", above, 8) == (0x30, 255, len(above) - 16)
            check_ip(above[16:])
    elif packet.p == dpkt.ip.IP_PROTO_ICMP:
        assert checksum(above) == 0
    elif packet.p == dpkt.ip.IP_PROTO_GRE:
        assert above[:4] == b"\x20\x00\x08\x00"
        check_ip(above[8:])
    else:
        assert packet.p == dpkt.ip.IP_PROTO_IPIP
        check_ip(above)
    return packet


def only(kind: str, folder: Path, rate: float = 4.0) -> list[dpkt.ip.IP]:
    """The packets of about ten seconds of one kind."""
    profile = replace(MIXED, conversations=(Conversations(kind, rate),), rate=1.0, groups=2)
    generate(profile, folder / "a.pcap")
    return [packet for _, packet in conversation_packets(folder / "a.pcap")]


@pytest.mark.parametrize("kind", CONVERSATION_KINDS)
def test_every_packet_has_right_lengths_and_checksums(tmp_path: Path, kind: str) -> None:
    assert len(only(kind, tmp_path)) >= 80
    for _, data in conversation_frames(tmp_path / "a.pcap"):
        packet = check_ip(data)
        assert {ip_address(packet.src) in CLIENTS, ip_address(packet.dst) in CLIENTS} == {True, False}
        assert {ip_address(packet.src) in SERVERS, ip_address(packet.dst) in SERVERS} == {True, False}


def streams(packets: list[dpkt.ip.IP], port: int) -> Iterator[tuple[bytes, bytes]]:
    """Return the bytes that client and server of each TCP connection sent. Fail if a byte is missing or sent twice."""
    following: dict[tuple[bytes, int, bool], int] = {}
    sent: dict[tuple[bytes, int, bool], bytes] = {}
    for packet in packets:
        tcp = packet.data
        from_client = tcp.dport == port
        key = (packet.src, tcp.sport, True) if from_client else (packet.dst, tcp.dport, False)
        if tcp.flags & dpkt.tcp.TH_SYN:
            assert key not in following
            following[key], sent[key] = tcp.seq, b""
        assert tcp.seq == following[key]
        following[key] = (
            tcp.seq + len(tcp.data) + bool(tcp.flags & dpkt.tcp.TH_SYN) + bool(tcp.flags & dpkt.tcp.TH_FIN)
        ) & 0xFFFFFFFF
        sent[key] += bytes(tcp.data)
        if tcp.flags & dpkt.tcp.TH_ACK:
            assert tcp.ack == following[(*key[:2], not from_client)]
    for (address, number, from_client), data in sent.items():
        if from_client:
            yield data, sent[address, number, False]


def test_dns_answers_answer_their_questions(tmp_path: Path) -> None:
    waiting: dict[tuple[bytes, int, int], Any] = {}
    codes: Counter[int] = Counter()
    for packet in only("dns", tmp_path, 20.0):
        message = dpkt.dns.DNS(bytes(packet.data.data))
        if message.qr == dpkt.dns.DNS_Q:
            assert packet.data.dport == 53
            waiting[packet.src, packet.data.sport, message.id] = message.qd[0]
            continue
        question = waiting.pop((packet.dst, packet.data.dport, message.id))
        assert (message.qd[0].name, message.qd[0].type) == (question.name, question.type)
        codes[message.rcode] += 1
        assert [(each.name, each.type) for each in message.an] == (
            [] if message.rcode else [(question.name, question.type)]
        )
    assert waiting == {}
    assert codes[0] > codes[3] > 0
    assert codes.keys() == {0, 3}


def test_http_requests_have_whole_responses(tmp_path: Path) -> None:
    found = list(streams(only("http", tmp_path), 80))
    assert len(found) >= 35
    for sent, received in found:
        request, response = dpkt.http.Request(sent), dpkt.http.Response(received)
        assert request.method == "GET"
        assert request.headers["host"].endswith(".example.com")
        assert int(response.headers["content-length"]) == len(response.body)
        assert response.headers["date"].startswith("Tue, 14 Nov 2023 22:13:")  # of the capture, not of today


def tls_records(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        length = int.from_bytes(data[3:5], "big")
        assert len(data) >= 5 + length
        yield data[0], data[5 : 5 + length]
        data = data[5 + length :]


def test_tls_hellos_name_a_server_and_records_are_whole(tmp_path: Path) -> None:
    found = list(streams(only("tls", tmp_path), 443))
    assert len(found) >= 35
    for sent, received in found:
        hello = dpkt.ssl.TLSHandshake(next(tls_records(sent))[1]).data
        assert isinstance(hello, dpkt.ssl.TLSClientHello)
        [name] = [value for kind, value in hello.extensions if kind == 0]
        assert name[5:].endswith(b".example.com")
        assert struct.unpack_from(">HBH", name) == (len(name) - 2, 0, len(name) - 5)
        assert isinstance(dpkt.ssl.TLSHandshake(next(tls_records(received))[1]).data, dpkt.ssl.TLSServerHello)
        assert [kind for kind, _ in tls_records(sent)] == [22, 20, 23, 23]
        assert [kind for kind, _ in tls_records(received)] == [22, 20, 23, 23]


def test_sip_calls_begin_and_end(tmp_path: Path) -> None:
    calls: dict[str, list[str]] = {}
    for packet in only("sip", tmp_path, 2.0):
        data = bytes(packet.data.data)
        head, _, body = data.partition(b"\r\n\r\n")
        message = (dpkt.sip.Response if data.startswith(b"SIP/2.0") else dpkt.sip.Request)(data)
        assert int(message.headers["content-length"]) == len(body)
        first = head.decode().split(" ")
        calls.setdefault(message.headers["call-id"], []).append(first[1] if first[0] == "SIP/2.0" else first[0])
    assert len(calls) >= 30
    registered = ["REGISTER", "200"]
    called = ["INVITE", "100", "180", "200", "ACK", "BYE", "200"]
    assert all(steps in (registered, called) for steps in calls.values())


def test_tshark_finds_nothing_wrong(tmp_path: Path) -> None:
    require_tshark()
    generate(replace(MIXED, rate=1.0, groups=2), tmp_path / "a.pcap")

    def tshark(*words: str) -> str:
        checks = [word for each in ("ip", "tcp", "udp") for word in ("-o", f"{each}.check_checksum:TRUE")]
        chosen = ["-2", "-R", "ip.addr==172.16.0.0/12"]
        command = ["tshark", "-n", "-r", tmp_path / "a.pcap", *chosen, *checks, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert tshark("-q", "-z", "expert,warn,ip.addr==172.16.0.0/12").strip() == ""
    columns = tshark("-T", "fields", "-e", "frame.protocols").split()
    innermost = {name.split(":")[-1] for name in columns}
    assert {"dns", "tls", "sip", "sdp"} <= innermost | {part for name in columns for part in name.split(":")}
    for tunnel in ("gre:ip:icmp", "ip:ip:icmp", "vxlan:eth:ethertype:ip:udp:dns", "gtp:ip:udp:dns", "tcp:http"):
        assert any(tunnel in name for name in columns), tunnel


def test_queries_find_conversations_and_look_into_tunnels(tmp_path: Path) -> None:
    generate(MIXED, tmp_path / "a.pcap")
    kinds: Counter[str] = Counter()
    outer = {47: "gre", 4: "ipip"}
    ports = {53: "dns", 80: "http", 443: "tls", 5060: "sip", 4789: "vxlan", 2152: "gtp"}
    for _, packet in conversation_packets(tmp_path / "a.pcap"):
        if packet.p in outer:
            kinds[outer[packet.p]] += 1
        else:
            low = packet.data.dport if packet.data.dport in ports else packet.data.sport
            kinds[ports[low]] += 1
    assert kinds.keys() == CONVERSATION_KINDS.keys()
    near = "(srcIP IN '172.16.0.0/12' OR destIP IN '172.16.0.0/12')"
    sql = (
        f"SELECT tunnels, inner.protocol AS p, count(*) AS n FROM packets WHERE {near} GROUP BY tunnels, inner.protocol"
    )
    rows = wiretide.query(sql, tmp_path / "a.pcap").to_pylist()
    assert {(row["tunnels"], row["p"]): row["n"] for row in rows} == {
        (0, 17): kinds["dns"] + kinds["sip"],
        (0, 6): kinds["http"] + kinds["tls"],
        (1, 1): kinds["gre"] + kinds["ipip"],
        (1, 17): kinds["vxlan"] + kinds["gtp"],
    }


@pytest.mark.drawn
@pytest.mark.parametrize("link_type", LINK_TYPES)
@pytest.mark.parametrize("chunk", [1, 7, 100_000])
@pytest.mark.slow("a large file for each size")
def test_the_file_does_not_depend_on_the_chunk_size(tmp_path: Path, chunk: int, link_type: int) -> None:
    profile = replace(MIXED, link_type=link_type, disorder="band", disorder_span=SECOND)
    assert generate(profile, tmp_path / "a.pcap") == generate(profile, tmp_path / "b.pcap", chunk=chunk)
    assert (tmp_path / "a.pcap").read_bytes() == (tmp_path / "b.pcap").read_bytes()


@pytest.mark.slow("many captures")
def test_another_seed_makes_other_conversations(tmp_path: Path) -> None:
    generate(MIXED, tmp_path / "a.pcap")
    generate(replace(MIXED, seed=2), tmp_path / "b.pcap")
    first, second = (set(conversation_frames(tmp_path / name)) for name in ("a.pcap", "b.pcap"))
    assert len(first) > 500
    assert not first & second


@pytest.mark.slow("long captures")
@pytest.mark.parametrize("precision", ["us", "ns"])
def test_conversations_are_added_in_the_order_of_time(tmp_path: Path, precision: str) -> None:
    alone = replace(MIXED, conversations=(), precision=precision)
    generate(alone, tmp_path / "alone.pcap")
    summary = generate(replace(MIXED, precision=precision), tmp_path / "mixed.pcap")
    mixed = list(records(tmp_path / "mixed.pcap"))
    assert all(earlier.ts <= later.ts for earlier, later in pairwise(mixed))
    added = set(conversation_frames(tmp_path / "mixed.pcap"))
    assert (summary.packets, summary.conversation_packets) == (len(mixed), len(added))
    assert summary.packets == 1000 + len(added)
    assert summary.wire_bytes == sum(each.wire_length for each in mixed)
    assert (summary.first_ts, summary.last_ts, summary.min_ts, summary.max_ts) == (mixed[0].ts, mixed[-1].ts) * 2
    rest = [each for each in mixed if (each.ts, each.data[14:]) not in added]
    assert rest == list(records(tmp_path / "alone.pcap"))


def test_conversations_keep_out_of_lulls_and_end_with_the_link(tmp_path: Path) -> None:
    lull = (2 * SECOND, 5 * SECOND)
    flood = Attack("syn-flood", 6 * SECOND, 7 * SECOND, 50.0)
    profile = replace(MIXED, lulls=(lull,), attacks=(flood,), clock_offset=-SECOND)
    generate(profile, tmp_path / "a.pcap")
    origin = profile.start - SECOND
    offsets = [record.ts - origin for record in records(tmp_path / "a.pcap")]
    assert not any(lull[0] <= each < lull[1] for each in offsets)
    assert min(offsets) >= 0
    assert max(offsets) < 10 * SECOND
    before = [ts for ts, _ in conversation_packets(tmp_path / "a.pcap") if ts - origin < lull[0]]
    assert len(before) > 20


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--traffic", "smtp"], "traffic: got kind 'smtp', expected one of dns, http, tls, sip, gre, ipip, vxlan, gtp"),
        (["--traffic", "dns:0"], "traffic: got 0.0 conversations/s of dns, expected more than 0"),
        (["--traffic", "dns:nan"], "traffic: got nan conversations/s of dns"),
        (["--traffic", "dns:many"], "could not convert string to float: 'many'"),
        (
            ["--traffic", "dns", "--link-type", "113"],
            "traffic: got link type 113, expected 1 (Ethernet) or 101 (raw IP)",
        ),
        (["--traffic", "dns:50000", "--duration", "60"], "traffic: got 3000000 conversations, expected at most 100000"),
        (
            ["--traffic", "dns:0.01", "--duration", "1"],
            "expected a rate with at least one conversation before the link ends",
        ),
    ],
)
def test_conversations_that_cannot_be_made_are_a_wrong_command_line(
    words: list[str], told: str, tmp_path: Path
) -> None:
    status, out, err = run("generate", "made.pcap", *words, cwd=tmp_path)
    assert (status, out) == (2, "")
    assert told in " ".join(err.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_the_command_adds_conversations_with_whole_packets(tmp_path: Path) -> None:
    words = ["--packets", "100", "--rate", "20", "--traffic", "dns:3", "--traffic", "http:1"]
    status, out, err = run("generate", "made.pcap", *words, cwd=tmp_path)
    assert (status, err) == (0, "")
    packets = [packet for _, packet in conversation_packets(tmp_path / "made.pcap")]
    dns = [packet for packet in packets if packet.p == dpkt.ip.IP_PROTO_UDP]
    assert len(dns) == 2 * 3 * 5
    assert out.startswith(f"made.pcap: {100 + len(packets)} packets over ")
