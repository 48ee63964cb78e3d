"""The runs of @call-backs begin with the first request of a series, or of a minute.

Finds: a call-back that is missing because of a large packet before the scan, a minute that is not 60 s, and a number of
runs that grows with the square of the length of a scan.
"""

import struct
from pathlib import Path

import pytest

import wiretide
from highlevel.plan.operators.matches import MatchesOperator
from highlevel.plan.pipeline import NodeOperators
from lowlevel.punctuation import END, Punctuation
from queries.gsql import compile_query
from queries.query_text import query_text
from tests.harness.recorded_runs import RecordedRun
from tests.references.small_captures import ip, write

TCP, SYN, ACK = 6, 2, 16
ATTACKER, VICTIM = "10.0.0.1", "10.9.9.9"
BEGIN = 1_714_557_600
"""2024-05-01T10:00:00Z, in seconds since the epoch."""


def tcp(source: str, target: str, port: int, flags: int, length: int = 40) -> bytes:
    return ip(source, target, TCP, struct.pack(">HHIIBBHHH", 1000, port, 0, 0, 5 << 4, flags, 1000, 0, 0), length)


def scan(at: float, requests: int, interval: float) -> list[tuple[float, bytes]]:
    return [(BEGIN + at + n * interval, tcp(ATTACKER, VICTIM, n + 1, SYN)) for n in range(requests)]


LARGE, CALL_BACK = tcp(ATTACKER, VICTIM, 80, ACK, 1440), tcp(VICTIM, ATTACKER, 4444, SYN)
UPLOAD = [(BEGIN + 5, tcp(ATTACKER, VICTIM, 443, SYN)), (BEGIN + 6, LARGE)]


@pytest.mark.parametrize("before", [[], UPLOAD], ids=["nothing", "upload"])
def test_a_call_back_is_found_after_a_normal_upload(before: list[tuple[float, bytes]], tmp_path: Path) -> None:
    packets = [*before, *scan(10, 30, 0.1), (BEGIN + 20, LARGE), (BEGIN + 25, CALL_BACK)]
    (found,) = wiretide.query("@call-backs", write(tmp_path / "a.pcap", packets)).to_pylist()
    expected = {"attacker": ATTACKER, "victim": VICTIM, "probes": 30, "bytes": 1440, "port": 4444}
    assert {name: found[name] for name in expected} == expected
    assert found["match_start"].second == 10


def runs_after_scan(path: Path, requests: int, interval: float) -> int:
    """Return the number of runs after a scan without a large packet."""
    sql = query_text("@call-backs", {})
    nodes = NodeOperators([compile_query(sql).root], [["a"]])
    rows = [*scan(10, requests, interval), (BEGIN + 1000, tcp("10.0.0.2", VICTIM, 1, SYN))]
    for port, item in RecordedRun(sql, write(path, rows), block_records=requests).items():
        if item == Punctuation("a", END):
            break
        list(nodes.punctuate(port, item) if isinstance(item, Punctuation) else nodes.process_rows(port, item))
    (operator,) = (each for each in nodes.operators if isinstance(each, MatchesOperator))
    assert operator.partial_matches is not None
    return operator.partial_matches.number


def test_the_number_of_runs_depends_on_the_minutes_of_a_scan_only(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    one = runs_after_scan(path, 100, 0.1)
    assert one > 0
    assert [runs_after_scan(path, requests, 0.1) for requests in (200, 400)] == [one, one]
    assert [runs_after_scan(path, 100, interval) for interval in (1, 2)] == [2 * one, 4 * one]
