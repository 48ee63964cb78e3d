"""Captures with sFlow datagrams to rows of the kind `samples`.

* The same frames are read from a capture and from inside datagrams. This detects a column of the sampled packet that
  differs from the packet, a payload at a wrong offset, and IPv6 values in an IPv4 row.
* Samples by hand fix what an IP record becomes, and who is agent, exporter, interface.
* Packets that carry something else catch a datagram that is missed or made up.
* Harm, with the kernels as plain Python on guarded arrays, catches reads outside the datagram that machine code hides.
* tshark, on captures of our own and real ones, shares no code with anything here.
"""

import shutil
import subprocess
from collections import Counter, defaultdict
from io import BytesIO
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Any

import dpkt
import numpy as np
import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw

from capture.files.scan import scan
from capture.metrics import METRICS, SFLOW_DATAGRAMS, SFLOW_SAMPLES, SFLOW_SEQUENCES, Samples
from capture.open import open_capture
from capture.packets.columns import FRAME_COLUMNS
from capture.packets.fields import COUNTER_COUNT, ROWS
from capture.sflow.columns import SAMPLE_COLUMNS, SAMPLING_COLUMNS
from capture.sflow.decoder import decode_listed
from capture.sflow.lister import Datagrams, SampleLister, choose_datagrams
from capture.sflow.samples import MAX_SAMPLES
from lowlevel.rows.readers import FrameReader
from lowlevel.rows.samples import SampleReader
from tests.harness.guarded import Guarded, GuardedBytes
from tests.references import sflow_oracle
from tests.references.pcap_bytes import pcap_bytes
from tests.references.random_frames import random_frame
from tests.references.random_sflow import PROTOCOLS, harmed, random_datagram
from tests.references.sflow_bytes import (
    counter_sample,
    datagram,
    flow_sample,
    header_record,
    ip_record,
    switch_record,
    udp_frame,
    words,
)
from tests.references.vector_values import values

Row = dict[str, Any]


def read(path: Path, names: Any = SAMPLE_COLUMNS, block: int = 64, reader: Any = SampleReader) -> tuple[list[Row], Any]:
    """All rows of a capture, and the reader's counters."""
    file = open_capture(path)
    made = reader("link", file, {"ts", *names}, block)
    rows = []
    for each in scan(file, block).blocks:
        for batch in made.read(each):
            assert 0 < batch.count <= block
            assert batch.earliest == each.min_ts
            columns = [values(batch.columns[name], batch.count) for name in names]
            rows += [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return rows, made.samples()


def counted(samples: Samples) -> dict[str, float]:
    """Counters that are not 0, by metric and last label."""
    return {labels[-1] if len(labels) > 1 else name: value for (name, labels), value in samples.items() if value}


def capture_of(path: Path, payloads: list[bytes], **options: Any) -> Path:
    path.write_bytes(pcap_bytes([(1000 + number, udp_frame(each)) for number, each in enumerate(payloads)], **options))
    return path


@pytest.mark.drawn
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("cut", [None, 128, 40])
@pytest.mark.slow("three hundred frames of each protocol, decoded twice")
def test_a_sampled_packet_has_the_columns_of_the_same_frame_in_a_capture(
    protocol: int, cut: int | None, tmp_path: Path
) -> None:
    random = Random(f"{protocol}{cut}")
    link_type = PROTOCOLS[protocol]
    frames = [random_frame(random, link_type)[0][:cut] for _ in range(300)]
    (tmp_path / "frames.pcap").write_bytes(pcap_bytes(enumerate(frames), link_type, more_on_wire=7))
    records = [header_record(frame, protocol, len(frame) + 7) for frame in frames]
    samples = [flow_sample([each], expanded=random.random() < 0.5, sequence=n) for n, each in enumerate(records)]
    payloads = [datagram(samples[at : at + 5], sequence=at // 5) for at in range(0, 300, 5)]
    names = sorted(FRAME_COLUMNS.keys() - {"ts"})
    expected, _ = read(tmp_path / "frames.pcap", names, reader=FrameReader)
    rows, counters = read(capture_of(tmp_path / "samples.pcap", payloads), names, block=16)
    assert [pair for pair in zip(rows, expected, strict=True) if pair[0] != pair[1]] == []
    assert counted(counters) == {SFLOW_DATAGRAMS.name: 60, "flow": 300}


def test_a_column_alone_is_what_it_is_among_all(tmp_path: Path) -> None:
    random = Random(4)
    path = capture_of(tmp_path / "samples.pcap", [harmed(random, random_datagram(random)) for _ in range(200)])
    every, _ = read(path)
    assert len(every) > 150
    for name in SAMPLE_COLUMNS:
        assert [row[name] for row in read(path, [name])[0]] == [row[name] for row in every], name


@pytest.mark.slow("hundreds of datagrams read by the slow twin")
def test_what_a_sample_says_is_what_the_twin_reads(tmp_path: Path) -> None:
    random = Random(8)
    payloads = [random_datagram(random) for _ in range(400)]
    expected, seen = sflow_oracle.read_all(payloads)
    rows, counters = read(capture_of(tmp_path / "samples.pcap", payloads), [*SAMPLING_COLUMNS, "ts", "len", "caplen"])
    for (number, twin), row in zip(expected, rows, strict=True):
        assert row.pop("exporter") == ip_address("198.51.100.1")
        assert (row.pop("ts"), row.pop("len"), row.pop("caplen")) == (1000 + number, twin["wire"], twin["captured"])
        assert row == {name: twin[name] for name in row}
    seen[SFLOW_DATAGRAMS.name] = seen.pop("datagrams")
    assert counted(counters) == seen


IPV4 = {
    "srcIP": ip_address("10.0.0.1"), "destIP": ip_address("10.0.0.2"), "srcPort": 80, "destPort": 65535, "protocol": 6,
    "ip_version": 4, "len": 900, "caplen": 0, "ip_len": 900, "tos": 184, "tcp_flags": 18, "tunnels": 0,
}  # fmt: skip
IPV6 = IPV4 | {"srcIP": ip_address("2001:db8::1"), "destIP": ip_address("2001:db8::2"), "ip_version": 6}
PORTLESS = {"srcPort": None, "destPort": None, "tcp_flags": None}


@pytest.mark.parametrize(
    "what, fields, expected",
    [
        ("TCP over IPv4", ("10.0.0.1", "10.0.0.2", 900, 6, (80, 65535), 18, 184), IPV4),
        ("TCP over IPv6", ("2001:db8::1", "2001:db8::2", 900, 6, (80, 65535), 18, 184), IPV6),
        ("UDP", ("10.0.0.1", "10.0.0.2", 900, 17, (80, 65535), 18, 184), IPV4 | {"protocol": 17, "tcp_flags": None}),
        ("ICMP", ("10.0.0.1", "10.0.0.2", 900, 1, (8, 0), 0, 0), IPV4 | PORTLESS | {"protocol": 1, "tos": 0}),
        (
            "numbers that no header could hold",
            ("10.0.0.1", "10.0.0.2", 2**32 - 1, 6, (65536, 2**32 - 1), 256, 2**31),
            IPV4 | PORTLESS | {"tos": None, "len": 2**32 - 1, "ip_len": 2**32 - 1},
        ),
        (
            "a protocol that no header could hold",
            ("10.0.0.1", "10.0.0.2", 900, 256, (1, 2), 3, 184),
            IPV4 | PORTLESS | {"protocol": None},
        ),
    ],
)
def test_an_ip_record_becomes_the_columns_it_has(what: str, fields: tuple, expected: Row, tmp_path: Path) -> None:
    around = [header_record(bytes(Ether() / IP(src="9.9.9.9", dst="8.8.8.8") / ICMP())) for _ in range(2)]
    samples = [flow_sample([each]) for each in (around[0], ip_record(*fields), around[1])]
    path = capture_of(tmp_path / "one.pcap", [datagram(samples)])
    before, row, after = read(path, list(FRAME_COLUMNS))[0]
    for name in FRAME_COLUMNS.keys() - {"ts", "link", "interface"}:
        assert row[name] == expected.get(name.removeprefix("inner.")), name
    for each in (before, after):
        assert (each["srcIP"], each["inner.destIP"]) == (ip_address("9.9.9.9"), ip_address("8.8.8.8"))
    assert read(path, ["srcIP"])[0][1] == {"srcIP": expected["srcIP"]}


def test_a_sample_without_an_ip_packet_is_a_row_all_the_same(tmp_path: Path) -> None:
    frames = [bytes(Ether(src="02:00:00:00:00:09") / ARP()), b"", b"\x45" * 15]
    samples = [
        flow_sample([header_record(frame, protocol, 64)]) for frame, protocol in zip(frames, (1, 1, 6), strict=True)
    ]
    path = capture_of(tmp_path / "arp.pcap", [datagram(samples)])
    rows, _ = read(path, ["srcIP", "protocol", "ethertype", "srcMAC", "len", "caplen", "sampling_rate"])
    common = {"srcIP": None, "protocol": None, "len": 64, "sampling_rate": 1}
    assert rows == [
        common | {"ethertype": 0x0806, "srcMAC": 0x020000000009, "caplen": len(frames[0])},
        common | {"ethertype": None, "srcMAC": None, "caplen": 0},
        common | {"ethertype": None, "srcMAC": None, "caplen": 15},
    ]


SAMPLE = flow_sample([header_record(bytes(Ether() / IP() / UDP()), wire=64)])
ONE = datagram([SAMPLE])


@pytest.mark.parametrize(
    "what, frame, found",
    [
        ("the port of sFlow", udp_frame(ONE), 1),
        ("over IPv6", udp_frame(ONE, source="2001:db8::1", destination="2001:db8::2"), 1),
        ("another port", udp_frame(ONE, port=9999), 1),
        ("another port, an agent with IPv6", udp_frame(datagram([SAMPLE], agent="2001:db8::1"), port=9999), 1),
        ("another port and no agent", udp_frame(datagram([SAMPLE], agent=None), port=9999), 0),
        ("another port and no sample", udp_frame(datagram([]), port=9999), 0),
        ("another port and one byte more", udp_frame(ONE + b"\0", port=9999), 0),
        ("another port and four bytes less", udp_frame(ONE[:-4], port=9999), 0),
        ("another port and more samples announced", udp_frame(datagram([SAMPLE], count=2), port=9999), 0),
        ("another port and version 4", udp_frame(datagram([SAMPLE], version=4), port=9999), 0),
        ("a reply from the port", bytes(Ether() / IP() / UDP(sport=6343, dport=53) / Raw(b"x" * 40)), 0),
        ("TCP", bytes(Ether() / IP() / TCP(dport=6343) / Raw(ONE)), 0),
        ("a later fragment", bytes(Ether() / IP(frag=1, proto=17) / Raw(ONE)), 0),
        ("no payload captured", udp_frame(ONE)[:41], 0),
    ],
)
def test_datagrams_are_found_among_packets(what: str, frame: bytes, found: int, tmp_path: Path) -> None:
    (tmp_path / "one.pcap").write_bytes(pcap_bytes([(1, b""), (5, frame), (9, frame)]))
    rows, counters = read(tmp_path / "one.pcap", ["ts"])
    assert rows == [{"ts": 5}, {"ts": 9}][: 2 * found]
    assert counters.total(SFLOW_DATAGRAMS) == 2 * found


@pytest.mark.parametrize(
    "payload, counts",
    [
        (b"GET /", {"header_cut": 1}),
        (words(4, 1, 0, 0, 0, 0, 0), {"other_version": 1}),
        (words(5, 9, 0, 0, 0, 0, 0), {"address_type": 1}),
        (ONE[:-1], {"cut": 1}),
        (datagram([counter_sample(), SAMPLE[:4] + words(8) + bytes(8)]), {"counter": 1, "malformed": 1}),
    ],
)
def test_what_goes_to_the_port_and_is_no_row_is_counted(payload: bytes, counts: dict, tmp_path: Path) -> None:
    rows, counters = read(capture_of(tmp_path / "one.pcap", [payload]))
    assert (rows, counted(counters)) == ([], {SFLOW_DATAGRAMS.name: 1, **counts})


def test_a_datagram_that_the_capture_cut_gives_the_samples_before_the_cut(tmp_path: Path) -> None:
    frame = udp_frame(datagram([SAMPLE, SAMPLE]))
    (tmp_path / "cut.pcap").write_bytes(pcap_bytes([(1, frame[:-40])], more_on_wire=40))
    rows, counters = read(tmp_path / "cut.pcap", ["len"])
    assert (rows, counted(counters)) == ([{"len": 64}], {SFLOW_DATAGRAMS.name: 1, "flow": 1, "cut": 1})


def test_sequences_are_followed_from_block_to_block_and_begun_anew_by_each_reader(tmp_path: Path) -> None:
    path = capture_of(tmp_path / "gap.pcap", [datagram([], sequence=n) for n in (1, 2, 5, 6, 7, 8)])
    file = open_capture(path)
    blocks = scan(file, 2).blocks

    def missing(*chosen: int) -> float:
        reader = SampleReader("link", file, {"ts"}, 2)
        for place in chosen:
            assert list(reader.read(blocks[place])) == []
        return reader.samples().total(SFLOW_SEQUENCES, event="datagrams_missing")

    assert missing(0, 1, 2) == 2
    assert missing(1, 2) == 0


def test_every_counter_is_declared(tmp_path: Path) -> None:
    _, counters = read(capture_of(tmp_path / "one.pcap", [ONE]))
    declared = {metric.name: metric for metric in METRICS}
    assert all(len(labels) == len(declared[name].labels) for name, labels in counters)


def test_the_kernels_as_plain_python_stay_inside_their_arrays_and_agree_with_their_machine_code() -> None:
    random = Random(21)
    want, want_inner = (sum(1 << row for row, name in enumerate(ROWS) if name.startswith("inner.") is side)
                        for side in (False, True))  # fmt: skip
    want_inner >>= len([name for name in ROWS if not name.startswith("inner.")])
    lister = SampleLister(MAX_SAMPLES)
    size = len(ROWS) * MAX_SAMPLES
    rows = chosen = 0
    for number in range(250):
        payload = harmed(random, random_datagram(random)) or b"\0"
        data = np.frombuffer(payload, np.uint8)
        where = Datagrams(*(np.array([value], np.int64) for value in (0, len(payload), number)))
        columns = [np.array([value], np.int64) for value in (17, 99, 0, len(payload))]
        picks = [np.zeros(1, np.int64) for _ in range(2)]
        found = choose_datagrams(data, *columns, 1, 6343, picks[0])
        assert found == choose_datagrams.function(
            GuardedBytes(payload), *map(Guarded, columns), 1, 6343, Guarded(picks[1])
        )
        chosen += found
        for listed in lister.list(data, where):
            outs = [np.full(size, -7, np.int64) for _ in range(2)]
            counts = [np.zeros(COUNTER_COUNT, np.int64) for _ in range(2)]
            rest = (listed.first, listed.sample_count, want, want_inner)
            matrix = listed.matrix
            decode_listed(data, matrix.reshape(-1), matrix.shape[1], *rest, outs[0], MAX_SAMPLES, counts[0])
            decode_listed.function(
                GuardedBytes(payload), Guarded(matrix), matrix.shape[1], *rest, Guarded(outs[1]), MAX_SAMPLES,
                Guarded(counts[1]),
            )  # fmt: skip
            assert np.array_equal(outs[0], outs[1])
            assert np.array_equal(counts[0], counts[1])
            rows += listed.sample_count
    assert rows > 200
    assert chosen > 50


# tshark


def tshark(path: Path, *fields: str) -> list[dict[str, list[str]]]:
    """Every occurrence of some fields in each frame, headers inside of samples included."""
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    options = [option for field in fields for option in ("-e", field)]
    command = ["tshark", "-n", "-r", str(path), "-T", "fields", "-E", "separator=;", "-E", "occurrence=a", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split(";") for line in done.stdout.splitlines()]
    return [{name: cell.split(",") if cell else [] for name, cell in zip(fields, row, strict=True)} for row in rows]


def plain_frame(random: Random) -> bytes:
    """A frame in which tshark sees the addresses of one IP header, once."""
    six = random.random() < 0.4
    network = IPv6(src=f"2001:db8::{random.randrange(1, 9)}", dst="2001:db8::77") if six else IP(
        src=f"10.0.0.{random.randrange(1, 9)}", dst="10.7.7.7", ttl=random.randrange(1, 255))  # fmt: skip
    upper = random.choice([TCP, UDP])(sport=random.randrange(30000, 40000), dport=random.randrange(50000, 60000))
    frame = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    if random.random() < 0.3:
        frame /= Dot1Q(vlan=random.randrange(1, 4095))
    return bytes(frame / network / upper / Raw(bytes(random.randrange(200))))


def test_tshark_sees_the_same_samples(tmp_path: Path) -> None:
    random = Random(31)
    payloads = []
    for sequence in range(80):
        samples = []
        for _ in range(random.randrange(1, 6)):
            frame = plain_frame(random)
            samples.append(
                flow_sample(
                    [header_record(frame[:128], wire=len(frame) + 4, stripped=4), switch_record(3, 4)],
                    expanded=random.random() < 0.5,
                    sequence=random.randrange(1000),
                    source=(0, random.randrange(1, 50)),
                    rate=random.choice([1, 512, 65536]),
                    pool=random.randrange(2**32),
                    input_if=(0, random.randrange(1, 100)),
                    output_if=(0, random.randrange(1, 100)),
                )
            )
        payloads.append(datagram([counter_sample(), *samples], sequence=sequence, agent="192.0.2.5"))
    path = capture_of(tmp_path / "samples.pcap", payloads)
    names = ["ts", "srcIP", "destIP", "srcPort", "destPort", "len", "vlan", "sampling_rate", "sample_pool"]
    rows, counters = read(path, [*names, "input_if", "output_if", "agent", "input_vlan", "source_id"])
    ports = [f"{upper}.{end}port" for upper in ("tcp", "udp") for end in ("src", "dst")]
    one = "sflow.flow_sample."
    frames = tshark(
        path, "ip.src", "ip.dst", "ipv6.src", "ipv6.dst", *ports, "vlan.id", "sflow_245.header.frame_length",
        "sflow_245.agent", "sflow_245.vlan.in", f"{one}sampling_rate", f"{one}sample_pool", f"{one}input_interface",
        f"{one}input_interface_value", f"{one}output_interface_value", f"{one}index", f"{one}source_id_index",
    )  # fmt: skip
    assert len(frames) == len(payloads)
    for number, frame in enumerate(frames):
        own = [row for row in rows if row["ts"] == 1000 + number]

        def seen(*fields: str, frame: dict = frame) -> Counter[str]:
            return Counter(value for field in fields for value in frame[field])

        def values(*columns: str, own: list[Row] = own) -> Counter[str]:
            return Counter(str(row[name]) for row in own for name in columns if row[name] is not None)

        outer = Counter(["198.51.100.1"])
        assert seen("ip.src", "ipv6.src") - outer == values("srcIP")
        assert seen("ip.dst", "ipv6.dst") - Counter(["198.51.100.9"]) == values("destIP")
        assert seen("tcp.srcport", "udp.srcport") - Counter(["40000"]) == values("srcPort")
        assert seen("tcp.dstport", "udp.dstport") - Counter(["6343"]) == values("destPort")
        assert seen("vlan.id") == values("vlan")
        assert seen("sflow_245.vlan.in") == values("input_vlan")
        assert seen(f"{one}sampling_rate") == values("sampling_rate")
        assert seen(f"{one}sample_pool") == values("sample_pool")
        assert seen(f"{one}input_interface", f"{one}input_interface_value") == values("input_if")
        assert set(frame["sflow_245.agent"]) == {str(row["agent"]) for row in own}
    assert counters.total(SFLOW_SAMPLES, kind="flow") == len(rows)


@pytest.mark.parametrize(
    "name, samples",
    [("pcap/sflow.pcap", 1), ("hostile/sflow_multiple_counter_30_pdus.pcap", 0), ("hostile/sflow_print-segv.pcap", 0)],
)
def test_real_datagrams_give_the_counts_of_the_twin_and_the_addresses_of_tshark(
    name: str, samples: int, captures: Path
) -> None:
    rows, counters = read(captures / name)
    twin = sflow_oracle.Twin()
    carriers = Counter()
    for _, frame in dpkt.pcap.Reader(BytesIO((captures / name).read_bytes())):
        network = dpkt.ethernet.Ethernet(frame).data
        twin.read(network.data.data)
        carriers[str(ip_address(network.src))] += 1
    seen = +twin.counts
    seen[SFLOW_DATAGRAMS.name] = seen.pop("datagrams")
    assert counted(counters) == seen
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for frame in tshark(captures / name, "sflow_245.sampletype", "ip.src", "sflow_245.header.frame_length"):
        for field, several in frame.items():
            found[field].update(several)
    kinds = found["sflow_245.sampletype"]
    assert (kinds["2"] + kinds["4"], kinds["1"] + kinds["3"]) == (seen["counter"], seen["flow"])
    assert found["ip.src"] - carriers == Counter(str(row["srcIP"]) for row in rows)
    assert found["sflow_245.header.frame_length"] == Counter(str(row["len"]) for row in rows)
    assert len(rows) == samples
