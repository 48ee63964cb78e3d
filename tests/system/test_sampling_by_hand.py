"""Rates set by hand, from the command line to the rows.

The tests detect an option that is dropped on the way, and a rate that is used for another exporter. They detect a plan
that shares its reader with a plan with other rates.
"""

from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pyarrow as pa
import pytest
from scapy.layers.inet import IP, UDP
from scapy.packet import Raw

from capture.files.scan import scan
from capture.open import open_capture
from lowlevel.node.node import Node
from queries.gsql import compile_query
from queries.pipeline.input_options import parse_rates
from tests.harness import in_ns
from tests.references.netflow_bytes import a_set, template, v9
from tests.references.pcap_bytes import pcap_bytes

SQL = "SELECT exporter, sum(raw_packets) AS raw, sum(packets) AS packets FROM flows GROUP BY exporter"
COUNTERS = [(2, 4), (1, 4)]


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Two exporters, each with one flow of 5 packets."""
    datagram = v9([a_set(0, template(256, COUNTERS)), a_set(256, bytes([0, 0, 0, 5, 0, 0, 1, 0]))])
    path = tmp_path / "exports.pcap"
    packets = [IP(src=f"192.0.2.{last}") / UDP(sport=40000, dport=2055) / Raw(datagram) for last in (1, 2)]
    path.write_bytes(pcap_bytes([(number, bytes(packet)) for number, packet in enumerate(packets)], link_type=101))
    return path


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        ((), {"192.0.2.1": (5, 5), "192.0.2.2": (5, 5)}),
        ("100", {"192.0.2.1": (5, 500), "192.0.2.2": (5, 500)}),
        (["192.0.2.2=7"], {"192.0.2.1": (5, 5), "192.0.2.2": (5, 35)}),
    ],
)
def test_a_rate_set_by_hand_reaches_the_rows(
    capture: Path, sampling: str | list[str], expected: dict[str, tuple[int, int]]
) -> None:
    rows = in_ns.query(SQL, capture, sampling=sampling).to_pylist()
    assert {row["exporter"]: (row["raw"], row["packets"]) for row in rows} == expected


def test_plans_of_other_rates_read_the_same_link_by_readers_of_their_own(capture: Path) -> None:
    sql = "SELECT sum(packets) AS packets FROM flows"
    plans = [compile_query(sql, sampling=rate).leaves[0].low for rate in (None, 3, 10, 3)]
    file = open_capture(capture)
    node = Node("a", file, plans, 1024)
    found: dict[int, int] = {}
    items = [item for block in scan(file).blocks for item in node.process(block)]
    for number, item in [*items, *node.flush()]:
        if isinstance(item, pa.RecordBatch):
            upper, lower = (item.column(column)[0].as_py() for column in (2, 3))
            found[number] = found.get(number, 0) + (upper << 32) + lower
    assert found == {0: 10, 1: 30, 2: 100, 3: 30}
    assert len(node.streams) == 3


@pytest.mark.parametrize(
    ("texts", "rates"),
    [
        ([], None),
        (["1"], 1),
        (["192.0.2.1=10", "2001:db8::1=20"], ((IPv4Address("192.0.2.1"), 10), (IPv6Address("2001:db8::1"), 20))),
    ],
)
def test_rates_are_read_from_texts(texts: list[str], rates: object) -> None:
    assert parse_rates(texts) == rates


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["0"], "got '0', expected RATE or EXPORTER=RATE"),
        (["-1"], "expected RATE"),
        (["2147483648"], "expected RATE"),
        (["x"], "expected RATE"),
        (["router=10"], "got 'router=10', expected RATE or EXPORTER=RATE"),
        (["=10"], "expected RATE"),
        (["10", "192.0.2.1=10"], "a rate for all exporters and another"),
        (["192.0.2.1=10", "192.0.2.1=11"], "two rates for 192.0.2.1"),
    ],
)
def test_what_is_no_rate_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_rates(texts)
