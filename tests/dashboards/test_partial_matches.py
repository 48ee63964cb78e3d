"""`--partial-matches` and `Result.partial_matches`: the runs that the end of a capture ends, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import wiretide
from capture.errors import InputError
from tests.harness.command_line import run
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, udp

START = 1_700_000_000
PATTERN = (
    "SELECT srcIP, n FROM packets MATCH_RECOGNIZE (PARTITION BY srcIP ORDER BY ts MEASURES count(*) AS n "
    "PATTERN (A{3} B) DEFINE B AS destPort = 9)"
)
AUTOMATON = (
    "SELECT srcIP, n FROM packets AUTOMATON (PARTITION BY srcIP ORDER BY ts REGISTER n INT DEFAULT 0 START idle "
    "FINAL done ARC idle TO probing SET n = 1 ARC probing TO probing SET n = n + 1 "
    "ARC probing TO done WHEN destPort = 9 SET n = n + 1 WITHIN 1 minute)"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two packets of one host, and four of another, whose last one completes a match."""
    sources = [(0, 1, 1), (1, 2, 1), (2, 2, 1), (3, 2, 1), (4, 2, 9), (5, 1, 1)]
    records = [
        ((START + second) * NS, udp(f"10.0.0.{host}", "10.0.0.9", 1, port, 40)) for second, host, port in sources
    ]
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap_bytes(records, RAW_IP))
    return path


def test_the_command_writes_them_into_a_file(path: Path) -> None:
    words = ("query", path.name, PATTERN, "--format", "csv", "--partial-matches")
    status, out, err = run(*words, "open.csv", "--stats", cwd=path.parent)
    assert (status, out) == (0, "srcIP,n\n10.0.0.2,4\n")
    assert "open.csv: 2 partial matches" in err
    assert "wiretide_partial_matches{query} 0" in err
    expected = (
        "srcIP,match_start,match_end,variable,count(*)\n"
        f"10.0.0.1,{START * NS},{(START + 5) * NS},A2,2\n"
        f"10.0.0.1,{(START + 5) * NS},{(START + 5) * NS},A1,1\n"
    )
    assert (path.parent / "open.csv").read_text() == expected
    for sql, more, status, message in (
        (PATTERN, ("open.pcap",), 1, "a name with .txt"),
        (PATTERN, ("no/open.csv",), 1, "no/open.csv"),
        ("SELECT srcIP FROM packets", ("open.csv",), 1, "without a pattern"),
        (f"{PATTERN} EMIT CHANGES", ("open.csv",), 1, "expected the query without EMIT CHANGES, or AUTOMATON"),
        (PATTERN, ("open.csv", "--on", "local"), 2, "the inline engine"),
        (PATTERN, ("open.csv", "--packets-to", "a2.pcap"), 2, "expected one of them"),
    ):
        code, _, err = run("query", path.name, sql, "--partial-matches", *more, cwd=path.parent)
        assert (code, message in err, "Traceback" in err) == (status, True, False), err


@pytest.mark.parametrize("end", ["", " WITH CONSISTENCY (WAIT 0, REMEMBER FOREVER) EMIT CHANGES"])
def test_those_of_an_automaton_have_its_states(path: Path, end: str) -> None:
    """A run in the state `done` is no partial match: no arc leaves it."""
    words = ("query", path.name, AUTOMATON + end, "--format", "csv", "--stats", "--partial-matches", "open.csv")
    status, _, err = run(*words, cwd=path.parent)
    assert (status, "open.csv: 6 partial matches" in err) == (0, True), err
    assert "wiretide_partial_matches{query} 0" in err
    runs = [(1, 0, 5, 2), (2, 1, 4, 4), (2, 2, 4, 3), (2, 3, 4, 2), (2, 4, 4, 1), (1, 5, 5, 1)]
    expected = [
        f"10.0.0.{host},{(START + first) * NS},{(START + last) * NS},probing,{n}" for host, first, last, n in runs
    ]
    assert (path.parent / "open.csv").read_text().splitlines() == ["srcIP,match_start,match_end,state,n", *expected]


def test_python_returns_them_as_a_table(path: Path) -> None:
    with wiretide.open(path) as capture:
        table = capture.query(PATTERN).partial_matches()
        assert table["variable"].to_pylist() == ["A2", "A1"]
        assert [time.second for time in table["match_start"].to_pylist()] == [20, 25]
        with pytest.raises(InputError, match="without a pattern"):
            capture.query("SELECT srcIP FROM packets").partial_matches()
    with wiretide.open(pa.table({"a": [1]})) as table_source, pytest.raises(ValueError, match="got a table"):
        table_source.query("SELECT a FROM packets").partial_matches()
