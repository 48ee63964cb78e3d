"""`wiretide capture PIPELINE.toml` as a process: its links, signals, kills, messages and the exit status.

Only a process shows a SIGTERM that loses rows, and a segment or a segment number that occurs twice after a kill -9. It
shows a metrics page without a link, and options of the collector that a node silently ignores.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

import wiretide
from capture.errors import InputError, WiretideError
from capture.generate import Profile, generate
from dashboards.output.console import compile_kernels
from highlevel.inline.engine import Input
from lowlevel.punctuation import Punctuation
from lowlevel.spool.folder import segment_numbers
from lowlevel.spool.reader import SpoolReader
from queries.pipeline.file import read_pipeline
from tests.harness.capture_process import node
from tests.harness.command_line import run
from tests.harness.held_pipes import held_open
from tests.references.live_packets import BEGINNING, START, packets
from tests.references.pcap_bytes import pcap_bytes
from tests.references.small_captures import RAW_IP
from tests.references.spool_twin import inline, segments, through_spools

pytestmark = pytest.mark.slow("real processes of nodes, killed and started again")

HEADER = pcap_bytes([], RAW_IP)
PIPELINE = """
[links.File]
capture = "a.pcap"
spool = "spool/file"
[links.Tap]
capture = "tap"
spool = "spool/tap"
promise = "late 2s"
[queries.pairs]
sql = "SELECT srcIP, destIP, count(*) AS n FROM File UNION Tap [RANGE 10 seconds] GROUP BY srcIP, destIP"
[queries.tapped]
sql = "SELECT count(*) AS n FROM Tap [RANGE 10 seconds]"
[node]
memory = "64MiB"
segment_time = "100ms"
segment_bytes = "64Ki"
"""


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    compile_kernels()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A pipeline, its capture and its pipe."""
    (tmp_path / "p.toml").write_text(PIPELINE)
    os.mkfifo(tmp_path / "tap")
    generate(Profile(packets=60_000, rate=1000, groups=300, seed=2), tmp_path / "a.pcap")
    return tmp_path


def test_a_node_that_is_stopped_and_started_again_loses_nothing(site: Path) -> None:
    """The first run is ended by SIGTERM with packets still in the pipe, the second by the end of the pipe."""
    content = BEGINNING + packets(*range(2, 200))
    cut = len(HEADER) + len(packets(*[1] * 100))
    with held_open(site / "tap") as tap:
        os.write(tap, content[:cut])
        with node(site) as first:
            first.until_metric('wiretide_node_links{state="ended"} 1.0')
            first.until_metric('wiretide_records_read_total{link="Tap"} 100.0')
            page = first.metrics()
            status, out, err = first.end()
        assert (status, err) == (0, "")
        assert re.search(r"File +ended +60,000 ", out)
        assert re.search(r"Tap +stopped +100 ", out)
        for family in ("rows_accepted", "table_bytes", "spool_rows_written", "node_sampling_rate", "records_shed"):
            assert f"wiretide_{family}" in page
        assert [line for line in first.first_lines if line.startswith("link")] == [
            f"link File: {site}/a.pcap into {site}/spool/file, for pairs",
            f"link Tap: {site}/tap into {site}/spool/tap, for pairs, tapped",
        ]
        assert not SpoolReader(site / "spool/tap").read(0).ended
        os.write(tap, HEADER + content[cut:])
        with node(site) as second:
            assert (
                second.first_lines[0]
                == f"link File: its spool {site}/spool/file has ended: there is nothing left to do"
            )
            second.until_metric(f'wiretide_records_read_total{{link="Tap"}} {AGREED_AND_REST - 100}.0')
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, tap)  # the last writer has gone
            os.close(nothing)
            out, err = second.process.communicate()
            assert (second.process.returncode, err) == (0, "")
    assert re.search(rf"Tap +ended +{AGREED_AND_REST - 100} ", out)
    plans = read_pipeline(site / "p.toml").plans()
    (site / "tap.pcap").write_bytes(content)
    inputs = [Input("File", site / "a.pcap", "File"), Input("Tap", site / "tap.pcap", "Tap")]
    pairs, tapped = inline(plans, inputs)
    assert through_spools(plans[:1], [site / "spool/file", site / "spool/tap"], others=True) == [pairs]
    assert through_spools(plans[1:], [site / "spool/tap"], others=True) == [tapped]
    segments(site / "spool/tap")


AGREED_AND_REST = 64 + 198
"""Packets that the pipe gets in all."""


def test_a_node_that_is_killed_leaves_whole_segments_and_goes_on_behind_them(site: Path) -> None:
    """A node on a pipe loses only the table entries. No segment occurs twice, and no packet is counted twice."""
    random, spool = Random(3), site / "spool/tap"
    written: Counter[int] = Counter()

    def write(*seconds: int) -> None:
        os.write(tap, packets(*seconds))
        written.update((START + second) // 10 for second in seconds)

    def write_five_seconds() -> None:
        first = 1 + written.total() // 40
        write(*(first + number // 40 for number in range(200)))

    with held_open(site / "tap") as tap:
        for _ in range(3):
            with node(site, "--link", "Tap") as running:
                before = len(segment_numbers(spool))
                os.write(tap, HEADER)
                for _ in range(3):
                    write_five_seconds()
                running.until(lambda before=before: len(segment_numbers(spool)) > before, "a segment")
                for _ in range(random.randrange(8)):
                    write_five_seconds()
                    time.sleep(random.random() * 0.1)
                running.process.kill()
                running.process.communicate()
            os.set_blocking(tap, False)
            with contextlib.suppress(BlockingIOError):
                while os.read(tap, 1 << 16):  # bytes that it had not read are lost
                    pass
            os.set_blocking(tap, True)
        with node(site, "--link", "Tap") as last:
            os.write(tap, HEADER)
            write(*[500] * 64)
            last.until_metric('wiretide_records_read_total{link="Tap"} 64.0')
            assert last.end()[0] == 0
    found = segments(spool)
    epochs = [each.header.epoch for each in found]
    assert epochs == sorted(epochs)
    assert set(epochs) == {0, 1, 2, 3}
    counted: Counter[int] = Counter()
    for each in found:
        for name, _, item in each.new_items:
            if name == "tapped" and not isinstance(item, Punctuation):
                for _, pane, rows in zip(*(column.to_pylist() for column in item.columns), strict=True):
                    counted[pane] += rows
    assert counted <= written
    assert counted[(START + 500) // 10] == 64


def test_a_file_whose_node_is_killed_is_in_the_spool_exactly_once(site: Path) -> None:
    generate(Profile(packets=4_000_000, rate=10_000, groups=2000, seed=5), site / "a.pcap")
    done = 0
    for _ in range(2):
        with node(site, "--link", "File") as running:
            running.until(lambda before=done: len(list((site / "spool/file").glob("*.segment"))) > before, "a segment")
            running.process.kill()
            running.process.communicate()
        found = segments(site / "spool/file")
        assert len(found) > done
        assert not found[-1].ended
        done = len(found)
    status, out, err = run("capture", "p.toml", "--link", "File", cwd=site)
    assert (status, err) == (0, "")
    plans = read_pipeline(site / "p.toml").plans()[:1]
    assert through_spools(plans, [site / "spool/file"]) == inline(plans, [Input("File", site / "a.pcap", "File")])
    segments(site / "spool/file")
    assert re.search(r"File +ended ", out)


WRONG = [
    (
        ["p.toml", "--udp", "127.0.0.1:0"],
        2,
        "p.toml and --udp: got a pipeline file (low-level",
    ),
    (["p.toml", "--keep", "1G"], 2, "p.toml and --keep: got a pipeline file"),
    (["p.toml", "--link", "Tub"], 2, "--link Tub: got no link with a spool, expected one of File, Tap"),
    (["--link", "Tap"], 2, "--link: needs the pipeline file with the link"),
    (["--udp", "127.0.0.1:0"], 2, "got no --output: expected wiretide capture PIPELINE.toml"),
    (["none.toml"], 1, "none.toml: cannot be read"),
    (
        ["plain.toml"],
        2,
        "no link has a spool, so there is nothing to capture: expected at least one table [links.NAME]",
    ),
    (["little.toml"], 2, "node.memory, for link File: got 1,048,576 bytes for 2 tables, expected at least"),
    (["tight.toml"], 2, "node.spool_bytes, for link File: got 8,388,608 bytes, expected at least"),
    (["gone.toml"], 1, "gone.pcap: cannot be read: No such file or directory"),
]


@pytest.mark.parametrize(("words", "status", "message"), WRONG, ids=[" ".join(words) for words, *_ in WRONG])
def test_what_is_wrong_is_said_before_a_packet_is_read(
    words: list[str], status: int, message: str, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = '[queries.q]\nsql = "SELECT count(*) FROM A [RANGE 1 minute]"\n'
    (site / "plain.toml").write_text('[links]\nA = "a.pcap"\n' + query)
    (site / "little.toml").write_text(PIPELINE.replace("64MiB", "2MiB"))
    (site / "tight.toml").write_text(PIPELINE + 'spool_bytes = "8MiB"\n')
    (site / "gone.toml").write_text(PIPELINE.replace("a.pcap", "gone.pcap"))
    monkeypatch.chdir(site)
    with pytest.raises(WiretideError) as error:
        wiretide.app(["capture", *words], standalone_mode=False)
    assert message in str(error.value)
    assert error.value.status == status
    assert not list(site.glob("spool/*/*.segment"))


def test_how_a_file_is_damaged_is_said(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with (site / "a.pcap").open("ab") as file:
        file.write(b"\xff" * 100)
    monkeypatch.chdir(site)
    wiretide.app(["capture", "p.toml", "--link", "File"], standalone_mode=False)
    said = capsys.readouterr()
    assert re.search(r"File +ended +60,000 ", said.out)
    assert said.err == f"wiretide: link File: {site}/a.pcap: impossible record length, after 60,000 whole records\n"


def test_files_of_links_that_the_node_does_not_read_need_not_be_there(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = '[links]\nArchive = "day-*.pcap"\n'
    query = '[queries.old]\nsql = "SELECT count(*) AS n FROM Archive [RANGE 10 seconds]"\n[node]'
    (site / "p.toml").write_text(archive + PIPELINE.replace("[node]", query))
    monkeypatch.chdir(site)
    wiretide.app(["capture", "p.toml", "--link", "File"], standalone_mode=False)
    assert re.search(r"File +ended +60,000 ", capsys.readouterr().out)
    (site / "p.toml").write_text(archive + PIPELINE.replace("FROM Tap", "FROM Tub"))
    with pytest.raises(InputError, match="query tapped: no file for the stream Tub; bound are: Archive, File, Tap"):
        wiretide.app(["capture", "p.toml", "--link", "File"], standalone_mode=False)


def test_a_link_that_fails_leaves_the_others_alone(site: Path) -> None:
    with held_open(site / "tap") as tap, node(site) as running:
        os.write(tap, b"this is no capture at all, however long it is")
        out, err = running.process.communicate()
        assert running.process.returncode == 1
    assert re.search(r"File +ended +60,000 ", out)
    assert re.search(r"^wiretide: link Tap: .*tap: ", err, re.MULTILINE)
    assert "wiretide: failed: link Tap" in err
