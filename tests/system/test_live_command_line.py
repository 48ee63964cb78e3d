"""`wiretide query` over live inputs, as processes: signals, broken pipes, messages and the exit status.

Only processes show windows that stay in a buffer until the end, and a Ctrl-C that loses rows. They show a writer that
is stopped by the same Ctrl-C and loses its last packets, and tracebacks.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import wiretide
from dashboards.output.console import compile_kernels
from tests.harness.command_line import environment, run
from tests.references.live_packets import AGREED, BEGINNING, HEADER, START, packets
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, icmp

pytestmark = pytest.mark.slow("a process for each test")

COUNT = "SELECT count(*) AS n FROM p [RANGE 10 seconds]"


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    """Compiled once, or the first process would say on standard error that it does."""
    compile_kernels()


@contextmanager
def querying(*words: str, cwd: Path, status: int = 0, errors: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A `wiretide query` whose standard input is a pipe; at the end its exit status and standard error must be so."""
    command = [sys.executable, wiretide.__file__, "query", *words]
    with subprocess.Popen(
        command, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        env=environment(),
    ) as process:  # fmt: skip
        try:
            yield process
            assert process.stderr is not None
            assert process.stderr.read().decode() == errors
            assert process.wait() == status
        finally:
            process.kill()


def send(process: subprocess.Popen[bytes], content: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(content)


def line(process: subprocess.Popen[bytes]) -> str:
    """The next line of standard output; waits for it."""
    assert process.stdout is not None
    content = b""
    while not content.endswith(b"\n") and (byte := process.stdout.read(1)):
        content += byte
    return content.decode().rstrip("\n")


def window(start: int, packets: int) -> str:
    """A line of CSV."""
    return f"{(START + start) * NS},{(START + start + 10) * NS},{packets}"


def test_a_capture_through_a_pipe_has_the_answer_of_the_file(tmp_path: Path) -> None:
    content = HEADER + packets(*range(100))
    (tmp_path / "file.pcap").write_bytes(content)
    expected = run("query", "file.pcap", COUNT, "--format", "csv", cwd=tmp_path)
    assert expected[0] == 0
    for words in (["-", COUNT], ["-s", "p=-", COUNT], ["-", COUNT, "--slack", "exact", "--threads", "2"]):
        assert run("query", *words, "--format", "csv", cwd=tmp_path, input=content) == expected
    sql = "SELECT link, count(*) AS n FROM p GROUP BY link"
    status, out, err = run("query", "-", sql, "--format", "csv", cwd=tmp_path, input=content)
    assert (status, out, err) == (0, "link,n\nstdin,100\n", "")


@pytest.mark.drawn
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kind", ["csv", "json", "table"])
def test_windows_are_written_when_they_are_over_and_a_signal_ends_with_the_rest(
    kind: str, number: signal.Signals, tmp_path: Path
) -> None:
    with querying("-", COUNT, "--format", kind, "--slack", "2s", cwd=tmp_path) as process:
        send(process, BEGINNING + packets(12))
        lines = [line(process) for _ in range({"csv": 2, "json": 1, "table": 3}[kind])]
        send(process, packets(12, 13))
        process.send_signal(number)
        lines += list(iter(lambda: line(process), ""))
    if kind == "json":
        assert [json.loads(each)["n"] for each in lines] == [AGREED, 3]
    elif kind == "csv":
        assert lines == ["window_start,window_end,n", window(0, AGREED), window(10, 3)]
    else:
        assert [each.split()[-1] for each in lines] == ["n", "--", str(AGREED), "3"]
        assert len({len(each) for each in lines}) == 1


def test_windows_with_a_correlated_sub_query_are_written_while_the_pipe_is_open(tmp_path: Path) -> None:
    inner = "FROM p b [RANGE 10 seconds] WHERE b.srcIP = a.srcIP"
    sql = f"SELECT count(*) AS n FROM p a [RANGE 10 seconds] WHERE EXISTS (SELECT 1 {inner} AND b.len > 1)"
    sql += f" AND (SELECT count(*) {inner}) > 2"
    with querying("-", sql, "--format", "csv", "--slack", "2s", cwd=tmp_path) as process:
        send(process, BEGINNING + packets(12, 13))
        lines = [line(process), line(process)]
        send(process, packets(14))
        assert process.stdin is not None
        process.stdin.close()
        lines.append(line(process))
    assert lines == ["window_start,window_end,n", window(0, AGREED), window(10, 3)]


def stops_catching(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process no longer has a handler for SIGTERM of its own."""
    while True:
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = next(int(each.split()[1], 16) for each in status.splitlines() if each.startswith("SigCgt"))
        if not caught >> (signal.SIGTERM - 1) & 1:
            return


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc to see signals in")
def test_a_second_ctrl_c_interrupts(tmp_path: Path) -> None:
    with querying(
        "-", COUNT, "--slack", "2s", "--format", "csv", cwd=tmp_path, status=130, errors="wiretide: stopped\n"
    ) as process:
        send(process, BEGINNING + packets(12))
        assert [line(process), line(process)] == ["window_start,window_end,n", window(0, AGREED)]
        process.send_signal(signal.SIGINT)
        stops_catching(process)
        process.send_signal(signal.SIGINT)


WRITER = f"""
import signal, sys, time
def last(*_):
    sys.stdout.buffer.write({packets(12, 13)!r})
    sys.stdout.buffer.flush()
    sys.exit()
signal.signal(signal.SIGINT, last)
sys.stdout.buffer.write({BEGINNING + packets(12)!r})
sys.stdout.buffer.flush()
signal.pause()
"""
"""Like tcpdump, write the buffered packets at Ctrl-C before the end."""


def test_ctrl_c_for_the_writer_too_loses_nothing(tmp_path: Path) -> None:
    """Both are one group of processes, as in a pipeline: a terminal sends its Ctrl-C to the group."""
    command = [sys.executable, wiretide.__file__, "query", "-", COUNT, "--format", "csv", "--slack", "2s"]
    with (
        subprocess.Popen([sys.executable, "-c", WRITER], stdout=subprocess.PIPE, process_group=0) as writer,
        subprocess.Popen(
            command, cwd=tmp_path, stdin=writer.stdout, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            env=environment(), process_group=writer.pid,
        ) as process,
    ):  # fmt: skip
        assert [line(process), line(process)] == ["window_start,window_end,n", window(0, AGREED)]
        os.killpg(writer.pid, signal.SIGINT)
        out, err = process.communicate()
        assert (process.returncode, out.decode(), err) == (0, f"{window(10, 3)}\n", b"")


def test_a_reader_that_goes_away_ends_a_live_run_quietly(tmp_path: Path) -> None:
    with querying("-", COUNT, "--slack", "0s", "--format", "csv", cwd=tmp_path) as process:
        send(process, BEGINNING + packets(12))
        assert line(process)
        assert process.stdout is not None
        process.stdout.close()
        send(process, packets(25))


def test_a_file_of_a_live_run_can_be_read_while_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with querying("-", COUNT, "--slack", "2s", "-o", "out.csv", "--format", "csv", cwd=tmp_path) as process:
        send(process, BEGINNING + packets(12))
        while process.poll() is None and not (path.exists() and path.read_text().count("\n") == 2):
            os.sched_yield()
        assert path.read_text().splitlines() == ["window_start,window_end,n", window(0, AGREED)]
        send(process, packets(30))
        assert process.stdin is not None
        process.stdin.close()
    assert path.read_text().splitlines()[2:] == [window(10, 1), window(30, 1)]
    assert list(tmp_path.iterdir()) == [path]


def test_a_window_is_answered_in_a_lull_though_nothing_follows(tmp_path: Path) -> None:
    now = time.time_ns() / NS - START
    sql = "SELECT count(*) AS n FROM p [RANGE 100 ms]"
    with querying("-", sql, "--lull", "300ms", "--format", "csv", cwd=tmp_path) as process:
        send(process, HEADER + packets(now, now, now))
        assert line(process) == "window_start,window_end,n"
        assert line(process).endswith(",3")
        assert process.stdin is not None
        process.stdin.close()
        assert line(process) == ""


def test_late_rows_are_said_at_the_end(tmp_path: Path) -> None:
    with querying(
        "-", COUNT, "--slack", "2s", "--format", "csv", cwd=tmp_path,
        errors="wiretide: warning: 2 late rows missed a window that was already final: use a larger --slack\n",
    ) as process:  # fmt: skip
        send(process, BEGINNING + packets(12))
        assert [line(process), line(process)] == ["window_start,window_end,n", window(0, AGREED)]
        send(process, packets(5, 6, 12))
        assert process.stdin is not None
        process.stdin.close()
        assert line(process) == window(10, 2)


def test_a_named_pipe_is_a_link(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tap.pipe")
    sql = "SELECT link, count(*) AS n FROM p GROUP BY link"
    with querying("tap.pipe", sql, "--format", "csv", cwd=tmp_path) as process:
        with (tmp_path / "tap.pipe").open("wb") as end:
            end.write(BEGINNING)
        assert [line(process), line(process)] == ["link,n", f"tap,{AGREED}"]


def test_a_file_that_grows_and_a_folder_that_fills_are_followed(tmp_path: Path) -> None:
    (tmp_path / "day").mkdir()
    (tmp_path / "day" / "a.pcap").write_bytes(BEGINNING)
    grows = tmp_path / "grows.pcap"
    grows.write_bytes(BEGINNING)
    sql = "SELECT link, count(*) AS n FROM p [RANGE 10 seconds] GROUP BY link"
    with querying("day", "grows.pcap", sql, "--follow", "--slack", "1s", "--format", "csv", cwd=tmp_path) as process:
        assert line(process) == "window_start,window_end,link,n"
        with grows.open("ab") as end:
            end.write(packets(9, 12))
        (tmp_path / "day" / "b.pcap").write_bytes(HEADER + packets(8, 9, 12))
        rows = {line(process) for _ in range(2)}
        bounds = f"{START * NS},{(START + 10) * NS}"
        assert rows == {f"{bounds},day,{AGREED + 2}", f"{bounds},grows,{AGREED + 1}"}
        process.send_signal(signal.SIGINT)
        assert {line(process).rpartition(",")[2] for _ in range(2)} == {"1"}


def test_a_live_query_without_a_window_warns_that_it_answers_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "grows.pcap").write_bytes(BEGINNING)
    words = ("grows.pcap", "SELECT link, count(*) AS n FROM p GROUP BY link", "--follow", "--format", "csv")
    with querying(*words, cwd=tmp_path) as process:
        assert process.stderr is not None
        assert b"the query has no window: its results come after Ctrl-C" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert [line(process), line(process).partition(",")[0]] == ["link,n", "grows"]


def test_standard_input_that_is_a_terminal_is_refused(tmp_path: Path) -> None:
    terminal, other = pty.openpty()
    command = [sys.executable, wiretide.__file__, "query", "-", COUNT]
    done = subprocess.run(command, stdin=other, capture_output=True, env=environment(), check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"wiretide: -: standard input is a terminal, expected a capture: tcpdump -U -w - | wiretide" in done.stderr
    os.close(terminal)
    os.close(other)


WRONG = [
    (["-", "-", COUNT], 1, "- is given 2 times; expected once"),
    (["-", COUNT, "--slack", "soon"], 2, "got a slack of 'soon', expected a duration such as 500ms, 10s or 2 minutes"),
    (["-", COUNT, "--slack", "10 parsecs"], 2, "got a slack of '10 parsecs'"),
    (["-", COUNT, "--lull", "soon"], 2, "got a lull of 'soon': expected a duration such as 500ms, 10s or 2 minutes"),
    (["-", COUNT, "--lull", "trace"], 2, "got a lull of 'trace'"),
    (["-", COUNT, "--threads", "0"], 2, "0 is not in the range x>=1"),
    (["-", COUNT, "--on", "local"], 2, "--on local reads complete files: - needs the inline engine"),
    (["a.pcap", COUNT, "--on", "local", "--follow"], 2, "--on local reads complete files: --follow needs the inline"),
    (["a.pcap", COUNT, "--on", "local", "--slack", "1s"], 2, "--slack needs the inline engine"),
    (["a.pcap", COUNT, "--on", "local", "--lull", "1s"], 2, "--lull needs the inline engine"),
    (["a.pcap", COUNT, "--on", "spark://host:7077", "--threads", "2"], 2, "--threads needs the inline engine"),
    (["-", COUNT], 1, "it is empty"),
]


@pytest.mark.parametrize(("words", "status", "message"), WRONG, ids=[" ".join(words)[:40] for words, *_ in WRONG])
def test_what_is_wrong_is_said_on_standard_error(words: list[str], status: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(BEGINNING)
    got, _, err = run("query", *words, cwd=tmp_path, input=b"")
    assert got == status
    assert message in err
    assert "Traceback" not in err


def test_captures_of_unsupported_link_types_are_no_empty_answer(tmp_path: Path) -> None:
    (tmp_path / "user.pcap").write_bytes(pcap_bytes([(NS, b"some frame")] * 3, link_type=147))
    (tmp_path / "good.pcap").write_bytes(pcap_bytes([(NS, icmp("10.0.0.1", "10.0.0.2"))], RAW_IP))
    sql = "SELECT count(*) AS n FROM p"
    status, out, err = run("query", "user.pcap", sql, "--format", "csv", cwd=tmp_path)
    assert (status, out) == (1, "n\n")
    assert err.startswith("wiretide: all 3 records are of link types that are not supported (147); supported: 0 (")
    status, out, err = run("query", "user.pcap", "good.pcap", sql, "--format", "csv", cwd=tmp_path)
    assert (status, out) == (0, "n\n1\n")
    assert err == (
        "wiretide: warning: user.pcap: 3 of 3 records are of link type 147, not supported, and not in the answer\n"
    )
    frames = "SELECT count(*) AS n FROM frames"
    assert run("query", "user.pcap", frames, "--format", "csv", cwd=tmp_path) == (0, "n\n3\n", "")
