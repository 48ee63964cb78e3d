"""`wiretide explain --analyze`: rows between nodes are those that plain Python counts, on any number of threads."""

import re
from collections import Counter
from pathlib import Path

import pytest

import wiretide
from dashboards.measured_plan import InlineAnalysis
from dashboards.request import bind
from tests.harness.command_line import run
from tests.references.small_captures import icmp, udp, write

NS = 10**9
PACKETS = [(second, udp(f"10.0.0.{second % 3 + 1}", "10.0.0.9", 1, 53)) for second in range(30)]
PACKETS += [(second, icmp("10.0.0.2", "10.0.0.9")) for second in range(0, 30, 2)]
SOURCES = [f"10.0.0.{second % 3 + 1}" for second in range(30)] + ["10.0.0.2"] * 15


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return write(tmp_path / "M.pcap", sorted(PACKETS, key=lambda packet: packet[0]))


def figures(lines: list[str]) -> dict[str, tuple[int, int]]:
    """Rows in and rows out of each node."""
    table = {}
    for text in lines:
        found = re.match(r"  ([a-z]+(?: \d+)?)\s+([\d,]+)\s+([\d,]+)\s", text)
        if found:
            table[found[1]] = (int(found[2].replace(",", "")), int(found[3].replace(",", "")))
    return table


def analyzed(sql: str, capture: Path, threads: int = 1) -> list[str]:
    plan, inputs = bind(sql, "outer", None, [capture], None, follow=False)
    analysis = InlineAnalysis(plan, inputs, threads=threads)
    analysis.complete()
    return [*analysis.lines()]


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_in_and_out_of_a_scan(threads: int, capture: Path) -> None:
    sql = "SELECT srcIP, count(*) AS n FROM packets [RANGE 10 s, WA ts] WHERE protocol = 17 GROUP BY srcIP HAVING n > 3"
    lines = analyzed(sql, capture, threads)
    windows = Counter((second // 10, SOURCES[second]) for second in range(30))
    assert figures(lines) == {"leaf": (45, 9), "windowed": (9, sum(count > 3 for count in windows.values()))}
    assert lines[-1].startswith(
        "leaf: 30 of 45 rows pass WHERE; entries of the table: 9 flushed at the end of a pane, 0"
    )


def test_only_a_query_that_ends_before_its_inputs_is_said_to(capture: Path) -> None:
    told = "the query ended before the end of its inputs"
    assert not [line for line in analyzed("SELECT count(*) AS n FROM packets", capture) if told in line]
    assert [line for line in analyzed("SELECT len FROM packets LIMIT 2", capture) if told in line]


def test_rows_of_a_graph_with_a_join_and_a_limit(capture: Path) -> None:
    sql = """SELECT srcIP, count(*) AS n FROM (
        SELECT U.srcIP FROM packets U [RANGE 3 s], packets I [RANGE 0 s]
        WHERE U.protocol = 17 AND I.protocol = 1 AND U.srcIP = I.srcIP) GROUP BY srcIP ORDER BY n DESC LIMIT 1"""
    seconds = {17: [s for s in range(30) if SOURCES[s] == "10.0.0.2"], 1: [*range(0, 30, 2)]}
    pairs = sum(0 <= icmp_at - udp_at <= 3 for udp_at in seconds[17] for icmp_at in seconds[1])
    lines = analyzed(sql, capture)
    rows = figures(lines)
    assert rows["leaf 1"] == (45, 30)
    assert rows["leaf 2"] == (45, 15)
    assert rows["join"] == (45, pairs)
    assert rows["windowed"] == (pairs, 1)
    assert rows["sort"] == (1, 1)
    assert "1 rows of results" in lines[0]


def test_a_measured_run_has_the_results_of_another(capture: Path) -> None:
    plan, inputs = bind("SELECT DISTINCT srcIP FROM packets", "outer", None, [capture], None, follow=False)
    analysis = InlineAnalysis(plan, inputs, threads=1)
    assert sum(batch.num_rows for _, batch in analysis.run.results()) == len(set(SOURCES))
    assert all(measured.seconds >= 0 for measured in analysis.run.nodes.measurements)
    assert max(measured.state_bytes for measured in analysis.run.nodes.measurements) > 0
    analysis.run.close()


def test_the_command_prints_the_plan_and_the_figures(capture: Path) -> None:
    status, output, error = run("explain", "--analyze", capture, "@top-talkers", "--param", "n=2", cwd=capture.parent)
    assert (status, error) == (0, "")
    plan, figures_text = output.split("\nmeasured: ")
    assert "low level" in plan
    assert "2 rows of results" in figures_text
    python = wiretide.open(capture).query("@top-talkers", {"n": 2}).explain(analyze=True)
    assert python.split("\nmeasured: ")[0] == plan
    assert figures(python.split("\n")) == figures(output.split("\n"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--analyze", "@top-talkers"], "no input: write at least one input before the query"),
        (["--analyze", "-", "@top-talkers"], "--analyze reads complete files: got -"),
        (["M.pcap", "@top-talkers"], "got 2 words, expected one query"),
        (["@top-talkers", "--threads", "2"], "--stream, --threads and --on need --analyze"),
        (["@top-talkers", "--on", "local"], "--stream, --threads and --on need --analyze"),
        (["--analyze", "--micro-batches", "M.pcap", "@top-talkers"], "--micro-batches needs --analyze and a Spark"),
        (
            ["--analyze", "--on", "cluster", "M.pcap", "@top-talkers"],
            "--on cluster: expected inline, local, or the URL",
        ),
        (["--analyze", "--on", "local", "--threads", "2", "M.pcap", "@top-talkers"], "expected --on local[2], or"),
        (["--analyze", "missing.pcap", "@top-talkers"], "missing.pcap"),
        (["--analyze", "M.pcap", "SELECT cuont(*) FROM p"], "unknown function 'cuont'"),
    ],
)
def test_wrong_requests(words: list[str], message: str, capture: Path) -> None:
    status, output, error = run("explain", *words, cwd=capture.parent)
    assert status in (1, 2)
    assert message in " ".join(error.split())
    assert not output


@pytest.mark.spark
def test_the_command_and_python_measure_spark(capture: Path) -> None:
    sql = "SELECT srcIP, len FROM packets WHERE protocol = 17"
    status, output, _ = run("explain", "--analyze", "--on", "local[1]", capture, sql, cwd=capture.parent)
    assert status == 0
    assert figures(output.split("\n")) == {"leaf": (45, 30), "apply": (30, 30)}
    python = wiretide.open(capture, on="local[1]").query(sql).explain(analyze=True)
    assert figures(python.split("\n")) == figures(output.split("\n"))


def test_python_measures_files_only(capture: Path) -> None:
    import pyarrow as pa

    with pytest.raises(ValueError, match="measures queries over files: got a table"):
        wiretide.open(pa.table({"a": [1]})).query("SELECT a FROM t").explain(analyze=True)
    with pytest.raises(ValueError, match="reads complete files: got standard input"):
        wiretide.open("-").query("SELECT ts FROM t").explain(analyze=True)
