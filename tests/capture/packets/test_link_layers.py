"""From every link layer to the outermost IP header.

* The row of each frame is known, because scapy created it from fields. This detects an offset, a mask or an EtherType
  that both readers of a format have wrong in the same way.
* The same frames cut at every byte catch reads beyond the captured bytes: the twin's slices cannot make them.
* Frames by hand are the oddities that no generator makes.
"""

from pathlib import Path
from random import Random

import pytest

from capture.packets.link_layers import LINK_TYPES, supported_link_types
from tests.references import random_frames
from tests.references.capture_oracle import parse_pcap
from tests.references.packet_rows import BOTH_LAYERS, decode_file
from tests.references.pcap_bytes import pcap_bytes

IPV4 = bytes.fromhex("4500001c00010000401100000a0000010a0000020035 1234 0008 0000")
IPV6 = bytes.fromhex("60000000 0008 11 40") + bytes(15) + b"\1" + bytes(15) + b"\2" + IPV4[20:]
MACS = bytes(12)
SNAP = bytes.fromhex("aaaa03000000")
PPP = {"IPv4": "0021", "IPv6": "0057"}
FAMILY = {"IPv4": "02", "IPv6": "0a"}  # AF_INET6 of Linux
PACKETS = [("IPv4", IPV4, "0800"), ("IPv6", IPV6, "86dd")]


def decoded(
    path: Path, link_type: int, frames: list[bytes], every_frame: bool = False
) -> tuple[list[dict], dict[str, int]]:
    path.write_bytes(pcap_bytes([(number, frame) for number, frame in enumerate(frames)], link_type))
    rows, skipped, _ = decode_file(path, 64, BOTH_LAYERS, every_frame)
    return rows, skipped


def test_the_generator_and_the_product_know_the_same_link_types() -> None:
    assert set(random_frames.LINK_TYPES) == set(LINK_TYPES)
    assert supported_link_types().startswith("0 (BSD null), 1 (Ethernet), 8 (SLIP), 9 (PPP)")


def test_the_page_on_captures_lists_the_link_types() -> None:
    page = (Path(__file__).parents[3] / "docs" / "guide" / "captures.md").read_text("utf-8")
    table = page.partition("| LINKTYPE_ |")[2].partition("\n\n")[0]
    numbers = [row.split("|")[1] for row in table.splitlines() if row.startswith("| ") and "---" not in row]
    assert sorted(int(number) for row in numbers for number in row.split(",")) == sorted(LINK_TYPES)


@pytest.mark.parametrize("link_type", random_frames.LINK_TYPES)
def test_frames_become_the_rows_they_were_made_from(link_type: int, tmp_path: Path) -> None:
    random = Random(link_type)
    made = [random_frames.random_frame(random, link_type) for _ in range(250 if link_type in (1, 127, 192) else 60)]
    rows, skipped = decoded(tmp_path / "made.pcap", link_type, [frame for frame, _ in made])
    assert skipped == {}
    frames = [{"ts": ts, "len": len(frame), "caplen": len(frame), "interface": 0} for ts, (frame, _) in enumerate(made)]
    expected = [frame | row for frame, (_, row) in zip(frames, made, strict=True)]
    wrong = [(want, got, made[want["ts"]][0].hex()) for want, got in zip(expected, rows, strict=True) if want != got]
    assert wrong == []


@pytest.mark.parametrize("link_type", random_frames.LINK_TYPES)
def test_a_frame_cut_at_any_byte_gives_what_its_bytes_say_and_no_more(link_type: int, tmp_path: Path) -> None:
    random = Random(1000 + link_type)
    whole = [random_frames.random_frame(random, link_type)[0] for _ in range(30 if link_type in (1, 192) else 5)]
    frames = [frame[:size] for frame in whole for size in range(len(frame) + 1)]
    for every_frame in (False, True):
        rows, skipped = decoded(tmp_path / "cut.pcap", link_type, frames, every_frame)
        twin = list(parse_pcap((tmp_path / "cut.pcap").read_bytes()).rows(True, every_frame))
        expected = [row for row in twin if isinstance(row, dict)]
        assert [pair for pair in zip(rows, expected, strict=True) if pair[0] != pair[1]] == []
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
        ("IEEE 802.1H in SNAP", 1, "000000000000000000000000 0040 aaaa030000f8 TYPE"),
        ("Ethernet bridged in SNAP", 1, "000000000000000000000000 0040 aaaa030080c2 0001 0000" + "00" * 12 + "TYPE"),
        ("a Frame Relay address of four bytes", 107, "00 00 00 01 TYPE"),
        ("PPP in Frame Relay", 107, "1841 03 cf PPP"),
        ("PPP in ATM with LLC", 100, "fefe03 cf PPP"),
        ("a SunATM frame of unknown traffic", 123, "80 0000 05 aaaa03000000 TYPE"),
        ("nflog of a big-endian host", 239, "FAMILY 00 0000 0008 0001 TYPE 01 00 0006 000a 61 00 0000 SIZE 0009"),
        ("pflog of 61 bytes", 117, "3d FAMILY" + "00" * 62),
        ("enc of a little-endian host", 109, "FAMILY 000000" + "00" * 8),
        ("Juniper without a link header", 178, "4d4743 03 00000002"),
        ("Juniper with extensions", 178, "4d4743 81 0002 0000" + "00" * 12 + "TYPE"),
        ("twenty tags", 1, "000000000000000000000000" + "8100 0064" * 20 + "TYPE"),
        ("an Ethernet frame check sequence length in the link type", 0x14000001, "000000000000000000000000 TYPE"),
    ],
)
def test_odd_encapsulations_lead_to_the_packet(
    what: str, link_type: int, before: str, version: str, packet: bytes, ethertype: str, tmp_path: Path
) -> None:
    named = {"TYPE": ethertype, "FAMILY": FAMILY[version], "PPP": PPP[version], "SIZE": f"{len(packet) + 4:04x}"}
    for name, value in named.items():
        before = before.replace(name, value)
    frame = bytes.fromhex(before) + packet
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
        ("PPI shorter than its own fields", 192, b"\0\0\x07\0\x65\0\0\0" + IPV4),
        ("PKTAP around PPI", 258, b"\x0c\0\0\0\1\0\0\0\xc0\0\0\0" + b"\0\0\x08\0\x65\0\0\0" + IPV4),
        ("PKTAP with a header shorter than its fields", 149, b"\x0b\0\0\0\1\0\0\0\x65\0\0\0" + IPV4),
        ("a control frame of LAN emulation", 123, b"\x01\0\0\5\xff\0" + MACS + b"\x08\0" + IPV4),
        ("a Frame Relay address without an end", 107, b"\0\0\0\0" + b"\x08\0" + IPV4),
        ("a Frame Relay address of one byte", 107, b"\1\x08\0" + IPV4),
        ("another NLPID", 107, b"\x18\x41\x03\x81" + IPV4),
        ("ARP on ARCnet", 129, b"\0\0\0\0\xf1" + IPV4),
        ("nflog without a payload", 239, b"\2\0\0\0\x08\0\1\0\0\0\0\0"),
        ("nflog with an attribute that has no end", 239, b"\2\0\0\0\0\0\x0a\0" + IPV4),
        ("nflog of a bridge", 239, b"\7\0\0\0\x20\0\x09\0" + IPV4),
        ("Juniper without its magic number", 178, b"MGD\0" + MACS + b"\x08\0" + IPV4),
        ("nothing at all", 1, b""),
    ],
)
def test_a_frame_that_announces_no_ip_is_counted_as_such(
    what: str, link_type: int, frame: bytes, tmp_path: Path
) -> None:
    assert decoded(tmp_path / "other.pcap", link_type, [frame]) == ([], {"non_ip": 1})


@pytest.mark.parametrize(
    "what, link_type, frame",
    [
        ("a link type that is not read", 195, IPV4),
        ("PPI around one", 192, b"\0\0\x08\0\xc3\0\0\0" + IPV4),
        ("PKTAP around one", 258, b"\x0c\0\0\0\1\0\0\0\xc3\0\0\0" + IPV4),
    ],
)
def test_a_link_type_that_is_not_read_is_a_cause_of_its_own(
    what: str, link_type: int, frame: bytes, tmp_path: Path
) -> None:
    assert decoded(tmp_path / "other.pcap", link_type, [frame]) == ([], {"unsupported_link_type": 1})


ARP = bytes.fromhex("0a0000000001 0b0000000002 8100 0064 0806") + bytes(28)
LINK_ONLY = {"vlan": 100, "ethertype": 0x0806, "srcMAC": 0x0B0000000002, "destMAC": 0x0A0000000001}


@pytest.mark.parametrize(
    "what, link_type, frame, known",
    [
        ("ARP", 1, ARP, LINK_ONLY),
        ("a frame cut behind its tag", 1, ARP[:18], LINK_ONLY),
        ("a frame cut inside its tag", 1, ARP[:17], LINK_ONLY | {"vlan": None, "ethertype": None}),
        ("a link type that is not read", 195, ARP, {}),
        ("an IP header that is cut", 1, ARP[:16] + b"\x08\0" + IPV4[:19], LINK_ONLY | {"ethertype": 0x0800}),
        ("an IP header that is malformed", 1, ARP[:16] + b"\x08\0\x41" + IPV4[1:], LINK_ONLY | {"ethertype": 0x0800}),
        ("a beacon", 105, bytes.fromhex("8000 0000 0a0000000001 0b0000000002 0c0000000003 1000"), {
            "srcMAC": 0x0B0000000002, "destMAC": 0x0A0000000001,
        }),
    ],
)  # fmt: skip
def test_with_every_frame_a_record_without_ip_is_a_row_of_what_its_link_layer_says(
    what: str, link_type: int, frame: bytes, known: dict, tmp_path: Path
) -> None:
    [row], skipped = decoded(tmp_path / "one.pcap", link_type, [frame], every_frame=True)
    assert skipped == {}
    both = known | {f"inner.{name}": value for name, value in known.items()}
    always = {"ts": 0, "len": len(frame), "caplen": len(frame), "interface": 0}
    assert row == dict.fromkeys(BOTH_LAYERS) | always | both


def test_frames_and_packets_may_alternate_in_one_buffer(tmp_path: Path) -> None:
    frames = [MACS + b"\x08\0" + IPV4, ARP, MACS + b"\x86\xdd" + IPV6] * 40
    rows, _ = decoded(tmp_path / "mixed.pcap", 1, frames, every_frame=True)
    assert [row["ip_version"] for row in rows] == [4, None, 6] * 40
    assert [row["srcIP"] for row in rows[:6]] == [row["srcIP"] for row in rows[114:]]
