"""Contents of generated packets, read by two independent decoders.

dpkt finds wrong offsets, lengths, EtherTypes and shares. scapy rebuilds each packet from its fields without lengths and
checksums; the bytes must be equal. If tcpdump and capinfos are installed, they check the whole file.
"""

import re
import shutil
import socket
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import dpkt
import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoReply, ICMPv6EchoRequest, IPv6
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Packet

from capture.generate import Profile, generate
from tests.references.generated import Record, records

DECODERS = {
    0: dpkt.loopback.Loopback,
    1: dpkt.ethernet.Ethernet,
    113: dpkt.sll.SLL,
    276: dpkt.sll2.SLL2,
}
LINK_LENGTHS = {0: 4, 1: 14, 101: 0, 113: 16, 276: 20}
EVERYTHING = Profile(
    packets=4000,
    groups=500,
    ipv6=0.4,
    tcp=0.5,
    udp=0.3,
    icmp=0.2,
    arp=0.05,
    fragments=0.1,
    sizes=((1, 80, 0.5), (81, 1514, 0.5)),
    vlan_depths=(0.4, 0.3, 0.2, 0.1),
    snap_length=65535,
)


def for_link(profile: Profile, link_type: int) -> Profile:
    """The same profile without what the link type cannot carry."""
    ethernet = link_type == 1
    arp = profile.arp if link_type in (1, 113, 276) else 0.0
    return replace(profile, link_type=link_type, arp=arp, vlan_depths=profile.vlan_depths if ethernet else (1.0,))


def network_layer(record: Record, link_type: int) -> dpkt.Packet:
    """The network layer of a record as dpkt decodes it; raw IP has the version first."""
    if link_type == 101:
        return (dpkt.ip.IP if record.data[0] >> 4 == 4 else dpkt.ip6.IP6)(record.data)
    return DECODERS[link_type](record.data).data


def tags(frame: bytes) -> int:
    """Tags of a frame, by hand: dpkt stops counting at two."""
    count = 0
    while frame[12 + 4 * count : 14 + 4 * count] in (b"\x88\xa8", b"\x81\x00"):
        count += 1
    return count


def protocol_of(packet: dpkt.Packet) -> str:
    if isinstance(packet, dpkt.arp.ARP):
        return "arp"
    if isinstance(packet, dpkt.ip.IP):
        return "fragment" if packet.mf or packet.offset else {1: "icmp", 6: "tcp", 17: "udp"}[packet.p]
    return "fragment" if packet.extension_hdrs else {58: "icmp", 6: "tcp", 17: "udp"}[packet.nxt]


def ones_complement_sum(data: bytes) -> int:
    """RFC 1071, word by word."""
    total = 0
    for place in range(0, len(data) - 1, 2):
        total += int.from_bytes(data[place : place + 2], "big")
    if len(data) % 2:
        total += data[-1] << 8
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@pytest.fixture(params=[0, 1, 101, 113, 276], ids=["null", "ethernet", "raw", "sll", "sll2"])
def link_type(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(params=["little", "big"])
def byte_order(request: pytest.FixtureRequest) -> str:
    return request.param


def test_every_packet_has_the_lengths_and_checksums_its_headers_say(
    tmp_path: Path, link_type: int, byte_order: str
) -> None:
    profile = replace(for_link(EVERYTHING, link_type), byte_order=byte_order)
    generate(profile, tmp_path / "a.pcap")
    seen: Counter[str] = Counter()
    for record in records(tmp_path / "a.pcap"):
        packet = network_layer(record, link_type)
        seen[protocol_of(packet)] += 1
        if isinstance(packet, dpkt.arp.ARP):
            assert socket.inet_ntoa(packet.spa).startswith(("10.", "198.18."))
            continue
        raw = record.data[LINK_LENGTHS[link_type] + (4 * tags(record.data) if link_type == 1 else 0) :]
        if isinstance(packet, dpkt.ip.IP):
            above, header = raw[20 : packet.len], raw[:20]
            assert ones_complement_sum(header) == 0xFFFF
            addresses, protocol = header[12:20], packet.p
            padding, first, later = raw[packet.len :], bool(packet.mf), bool(packet.offset)
        else:
            assert isinstance(packet, dpkt.ip6.IP6)
            above, addresses = raw[40 : 40 + packet.plen], raw[8:40]
            protocol, padding, first, later = packet.nxt, raw[40 + packet.plen :], False, False
            if protocol == 44:
                protocol, above, offset = above[0], above[8:], int.from_bytes(above[2:4], "big")
                first, later = offset == 1, offset > 1
        assert not any(padding)
        assert not padding or record.wire_length == 60
        assert above
        if later:
            continue
        if first:
            assert len(above) % 8 == 0
            above += bytes(int.from_bytes(above[4:6], "big") - len(above))
        if protocol == 17:
            assert int.from_bytes(above[4:6], "big") == len(above)
        pseudo_header = addresses + bytes([0, protocol]) + len(above).to_bytes(2, "big") if protocol != 1 else b""
        assert ones_complement_sum(pseudo_header + above) == 0xFFFF
    assert set(seen) == {"tcp", "udp", "icmp", "fragment"} | ({"arp"} if profile.arp else set())


def test_scapy_builds_the_same_bytes_from_the_fields_it_decodes(tmp_path: Path) -> None:
    profile = replace(EVERYTHING, packets=600, link_type=101, arp=0.0, fragments=0.0, vlan_depths=(1.0,))
    generate(profile, tmp_path / "a.pcap")
    derived = {
        IP: ("len", "chksum", "ihl"),
        IPv6: ("plen",),
        TCP: ("chksum", "dataofs"),
        UDP: ("len", "chksum"),
        ICMP: ("chksum",),
        ICMPv6EchoRequest: ("cksum",),
        ICMPv6EchoReply: ("cksum",),
    }
    layers_seen: set[type[Packet]] = set()
    for record in records(tmp_path / "a.pcap"):
        packet = (IP if record.data[0] >> 4 == 4 else IPv6)(record.data)
        layer: Packet = packet
        while layer:
            for name in derived.get(type(layer), ()):
                layer.delfieldval(name)
            if type(layer) in derived:
                layers_seen.add(type(layer))
                rest = bytes(layer.payload) if type(layer) not in (IP, IPv6) else None
                if rest is not None:
                    layer.remove_payload()
                    layer.add_payload(rest)  # what is above the transport layer is zeros, not a message
            layer = layer.payload
        assert bytes(packet) == record.data
    assert layers_seen == set(derived)


def test_shares_of_protocols_families_and_tags_are_those_asked_for(tmp_path: Path) -> None:
    profile = replace(EVERYTHING, packets=20_000, groups=5000, skew=0.0, snap_length=128)
    generate(profile, tmp_path / "a.pcap")
    protocols: Counter[str] = Counter()
    families: Counter[type] = Counter()
    depths: Counter[int] = Counter()
    for record in records(tmp_path / "a.pcap"):
        frame = dpkt.ethernet.Ethernet(record.data)
        protocols[protocol_of(frame.data)] += 1
        families[type(frame.data)] += 1
        depths[tags(record.data)] += 1
    rest = 1 - profile.arp - profile.fragments
    shares = {"arp": 0.05, "fragment": 0.1, "tcp": rest * 0.5, "udp": rest * 0.3, "icmp": rest * 0.2}
    assert {name: count / 20_000 for name, count in protocols.items()} == pytest.approx(shares, abs=0.015)
    assert families[dpkt.ip6.IP6] / (20_000 - protocols["arp"]) == pytest.approx(0.4, abs=0.015)
    assert [depths[depth] / 20_000 for depth in range(4)] == pytest.approx([0.4, 0.3, 0.2, 0.1], abs=0.015)


def test_tags_are_service_tags_around_one_customer_tag(tmp_path: Path) -> None:
    generate(replace(EVERYTHING, packets=50, vlan_depths=(0.0, 0.0, 0.0, 1.0)), tmp_path / "a.pcap")
    for record in records(tmp_path / "a.pcap"):
        frame = Ether(record.data)
        found = [frame.getlayer(number) for number in (1, 2, 3)]
        assert [type(layer) for layer in found] == [Dot1AD, Dot1AD, Dot1Q]
        assert [layer.vlan for layer in found] == [100, 101, 102]
        assert isinstance(frame.getlayer(4), (IP, IPv6, ARP))


def test_wire_lengths_follow_the_size_mix_and_never_undercut_ethernet(tmp_path: Path) -> None:
    sizes = ((100, 100, 0.25), (200, 399, 0.5), (1514, 1514, 0.25))
    generate(Profile(packets=20_000, ipv6=0.0, tcp=0.0, udp=1.0, icmp=0.0, sizes=sizes), tmp_path / "a.pcap")
    lengths = Counter(record.wire_length for record in records(tmp_path / "a.pcap"))
    assert lengths[100] / 20_000 == pytest.approx(0.25, abs=0.015)
    assert lengths[1514] / 20_000 == pytest.approx(0.25, abs=0.015)
    assert set(lengths) - {100, 1514} == set(range(200, 400))
    generate(Profile(packets=1000, sizes=((1, 1, 1.0),)), tmp_path / "b.pcap")
    # 60 for short frames; IPv6 headers alone are 74 (TCP), 62 (UDP, ICMPv6).
    assert {record.wire_length for record in records(tmp_path / "b.pcap")} <= {60, 62, 74}


def test_a_conversation_has_one_service_and_few_ephemeral_client_ports(tmp_path: Path) -> None:
    generate(Profile(packets=5000, groups=10, ipv6=0.0, tcp=1.0, udp=0.0, icmp=0.0), tmp_path / "a.pcap")
    clients: dict[tuple[bytes, bytes], set[int]] = {}
    servers: dict[tuple[bytes, bytes], set[int]] = {}
    for record in records(tmp_path / "a.pcap"):
        packet = dpkt.ethernet.Ethernet(record.data).data
        ends = [(packet.src, packet.data.sport), (packet.dst, packet.data.dport)]
        (client, client_port), (server, server_port) = sorted(ends)  # 10… before 198…
        assert packet.data.flags & dpkt.tcp.TH_SYN == 0 or (
            bool(packet.data.flags & dpkt.tcp.TH_ACK) == (packet.src == server)
        )
        clients.setdefault((client, server), set()).add(client_port)
        servers.setdefault((client, server), set()).add(server_port)
    assert len(clients) == 5
    assert all(len(ports) == 4 and min(ports) >= 32768 for ports in clients.values())
    assert all(len(ports) == 1 for ports in servers.values())


@pytest.mark.parametrize("snap_length", [1, 15, 40, 60, 86, 300])
def test_a_snap_length_cuts_captured_bytes_and_nothing_else(tmp_path: Path, snap_length: int) -> None:
    generate(EVERYTHING, tmp_path / "whole.pcap")
    generate(replace(EVERYTHING, snap_length=snap_length), tmp_path / "cut.pcap")
    whole, cut = list(records(tmp_path / "whole.pcap")), list(records(tmp_path / "cut.pcap"))
    assert cut == [replace(record, data=record.data[:snap_length]) for record in whole]


@pytest.mark.skipif(shutil.which("tcpdump") is None, reason="tcpdump is not installed")
def test_tcpdump_finds_no_wrong_checksum_and_no_cut_packet(tmp_path: Path, link_type: int, byte_order: str) -> None:
    profile = replace(for_link(EVERYTHING, link_type), byte_order=byte_order, packets=1500)
    generate(profile, tmp_path / "a.pcap")
    run = subprocess.run(["tcpdump", "-nvvr", tmp_path / "a.pcap"], capture_output=True, text=True, check=True)
    # Payloads are zeros, which tcpdump may call cut messages of the port's protocol; that is not asked here.
    wrong = re.compile(r"bad (udp )?cksum|incorrect|wrong|truncated-ip|\[\|(ip6?|tcp|udp|icmp6?)\]")
    told = [line for line in run.stdout.splitlines() if wrong.search(line)]
    assert told == []
    assert sum(not line.startswith((" ", "\t")) for line in run.stdout.splitlines()) == 1500


@pytest.mark.skipif(shutil.which("capinfos") is None, reason="capinfos is not installed")
@pytest.mark.parametrize("precision, named", [("us", "microseconds (6)"), ("ns", "nanoseconds (9)")])
def test_capinfos_reads_the_same_totals(tmp_path: Path, byte_order: str, precision: str, named: str) -> None:
    profile = replace(EVERYTHING, byte_order=byte_order, precision=precision, snap_length=86)
    summary = generate(profile, tmp_path / "a.pcap")
    run = subprocess.run(["capinfos", "-M", tmp_path / "a.pcap"], capture_output=True, text=True, check=True)
    told = dict(line.split(":", 1) for line in run.stdout.splitlines() if ":" in line)
    value = {name.strip(): text.strip().split()[0] for name, text in told.items() if text.strip()}
    assert value["Number of packets"] == str(summary.packets)
    assert value["Data size"] == str(summary.wire_bytes)
    assert value["File size"] == str(summary.file_size)
    assert named in told["File timestamp precision"]
