"""Records to columns, against the twin of `tests.references.capture_oracle`.

* Frames with random bytes changed catch trust in a header's own lengths: a wrong row, or a read outside the frame.
* The kernel as plain Python, with numpy's bound checks, catches reads and writes outside the arrays that machine code
  hides.
* Every subset of columns catches a column that depends on another one being asked for.
* Packets by hand fix what a fair reader could see otherwise: which bytes make a port, a fragment, a length.
"""

from pathlib import Path
from random import Random

import numpy as np
import pytest

import capture.packets.decoder
from capture.files.scan import scan
from capture.open import open_capture
from capture.packets.decode_kernels import decode_pcap
from capture.packets.decoder import Decoder
from capture.packets.fields import FIELDS, PHYSICAL_COLUMNS, ROWS
from tests.harness.plain_kernels import plain
from tests.references.capture_oracle import read_pcap
from tests.references.packet_rows import ALL_COLUMNS, BOTH_LAYERS, decode_file, rows_of
from tests.references.pcap_bytes import pcap_bytes
from tests.references.random_frames import LINK_TYPES, random_frame

RAW = 101


def harmed(random: Random, frame: bytes) -> bytes:
    """Change up to six bytes, most of them in headers. Sometimes cut or lengthen the frame."""
    data = bytearray(frame)
    for _ in range(random.randrange(7)):
        if data:
            place = random.randrange(min(len(data), random.choice([24, 64, 2000])))
            data[place] = random.choice([0, 1, 4, 6, 17, 43, 44, 58, 60, 0x45, 0x60, 0x81, 0xFF, random.randrange(256)])
    return bytes(data[: random.choice([len(data), random.randrange(len(data) + 1)])]) + bytes(random.choice([0, 0, 40]))


def write_harmed(path: Path, link_type: int, count: int) -> None:
    random = Random(link_type + 7)
    pool = [random_frame(random, link_type)[0] for _ in range(60)]
    path.write_bytes(pcap_bytes([(n, harmed(random, random.choice(pool))) for n in range(count)], link_type))


def compare_with_twin(path: Path) -> None:
    rows, skipped, index = decode_file(path, 64, BOTH_LAYERS)
    twin = read_pcap(path)
    seen = list(twin.rows(inner=True))
    expected = [row for row in seen if isinstance(row, dict)]
    causes = [row for row in seen if isinstance(row, str)]
    assert [pair for pair in zip(rows, expected, strict=True) if pair[0] != pair[1]] == []
    assert skipped == {cause: causes.count(cause) for cause in causes}
    assert (index.records, index.damage) == (len(seen), twin.damage)


@pytest.mark.parametrize("link_type", LINK_TYPES)
def test_harmed_frames_become_the_rows_of_the_twin(link_type: int, tmp_path: Path) -> None:
    write_harmed(tmp_path / "harmed.pcap", link_type, 3000 if link_type in (1, RAW) else 600)
    compare_with_twin(tmp_path / "harmed.pcap")


@pytest.mark.parametrize("every_frame", [False, True])
@pytest.mark.parametrize("link_type", [1, RAW, 123, 127, 178, 192, 239])
def test_the_kernel_as_plain_python_stays_inside_its_arrays_and_agrees_with_its_machine_code(
    link_type: int, every_frame: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_harmed(tmp_path / "small.pcap", link_type, 200)
    file = open_capture(tmp_path / "small.pcap")
    (block,) = scan(file).blocks
    decoder = Decoder(file, BOTH_LAYERS, 256, every_frame)
    packets = decoder.decode(block)
    slow = Decoder(file, BOTH_LAYERS, 256, every_frame)
    stand_in = plain(decode_pcap, file.data, slow.matrix, slow.counts)
    monkeypatch.setattr(capture.packets.decoder, "decode_pcap", stand_in)
    assert slow.decode(block).row_count == packets.row_count
    assert slow.skipped.tolist() == decoder.skipped.tolist()
    assert np.array_equal(slow.matrix[:, : packets.row_count], decoder.matrix[:, : packets.row_count])


@pytest.mark.parametrize("every_frame", [False, True])
def test_every_column_alone_is_what_it_is_among_all(every_frame: bool, tmp_path: Path) -> None:
    write_harmed(tmp_path / "columns.pcap", 1, 500)
    file = open_capture(tmp_path / "columns.pcap")
    (block,) = scan(file).blocks
    every = Decoder(file, BOTH_LAYERS, 512, every_frame).decode(block)
    for column in sorted(BOTH_LAYERS):
        alone = Decoder(file, {column}, 512, every_frame).decode(block)
        for name in {*PHYSICAL_COLUMNS.get(column, (column,)), "ts", "ip_version"}:
            assert np.array_equal(alone.field(name), every.field(name)), (column, name)


def test_columns_of_the_inner_layer_have_rows_only_where_they_are_wanted(tmp_path: Path) -> None:
    write_harmed(tmp_path / "columns.pcap", 1, 5)
    file = open_capture(tmp_path / "columns.pcap")
    assert len(Decoder(file, ALL_COLUMNS, 8).matrix) == len(FIELDS)
    assert len(Decoder(file, {"inner.ttl"}, 8).matrix) == len(ROWS)
    with pytest.raises(ValueError, match=r"got the columns inner\.ts, expected some of ip_version, "):
        Decoder(file, {"inner.ts"}, 8)


def test_only_ipv4_says_whether_a_block_holds_an_ipv6_packet(tmp_path: Path) -> None:
    random = Random(5)
    frames = [random_frame(random, kind)[0] for kind in (228, 228, 229, 228)]
    (tmp_path / "mixed.pcap").write_bytes(pcap_bytes(list(enumerate(frames)), RAW))
    file = open_capture(tmp_path / "mixed.pcap")
    decoder = Decoder(file, {"ts"}, 2)
    assert [decoder.decode(block).has_only_ipv4 for block in scan(file, 2).blocks] == [True, False]


def test_a_block_larger_than_the_buffers_is_refused(tmp_path: Path) -> None:
    write_harmed(tmp_path / "large.pcap", 1, 9)
    file = open_capture(tmp_path / "large.pcap")
    with pytest.raises(ValueError, match=r"got a block of 9 records, expected at most 8"):
        Decoder(file, {"ts"}, 8).decode(scan(file).blocks[0])


TCP = "0050 01bb 00000001 00000002 50 12 ffff 0000 0000"
V4 = "45 00 LEN 0001 OFF 40 PROTO 0000 0a000001 0a000002"
V6 = "6 12 34567 LEN PROTO 40" + "20010db8" * 8


def v4(body: str, protocol: int = 6, offset: int = 0, length: int | None = None) -> bytes:
    data = bytes.fromhex(body)
    total = 20 + len(data) if length is None else length
    return (
        bytes.fromhex(
            V4.replace("LEN", f"{total:04x}").replace("OFF", f"{offset:04x}").replace("PROTO", f"{protocol:02x}")
        )
        + data
    )


def v6(body: str, protocol: int, length: int | None = None) -> bytes:
    data = bytes.fromhex(body)
    size = f"{len(data) if length is None else length:04x}"
    return bytes.fromhex(V6.replace("LEN", size).replace("PROTO", f"{protocol:02x}").replace(" ", "")) + data


PORTS = {"srcPort": 80, "destPort": 443}
NO_PORTS = {"srcPort": None, "destPort": None, "tcp_flags": None}


@pytest.mark.parametrize(
    "what, frame, expected",
    [
        ("TCP", v4(TCP), {**PORTS, "tcp_flags": 0x12, "protocol": 6, "ip_len": 40, "ttl": 64, "vlan": None}),
        ("TCP cut before its flags", v4(TCP)[:33], {**PORTS, "tcp_flags": None, "caplen": 33, "ip_len": 40}),
        ("TCP cut behind its flags", v4(TCP)[:34], {**PORTS, "tcp_flags": 0x12}),
        ("TCP cut inside its ports", v4(TCP)[:23], NO_PORTS),
        ("a total length that ends inside the ports", v4(TCP, length=22), {**NO_PORTS, "ip_len": 22}),
        ("a total length of 0: segmentation offload", v4(TCP, length=0), {**PORTS, "ip_len": 40}),
        ("a total length beyond the capture", v4(TCP, length=1500), {**PORTS, "ip_len": 1500}),
        ("a first fragment", v4(TCP, offset=0x2000), {**PORTS, "fragment_offset": 0, "more_fragments": 1}),
        ("a later fragment", v4(TCP, offset=0x2001), {**NO_PORTS, "fragment_offset": 8, "more_fragments": 1}),
        ("the last fragment", v4(TCP, offset=0x1FFF), {**NO_PORTS, "fragment_offset": 65528, "more_fragments": 0}),
        ("do not fragment", v4(TCP, offset=0x4000), {**PORTS, "fragment_offset": 0, "more_fragments": 0}),
        ("ICMP", v4("0800 0000", 1), {"icmp_type": 8, "icmp_code": 0, **NO_PORTS}),
        ("ICMPv6 in IPv4 is shown as it stands", v4("8000 0000", 58), {"icmp_type": 128, "protocol": 58}),
        ("SCTP has no ports here", v4(TCP, 132), {**NO_PORTS, "protocol": 132}),
        ("traffic class and flow label", v6(TCP, 6), {"tos": 0x12, **PORTS, "ip_len": 60}),
        ("a jumbogram's payload length", v6(TCP, 6, 0), {**PORTS, "ip_len": 40}),
        ("hop-by-hop, then TCP", v6("06 00 0000 0000 0000" + TCP, 0), {**PORTS, "protocol": 6}),
        ("a header that claims more than there is", v6("06 ff 0000 0000 0000" + TCP, 60), {**NO_PORTS, "protocol": 6}),
        ("a header that is cut", v6("06 00 0000 0000 00", 60), {**NO_PORTS, "protocol": 60}),
        ("a first fragment", v6("06 00 0001 00000000" + TCP, 44), {**PORTS, "fragment_offset": 0, "more_fragments": 1}),
        ("a later fragment", v6("06 00 0009 00000000" + TCP, 44), {**NO_PORTS, "fragment_offset": 8, "protocol": 6}),
        ("a later fragment of options", v6("3c 00 0008 00000000" + TCP, 44), {"protocol": 60, "more_fragments": 0}),
        ("authentication is a protocol of its own", v6(TCP, 51), {**NO_PORTS, "protocol": 51}),
        ("no next header", v6("", 59), {**NO_PORTS, "protocol": 59, "ip_len": 40}),
        ("ICMPv6", v6("8700 0000", 58), {"icmp_type": 135, "icmp_code": 0}),
    ],
)
def test_a_packet_becomes_a_row(what: str, frame: bytes, expected: dict, tmp_path: Path) -> None:
    (tmp_path / "one.pcap").write_bytes(pcap_bytes([(1, frame)], RAW))
    rows, skipped, _ = decode_file(tmp_path / "one.pcap")
    assert skipped == {}
    assert {name: rows[0][name] for name in expected} == expected
    compare_with_twin(tmp_path / "one.pcap")


@pytest.mark.parametrize(
    "what, frame, cause",
    [
        ("19 bytes of IPv4", v4(TCP)[:19], "ip_header_cut"),
        ("39 bytes of IPv6", v6(TCP, 6)[:39], "ip_header_cut"),
        ("a header length of 16", b"\x44" + v4(TCP)[1:], "ip_header_malformed"),
        ("a total length below the header length", v4(TCP, length=19), "ip_header_malformed"),
        ("options that the total length denies", b"\x46" + v4(TCP, length=20)[1:], "ip_header_malformed"),
    ],
)
def test_a_packet_without_readable_addresses_is_counted(what: str, frame: bytes, cause: str, tmp_path: Path) -> None:
    (tmp_path / "none.pcap").write_bytes(pcap_bytes([(1, frame)], RAW))
    assert decode_file(tmp_path / "none.pcap")[:2] == ([], {cause: 1})


@pytest.mark.parametrize("link_type, frame", [(228, v6(TCP, 6)), (229, v4(TCP) + bytes(20))])
def test_a_version_that_contradicts_the_link_type_is_malformed(link_type: int, frame: bytes, tmp_path: Path) -> None:
    (tmp_path / "odd.pcap").write_bytes(pcap_bytes([(1, frame)], link_type))
    assert decode_file(tmp_path / "odd.pcap")[:2] == ([], {"ip_header_malformed": 1})


def test_rows_keep_the_order_of_the_file_and_the_length_on_the_wire(tmp_path: Path) -> None:
    records = [(ts, v4(TCP)) for ts in (5, 3, 3, 2**32 * 10**9 - 1, 0)]
    (tmp_path / "order.pcap").write_bytes(pcap_bytes(records, RAW, more_on_wire=2**32 - 41))
    file = open_capture(tmp_path / "order.pcap")
    rows = rows_of(Decoder(file, ALL_COLUMNS, 8).decode(scan(file).blocks[0]), file.data)
    assert [row["ts"] for row in rows] == [5, 3, 3, 2**32 * 10**9 - 1, 0]
    assert {(row["len"], row["caplen"]) for row in rows} == {(2**32 - 1, 40)}


def test_an_offloaded_packet_is_as_long_as_it_was_on_the_wire_however_little_was_captured(tmp_path: Path) -> None:
    (tmp_path / "one.pcap").write_bytes(pcap_bytes([(1, v4(TCP, length=0))], 101, more_on_wire=29_000))
    [row], _, _ = decode_file(tmp_path / "one.pcap")
    assert row["ip_len"] == len(v4(TCP)) + 29_000 == row["len"]


def test_a_packet_is_no_shorter_than_what_was_captured_of_it(tmp_path: Path) -> None:
    (tmp_path / "one.pcap").write_bytes(pcap_bytes([(1, v4(TCP, length=0))], 101, more_on_wire=-40))
    [row], _, _ = decode_file(tmp_path / "one.pcap")
    assert (row["len"], row["caplen"], row["ip_len"], row["destPort"]) == (0, 40, 40, 443)
    compare_with_twin(tmp_path / "one.pcap")
