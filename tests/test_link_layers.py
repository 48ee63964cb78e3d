"""From every link layer to the outermost IP header.

* Frames whose row is known from how scapy made them catch an offset, a mask or an EtherType that both readers of a
  format could get wrong in the same way.
* The same frames cut at every byte catch reads beyond the captured bytes: the twin's slices cannot make them.
* Frames by hand are the oddities that no generator makes.
"""

from pathlib import Path
from random import Random

import pytest

from capture.packets.link_layers import LINK_TYPES, supported_link_types
from tests import random_frames
from tests.capture_oracle import parse_pcap
from tests.packet_rows import decode_file
from tests.pcap_bytes import pcap_bytes

IPV4 = bytes.fromhex("4500001c00010000401100000a0000010a0000020035 1234 0008 0000")
IPV6 = bytes.fromhex("60000000 0008 11 40") + bytes(15) + b"\1" + bytes(15) + b"\2" + IPV4[20:]
MACS = bytes(12)
SNAP = bytes.fromhex("aaaa03000000")
PACKETS = [("IPv4", IPV4, "0800"), ("IPv6", IPV6, "86dd")]


def decoded(path: Path, link_type: int, frames: list[bytes]) -> tuple[list[dict], dict[str, int]]:
    path.write_bytes(pcap_bytes([(number, frame) for number, frame in enumerate(frames)], link_type))
    rows, skipped, _ = decode_file(path)
    return rows, skipped


def test_the_generator_and_the_product_know_the_same_link_types() -> None:
    assert set(random_frames.LINK_TYPES) == set(LINK_TYPES)
    assert supported_link_types().startswith("0 (BSD null), 1 (Ethernet), 9 (PPP)")


@pytest.mark.parametrize("link_type", random_frames.LINK_TYPES)
def test_frames_become_the_rows_they_were_made_from(link_type: int, tmp_path: Path) -> None:
    random = Random(link_type)
    made = [random_frames.random_frame(random, link_type) for _ in range(250 if link_type in (1, 192) else 80)]
    rows, skipped = decoded(tmp_path / "made.pcap", link_type, [frame for frame, _ in made])
    assert skipped == {}
    expected = [{"ts": ts, "len": len(frame), "caplen": len(frame)} | row for ts, (frame, row) in enumerate(made)]
    wrong = [(want, got, made[want["ts"]][0].hex()) for want, got in zip(expected, rows, strict=True) if want != got]
    assert wrong == []


@pytest.mark.parametrize("link_type", random_frames.LINK_TYPES)
def test_a_frame_cut_at_any_byte_gives_what_its_bytes_say_and_no_more(link_type: int, tmp_path: Path) -> None:
    random = Random(1000 + link_type)
    whole = [random_frames.random_frame(random, link_type)[0] for _ in range(40 if link_type in (1, 192) else 12)]
    frames = [frame[:size] for frame in whole for size in range(len(frame) + 1)]
    rows, skipped = decoded(tmp_path / "cut.pcap", link_type, frames)
    twin = list(parse_pcap((tmp_path / "cut.pcap").read_bytes()).rows())
    assert [
        got for got in zip(rows, [row for row in twin if isinstance(row, dict)], strict=True) if got[0] != got[1]
    ] == []
    assert skipped == {cause: twin.count(cause) for cause in {row for row in twin if isinstance(row, str)}}


@pytest.mark.parametrize("version, packet, ethertype", PACKETS)
@pytest.mark.parametrize(
    "what, link_type, before",
    [
        ("Cisco HDLC under the link type of PPP", 9, "0f00 TYPE"),
        ("Cisco HDLC under the link type of PPP in HDLC framing", 50, "8f00 TYPE"),
        ("VLAN inside Linux cooked v1", 113, "0000 0001 0006 000000000000 0000 8100 0064 TYPE"),
        ("SNAP inside Linux cooked v1", 113, "0000 0001 0006 000000000000 0000 0004 aaaa03000000 TYPE"),
        ("SNAP inside Linux cooked v2", 276, "0004 0000 00000001 0001 00 06 0000000000000000 aaaa03000000 TYPE"),
        ("tags with the older EtherTypes", 1, "000000000000000000000000 9100 0064 9200 0065 TYPE"),
        ("a tag with a length behind it", 1, "000000000000000000000000 8100 0064 0040 aaaa03000000 TYPE"),
        ("the largest length that is no EtherType", 1, "000000000000000000000000 05dc aaaa03000000 TYPE"),
        ("Cisco's LLC with raw IP", 1, "000000000000000000000000 0040 060603"),
        ("MPLS multicast", 1, "000000000000000000000000 8848 00010140"),
        ("a stack of 64 MPLS labels", 1, "000000000000000000000000 8847" + "00010040" * 63 + "00010140"),
        ("MPLS inside PPP", 9, "ff03 0281 00010140"),
        ("Cisco FabricPath", 1, "000000000000000000000000 8903 0001 000000000000000000000000 TYPE"),
        ("twenty tags", 1, "000000000000000000000000" + "8100 0064" * 20 + "TYPE"),
        ("an Ethernet frame check sequence length in the link type", 0x14000001, "000000000000000000000000 TYPE"),
    ],
)
def test_odd_encapsulations_lead_to_the_packet(
    what: str, link_type: int, before: str, version: str, packet: bytes, ethertype: str, tmp_path: Path
) -> None:
    frame = bytes.fromhex(before.replace("TYPE", ethertype)) + packet
    rows, skipped = decoded(tmp_path / "odd.pcap", link_type, [frame])
    assert (len(rows), skipped) == (1, {})
    assert (rows[0]["srcPort"], rows[0]["destPort"], rows[0]["protocol"]) == (0x35, 0x1234, 17)
    assert rows[0]["vlan"] == (100 if "8100" in before or "9100" in before else None)


@pytest.mark.parametrize(
    "what, link_type, frame",
    [
        ("ARP", 1, MACS + b"\x08\x06" + IPV4),
        ("spanning tree", 1, MACS + b"\x00\x26\x42\x42\x03" + IPV4),
        ("SNAP of another organisation", 1, MACS + b"\x00\x26\xaa\xaa\x03\x00\x00\x0c\x08\x00" + IPV4),
        ("PPPoE discovery", 1, MACS + b"\x88\x63" + IPV4),
        ("a version that is neither 4 nor 6", 101, b"\x55" + IPV4[1:]),
        ("MPLS without a bottom of the stack", 1, MACS + b"\x88\x47" + b"\x00\x01\x00\x40" * 20),
        ("an address family that is not IP", 108, b"\x00\x00\x00\x07" + IPV4),
        ("a family in the byte order of a host where the network's is due", 108, b"\x02\x00\x00\x00" + IPV4),
        ("LCP", 9, b"\xff\x03\xc0\x21" + IPV4),
        ("PPI around PPI", 192, b"\0\0\x08\0\xc0\0\0\0" + IPV4),
        ("PPI longer than its frame", 192, b"\0\0\xff\xff\x65\0\0\0" + IPV4),
        ("PPI around an unknown link type", 192, b"\0\0\x08\0\x69\0\0\0" + IPV4),
        ("nothing at all", 1, b""),
    ],
)
def test_a_frame_that_announces_no_ip_is_counted_as_such(
    what: str, link_type: int, frame: bytes, tmp_path: Path
) -> None:
    assert decoded(tmp_path / "other.pcap", link_type, [frame]) == ([], {"non_ip": 1})
