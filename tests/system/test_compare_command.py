"""`wiretide compare` as a command: what it writes, what it refuses, and how it is stopped."""

from __future__ import annotations

import contextlib
import csv
import gzip
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import wiretide
from capture.errors import WiretideError
from capture.generate import Profile, generate
from highlevel.compare.figures import SCHEMA
from tests.harness.command_line import environment, run, until_mapped

SECOND = 1_000_000_000

COUNT = "SELECT srcIP, count(*) AS n FROM packets [RANGE 3 seconds] GROUP BY srcIP"
UNION = "SELECT count(*) AS n, avg(len) AS mean FROM a UNION b [RANGE 2 seconds]"


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Two links in order, of 9 s."""
    folder = tmp_path_factory.mktemp("links")
    for name, seed, rate in (("a", 1, 40.0), ("b", 2, 20.0)):
        profile = Profile(duration=9 * SECOND, rate=rate, groups=8, ipv6=0.3, seed=seed)
        generate(profile, folder / f"{name}.pcap")
    return {name: [str(folder / f"{name}.pcap")] for name in ("a", "b")}


def test_on_the_command_line(links: dict[str, list[str]], tmp_path: Path) -> None:
    (a,), (b,) = links.values()
    status, out, err = run(
        "compare", "-s", f"a={a}", "-s", f"b={b}", UNION, "--skew", "b=2s", "--lull", "a=3s+1s",
        "--disorder", "500ms", "--slack", "0,5s", "--repeat", "1", "--csv", "found.csv", cwd=tmp_path,
    )  # fmt: skip
    assert (status, err) == (0, "")
    assert "out of order, exact" in out
    assert "With exact watermarks" in out
    with (tmp_path / "found.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == SCHEMA.names
    assert [row["in_order"] for row in rows] == ["false"] * 3 + ["true"] * 7
    assert rows[0]["promised_late_s"] == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((COUNT,), "no input"),
        (("A", "SELECT srcIP FROM p"), "cannot be compared; expected tumbling or sliding windows"),
        (("A", COUNT, "--slack", "soon"), "--slack: expected a duration"),
        (("A", COUNT, "--lull", "a=5s"), "--lull: got 5s, expected START+LENGTH"),
        (("A", COUNT, "--skew", "5s"), "--skew: got 5s, expected NAME=TIME"),
        (("A", COUNT, "--tick", "0"), "--tick: got 0"),
        (("A", COUNT, "--repeat", "0"), "--repeat"),
    ],
)
def test_wrong_options_are_refused(words: tuple[str, ...], told: str, links: dict[str, list[str]]) -> None:
    done = CliRunner().invoke(
        wiretide.app, ["compare", *(links["a"][0] if word == "A" else word for word in words)], env=environment()
    )
    if isinstance(done.exception, WiretideError):
        assert (done.exception.status, told in str(done.exception)) == (2, True)
    else:
        assert (done.exit_code, told in done.output) == (2, True), done.output


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="/proc tells what a process has mapped")
def test_ctrl_c_ends_it(links: dict[str, list[str]], tmp_path: Path) -> None:
    command = [sys.executable, wiretide.__file__, "compare", links["a"][0], COUNT, "--repeat", "100000"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, env=environment()) as running:
        until_mapped(running, Path(links["a"][0]))
        err = None
        while err is None:
            running.send_signal(signal.SIGINT)
            # Rarely a library swallows the first one while it is imported. A user presses Ctrl-C again.
            with contextlib.suppress(subprocess.TimeoutExpired):
                _, err = running.communicate(timeout=30)
    assert (running.returncode, err) == (130, b"wiretide: stopped\n")


def test_rotated_and_compressed_files_of_a_link_are_that_link(links: dict[str, list[str]], tmp_path: Path) -> None:
    whole = Path(links["a"][0]).read_bytes()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.pcap.gz").write_bytes(gzip.compress(whole))
    profile = Profile(duration=9 * SECOND, rate=40.0, groups=8, seed=3, clock_offset=9 * SECOND)
    generate(profile, tmp_path / "a" / "2.pcap")
    sql = "SELECT count(*) AS n FROM a [RANGE 3 seconds]"
    table = wiretide.compare(sql, streams={"a": [str(tmp_path / "a")]}, slack="0", repeat=1)
    assert table.column("rows").to_pylist() == [720] * table.num_rows
    assert table.column("wrong").to_pylist() == table.column("missing").to_pylist() == [0] * table.num_rows
    assert max(table.column("latency_most_s").to_pylist()) < 1  # nobody waits for the second file
