"""The fallback decoder against the kernels: the same packets behind headers that only dpkt knows give the same rows.

* Random packets, tunnels among them, behind each header catch a wrong offset, and a column that is not the kernel's.
* Mixtures catch rows in another order than their records.
* Harmed frames catch errors of dpkt that nobody handles, and records that are counted twice or not at all.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path
from random import Random

import numpy as np
import pytest

import capture.packets.decoder
import wiretide
from capture.errors import InputError
from capture.files.scan import scan
from capture.metrics import (
    DECODED_BY_FALLBACK,
    PACKETS_DECODED,
    RECORDS_READ,
    RECORDS_SKIPPED,
    REFUSED_BY_FALLBACK,
    Samples,
)
from capture.open import open_capture
from capture.packets.candidates import HEADERS, LINK_TYPES
from capture.packets.decode_kernels import decode_pcap
from capture.packets.decoder import Decoder
from capture.packets.fallback import REFUSAL_CAUSES, Fallback
from capture.packets.fields import CANDIDATE_COUNT_INDEX, SKIP_CAUSES
from highlevel.inline.engine import InlineRun, Input
from queries.gsql import compile_query
from tests.harness.command_line import environment, run
from tests.harness.plain_kernels import plain
from tests.references.packet_rows import BOTH_LAYERS, rows_of
from tests.references.pcap_bytes import pcap_bytes
from tests.references.random_tunnels import tunnelled
from tests.references.small_captures import udp

RAW = 101
TO, FROM = bytes.fromhex("0a0000000001"), bytes.fromhex("020000000002")
LABEL = struct.pack(">I", 77 << 12 | 0x1FF)
MACS = {"destMAC": 0x0A0000000001, "srcMAC": 0x020000000002}
NO_LINK = {"vlan": None, "mpls": None, "ethertype": None, "srcMAC": None, "destMAC": None}
LINK = ("vlan", "mpls", "ethertype", "srcMAC", "destMAC")


def kind(packet: bytes) -> bytes:
    return b"\x08\0" if packet[0] >> 4 == 4 else b"\x86\xdd"


def ethernet(packet: bytes) -> bytes:
    return TO + FROM + kind(packet) + packet


def snap(packet: bytes) -> bytes:
    return b"\xaa\xaa\x03\0\0\0" + kind(packet) + packet


def isl(packet: bytes) -> bytes:
    frame = ethernet(packet)
    fields = struct.pack(">HHH", 5 << 1, 0, 0)
    return (
        bytes.fromhex("01000c0000") + b"\0" + FROM + struct.pack(">H", 1000) + b"\xaa\xaa\x03\0\0\x0c" + fields + frame
    )


# The header, how a packet follows it, and the values of the columns of the link layer (None: EtherType).
CASES: list[tuple[str, int, Callable[[bytes], bytes], dict[str, int | None]]] = [
    ("token_ring", 6, lambda p: b"\x10\x40" + TO + FROM + snap(p), MACS | {"ethertype": None}),
    ("token_ring", 6, lambda p: b"\x10\x40" + TO + b"\x82" + FROM[1:] + b"\x06\x30\0\x12\0\x20" + snap(p), MACS),
    ("fddi", 10, lambda p: b"\x50" + TO + FROM + snap(p), MACS),
    ("ip_over_fibre_channel", 122, lambda p: b"\x10\0" + TO + b"\x10\0" + FROM + snap(p), MACS),
    ("ip_over_ieee_1394", 138, lambda p: bytes(range(16)) + kind(p) + p, {}),
    ("netanalyzer", 240, lambda p: b"\x01\x02\x03\x04" + ethernet(p) + b"FCS!", MACS),
    ("netanalyzer_transparent", 241, lambda p: bytes(4) + b"U" * 7 + b"\xd5" + ethernet(p), MACS),
    ("ethernet_mpacket", 274, lambda p: b"U" * 7 + b"\xd5" + ethernet(p), MACS),
    ("netanalyzer", 240, lambda p: bytes(4) + TO + FROM + struct.pack(">H", min(1500, len(p) + 8)) + snap(p), MACS),
    ("cisco_isl", 1, isl, MACS | {"vlan": 5}),
    (
        "ethernet_in_mpls",
        1,
        lambda p: TO + FROM + b"\x88\x47" + LABEL + ethernet(p),
        MACS | {"mpls": 77, "ethertype": 0x8847},
    ),
    (
        "ethernet_in_mpls",
        1,
        lambda p: TO + FROM + b"\x88\x48" + b"\0\x04\xd0\x40" + LABEL + bytes(4) + ethernet(p),
        MACS | {"mpls": 77, "ethertype": 0x8848},
    ),
    ("bridged_ethernet", 1, lambda p: TO + FROM + b"\x65\x58" + ethernet(p), MACS | {"ethertype": 0x6558}),
    (
        "bridged_ethernet",
        1,
        lambda p: TO + FROM + b"\x81\0\0\x09\x65\x58" + ethernet(p),
        MACS | {"ethertype": 0x6558, "vlan": 9},
    ),
    (
        "ppp_ethertype",
        1,
        lambda p: TO + FROM + b"\x88\x0b\xff\x03\0" + (b"\x21" if p[0] >> 4 == 4 else b"\x57") + p,
        MACS | {"ethertype": 0x880B},
    ),
]
NAMES = [f"{name}-{number}" for number, (name, *_) in enumerate(CASES)]


def packets(count: int, seed: int = 7) -> list[bytes]:
    random = Random(seed)
    made = [tunnelled(random, random.choice([4, 6]), random.choice([0, 0, 1, 2])).data for _ in range(count)]
    # A pseudowire's frame may not begin as IP does, and a length of 0 leaves the end of the packet to the frame.
    return [data for data in made if data[2:4] != b"\0\0" or data[0] >> 4 == 6]


def decoded(
    path: Path, fallback: Fallback | None, every_frame: bool = False, block: int = 64
) -> tuple[list, list[int]]:
    file = open_capture(path)
    decoder = Decoder(file, BOTH_LAYERS, block, every_frame, fallback)
    blocks = scan(file, block).blocks
    rows = [row for each in blocks for row in rows_of(decoder.decode(each), file.data, BOTH_LAYERS)]
    return rows, decoder.skipped.tolist()


@pytest.mark.drawn
@pytest.mark.parametrize("every_frame", [False, True])
@pytest.mark.parametrize(("name", "link_type", "put_behind", "link"), CASES, ids=NAMES)
def test_a_packet_behind_a_header_of_dpkt_is_the_row_that_the_kernel_gives_it(
    name: str,
    link_type: int,
    put_behind: Callable[[bytes], bytes],
    link: dict[str, int | None],
    every_frame: bool,
    tmp_path: Path,
) -> None:
    inside = packets(150)
    frames = [put_behind(data) for data in inside]
    times = [1_700_000_000_123_456_789 + place for place in range(len(inside))]
    (tmp_path / "a.pcap").write_bytes(pcap_bytes(zip(times, frames, strict=True), link_type, more_on_wire=7))
    (tmp_path / "raw.pcap").write_bytes(pcap_bytes(zip(times, inside, strict=True), RAW, more_on_wire=7))
    fallback = Fallback()
    rows, skipped = decoded(tmp_path / "a.pcap", fallback, every_frame)
    expected, _ = decoded(tmp_path / "raw.pcap", None)
    for row, data, frame in zip(expected, inside, frames, strict=True):
        below = NO_LINK | {"ethertype": int.from_bytes(kind(data))} | {k: v for k, v in link.items() if v is not None}
        row |= below | {"len": len(frame) + 7, "caplen": len(frame)}
        if not row["tunnels"]:
            row |= {f"inner.{column}": value for column, value in below.items()}
    assert len(expected) > 100
    assert rows == expected
    assert skipped == [0] * len(SKIP_CAUSES)
    assert (dict(fallback.decoded), +fallback.refused) == ({name: len(rows)}, {})


def mixture(random: Random, count: int) -> tuple[list[bytes], list[bool]]:
    """Frames that the kernel decodes, that dpkt decodes, and that neither decodes, and whether each is a packet."""
    behind = [put for _, link_type, put, _ in CASES if link_type == 1]
    frames, good = [], []
    for _ in range(count):
        data = udp(f"10.0.0.{random.randrange(1, 200)}", "10.9.9.9", random.randrange(65536), 53)
        choice = random.randrange(5)
        frames.append(
            ethernet(data)
            if choice < 2
            else random.choice(behind)(data)
            if choice < 4
            else TO + FROM + random.choice([b"\x08\x06", b"\x88\x47", b"\x65\x58", b"\x88\xcc"]) + bytes(46)
        )
        good.append(choice < 4)
    return frames, good


@pytest.mark.parametrize("block", [1, 3, 64, 1000])
@pytest.mark.parametrize("every_frame", [False, True])
def test_rows_are_in_the_order_of_their_records(every_frame: bool, block: int, tmp_path: Path) -> None:
    frames, good = mixture(Random(block), 400)
    (tmp_path / "a.pcap").write_bytes(pcap_bytes(enumerate(frames)))
    rows, skipped = decoded(tmp_path / "a.pcap", Fallback(), every_frame, block)
    if every_frame:
        assert [row["ts"] for row in rows] == list(range(400))
        assert [row["destIP"] == IPv4Address("10.9.9.9") for row in rows] == good
        assert {row["ip_version"] for row in rows} == {4, None}
        assert sum(skipped) == 0
    else:
        assert [row["ts"] for row in rows] == [place for place, packet in enumerate(good) if packet]
        assert skipped == [good.count(False), 0, 0, 0]


def test_mixtures_of_both_versions_keep_their_addresses(tmp_path: Path) -> None:
    frames = [put(data) for data, put in zip(packets(300, 3), [ethernet, isl, ethernet] * 100, strict=False)]
    (tmp_path / "a.pcap").write_bytes(pcap_bytes(enumerate(frames)))
    (tmp_path / "b.pcap").write_bytes(pcap_bytes((n, ethernet(data)) for n, data in enumerate(packets(300, 3))))
    sql = "SELECT srcIP, destIP, inner.srcIP AS i, count(*) AS n FROM packets GROUP BY srcIP, destIP, inner.srcIP"
    answers = [wiretide.query(sql, tmp_path / name).to_pylist() for name in ("a.pcap", "b.pcap")]
    assert sorted(map(repr, answers[0])) == sorted(map(repr, answers[1]))
    assert len(answers[0]) > 200


def samples_of(path: Path) -> tuple[int, Samples]:
    plan = compile_query("SELECT ts, srcIP FROM packets", "q")
    made = InlineRun([plan], [Input("a", path)])
    rows = sum(len(batch) for _, batch in made.results())
    return rows, made.samples()


@pytest.mark.drawn
@pytest.mark.parametrize(("name", "link_type", "put_behind", "link"), CASES, ids=NAMES)
def test_harmed_frames_are_counted_once_whatever_dpkt_raises(
    name: str, link_type: int, put_behind: Callable[[bytes], bytes], link: dict[str, int | None], tmp_path: Path
) -> None:
    random = Random(f"{name} {link_type}")
    frames = []
    for data in packets(200, 11) * 3:
        frame = bytearray(put_behind(data))
        for _ in range(random.randrange(6)):
            frame[random.randrange(min(len(frame), random.choice([20, 60, 2000])))] = random.randrange(256)
        frames.append(bytes(frame[: random.choice([len(frame), random.randrange(len(frame) + 1)])]))
    (tmp_path / "a.pcap").write_bytes(pcap_bytes(enumerate(frames), link_type))
    fallback = Fallback()
    file = open_capture(tmp_path / "a.pcap")
    decoder = Decoder(file, BOTH_LAYERS, 100, fallback=fallback)
    candidates = rows = 0
    without = Decoder(file, BOTH_LAYERS, 100)
    for block in scan(file, 100).blocks:
        known = without.decode(block).row_count
        before = sum(fallback.decoded.values())
        added = decoder.decode(block).row_count
        assert added == known + sum(fallback.decoded.values()) - before
        rows += added
        candidates += block.records - known
    assert rows + int(decoder.skipped.sum()) == len(frames)
    assert 0 < sum(fallback.decoded.values()) + sum(fallback.refused.values()) <= candidates
    assert set(fallback.decoded) <= set(HEADERS)
    assert set(fallback.refused) <= set(REFUSAL_CAUSES)
    if link_type in LINK_TYPES:
        assert sum(fallback.decoded.values()) + sum(fallback.refused.values()) == len(frames)
        assert decoder.skipped[SKIP_CAUSES.index("unsupported_link_type")] == 0


def test_what_a_run_counts_adds_up(tmp_path: Path) -> None:
    frames, good = mixture(Random(5), 300)
    (tmp_path / "a.pcap").write_bytes(pcap_bytes(enumerate(frames)))
    _, samples = samples_of(tmp_path / "a.pcap")
    assert samples.total(RECORDS_READ) == 300
    assert samples.total(PACKETS_DECODED) == sum(good)
    assert samples.total(RECORDS_SKIPPED, cause="non_ip") == good.count(False) == samples.total(RECORDS_SKIPPED)
    by_dpkt = sum(1 for frame, packet in zip(frames, good, strict=True) if packet and frame[12:14] != b"\x08\0")
    assert samples.total(DECODED_BY_FALLBACK) == by_dpkt > 100
    refused = sum(
        frame[12:14] in (b"\x88\x47", b"\x65\x58") and not packet for frame, packet in zip(frames, good, strict=True)
    )
    assert samples.total(REFUSED_BY_FALLBACK) == refused > 10


def test_the_list_of_candidates_is_that_of_the_plain_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames, _ = mixture(Random(6), 200)
    (tmp_path / "a.pcap").write_bytes(pcap_bytes(enumerate(frames)))
    file = open_capture(tmp_path / "a.pcap")
    (block,) = scan(file).blocks
    fast, slow = (Decoder(file, BOTH_LAYERS, 256, fallback=Fallback()) for _ in range(2))
    monkeypatch.setattr(Decoder, "_insert_candidates", lambda self, packets, fallback: packets)
    rows = fast.decode(block).row_count
    monkeypatch.setattr(capture.packets.decoder, "decode_pcap", plain(decode_pcap, file.data, slow.matrix, slow.counts))
    assert slow.decode(block).row_count == rows
    assert np.array_equal(fast.counts, slow.counts)
    assert fast.counts[CANDIDATE_COUNT_INDEX] > 50


def test_an_ordinary_capture_has_no_candidates_and_does_not_import_dpkt(tmp_path: Path) -> None:
    others = [
        TO + FROM + b"\x08\x06" + bytes(46),  # ARP
        TO + FROM + b"\x88\xcc" + bytes(46),  # LLDP
        bytes.fromhex("0180c2000000") + FROM + b"\0\x26\x42\x42\x03" + bytes(43),  # spanning tree
        bytes.fromhex("01000ccccccc") + FROM + b"\0\x26\xaa\xaa\x03\0\0\x0c\x20\0" + bytes(38),  # CDP
        TO + FROM + b"\x81\0\0\x05\x08\x06" + bytes(42),
        TO + FROM + b"\x88\x63" + bytes(46),  # PPPoE discovery
        TO + FROM,
        b"",
    ]
    frames = [ethernet(udp("10.0.0.1", "10.0.0.2", 1, 2)), *others] * 20
    (tmp_path / "a.pcap").write_bytes(pcap_bytes(enumerate(frames)))
    program = "import sys, wiretide; print(wiretide.query('SELECT count(*) FROM packets', 'a.pcap').to_pylist())\n"
    program += "assert 'dpkt' not in sys.modules\n"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=paths(), capture_output=True, check=True)
    assert done.stdout == b"[{'count': 20}]\n"


def paths() -> dict[str, str]:
    return environment(PYTHONPATH=os.pathsep.join(map(str, [Path(wiretide.__file__).parent, *sys.path])))


def without_dpkt(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    program = (
        f"import sys; sys.modules['dpkt'] = None; sys.argv = ['wiretide', *{words!r}]; import wiretide; wiretide.main()"
    )
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=folder, env=paths(), capture_output=True, check=False)


SQL = "SELECT count(*) AS n FROM packets"


def test_without_dpkt_the_records_are_counted_and_the_warning_names_the_extra(tmp_path: Path) -> None:
    data = udp("10.0.0.1", "10.0.0.2", 1, 2)
    (tmp_path / "a.pcap").write_bytes(pcap_bytes([(0, ethernet(data)), (1, isl(data)), (2, isl(data))]))
    done = without_dpkt(tmp_path, "query", "a.pcap", SQL, "--format", "csv", "--stats")
    assert (done.returncode, done.stdout) == (0, b"n\n1\n")
    assert b"2 records need the fallback decoder, and are not in the answer: dpkt is not installed" in done.stderr
    assert b"pip install 'wiretide[fallback]'" in done.stderr
    assert b"wiretide_records_refused_by_fallback_total{a,not_installed} 2\n" in done.stderr
    assert b"wiretide_records_skipped_total{a,non_ip} 2\n" in done.stderr


def test_without_dpkt_a_capture_of_its_link_types_is_not_supported(tmp_path: Path) -> None:
    data = udp("10.0.0.1", "10.0.0.2", 1, 2)
    (tmp_path / "a.pcap").write_bytes(pcap_bytes([(0, b"\x50" + TO + FROM + snap(data))], 10))
    done = without_dpkt(tmp_path, "query", "a.pcap", SQL)
    assert done.returncode == 1
    assert b"the only record is of a link type that is not supported (10); dpkt is not installed: pip" in done.stderr


def test_the_command_answers_over_a_link_type_of_dpkt(tmp_path: Path) -> None:
    data = udp("10.0.0.1", "10.0.0.2", 1, 2)
    arp = b"\x50" + TO + FROM + b"\xaa\xaa\x03\0\0\0\x08\x06" + bytes(28)
    frames = [b"\x50" + TO + FROM + snap(data), arp]
    (tmp_path / "a.pcap").write_bytes(pcap_bytes(enumerate(frames), 10))
    status, out, err = run("query", "a.pcap", SQL, "--format", "csv", "--stats", cwd=tmp_path)
    assert (status, out) == (0, "n\n1\n")
    assert "wiretide_records_decoded_by_fallback_total{a,fddi} 1\n" in err
    assert "wiretide_records_refused_by_fallback_total{a,no_ip} 1\n" in err
    assert "wiretide_records_skipped_total{a,non_ip} 1\n" in err
    assert "warning" not in err


def test_a_link_type_that_nobody_reads_stays_unsupported(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(pcap_bytes([(0, bytes(60))], 195))
    with pytest.raises(InputError, match=r"not supported \(195\); supported: .*10 \(fddi, by dpkt\)"):
        wiretide.query(SQL, tmp_path / "a.pcap")


@pytest.mark.spark
def test_the_engines_agree_over_byte_ranges(spark, tmp_path: Path) -> None:
    from highlevel.spark.batch import BatchRun

    frames, good = mixture(Random(8), 4000)
    (tmp_path / "a.pcap").write_bytes(pcap_bytes((n * 10**7, frame) for n, frame in enumerate(frames)))
    plan = compile_query("SELECT srcIP, count(*) AS n FROM packets [RANGE 10 s, SLIDE 10 s, WA ts] GROUP BY srcIP", "q")
    run = BatchRun(spark, [plan], [Input("a", tmp_path / "a.pcap")])
    (table,) = run.run()
    assert sum(table["n"].to_pylist()) == sum(good)
    inline = wiretide.query(
        "SELECT srcIP, count(*) AS n FROM packets [RANGE 10 s, SLIDE 10 s, WA ts] GROUP BY srcIP", tmp_path / "a.pcap"
    )
    assert inline.num_rows == table.num_rows > 500
    assert run.samples.total(DECODED_BY_FALLBACK) == samples_of(tmp_path / "a.pcap")[1].total(DECODED_BY_FALLBACK)
    assert run.samples.total(PACKETS_DECODED) == sum(good)
