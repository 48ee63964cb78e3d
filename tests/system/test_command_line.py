"""The command line as a process: standard output byte by byte, standard error, exit status, signals and pipes.

Only a process shows noise on standard output, tracebacks, a wrong exit status, half written files after Ctrl-C, and
slow imports.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

import wiretide
from capture.generate import Profile, generate
from dashboards.output.console import compile_kernels
from tests.harness.command_line import environment, run
from tests.references.pcap_bytes import NS
from tests.references.small_captures import icmp, udp, write

SRC = "SELECT srcIP, count(*) FROM p GROUP BY srcIP"
MINUTE = "[RANGE 1 minute, SLIDE 1 minute, WA ts]"
COMMANDS = typer.main.get_command(wiretide.app).commands  # type: ignore[attr-defined]
Q1_1 = """SELECT    srcIP, count(*) [RANGE 10 minutes, SLIDE 1 minute, WA ts]
FROM      M
GROUP BY  srcIP"""
Q1_2 = """SELECT count (*) [RANGE 1 minute, SLIDE 1 minute, WA ts]
FROM Control union Main1 union Main2"""


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    """Compiled once, or the first process would say on standard error that it does."""
    compile_kernels()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three links, a cut capture and things that are none."""
    write(tmp_path / "main1.pcap", [(61, udp("10.0.0.1", "10.0.0.9", 1, 53)), (5, icmp("10.0.0.1", "10.0.0.9"))])
    write(tmp_path / "main2.pcap", [(62, udp("2001:db8::1", "2001:db8::2", 5, 6))])
    write(tmp_path / "control.pcap", [(130, icmp("10.0.0.3", "10.0.0.9"))])
    cut = write(tmp_path / "cut.pcap", [(1, icmp("10.0.0.1", "10.0.0.2")), (2, icmp("10.0.0.1", "10.0.0.2"))])
    cut.write_bytes(cut.read_bytes()[:-7])
    (tmp_path / "text.pcap").write_text("these are no packets")
    (tmp_path / "empty.pcap").touch()
    return tmp_path


def query(*words: str | Path, cwd: Path) -> list[str]:
    """Return the lines of a query that must succeed without any other output."""
    status, out, err = run("query", *words, cwd=cwd)
    assert (status, err) == (0, "")
    return out.splitlines()


def test_q1_1_of_the_thesis_runs_as_printed(folder: Path) -> None:
    header, *rows = query("-s", "M=main1.pcap", Q1_1, "--format", "csv", cwd=folder)
    assert header == "window_start,window_end,srcIP,count"
    # The packet at 5 s is in the ten windows that end from 1:00 to 10:00, the one at 61 s from 2:00 to 11:00.
    assert rows == [
        f"{(end - 10) * 60 * NS},{end * 60 * NS},10.0.0.1,{1 if end in (1, 11) else 2}" for end in range(1, 12)
    ]


@pytest.mark.slow("a process for each case")
def test_q1_2_of_the_thesis_runs_as_printed(folder: Path) -> None:
    bound = ["-s", "Main1=main1.pcap", "-s", "Main2=main2.pcap", "--stream", "Control=control.pcap"]
    assert query(*bound, Q1_2, "--format", "csv", cwd=folder) == [
        "window_start,window_end,count",
        "0,60000000000,1",
        "60000000000,120000000000,2",
        "120000000000,180000000000,1",
    ]


def test_csv_on_standard_output_is_the_answer_and_nothing_else(folder: Path) -> None:
    sql = "SELECT destPort, sum(len) AS bytes FROM p GROUP BY destPort HAVING bytes > 0"
    words = ["main1.pcap", "main2.pcap", sql, "--format", "csv"]
    command = [sys.executable, wiretide.__file__, "query", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, env=environment(), check=True)
    header, *rows = done.stdout.split(b"\n")
    assert header == b"destPort,bytes"
    assert sorted(rows) == [b"", b",100", b"53,100", b"6,100"]
    assert done.stderr == b""


def test_a_table_is_what_people_get(folder: Path) -> None:
    assert query("main2.pcap", f"SELECT srcIP, count(*) AS n FROM p {MINUTE} GROUP BY srcIP", cwd=folder) == [
        "window_start          window_end            srcIP        n",
        "--------------------  --------------------  -----------  -",
        "1970-01-01T00:01:00Z  1970-01-01T00:02:00Z  2001:db8::1  1",
    ]


@pytest.mark.parametrize("name", ["out.json", "out.parquet", "out.arrow", "out.csv"])
@pytest.mark.slow("a process for each case")
def test_output_to_a_file_leaves_standard_output_empty(name: str, folder: Path) -> None:
    kind = name.partition(".")[2]
    assert query("main2.pcap", SRC, "--format", kind, "-o", name, cwd=folder) == []
    content = (folder / name).read_bytes()
    assert content
    if kind == "json":
        assert json.loads(content) == {"srcIP": "2001:db8::1", "count": 1}
    assert not [each for each in folder.iterdir() if each.name.endswith(".part")]


@pytest.mark.slow("a process for each case")
def test_a_folder_and_a_glob_are_all_their_captures(folder: Path) -> None:
    (folder / "day").mkdir()
    for name in ("main1", "main2"):
        (folder / f"{name}.pcap").rename(folder / "day" / f"{name}.pcap")
    sql = "SELECT link, count(*) FROM p GROUP BY link"
    assert sorted(query("day", sql, "--format", "csv", cwd=folder)) == ["link,count", "main1,2", "main2,1"]
    assert query("-s", "M=day/main*", sql.replace("FROM p", "FROM m"), "--format", "csv", cwd=folder)[1:] == ["M,3"]


WRONG = [
    # The query is wrong: status 2 and the position.
    (["main1.pcap", "SELECT cuont(*) FROM p"], 2, "wiretide: line 1, column 8: "),
    (["main1.pcap", "SELECT srcIP FROM p WHERE len >"], 2, "\n    SELECT srcIP FROM p WHERE len >\n"),
    (["nothing.pcap", "SELECT"], 2, "line 1, column 7"),  # the query is looked at first
    # The command line is wrong: status 2.
    ([], 2, "Missing argument"),
    ([SRC], 2, "no input: write at least one input before the query, or bind a name with -s NAME=INPUT"),
    (["main1.pcap"], 2, "got main1.pcap without a query after it"),
    (["SELECT " + "srcIP, " * 99 + "len FROM p"], 2, "no input: write"),  # longer than a name can be
    (["-s", "p", SRC], 2, "-s p: expected NAME=PATH, for example -s Main1=main1.pcap"),
    (["-s", "=main1.pcap", SRC], 2, "expected NAME=PATH"),
    (["main1.pcap", SRC, "--colour"], 2, "No such option: --colour"),
    (["main1.pcap", SRC, "--format", "xml"], 2, "'table', 'csv', 'json', 'parquet', 'arrow'"),
    (["main1.pcap", SRC, "--slots", "12"], 2, "--slots 12: expected a power of two, at least 8"),
    (["main1.pcap", SRC, "--slots", "2"], 2, "--slots 2: expected a power of two"),
    (["main1.pcap", SRC, "--on", "flink"], 2, "--on flink: expected inline, local"),
    # The input is wrong: status 1.
    (["nothing.pcap", SRC], 1, "wiretide: nothing.pcap: cannot be read: No such file or directory\n"),
    (["none*.pcap", SRC], 1, "wiretide: none*.pcap: no file matches\n"),
    (["text.pcap", SRC], 1, "not a pcap or pcapng capture: it begins with 74 68 65 73; expected a pcap"),
    (["empty.pcap", SRC], 1, "wiretide: empty.pcap: not a pcap or pcapng capture: it is empty"),
    (["main1.pcap", "text.pcap", SRC], 1, "text.pcap: not a pcap or pcapng capture"),
    (["-s", "q=main1.pcap", SRC], 1, "no file for the stream p; bound are: q"),
    (["main1.pcap", SRC, "-o", "none/out.csv"], 1, "none/out.csv: cannot be written: No such file or directory"),
    (["main1.pcap", SRC, SRC, "-o", "two.csv"], 2, "expected a folder, such as -o two --format csv"),
    (["main1.pcap", SRC, "-o", "."], 1, "cannot be written: it is a folder"),
]


@pytest.mark.parametrize(("words", "status", "message"), WRONG, ids=[" ".join(words)[:40] for words, *_ in WRONG])
@pytest.mark.slow("a process for each message")
def test_what_is_wrong_is_said_on_standard_error(words: list[str], status: int, message: str, folder: Path) -> None:
    before = sorted(folder.iterdir())
    got, out, err = run("query", *words, cwd=folder)
    assert (got, out) == (status, "")
    assert message in err
    assert "Traceback" not in err
    assert sorted(folder.iterdir()) == before


@pytest.mark.slow("a process for each case")
def test_a_failing_run_leaves_the_old_file(folder: Path) -> None:
    (folder / "out.csv").write_text("old")
    status, _, _ = run("query", "text.pcap", SRC, "-o", "out.csv", cwd=folder)
    assert (status, (folder / "out.csv").read_text()) == (1, "old")


def test_a_cut_capture_is_answered_with_a_warning(folder: Path) -> None:
    status, out, err = run("query", "cut.pcap", SRC, "--format", "csv", cwd=folder)
    assert (status, out) == (0, "srcIP,count\n10.0.0.1,1\n")
    assert err == "wiretide: warning: cut.pcap: cut in record, after 1 whole record\n"


def test_stats_go_to_standard_error(folder: Path) -> None:
    status, out, err = run("query", "main1.pcap", SRC, "--format", "csv", "--stats", "--slots", "8", cwd=folder)
    assert (status, out) == (0, "srcIP,count\n10.0.0.1,2\n")
    assert "wiretide_rows_accepted_total{query,main1} 2\n" in err


def test_a_query_imports_nothing_that_makes_every_start_slow(folder: Path) -> None:
    program = (
        "import sys, wiretide\n"
        f"sys.argv = ['wiretide', 'query', 'main1.pcap', {SRC!r}]\n"
        "try:\n    wiretide.main()\n"
        "finally:\n    print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)\n"
    )
    places = os.pathsep.join(map(str, [Path(wiretide.__file__).parent, *sys.path]))
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, capture_output=True, env=environment(PYTHONPATH=places), check=True)
    loaded = set(done.stderr.decode().split())
    assert {"pyarrow", "numpy"} <= loaded
    assert loaded & {"typer", "numba", "pandas", "scapy", "dpkt", "pyspark", "pydantic", "prometheus_client"} == set()


@pytest.mark.slow("a process for each case")
def test_a_name_of_a_file_that_is_not_text_is_an_input(folder: Path) -> None:
    name = os.fsdecode(b"caf\xe9.pcap")
    (folder / "main1.pcap").rename(folder / name)
    assert query(name, "SELECT link, count(*) FROM p GROUP BY link", "--format", "csv", cwd=folder)[1] == r"caf\xe9,2"


@pytest.mark.parametrize(
    ("closed", "status", "out", "err"),
    [
        (
            ">&-",
            1,
            "",
            "wiretide: standard output is closed; expected a file or a pipe, or -o FILE\n",
        ),
        ("2>&-", 0, "srcIP,count\n10.0.0.1,1\n", ""),
    ],
)
@pytest.mark.slow("a process for each case")
def test_closed_standard_streams(closed: str, status: int, out: str, err: str, folder: Path) -> None:
    shell = f'exec "$0" "$@" {closed}'
    words = [sys.executable, wiretide.__file__, "query", "cut.pcap", SRC, "--format", "csv"]
    done = subprocess.run(["sh", "-c", shell, *words], cwd=folder, capture_output=True, env=environment(), check=False)
    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (status, out, err)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device of a full disk")
@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
@pytest.mark.slow("a process for each case")
def test_a_full_disk_is_an_error_with_the_name_of_the_file(kind: str, folder: Path) -> None:
    status, _, err = run("query", "main1.pcap", SRC, "--format", kind, "-o", "/dev/full", cwd=folder)
    assert (status, err) == (1, "wiretide: /dev/full: No space left on device\n")


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture with a group for every packet: an answer of many megabytes."""
    path = tmp_path_factory.mktemp("busy") / "busy.pcap"
    generate(Profile(packets=250_000, snap_length=64), path)
    return path


ALL_GROUPS = (
    "SELECT srcIP, destIP, srcPort, destPort, ts, count(*) FROM p GROUP BY srcIP, destIP, srcPort, destPort, ts"
)


@pytest.mark.parametrize(("kind", "unbuffered"), [("csv", ""), ("json", "1"), ("table", ""), ("arrow", "1")])
@pytest.mark.slow("a process for each case")
def test_a_reader_that_goes_away_ends_the_run_quietly(kind: str, unbuffered: str, busy: Path) -> None:
    command = [sys.executable, wiretide.__file__, "query", busy.name, f"{ALL_GROUPS}, len", "--format", kind]
    more = environment(PYTHONUNBUFFERED=unbuffered)
    with subprocess.Popen(
        command, cwd=busy.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=more
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(5)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.parametrize("words", [["queries"], ["--version"], ["query", "--help"], ["query", "cut.pcap", SRC]])
def test_a_closed_pipe_is_no_error_whatever_the_command_prints(words: list[str], folder: Path) -> None:
    """Lines with and without typer, and texts that are written only at the end."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, wiretide.__file__, *words]
    done = subprocess.run(command, cwd=folder, stdout=writer, stderr=subprocess.PIPE, env=environment(), check=False)
    os.close(writer)
    lines = [line for line in done.stderr.decode().splitlines() if "cut.pcap" not in line]
    assert (done.returncode, lines) == (0, [])


def test_another_pipe_without_a_reader_is_an_error(folder: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = ["query", "cut.pcap", SRC, "--format", "csv", "-o", f"/dev/fd/{writer}"]
    done = subprocess.run(
        [sys.executable, wiretide.__file__, *words], cwd=folder, capture_output=True, pass_fds=[writer], check=False
    )
    os.close(writer)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"Broken pipe" in done.stderr


@pytest.fixture
def running(busy: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A query over ten million packets in the middle of its work: its partial file holds the header."""
    links = [f"p{number}" for number in range(40)]
    bound = [word for link in links for word in ("-s", f"{link}={busy.name}")]
    sql = ALL_GROUPS.replace("FROM p ", f"FROM {' UNION '.join(links)} ")
    command = [sys.executable, wiretide.__file__, "query", *bound, sql, "--format", "csv"]
    with subprocess.Popen(
        [*command, "-o", "out.csv"], cwd=busy.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        while process.poll() is None and not any(part.stat().st_size for part in busy.parent.glob(".out.csv.*.part")):
            os.sched_yield()
        yield process
        process.kill()


@pytest.mark.slow("a process for each case")
def test_ctrl_c_ends_with_one_line_and_leaves_no_file(running: subprocess.Popen[bytes], busy: Path) -> None:
    running.send_signal(signal.SIGINT)
    out, err = running.communicate()
    assert (running.returncode, out, err) == (130, b"", b"wiretide: stopped\n")
    assert [each.name for each in busy.parent.iterdir()] == [busy.name]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.slow("a process for each case")
def test_help_of_a_command_mentions_all_its_options(name: str, tmp_path: Path) -> None:
    status, out, err = run(name, "--help", cwd=tmp_path)
    assert (status, err) == (0, "")
    for parameter in COMMANDS[name].params:
        assert [word for word in parameter.opts if word.startswith("-") and word not in out] == []
        assert (parameter.metavar or "") in out
    assert COMMANDS[name].help.splitlines()[0] in out


def test_help_names_every_command_and_version_is_one_line(tmp_path: Path) -> None:
    status, out, _ = run("--help", cwd=tmp_path)
    assert status == 0
    assert [name for name in ("query", "run", "explain", "generate", "demo") if name not in out] == []
    status, out, err = run("--version", cwd=tmp_path)
    assert (status, out.startswith("wiretide "), out.count("\n"), err) == (0, True, 1, "")


@pytest.mark.slow("a process for each case")
def test_explain_draws_no_other_images_than_svg(tmp_path: Path) -> None:
    status, _, err = run("explain", "-o", "plan.png", Q1_1, cwd=tmp_path)
    assert (status, "got .png, expected .svg for a drawing" in err) == (2, True)
    assert not (tmp_path / "plan.png").exists()


def test_explain_prints_what_runs_low_and_what_high(tmp_path: Path) -> None:
    status, out, err = run("explain", Q1_1, cwd=tmp_path)
    assert (status, err) == (0, "")
    assert out.index("low level:") < out.index("high level:")
    assert "pane            1 minute" in out
    status, out, err = run("explain", "SELECT width FROM p", cwd=tmp_path)
    assert (status, out) == (2, "")
    assert "line 1, column 8" in err


def test_generate_writes_what_query_reads(tmp_path: Path) -> None:
    words = ["--packets", "500", "--rate", "100", "--groups", "7", "--lull", "1-2", "--attack", "syn-flood:2-3:50"]
    status, out, err = run("generate", "made.pcap", *words, cwd=tmp_path)
    assert (status, err) == (0, "")
    assert out.startswith("made.pcap: 500 packets over ")
    assert query("made.pcap", "SELECT count(*) FROM p", "--format", "csv", cwd=tmp_path) == ["count", "500"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--packets", "0"], "packets: got 0, expected more than 0"),
        (["--packets", "5", "--duration", "1"], "packets, duration: got both, expected one of them"),
        (["--duration", "-3"], "duration: got -3 s, expected more than 0"),
        (["--lull", "5"], "5: expected FROM-TO in seconds, such as 60-120"),
        (["--lull", "a-b"], "could not convert string to float"),
        (["--attack", "syn-flood"], "syn-flood: expected KIND:FROM-TO:RATE"),
        (["--attack", "flood:1-2:3"], "syn-flood"),
        (["--attack", "syn-flood:20-30:3"], "expected a time in which the link"),
        (["--attack", "syn-flood:0-inf:3"], "got inf seconds"),
        (["--duration", "inf"], "got inf seconds, expected a finite number"),
        (["--duration", "1e300"], "got 1e+300 seconds, expected a finite number"),
        (["--duration", "nan"], "got nan seconds"),
        (["--duration", "1e200"], "32 bits"),
        (["--rate", "1e-320"], "rate: got 1e-320 packets/s"),
        (["--disorder", "much"], "none, band, blocks"),
    ],
)
@pytest.mark.slow("a process for each case")
def test_a_capture_that_cannot_be_made_is_a_wrong_command_line(words: list[str], message: str, tmp_path: Path) -> None:
    status, out, err = run("generate", "made.pcap", *words, cwd=tmp_path)
    assert (status, out) == (2, "")
    assert message in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        (None, 1, "p.toml: cannot be read"),
        ("[links]\nM = 'main1.pcap'\n", 2, "p.toml: no query"),
        ("[links]\nM = 'main1.pcap'\n[queries.q]\nsql = 'SELECT'\n", 2, "line 1, column 7"),
        ("[links]\nM = 'main1.pcap'\n[queries.q]\nsql = 'SELECT count(*) FROM M'\n", 2, "queries.q.sql has no window"),
        ("[links]\nN = 'main1.pcap'\n[queries.q]\nsql = 'SELECT count(*) FROM M [RANGE 1 s]'\n", 1, "stream M"),
        ("[links]\nM = 'no*.pcap'\n[queries.q]\nsql = 'SELECT count(*) FROM M [RANGE 1 s]'\n", 1, "no file matches"),
    ],
)
@pytest.mark.slow("a process for each case")
def test_a_wrong_pipeline_ends_before_spark_starts(text: str | None, status: int, message: str, folder: Path) -> None:
    if text is not None:
        (folder / "p.toml").write_text(text)
    got, out, err = run("run", "p.toml", "--until-done", cwd=folder)
    assert (got, out) == (status, "")
    assert message in err
    assert "Traceback" not in err
    assert not (folder / "state").exists()


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("out.csv", b"srcIP,count\n"),
        ("out.CSV", b"srcIP,count\n"),
        ("out.json", b'{"srcIP": '),
        ("out.jsonl", b'{"srcIP": '),
        ("out.ndjson", b'{"srcIP": '),
        ("out.parquet", b"PAR1"),
        ("out.arrow", b"\xff\xff\xff\xff"),
        ("out.txt", b"srcIP        count\n"),
        ("out", b"srcIP        count\n"),
    ],
)
@pytest.mark.slow("a process for each case")
def test_the_suffix_of_the_output_selects_the_format(name: str, begin: bytes, folder: Path) -> None:
    assert query("main2.pcap", SRC, "-o", name, cwd=folder) == []
    assert (folder / name).read_bytes().startswith(begin)


def test_a_format_that_is_given_is_stronger_than_the_suffix(folder: Path) -> None:
    assert query("main2.pcap", SRC, "-o", "out.parquet", "--format", "csv", cwd=folder) == []
    assert (folder / "out.parquet").read_bytes() == b"srcIP,count\n2001:db8::1,1\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "out.dat"], "unknown suffix .dat; expected .txt, .csv, .json, .jsonl, .ndjson, .parquet"),
        (["-o", "out.csv.gz"], "results are not compressed; expected a name without .gz"),
        (["--format", "arrow", "--times", "iso"], "--times iso with arrow: expected table, csv or json"),
    ],
)
def test_an_output_that_cannot_be_written_so_is_refused_at_once(words: list[str], message: str, folder: Path) -> None:
    status, out, err = run("query", "main2.pcap", SRC, *words, cwd=folder)
    assert (status, out) == (2, "")
    assert message in " ".join(err.replace("│", " ").split())
    assert not list(folder.glob("out*"))


@pytest.mark.slow("a process for each case")
def test_times_are_written_as_the_user_says(folder: Path) -> None:
    sql = f"SELECT min(ts) AS t FROM p {MINUTE}"
    words = ["main2.pcap", sql, "--format"]
    iso = "1970-01-01T00:01:00Z", "1970-01-01T00:02:00Z", "1970-01-01T00:01:02Z"
    ns = "60000000000", "120000000000", "62000000000"
    for kind, style, wanted in (
        ("csv", None, ns),
        ("csv", "iso", iso),
        ("json", None, ns),
        ("json", "iso", tuple(f'"{each}"' for each in iso)),
        ("table", None, iso),
        ("table", "ns", ns),
    ):
        line = query(*words, kind, *(["--times", style] if style else []), cwd=folder)[-1]
        found = re.findall(r'(?:"[^"]*": )?("?[^\s,{}]+"?)', line)
        assert tuple(found) == wanted, (kind, style)
