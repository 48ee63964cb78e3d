"""Tunnels, header by header: what is followed to the innermost IP header, and what is not.

* Packets by hand, from the tables of the RFCs, detect a wrong flag, length or port. The generator, the reference and
  the product could all have the same error.
* The table also contains packets that must not be followed, but that a careless reader decodes as a tunnel.
"""

import struct
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.references.packet_rows import BOTH_LAYERS, decode_file
from tests.references.pcap_bytes import pcap_bytes

RAW = 101
OUTER = {4: ("10.0.0.1", "10.0.0.2"), 6: ("2001:db8::1", "2001:db8::2")}
INNER = {4: ("192.168.0.1", "192.168.0.2"), 6: ("fd00::1", "fd00::2")}
MACS = "0a0000000001 0b0000000002"


def ip(version: int, protocol: int, payload: bytes, ends: dict[int, tuple[str, str]] = OUTER, offset: int = 0) -> bytes:
    """An IP packet; `offset` in eights of bytes makes a later fragment of IPv4."""
    source, destination = (ip_address(each).packed for each in ends[version])
    if version == 4:
        header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 7, offset, 64, protocol, 0)
        return header + source + destination + payload
    return struct.pack(">IHBB", 6 << 28, len(payload), protocol, 64) + source + destination + payload


def udp(destination: int, payload: bytes, source: int = 50_000) -> bytes:
    return struct.pack(">HHHH", source, destination, 8 + len(payload), 0) + payload


INSIDE = {version: ip(version, 17, udp(53, b"query", 4000), INNER) for version in (4, 6)}
NAMES = {4: {"TYPE": "0800", "PPP": "0021", "NEXT": "01"}, 6: {"TYPE": "86dd", "PPP": "0057", "NEXT": "02"}}


def decoded(path: Path, *frames: bytes) -> list[dict]:
    path.write_bytes(pcap_bytes(list(enumerate(frames)), RAW))
    return decode_file(path, 64, BOTH_LAYERS)[0]


def header(text: str, version: int) -> bytes:
    for name, value in NAMES[version].items():
        text = text.replace(name, value)
    return bytes.fromhex(text)


GRE, L2TP_3 = 47, 115
OVER_IP = [
    ("GRE", GRE, "0000 TYPE", None),
    ("GRE with a checksum", GRE, "8000 TYPE 1234 0000", None),
    ("GRE with a key", GRE, "2000 TYPE 89abcdef", 0x89ABCDEF),
    ("GRE with a sequence number", GRE, "1000 TYPE 00000001", None),
    ("GRE with all three", GRE, "b000 TYPE 1234 0000 00000007 00000001", 7),
    ("GRE with routes", GRE, "4000 TYPE 0000 0000 0800 00 04 01020304 0800 04 08 0102030405060708 0000 00 00", None),
    ("Ethernet in GRE", GRE, f"0000 6558 {MACS} TYPE", None),
    ("NVGRE", GRE, f"2000 6558 00123401 {MACS} 8100 0064 TYPE", 0x00123401),
    ("MPLS in GRE", GRE, "0000 8847 00010040 00020140", None),
    ("PPTP", GRE, "3001 880b 0010 0005 00000001 ff03 PPP", 5),
    ("PPTP with an acknowledgment", GRE, "3081 880b 0010 fffe 00000001 00000002 PPP", 0xFFFE),
    ("ERSPAN I", GRE, f"0000 88be {MACS} TYPE", None),
    ("ERSPAN II", GRE, f"1000 88be 00000001 1064 03ff 00000000 {MACS} TYPE", 0x3FF),
    ("ERSPAN III", GRE, f"1000 22eb 00000001 2064 0007 00000000 0000 0000 {MACS} TYPE", 7),
    ("ERSPAN III with a subheader", GRE, f"1000 22eb 00000001 2064 0007 00000000 0000 0001 {'00' * 8} {MACS} TYPE", 7),
    ("IP in ERSPAN III", GRE, "1000 22eb 00000001 2064 0007 00000000 0000 0800", 7),
    ("L2TPv3 with IP", L2TP_3, "00000009", 9),
    ("L2TPv3 with a cookie of 8 bytes and a sublayer", L2TP_3, f"00000009 0102030405060708 40000001 {MACS} TYPE", 9),
    ("GRE behind an authentication header", 51, f"2f 04 0000 00000001 00000001 {'ab' * 12} 0000 TYPE", None),
]
OVER_UDP = [
    ("VXLAN", 4789, f"08000000 abcdef00 {MACS} TYPE", 0xABCDEF),
    ("VXLAN on the port that Linux chose", 8472, f"08000000 00000100 {MACS} 88a8 0064 8100 0065 TYPE", 1),
    ("VXLAN with a group policy", 4789, f"88000007 00000100 {MACS} TYPE", 1),
    ("VXLAN-GPE with IP", 4790, "0c0000NEXT 00000100", 1),
    ("VXLAN-GPE with Ethernet", 4790, f"0c000003 00000100 {MACS} TYPE", 1),
    ("VXLAN-GPE with MPLS", 4790, "0c000005 00000100 00010140", 1),
    ("VXLAN-GPE as plain VXLAN", 4790, f"08000000 00000100 {MACS} TYPE", 1),
    ("Geneve", 6081, f"0000 6558 00000200 {MACS} TYPE", 2),
    ("Geneve with options and IP", 6081, "0340 TYPE 00000200 0102 80 02 0000000000000000", 2),
    ("GTP-U", 2152, "30 ff 0000 00000042", 0x42),
    ("GTP-U with a sequence number", 2152, "32 ff 0000 00000042 0001 00 00", 0x42),
    (
        "GTP-U with two extension headers",
        2152,
        "34 ff 0000 42000000 0000 00 85 01 0009 c0 02 010203040506 00",
        0x42000000,
    ),
    ("GTP-U with PPP", 2152, "30 ff 0000 00000042 ff03 PPP", 0x42),
    ("L2TPv2", 1701, "0002 0007 0008 ff03 PPP", 8),
    ("L2TPv2 with everything", 1701, "4a02 0040 0007 0008 0001 0002 0003 000000 PPP", 8),
    ("L2TPv3", 1701, f"0003 0000 00000009 {MACS} TYPE", 9),
]


@pytest.mark.parametrize("inner", [4, 6])
@pytest.mark.parametrize("outer", [4, 6])
@pytest.mark.parametrize("what, protocol, text, tunnel_id", OVER_IP)
def test_a_tunnel_over_ip_leads_to_its_inside(
    what: str, protocol: int, text: str, tunnel_id: int | None, outer: int, inner: int, tmp_path: Path
) -> None:
    frame = ip(outer, protocol, header(text, inner) + INSIDE[inner])
    [row] = decoded(tmp_path / "one.pcap", frame)
    assert (row["tunnels"], row["tunnel_id"]) == (1, tunnel_id)
    assert (str(row["srcIP"]), str(row["inner.srcIP"])) == (OUTER[outer][0], INNER[inner][0])
    assert (str(row["destIP"]), str(row["inner.destIP"])) == (OUTER[outer][1], INNER[inner][1])
    assert (row["protocol"], row["srcPort"]) == (protocol, None)
    assert (row["inner.protocol"], row["inner.srcPort"], row["inner.destPort"]) == (17, 4000, 53)
    assert row["inner.payload"] == b"query"
    assert row["inner.ip_len"] == len(INSIDE[inner])
    addresses = (0x0B0000000002, 0x0A0000000001) if MACS in text else (None, None)
    assert (row["inner.srcMAC"], row["inner.destMAC"]) == addresses


@pytest.mark.parametrize("inner", [4, 6])
@pytest.mark.parametrize("what, port, text, tunnel_id", OVER_UDP)
def test_a_tunnel_over_udp_leads_to_its_inside(
    what: str, port: int, text: str, tunnel_id: int | None, inner: int, tmp_path: Path
) -> None:
    [row] = decoded(tmp_path / "one.pcap", ip(4, 17, udp(port, header(text, inner) + INSIDE[inner])))
    assert (row["tunnels"], row["tunnel_id"]) == (1, tunnel_id)
    assert (row["srcPort"], row["destPort"]) == (50_000, port)
    assert (str(row["inner.srcIP"]), row["inner.destPort"], row["inner.payload"]) == (INNER[inner][0], 53, b"query")
    assert row["inner.vlan"] == (0x64 if "0064" in text else None)


AUTHENTICATED = "0001 02 03 aabb ccddee 0102030405060708 00"


@pytest.mark.parametrize("before", ["", "0000 1234 5678abcd", AUTHENTICATED, AUTHENTICATED + "0000 1234 5678abcd"])
@pytest.mark.parametrize("ports", [(50_000, 3544), (3544, 50_000)])
def test_teredo_carries_ipv6_behind_its_indications(before: str, ports: tuple[int, int], tmp_path: Path) -> None:
    segment = udp(ports[1], bytes.fromhex(before) + INSIDE[6], ports[0])
    [row] = decoded(tmp_path / "one.pcap", ip(4, 17, segment))
    assert (row["tunnels"], row["tunnel_id"], row["inner.ip_version"]) == (1, None, 6)


GRE_4 = header("0000 TYPE", 4)
NO_LENGTH = bytes.fromhex("34ff 0000 00000001 0000 0085 00")
CONTROL = bytes.fromhex("c802 0040 0007 0000 0001 0002 ff03 0021")
VXLAN = bytes.fromhex("08000000 00000100") + bytes.fromhex(MACS)


@pytest.mark.parametrize(
    "what, frame",
    [
        ("a later fragment", ip(4, GRE, GRE_4 + INSIDE[4], offset=1)),
        ("a tunnel of another protocol", ip(4, GRE, bytes.fromhex("0000 0806") + INSIDE[4])),
        ("GRE of version 2", ip(4, GRE, bytes.fromhex("0002 0800") + INSIDE[4])),
        ("GRE whose key is cut", ip(4, GRE, bytes.fromhex("2000 0800 0000"))),
        ("routes without an end", ip(4, GRE, bytes.fromhex("4000 0800 0000 0000 0800 00ff") + INSIDE[4])),
        ("a PPTP acknowledgment", ip(4, GRE, bytes.fromhex("2081 880b 0000 0005 00000002"))),
        ("MPPE in PPTP", ip(4, GRE, bytes.fromhex("3001 880b 0010 0005 00000001 00fd 9000") + INSIDE[4])),
        ("ERSPAN II of another version", ip(4, GRE, bytes.fromhex("1000 88be 00000001 2064 0001 00000000") + VXLAN)),
        ("ERSPAN III of another frame type", ip(4, GRE, bytes.fromhex("1000 22eb 00000001 2064 0001 00000000 0000 0400")
            + bytes.fromhex(MACS + "0800") + INSIDE[4])),
        ("an inside of another version", ip(4, 4, b"\x65" + INSIDE[4][1:])),
        ("an inside that is cut", ip(4, 4, INSIDE[4][:19])),
        ("an inside with a header length of 16", ip(4, 4, b"\x44" + INSIDE[4][1:])),
        ("ESP, which is closed", ip(4, 50, bytes(8) + INSIDE[4])),
        ("an ICMP error quotes a packet and carries none", ip(4, 1, bytes.fromhex("0303 0000 00000000") + INSIDE[4])),
        ("VXLAN without its flag", ip(4, 17, udp(4789, b"\0" + VXLAN[1:] + b"\x08\0" + INSIDE[4]))),
        ("VXLAN with ARP", ip(4, 17, udp(4789, VXLAN + b"\x08\x06" + INSIDE[4]))),
        ("from VXLAN's port", ip(4, 17, udp(50_000, VXLAN + b"\x08\0" + INSIDE[4], 4789))),
        ("VXLAN-GPE of version 1", ip(4, 17, udp(4790, bytes.fromhex("1c000001 00000100") + INSIDE[4]))),
        ("a message about a VXLAN-GPE tunnel", ip(4, 17, udp(4790, bytes.fromhex("0d000001 00000100") + INSIDE[4]))),
        ("Geneve of version 1", ip(4, 17, udp(6081, bytes.fromhex("4000 0800 00000100") + INSIDE[4]))),
        ("a GTP echo", ip(4, 17, udp(2152, bytes.fromhex("32 01 0004 00000000 0001 0000") + INSIDE[4]))),
        ("GTP'", ip(4, 17, udp(2152, bytes.fromhex("20 ff 0004 00000001") + INSIDE[4]))),
        ("a GTP extension header without a length", ip(4, 17, udp(2152, NO_LENGTH + INSIDE[4]))),
        ("an L2TPv2 control message", ip(4, 17, udp(1701, CONTROL + INSIDE[4]))),
        ("an L2TPv3 control message", ip(4, 115, bytes(4) + INSIDE[4])),
        ("an L2TPv3 message that does not end with its packet", ip(4, 115, b"\0\0\0\x09" + INSIDE[4] + b"\0")),
        ("Teredo with IPv4", ip(4, 17, udp(3544, INSIDE[4] + bytes(20)))),
        ("Teredo with nothing in it", ip(4, 17, udp(3544, bytes.fromhex("0001 ffff") + bytes(12)))),
        ("a UDP header alone", ip(4, 17, udp(2152, b""))),
        ("a port of nobody", ip(4, 17, udp(4788, VXLAN + b"\x08\0" + INSIDE[4]))),
    ],
)  # fmt: skip
def test_what_is_no_tunnel_has_one_layer(what: str, frame: bytes, tmp_path: Path) -> None:
    [row] = decoded(tmp_path / "one.pcap", frame)
    assert (row["tunnels"], row["tunnel_id"]) == (0, None)
    assert all(row[f"inner.{name}"] == row[name] for name in row if f"inner.{name}" in row)


def test_the_innermost_of_nested_tunnels_is_taken_and_its_id(tmp_path: Path) -> None:
    frame = ip(
        4, 17, udp(2152, bytes.fromhex("30ff 0000 00000042") + ip(6, 17, udp(4789, VXLAN + b"\x08\0" + INSIDE[4])))
    )
    [row] = decoded(tmp_path / "one.pcap", frame)
    assert (row["tunnels"], row["tunnel_id"], row["inner.ip_version"]) == (2, 1, 4)
    assert (row["inner.ethertype"], row["ethertype"]) == (0x0800, None)


def test_a_tunnel_inside_that_is_no_ip_ends_the_walk_at_the_layer_around_it(tmp_path: Path) -> None:
    frame = ip(
        4,
        17,
        udp(2152, bytes.fromhex("30ff 0000 00000042") + ip(6, GRE, bytes.fromhex("2000 0806 00000001") + bytes(40))),
    )
    [row] = decoded(tmp_path / "one.pcap", frame)
    assert (row["tunnels"], row["tunnel_id"], row["inner.ip_version"], row["inner.protocol"]) == (1, 0x42, 6, GRE)


@pytest.mark.parametrize("depth, followed", [(8, 8), (9, 8), (40, 8)])
def test_tunnels_are_followed_eight_deep(depth: int, followed: int, tmp_path: Path) -> None:
    frame = INSIDE[4]
    for _ in range(depth):
        frame = ip(4, 4, frame)
    [row] = decoded(tmp_path / "one.pcap", frame)
    assert row["tunnels"] == followed
    assert row["inner.protocol"] == (17 if depth == followed else 4)


def test_an_inner_packet_without_a_length_ends_with_the_packet_around_it(tmp_path: Path) -> None:
    offloaded = INSIDE[4][:2] + b"\0\0" + INSIDE[4][4:]
    frame = ip(4, 4, offloaded)
    [padded, cut] = decoded(tmp_path / "two.pcap", frame + bytes(9), frame[:-3])
    assert (padded["inner.ip_len"], padded["inner.payload"]) == (len(offloaded), b"query")
    assert (cut["inner.ip_len"], cut["inner.payload"]) == (len(offloaded), b"qu")


def test_a_first_fragment_carries_the_tunnel_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = ip(4, 4, INSIDE[4])
    first = struct.pack(">BBHHHBBH", 0x45, 0, 20 + 24, 7, 0x2000, 64, 4, 0) + whole[12:44]
    [row] = decoded(tmp_path / "one.pcap", first)
    assert (row["tunnels"], row["more_fragments"], row["inner.ip_len"]) == (1, 1, len(INSIDE[4]))
    assert (row["inner.srcPort"], row["inner.payload"]) == (4000, None)
