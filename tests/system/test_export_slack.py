"""`exported` in the slack of `wiretide query` and of the Python API: windows close as soon as the numbers prove it.

The tests detect a slack whose first part is ignored: its windows would wait for the second part.
"""

from pathlib import Path

import pytest

import wiretide
from dashboards.answer import answer
from highlevel.inline.engine import InlineRun
from lowlevel.metrics import ROWS_BELOW_WATERMARK
from lowlevel.watermarks.rule import parse_rule
from queries.gsql import compile_query
from queries.pipeline.input_options import parse_slack
from queries.pipeline.inputs import bind_files
from tests.harness.command_line import run as run_command
from tests.references.netflow_bytes import v5, v5_record
from tests.references.pcap_bytes import NS
from tests.references.small_captures import UDP, ip, write

START, UPTIME = 1_700_000_000, 86_400_000
SQL = "SELECT count(*) AS n FROM flows [RANGE 10 seconds]"


@pytest.fixture
def exports(tmp_path: Path) -> Path:
    """An exporter with a datagram every five seconds, whose record ended five seconds before; some ended 30 before."""
    packets = []
    for number in range(240):
        uptime = UPTIME + 5000 * number
        ended = uptime - (30_000 if number % 60 == 59 else 5000)
        seconds = START + 5 * number
        payload = v5([v5_record(octets=1, first=ended, last=ended)], uptime=uptime, seconds=seconds, sequence=number)
        segment = bytes([4, 0, 8, 7]) + (len(payload) + 8).to_bytes(2, "big") + bytes(2) + payload  # to port 2055
        packets.append((float(seconds), ip("192.0.2.5", "192.0.2.100", UDP, segment, 20 + len(segment))))
    return write(tmp_path / "exports.pcap", packets)


@pytest.mark.parametrize(("exported", "late"), [(None, 0), (30, 0), (10, 3)])
def test_records_are_late_after_their_export_time(exported: int | None, late: int, exports: Path) -> None:
    """The exporter is new for the first five minutes: the numbers prove nothing about the first of the four."""
    delay = None if exported is None else exported * NS
    inputs = bind_files([str(exports)])
    run = InlineRun([compile_query(SQL)], inputs, slack=300 * NS, export_delay=delay, block_records=1)
    counted = sum(n for _, batch in run.results() for n in batch.column("n").to_pylist())
    assert run.samples().total(ROWS_BELOW_WATERMARK, kind="flows") == late
    assert counted == 240 - late


def test_the_command_line_and_python_accept_it(exports: Path) -> None:
    text = "exported 10s late 5m"
    with answer(compile_query(SQL), bind_files([str(exports)]), slack=parse_slack(text)) as answered:
        assert answered.run is not None
        assert answered.run.shards[0].input.watermark_rule == parse_rule(text)
    status, rows, errors = run_command("query", exports, SQL, "--slack", text, "--format", "csv", cwd=exports.parent)
    assert (status, errors) == (0, "")
    counts = [int(line.split(",")[-1]) for line in rows.splitlines()[1:]]
    found = wiretide.open(exports, slack=text).query(SQL).arrow()
    assert sum(counts) == sum(found.column("n").to_pylist()) == 240  # all records are one batch


@pytest.mark.parametrize("slack", ["exported 5m late 15s", "exported 15s"])
def test_another_slack_is_refused_with_the_choices(slack: str, exports: Path) -> None:
    status, _, errors = run_command("query", exports, SQL, "--slack", slack, cwd=exports.parent)
    assert status == 2
    words = " ".join(errors.replace("│", " ").split())
    assert f"got a slack of '{slack}'" in words
    assert "exported TIME late TIME for flow records" in words
