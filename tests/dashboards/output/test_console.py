"""Messages on standard error. It can catch noise in a pipe, a warning that is lost, counters that lie."""

import io
import sys

import pytest

from capture.metrics import BYTES_READ, PACKETS_DECODED, RECORDS_READ, RECORDS_SKIPPED, Samples
from dashboards.output.console import compile_kernels, print_live_hint, progress_bar, report


class Terminal(io.StringIO):
    """A standard error that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def samples() -> Samples:
    found = Samples()
    found.add(RECORDS_READ, 1200, "Main1")
    found.add(PACKETS_DECODED, 1190, "Main1")
    found.add(RECORDS_SKIPPED, 10, "Main1", "non_ip")
    found.add(BYTES_READ, 2_500_000, "Main1")
    return found


def test_in_a_pipe_there_is_no_progress_and_no_summary(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar() as progress:
        assert progress is None
    report(samples(), [])
    assert capsys.readouterr() == ("", "")


def test_warnings_are_said_wherever_they_go(capsys: pytest.CaptureFixture[str]) -> None:
    report(samples(), ["a.pcap: cut in record", "5 rows were late"])
    assert capsys.readouterr() == (
        "",
        "wiretide: warning: a.pcap: cut in record\nwiretide: warning: 5 rows were late\n",
    )


def test_stats_are_all_counters(capsys: pytest.CaptureFixture[str]) -> None:
    report(samples(), [], stats=True)
    assert capsys.readouterr().err.splitlines() == [
        "wiretide_bytes_read_total{Main1} 2500000",
        "wiretide_packets_decoded_total{Main1} 1190",
        "wiretide_records_read_total{Main1} 1200",
        "wiretide_records_skipped_total{Main1,non_ip} 10",
    ]


def test_a_terminal_gets_one_line_of_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    report(samples(), [])
    assert terminal.getvalue() == "1,200 records (2.5 MB), 1,190 IP packets, 10 others\n"


def test_a_terminal_gets_a_progress_bar_that_disappears(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar() as progress:
        assert progress is not None
        progress(3_000_000, 10_000_000)
    assert "3.0/10.0 MB" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")  # the line is erased


def test_a_terminal_is_told_how_a_live_run_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    print_live_hint(live=True)
    assert capsys.readouterr() == ("", "")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    print_live_hint(live=False)
    print_live_hint(live=True)
    assert terminal.getvalue() == "wiretide: reading live; Ctrl-C ends the query and prints the open windows\n"


def test_kernels_that_are_there_are_not_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    compile_kernels()
    capsys.readouterr()
    compile_kernels()
    assert capsys.readouterr() == ("", "")
