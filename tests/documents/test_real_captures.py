"""The table of patterns.md with answers over real captures: each row is the answer of its query.

Finds: a figure of the table that a change of a ready query has made wrong.
"""

import re
from datetime import datetime
from pathlib import Path

import pytest

import wiretide
from tests.documents.blocks import GUIDE

PAGE = GUIDE / "patterns.md"
ROW = re.compile(r"^\| `(@[a-z-]+)` \| `(\S+\.pcap(?:ng)?)` \| ([^|]*) \| (\d+) \| ([^|]*) \|$", re.MULTILINE)
ARCS = re.compile(r"^`(\S+\.arcs)` has one arc:\n`([^`]+)`\.$", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text("utf-8"))


def test_the_table_has_rows() -> None:
    assert len(ROWS) == 9


@pytest.mark.parametrize("name", [row[0] for row in ROWS])
def test_a_row_is_the_answer_over_its_capture(
    name: str, captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ((file, arc),) = ARCS.findall(PAGE.read_text("utf-8"))
    Path(file).write_text(arc)
    ((_, capture, values, rows, first),) = (row for row in ROWS if row[0] == name)
    params = dict(value.split("=") for value in values.split())
    answer = wiretide.query(name, captures / "pcap" / capture, params=params).to_pylist()
    assert len(answer) == int(rows)
    shown = [value for key, value in answer[0].items() if not isinstance(value, datetime) and key != "final"]
    assert first == ", ".join(f"{value:.3g}" if isinstance(value, float) else str(value) for value in shown)


@pytest.mark.parametrize("capture", ["hostile/resp_1_benchmark.pcap", "pcap/synscan.pcap"])
def test_many_requests_without_a_call_back(capture: str, captures: Path) -> None:
    """Connections of a host to itself over the loopback interface, and a scan of 1,000 ports."""
    assert wiretide.query("@call-backs", captures / capture).num_rows == 0
