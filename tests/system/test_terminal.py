"""A query on a terminal: standard output and standard error are one screen.

It can catch a table that begins in the line of the progress bar, a bar that stays, and bytes that are counted twice.
"""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import wiretide
from capture.generate import Profile, generate
from dashboards.output.console import compile_kernels
from tests.harness.command_line import environment

CONTROL = re.compile(r"\x1b\[(\d*)([A-Za-z])|\x1b\[\?25[lh]|\r|\n|[^\x1b\r\n]+")


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compile_kernels()
    path = tmp_path_factory.mktemp("captures") / "trace.pcap"
    generate(Profile(packets=30_000, rate=1000, groups=50), path)
    return path


def on_terminal(*words: str | Path) -> str:
    """All that a command writes to a terminal of its own."""
    screen, end = pty.openpty()
    command = [sys.executable, wiretide.__file__, *map(str, words)]
    settings = environment() | {"TERM": "xterm", "COLUMNS": "120", "LINES": "50"}
    with subprocess.Popen(command, stdout=end, stderr=end, stdin=subprocess.DEVNULL, env=settings) as process:
        os.close(end)
        written = b""
        while True:
            try:
                chunk = os.read(screen, 65536)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            written += chunk
        os.close(screen)
        assert process.wait() == 0, written
    return written.decode()


def shown(written: str) -> list[str]:
    """The lines on the screen after everything has been written."""
    lines, row, column = [""], 0, 0
    for match in CONTROL.finditer(written):
        text, (count, order) = match.group(), match.groups()
        if text == "\r":
            column = 0
        elif text == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif order == "A":
            row -= int(count or 1)
        elif order == "K":
            lines[row] = ""
        elif not text.startswith("\x1b"):
            lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
            column += len(text)
    return [line.rstrip() for line in lines]


@pytest.mark.parametrize("format", ["table", "csv", "json"])
@pytest.mark.slow("processes at a terminal")
def test_an_answer_and_the_progress_bar_do_not_mix(format: str, capture: Path) -> None:  # noqa: A002
    sql = "SELECT count(*) AS n, min(ts) AS first FROM packets [RANGE 10 seconds]"
    words = ["query", capture, sql, "--format", format, "--threads", "1"]
    written = on_terminal(*words)
    assert "\x1b[2K" in written, "there was a bar"
    piped = subprocess.run(
        [sys.executable, wiretide.__file__, *map(str, words)], capture_output=True, env=environment(), check=True
    )
    answer = piped.stdout.decode().splitlines()
    assert len(answer) >= 3
    lines = shown(written)
    assert lines[: len(answer)] == answer
    assert re.fullmatch(r"30,000 records \(\d\.\d MB\), 30,000 IP packets, 0 others", lines[len(answer)])
    assert not any(lines[len(answer) + 1 :])


def test_the_bar_counts_each_byte_once(capture: Path) -> None:
    sql = "SELECT count(*) AS n FROM packets"
    written = on_terminal("query", capture, sql)
    megabytes = f"{capture.stat().st_size / 1e6:.1f}"
    assert set(re.findall(r"/([\d.]+) MB", written)) == {megabytes}


@pytest.mark.slow("processes at a terminal")
def test_a_join_without_a_key_is_warned_of_and_shows_how_many_pairs_it_has_found(capture: Path) -> None:
    joined = "FROM packets a [RANGE 2 s], packets b [RANGE 0 s]"
    without = on_terminal("query", capture, f"SELECT count(*) AS pairs {joined} WHERE a.len > b.len + 10000")
    assert "warning: 1 join of query has no equality between both sides" in without
    assert re.search(r"[1-9][0-9,]* pairs joined", without)
    with_key = on_terminal("query", capture, f"SELECT count(*) AS pairs {joined} WHERE a.ip_id = b.ip_id")
    assert "no equality" not in with_key
