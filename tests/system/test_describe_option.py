"""`wiretide query --describe`: the columns of an answer, and times for WAIT from the lateness of rows.

The tests detect a suggested WAIT that needs corrections, a REMEMBER that loses rows, and lateness of other links.
"""

import re
from pathlib import Path
from random import Random

import pytest

from dashboards.description import describe_lateness, measure, start_counting
from queries.gsql import compile_query
from queries.pipeline.inputs import bind_streams
from tests.harness.command_line import run
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, udp

START = 1_700_000_000 * NS
FRAME = udp("10.0.0.1", "10.0.0.2", 1, 2)
ROWS = 60_000
"""Rows of several blocks, because all late rows of a block are one correction."""

SQL = "SELECT srcIP, count(*) AS n FROM packets [RANGE 10 seconds] GROUP BY srcIP"


def write_late(path: Path, random: Random, packets: int, most: float) -> list[int]:
    """Write packets of which every tenth is late, and return the lateness in ns of each late packet."""
    times, amounts, newest = [], [], 0
    for number in range(packets):
        time = START + number * NS // 100
        if number > 100 and random.random() < 0.1:
            time -= round(most * NS * random.random() ** 2)
        amounts += [newest - time] if time < newest else []
        newest = max(newest, time)
        times.append(time)
    path.write_bytes(pcap_bytes([(time, FRAME) for time in times], RAW_IP))
    return amounts


def waits_of(text: str) -> list[list[str]]:
    """The cells of the lines of links."""
    lines = text.split("\n\n")[2].split("\n")
    assert re.split(" {2,}", lines[0]) == ["link", "kind", "rows", "late", "95 %", "99 %", "99.9 %", "100 %"]
    return [re.split(" {2,}", line) for line in lines[2:]]


def test_the_suggested_times_need_few_corrections_and_lose_no_row(tmp_path: Path) -> None:
    amounts = sorted(write_late(tmp_path / "late.pcap", Random("described"), ROWS, 4))
    status, text, errors = run("query", "late.pcap", SQL, "--describe", cwd=tmp_path)
    assert (status, errors) == (0, "")
    assert [line.split() for line in text.split("\n\n")[0].split("\n")[2:]] == [
        ["window_start", "time"],
        ["window_end", "time"],
        ["srcIP", "address"],
        ["n", "integer"],
    ]
    ((link, kind, rows, late, *waits),) = waits_of(text)
    assert (link, kind, rows) == ("late", "packets", f"{ROWS:,}")
    assert late == f"{100 * len(amounts) / ROWS:.3g} %"
    for share, wait in zip((0.95, 0.99, 0.999, 1.0), waits, strict=True):
        number, unit = wait.split()
        exact = amounts[max(0, -int(-share * len(amounts) // 1) - 1)]
        assert exact <= int(number) * (10**6 if unit == "ms" else NS) <= 1.15 * exact
    clause = text.rstrip().split("\n")[-2]
    _, text, errors = run("query", "late.pcap", f"{SQL} {clause} EMIT CHANGES", "--stats", cwd=tmp_path)
    counters = dict(line.rsplit(" ", 1) for line in errors.splitlines())
    assert counters["wiretide_rows_below_promise_total{late,packets}"] == "0"
    assert counters["wiretide_lateness_seconds{late,packets,+Inf}"] == str(len(amounts))
    without = run("query", "late.pcap", f"{SQL} EMIT CHANGES", "--stats", cwd=tmp_path)[2]
    corrections = [int(re.findall(r"corrections_total\S* (\d+)", each)[0]) for each in (errors, without)]
    assert corrections[0] == 0 < corrections[1]


def test_each_link_of_the_query_is_measured_and_no_other(tmp_path: Path) -> None:
    amounts = write_late(tmp_path / "a.pcap", Random(3), 500, 2)
    write_late(tmp_path / "b.pcap", Random(4), 300, 0)
    streams = {"A": ["a.pcap"], "B": ["b.pcap"], "C": ["b.pcap"]}
    inputs = bind_streams({name: [str(tmp_path / path) for path in paths] for name, paths in streams.items()}, False)
    plan = compile_query("SELECT count(*) FROM A UNION B [RANGE 1 minute]")
    with start_counting(plan, inputs) as counting:
        links, complete = measure(plan, inputs, counting)
    found = [(link.link, link.kind, link.rows, link.lateness.late_rows, link.lateness.largest) for link in links]
    assert complete
    assert found == [("A", "packets", 500, len(amounts), max(amounts)), ("B", "packets", 300, 0, 0)]


def test_the_measurement_ends_after_enough_rows(tmp_path: Path) -> None:
    write_late(tmp_path / "long.pcap", Random(5), 40_000, 0)
    inputs = bind_streams({"A": [str(tmp_path / "long.pcap")]}, False)
    plan = compile_query("SELECT count(*) FROM A [RANGE 1 minute]")
    with start_counting(plan, inputs) as counting:
        links, complete = measure(plan, inputs, counting, max_rows=1000)
    assert not complete  # the low level is a few blocks ahead of the results
    assert links[0].rows >= 1000
    assert describe_lateness(links, complete=complete).startswith("The first ")


def test_rows_in_order_need_no_wait_and_an_input_without_rows_has_no_times(tmp_path: Path) -> None:
    write_late(tmp_path / "a.pcap", Random(6), 200, 0)
    text = run("query", "a.pcap", SQL, "--describe", cwd=tmp_path)[1]
    assert text.endswith("No row is late: WITH CONSISTENCY (WAIT 0, REMEMBER 0) needs no corrections.\n")
    (tmp_path / "empty.pcap").write_bytes(pcap_bytes([], RAW_IP))
    text = run("query", "empty.pcap", SQL, "--describe", cwd=tmp_path)[1]
    assert text.endswith("There are no rows, so no times for WAIT and REMEMBER.\n")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--on", "local"), "--describe and --on"),
        (("--format", "csv"), "--describe and --format"),
        ((SQL,), "--describe and several queries"),
    ],
)
def test_options_of_the_answer_are_refused(words: tuple[str, ...], problem: str, tmp_path: Path) -> None:
    (tmp_path / "empty.pcap").write_bytes(pcap_bytes([], RAW_IP))
    status, _, errors = run("query", "empty.pcap", SQL, *words, "--describe", cwd=tmp_path)
    assert status == 2
    assert f"{problem}: expected one query, without options of its answer" in errors
