"""Sources of flow records (captures with exports, files of bare datagrams), and the results of queries over them.

* Packets by hand catch DNS taken for an export, an export at an odd port that is missed, one that is cut.
* Files of messages back to back catch a message of NetFlow v9 taken for two, or two for one.
* Queries from end to end catch a column whose type the levels do not agree on.
"""

import struct
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scapy.layers.dns import DNS, DNSQR
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from capture.errors import InputError
from capture.files.blocks import BLOCK_WORDS, WalkState
from capture.files.capture import Capture
from capture.files.messages import ExportFormat, list_messages, walk_messages
from capture.files.scan import scan
from capture.flows.export_datagrams import PORTS, choose_exports
from capture.flows.kernels.datagrams import JOB_ROWS
from capture.metrics import FILES_DAMAGED, FLOW_DATAGRAMS, FLOW_DATAGRAMS_REFUSED, FLOW_RECORDS, Samples
from capture.open import open_capture
from highlevel.inline.engine import InlineRun, Input
from lowlevel.rows.flows import FlowReader
from lowlevel.rows.readers import PacketReader
from queries.gsql import compile_query
from tests.harness.guarded import Guarded, GuardedBytes
from tests.references.flow_rows import plain
from tests.references.netflow_bytes import Spec, a_set, ipfix, template, v5, v5_record, v7, v9
from tests.references.pcap_bytes import pcap_bytes
from tests.references.random_flows import harmed, random_stream

NS = 10**9
EXPORT = 1_700_000_000
FIELDS: list[Spec] = [(8, 4), (1, 4), (56, 6), (371, 8)]
RECORD = bytes([10, 0, 0, 1]) + struct.pack(">I", 1500) + bytes.fromhex("0200c0ffee01") + b"somebody"


def udp_packet(payload: bytes, port: int = 2055, source: str = "192.0.2.1", sender: int = 40000) -> bytes:
    layer = IPv6 if ":" in source else IP
    target = "2001:db8::9" if ":" in source else "192.0.2.9"
    return bytes(layer(src=source, dst=target) / UDP(sport=sender, dport=port) / Raw(payload))


def capture_of(path: Path, packets: Iterable[bytes]) -> Path:
    path.write_bytes(pcap_bytes([(number * NS, packet) for number, packet in enumerate(packets)], link_type=101))
    return path


def read(path: Path, columns: list[str], capacity: int = 16_384) -> tuple[list[dict[str, Any]], Samples]:
    """All rows of a file, and the counters."""
    capture = open_capture(path)
    assert isinstance(capture, Capture)
    reader = FlowReader("link", capture, columns, capacity)
    rows: list[dict[str, Any]] = []
    for block in scan(capture, capacity).blocks:
        for found in reader.read(block):
            vectors = {name: plain(found.columns[name], found.count) for name in columns}
            rows += [{name: vectors[name][row] for name in columns} for row in range(found.count)]
            assert found.earliest == np.min(found.columns["ts"].data)  # type: ignore[union-attr]
    return rows, reader.samples()


def nine(records: int = 1, sequence: int = 0, with_template: bool = True) -> bytes:
    sets = [a_set(0, template(256, FIELDS))] * with_template
    return v9([*sets, a_set(256, RECORD * records)], seconds=EXPORT, sequence=sequence)


EXPORTS = {
    5: v5([v5_record(bytes([10, 0, 0, 1]), octets=1500)] * 2, seconds=EXPORT),
    7: v7([bytes([10, 0, 0, 1]) + bytes(16) + struct.pack(">I", 1500) + bytes(28)] * 2, seconds=EXPORT),
    9: nine(2),
    10: ipfix([a_set(2, template(256, FIELDS)), a_set(256, RECORD * 2)], seconds=EXPORT),
}


@pytest.mark.parametrize("version", EXPORTS)
@pytest.mark.parametrize("port", [*PORTS, 53, 31_337])
def test_exports_are_found_at_their_ports_and_at_any_other(tmp_path: Path, version: int, port: int) -> None:
    columns = ["version", "exporter", "exporter_port", "srcIP", "bytes", "arrival_ts", "link"]
    path = capture_of(tmp_path / "a.pcap", [udp_packet(EXPORTS[version], port), udp_packet(b"hello", 9)])
    rows, samples = read(path, columns)
    assert len(rows) == 2
    assert {(row["version"], str(row["exporter"]), row["exporter_port"]) for row in rows} == {
        (version, "192.0.2.1", 40000)
    }
    assert {(str(row["srcIP"]), row["bytes"], row["arrival_ts"], row["link"]) for row in rows} == {
        ("10.0.0.1", 1500, 0, "link")
    }
    assert samples.total(FLOW_DATAGRAMS_REFUSED) == 0
    assert samples.total(FLOW_DATAGRAMS, exporter="192.0.2.1", version=str(version)) == 1


def test_an_exporter_may_speak_ipv6(tmp_path: Path) -> None:
    rows, _ = read(capture_of(tmp_path / "a.pcap", [udp_packet(nine(), source="2001:db8::1")]), ["exporter"])
    assert [str(row["exporter"]) for row in rows] == ["2001:db8::1"]


@pytest.mark.parametrize("number", [5, 7, 9, 10])
def test_dns_is_no_export_whatever_its_number(tmp_path: Path, number: int) -> None:
    query = DNS(id=number, qd=DNSQR(qname="example.org"))
    long = DNS(id=number, qd=[DNSQR(qname=f"{'x' * 50}{each}.example.org") for each in range(3)])
    answers = [bytes(each) for each in (query, long, DNS(id=number, qr=1, ra=1, qd=DNSQR(qname="example.org")))]
    # Datagrams whose flags equal a length or a count of records: IPFIX 256 bytes, v5 12312.
    answers += [bytes(query).ljust(256, b"\0"), bytes(query).ljust(24 + 48 * 256, b"\0")]
    path = capture_of(tmp_path / "a.pcap", [udp_packet(each, 53) for each in answers])
    rows, samples = read(path, ["srcIP"])
    assert rows == []
    assert samples.total(FLOW_DATAGRAMS_REFUSED, cause="not_plausible") == len(answers)


def test_whatever_comes_to_an_export_port_is_counted(tmp_path: Path) -> None:
    cut = [EXPORTS[9][:19], b"\0", b""]
    path = capture_of(tmp_path / "a.pcap", [udp_packet(each) for each in (b"GET /", *cut)])
    rows, samples = read(path, ["srcIP"])
    assert rows == []
    assert samples.total(FLOW_DATAGRAMS_REFUSED, cause="version_unknown") == 1
    assert samples.total(FLOW_DATAGRAMS_REFUSED, cause="header_cut") == 3


def test_an_export_that_is_not_whole_is_taken_at_an_export_port_alone(tmp_path: Path) -> None:
    short = EXPORTS[5][:-1]
    rows, samples = read(
        capture_of(tmp_path / "a.pcap", [udp_packet(short, 2055), udp_packet(short, 31_337)]), ["srcIP"]
    )
    assert len(rows) == 1  # the whole record of two
    assert samples.total(FLOW_DATAGRAMS_REFUSED, cause="not_plausible") == 1


def test_zeros_behind_the_sets_of_a_datagram_are_plausible_and_other_bytes_are_not(tmp_path: Path) -> None:
    packets = [udp_packet(nine() + rest, 31_337) for rest in (bytes(50), bytes(3), b"\1", bytes(20) + b"\1")]
    rows, samples = read(capture_of(tmp_path / "a.pcap", packets), ["srcIP"])
    assert (len(rows), samples.total(FLOW_DATAGRAMS_REFUSED, cause="not_plausible")) == (2, 2)


def test_templates_reach_from_block_to_block(tmp_path: Path) -> None:
    packets = [udp_packet(nine(3, number, with_template=number == 0)) for number in range(50)]
    rows, samples = read(capture_of(tmp_path / "a.pcap", packets), ["srcIP", "ts"], capacity=7)
    assert (len(rows), samples.total(FLOW_RECORDS)) == (150, 150)


def test_the_kernel_that_chooses_stays_inside_its_arrays(tmp_path: Path) -> None:
    random = Random(3)
    payloads = [harmed(random, each) if random.random() < 0.7 else each for each, _, _ in random_stream(random, 300)]
    buffer = b"".join(payloads)
    lengths = np.array([len(each) for each in payloads], np.int64)
    offsets = np.cumsum(lengths) - lengths
    count = len(payloads)
    same = [np.full(count, each, np.int64) for each in (17, 31_337, 0, 4, 0, 1, 40000)]
    columns = [same[0], same[1], offsets, lengths, *same[2:]]
    native = (np.zeros(JOB_ROWS * count, np.int64), np.zeros(1, np.int64))
    chosen = choose_exports(np.frombuffer(buffer, np.uint8), *columns, count, native[0], count, native[1])
    slow = (np.zeros(JOB_ROWS * count, np.int64), np.zeros(1, np.int64))
    guarded = [Guarded(each) for each in columns]
    assert chosen == choose_exports.function(
        GuardedBytes(buffer), *guarded, count, Guarded(slow[0]), count, Guarded(slow[1])
    )
    assert (native[0] == slow[0]).all()
    assert 0 < chosen < count
    assert (
        chosen + native[1] + sum(each[:2] not in (b"\0\5", b"\0\7", b"\0\x09", b"\0\x0a") for each in payloads) == count
    )


def test_a_file_of_messages_back_to_back_is_recognised_by_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "anything"
    path.write_bytes(EXPORTS[9] + EXPORTS[5] + EXPORTS[10] + nine(1, 1, with_template=False) + EXPORTS[7])
    capture = open_capture(path)
    assert isinstance(capture.format, ExportFormat)
    rows, samples = read(path, ["version", "exporter", "exporter_port", "arrival_ts", "export_ts"])
    assert [row["version"] for row in rows] == [9, 9, 5, 5, 10, 10, 9, 7, 7]
    assert {(row["exporter"], row["exporter_port"], row["arrival_ts"]) for row in rows} == {(None, None, EXPORT * NS)}
    assert samples.total(FLOW_DATAGRAMS, exporter="unknown") == 5


def test_zeros_that_fill_up_a_message_of_netflow_9_belong_to_it(tmp_path: Path) -> None:
    path = tmp_path / "a.dat"
    for zeros in range(4, 9):
        path.write_bytes(nine() + bytes(zeros) + nine(2, 1) + bytes(zeros))
        rows, samples = read(path, ["ts"])
        assert (len(rows), samples.total(FLOW_DATAGRAMS)) == (3, 2)


@pytest.mark.parametrize(
    ("rest", "damage"),
    [
        (b"\0", "cut_in_record_header"),
        (b"\0\x05\0\0", "cut_in_record_header"),
        (b"\0\x0a\0\x05" + bytes(12), "impossible_record_length"),
        (b"\0\x08" + bytes(30), "impossible_record_length"),
    ],
)
def test_what_is_no_message_ends_a_file_and_is_told(tmp_path: Path, rest: bytes, damage: str) -> None:
    path = tmp_path / "a.dat"
    path.write_bytes(EXPORTS[5] + EXPORTS[10] + rest)
    capture = open_capture(path)
    assert isinstance(capture, Capture)
    index = scan(capture)
    assert (index.records, index.damage) == (2, damage)
    plan = compile_query("SELECT count(*) AS n FROM flows")
    run = InlineRun([plan], [Input("link", path)])
    assert pa.Table.from_batches([batch for _, batch in run.results()])["n"].to_pylist() == [4]
    assert run.samples().total(FILES_DAMAGED, cause=damage) == 1


def test_the_last_message_of_a_file_has_what_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a.dat"
    path.write_bytes(EXPORTS[10] + EXPORTS[5][:-1])
    rows, _ = read(path, ["version"])
    assert [row["version"] for row in rows] == [10, 10, 5]


def test_bare_datagrams_hold_no_packets(tmp_path: Path) -> None:
    path = tmp_path / "a.dat"
    path.write_bytes(EXPORTS[5])
    capture = open_capture(path)
    assert isinstance(capture, Capture)
    reader = PacketReader("link", capture, ["ts"], 16_384)
    with pytest.raises(InputError, match="bare export datagrams, expected packets"):
        list(reader.read(scan(capture).blocks[0]))


def query(path: Path, sql: str) -> list[dict[str, Any]]:
    run = InlineRun([compile_query(sql)], [Input("link", path)])
    return pa.Table.from_batches([batch for _, batch in run.results()]).to_pylist()


def test_a_query_over_columns_of_every_type(tmp_path: Path) -> None:
    fields: list[Spec] = [(8, 4), (1, 4), (56, 6), (371, 8), (95, 4), (276, 1), (311, 8), (27, 16)]
    record = RECORD + bytes.fromhex("0300ff01") + b"\x01" + struct.pack(">d", 0.5) + bytes(15) + b"\1"
    message = v9([a_set(0, template(256, fields)), a_set(256, record * 3)], seconds=EXPORT)
    path = capture_of(tmp_path / "a.pcap", [udp_packet(message), udp_packet(EXPORTS[5])])
    found = query(
        path,
        "SELECT srcIP, sourceIPv6Address, srcMAC, userName, applicationId, version, sum(bytes) AS bytes, "
        "max(samplingProbability) AS p FROM flows WHERE dataRecordsReliability OR version = 5 "
        "GROUP BY srcIP, sourceIPv6Address, srcMAC, userName, applicationId, version",
    )  # fmt: skip
    by_version = {row.pop("version"): row for row in found}
    assert by_version[9] == {
        "srcIP": bytes([10, 0, 0, 1]), "sourceIPv6Address": bytes(15) + b"\1", "srcMAC": bytes.fromhex("0200c0ffee01"),
        "userName": "somebody", "applicationId": "0300ff01", "bytes": 4500, "p": 0.5,
    }  # fmt: skip
    assert by_version[5] == {
        "srcIP": bytes([10, 0, 0, 1]), "sourceIPv6Address": None, "srcMAC": None, "userName": None,
        "applicationId": None, "bytes": 3000, "p": None,
    }  # fmt: skip


def test_windows_are_those_of_the_end_of_a_flow(tmp_path: Path) -> None:
    fields: list[Spec] = [(152, 8), (153, 8), (2, 4)]
    ends = (130, 10, 70, 65)  # seconds, in no order
    records = b"".join(struct.pack(">QQI", 1000, end * 1000, 1) for end in ends)
    path = capture_of(tmp_path / "a.pcap", [udp_packet(v9([a_set(0, template(256, fields)), a_set(256, records)]))])
    found = query(path, "SELECT count(*) AS flows FROM flows [RANGE 1 minute, SLIDE 1 minute, WA ts] GROUP BY version")
    assert [(row["window_end"] // NS, row["flows"]) for row in found] == [(60, 1), (120, 2), (180, 1)]


def test_messages_are_found_alike_by_machine_code_and_by_plain_python_in_harmed_files(tmp_path: Path) -> None:
    random = Random(5)
    for number in range(60):
        payloads = [each for each, _, _ in random_stream(random, 8)]
        data = b"".join(
            harmed(random, each) if random.random() < 0.3 else each + bytes(number % 3) for each in payloads
        )
        walked = []
        for walk, state, buffer in (
            (walk_messages, WalkState(0), np.frombuffer(data, np.uint8)),
            (walk_messages.function, WalkState(0), GuardedBytes(data)),
        ):
            rows = np.zeros((200, BLOCK_WORDS), np.int64)
            plain_walk = walk is not walk_messages
            count = walk(
                buffer, len(data), len(data), 3, len(rows), Guarded(rows) if plain_walk else rows.reshape(-1),
                Guarded(state.words) if plain_walk else state.words,
            )  # fmt: skip
            assert (rows[1:count, 0] == rows[: max(count - 1, 0), 1]).all()  # no byte between two blocks
            walked.append((count, rows.tolist(), state.words.tolist()))
        assert walked[0] == walked[1]
        listed = [np.zeros(len(data) + 1, np.int64) for _ in range(3)]
        assert list_messages(np.frombuffer(data, np.uint8), 0, int(walked[0][2][0]), len(data), *listed) == sum(
            row[2] for row in walked[0][1]
        )
