"""Captures small enough to know by heart, and the whole CSV each query must give.

The tests detect a compiler and an engine that agree on the wrong answer; a reference that follows the same plan cannot
detect this. They cover HAVING, select expressions, NULL, GROUP BY link, no GROUP BY and no window.
"""

import io
from pathlib import Path

import pytest

from dashboards.output.formats import Format
from dashboards.output.writers import write_results
from highlevel.inline.engine import InlineRun
from queries.gsql import compile_query
from queries.pipeline.inputs import bind_files
from tests.references.small_captures import icmp, udp, write

MINUTE = "[RANGE 1 minute, SLIDE 1 minute, WA ts]"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two links; times are seconds since the epoch, and Main1 is out of order."""
    write(
        tmp_path / "Main1.pcap",
        [
            (1, udp("10.0.0.1", "10.0.0.9", 1000, 53, 100)),
            (60, udp("2001:db8::1", "2001:db8::2", 5, 6, 80)),
            (59.999, udp("10.0.0.1", "10.0.0.9", 1000, 53, 200)),
            (30, icmp("10.0.0.2", "10.0.0.9", 60)),
            (185, icmp("10.0.0.1", "10.0.0.9", 50)),
        ],
    )
    write(tmp_path / "Main2.pcap", [(2, udp("10.0.0.1", "10.0.0.8", 7, 53, 40)), (61, icmp("10.0.0.3", "10.0.0.1"))])
    return tmp_path


def csv(sql: str, folder: Path) -> list[str]:
    """The lines of the answer: header, then rows in the order of their text (within a window there is none)."""
    plan = compile_query(sql)
    sink = io.BytesIO()
    engine = InlineRun([plan], bind_files([str(folder)]), 8)
    write_results((batch for _, batch in engine.results()), plan.schema, Format.CSV, sink)
    header, *rows = sink.getvalue().decode().split("\n")
    assert rows.pop() == ""
    return [header, *sorted(rows)]


def test_groups_are_counted_in_each_window(folder: Path) -> None:
    sql = f"SELECT srcIP, count(*) AS packets, sum(len) AS bytes FROM p {MINUTE} GROUP BY srcIP"
    assert csv(sql, folder) == [
        "window_start,window_end,srcIP,packets,bytes",
        "0,60000000000,10.0.0.1,3,340",
        "0,60000000000,10.0.0.2,1,60",
        "180000000000,240000000000,10.0.0.1,1,50",
        "60000000000,120000000000,10.0.0.3,1,100",
        "60000000000,120000000000,2001:db8::1,1,80",
    ]


def test_null_is_a_group_and_an_empty_field(folder: Path) -> None:
    sql = "SELECT destPort, count(*), min(srcPort), avg(srcPort), sum(icmp_type) FROM p GROUP BY destPort"
    assert csv(sql, folder) == [
        "destPort,count,min_srcPort,avg_srcPort,sum_icmp_type",
        ",3,,,24",
        "53,3,7,669,",
        "6,1,5,5,",
    ]


def test_a_predicate_over_null_keeps_nothing(folder: Path) -> None:
    assert csv("SELECT count(*) FROM p WHERE NOT destPort = 53", folder) == ["count", "1"]
    assert csv("SELECT count(*) FROM p WHERE destPort IS NULL", folder) == ["count", "3"]
    assert csv("SELECT count(*) FROM p WHERE destPort = 9999", folder) == ["count"]


def test_having_sees_groups_aggregates_and_names(folder: Path) -> None:
    sql = "SELECT srcIP AS who, count(*) AS n FROM p GROUP BY srcIP HAVING "
    condition = "n > 1 OR (max(len) > 90 AND NOT who IN '10.0.0.0/30')"
    assert csv(sql + condition, folder) == ["who,n", "10.0.0.1,4"]
    assert csv(sql + "n = 1 AND max(len) >= 80", folder) == ["who,n", "10.0.0.3,1", "2001:db8::1,1"]
    assert csv("SELECT srcIP FROM p GROUP BY srcIP HAVING avg(srcPort) > 600", folder) == ["srcIP", "10.0.0.1"]


def test_select_computes_from_groups_and_aggregates(folder: Path) -> None:
    select = (
        "SELECT size * 100 AS at_least, sum(len) / count(*) AS mean, sum(len) / (count(*) - 1) AS x, len / 100 AS y"
    )
    assert csv(f"{select} FROM p GROUP BY len / 100 AS size", folder) == [
        "at_least,mean,x,y",
        "0,57,76,0",
        "100,100,200,1",
        "200,200,,2",
    ]


def test_the_link_is_a_column_to_group_by(folder: Path) -> None:
    sql = f"SELECT link, count(*) FROM a UNION b {MINUTE} GROUP BY link"
    assert csv(sql, folder) == [
        "window_start,window_end,link,count",
        "0,60000000000,Main1,3",
        "0,60000000000,Main2,1",
        "180000000000,240000000000,Main1,1",
        "60000000000,120000000000,Main1,1",
        "60000000000,120000000000,Main2,1",
    ]
    assert csv("SELECT link, protocol, count(*) FROM p WHERE link = 'Main2' GROUP BY protocol, link", folder) == [
        "link,protocol,count",
        "Main2,1,1",
        "Main2,17,1",
    ]


def test_without_group_by_there_is_one_row_per_window_with_packets(folder: Path) -> None:
    sql = "SELECT count(*), max(len) FROM p [RANGE 2 minutes, SLIDE 1 minute, WA ts]"
    assert csv(sql, folder) == [
        "window_start,window_end,count,max_len",
        "-60000000000,60000000000,4,200",
        "0,120000000000,6,200",
        "120000000000,240000000000,1,50",
        "180000000000,300000000000,1,50",
        "60000000000,180000000000,2,100",
    ]


def test_without_a_window_there_is_one_answer_over_the_whole_input(folder: Path) -> None:
    assert csv("SELECT count(*), sum(len), count(vlan), avg(vlan) FROM p", folder) == [
        "count,sum_len,count_vlan,avg_vlan",
        "7,630,0,",
    ]
    assert csv("SELECT ip_version FROM p GROUP BY ip_version", folder) == ["ip_version", "4", "6"]


def test_packets_before_the_origin_are_in_windows_that_end_after_it_alone(folder: Path) -> None:
    sql = "SELECT count(*) FROM p [RANGE 1 minute, SLIDE 1 minute, WA ts, ORIGIN '1970-01-01T00:01:00Z']"
    assert csv(sql, folder) == [
        "window_start,window_end,count",
        "180000000000,240000000000,1",
        "60000000000,120000000000,2",
    ]


def test_packets_between_windows_are_in_none(folder: Path) -> None:
    sql = "SELECT count(*) FROM p [RANGE 1 second, SLIDE 1 minute, WA ts]"
    assert csv(sql, folder) == ["window_start,window_end,count", "59000000000,60000000000,1"]


def test_a_nanosecond_decides_between_two_windows(tmp_path: Path) -> None:
    frame = icmp("10.0.0.1", "10.0.0.2")
    write(tmp_path / "edge.pcap", [(60, frame), (59.999, frame), (120, frame), (119.999, frame)])
    assert csv(f"SELECT count(*) FROM p {MINUTE}", tmp_path) == [
        "window_start,window_end,count",
        "0,60000000000,1",
        "120000000000,180000000000,1",
        "60000000000,120000000000,2",
    ]
