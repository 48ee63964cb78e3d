"""No free file descriptor: a capture waits, counts it, and loses nothing. Real limits, real files and sockets.

The tests detect a link or collector that ends, a file that is skipped or read twice, rows that are lost without being
counted, and a watchlist that stays old.
"""

from __future__ import annotations

import os
import resource
import socket
import struct
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from capture.collector.collector import Collector
from capture.collector.metrics import DATAGRAMS, FILES, UNWRITTEN
from capture.collector.metrics import FILES_RETRIED as COLLECTOR_RETRIED
from capture.metrics import FILES_REFUSED, FILES_RETRIED
from dashboards.output.console import compile_kernels
from highlevel.inline.engine import Input
from lowlevel.metrics import SPOOL_RETRIES, SPOOL_ROWS_DROPPED
from lowlevel.spool.fingerprint import fingerprint
from lowlevel.spool.folder import ReaderCommit, SpoolFullError, write_committed
from lowlevel.spool.limits import SpoolLimits, WhenFull
from lowlevel.spool.reader import SpoolReader
from lowlevel.spool.writer import SpoolWriter
from lowlevel.watch.contents import Form
from lowlevel.watch.watched_file import CHECK_INTERVAL, CheckResult, WatchedFile, Watchlists
from queries.pipeline.file import read_pipeline
from tests.harness.capture_process import node
from tests.harness.collected import recorded, sender
from tests.harness.collector_settings import settings
from tests.harness.held_pipes import held_open
from tests.harness.without_descriptors import process_without_descriptors, without_descriptors
from tests.references.followed_captures import Follower, capture_of, write
from tests.references.live_packets import BEGINNING, packets
from tests.references.spool_items import LINK, pairs_plan, random_batch
from tests.references.spool_twin import inline, through_spools

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc of Linux"),
    pytest.mark.slow("real processes without file descriptors"),
]


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    compile_kernels()
    compile_kernels("capture")


@pytest.mark.parametrize("policy", list(WhenFull))
def test_a_spool_writes_later_what_it_could_not_open_a_file_for(tmp_path: Path, policy: WhenFull) -> None:
    random, plan = Random(1), pairs_plan()
    small = SpoolLimits(segment_bytes=4000, segment_time=10**9, spool_bytes=1 << 20, when_full=policy)
    writer = SpoolWriter(tmp_path, LINK, [("pairs", fingerprint(plan))], small)
    rows = now = 0

    def append(count: int) -> None:
        nonlocal rows, now
        for _ in range(count):
            batch = random_batch(random, plan, 20)
            writer.append(0, batch)
            rows += batch.num_rows
            now += 10**9
            writer.tick(now)

    append(20)
    writer.flush()
    before = writer.samples().total(SPOOL_RETRIES)
    with without_descriptors():
        append(20)
        while writer.samples().total(SPOOL_RETRIES) < before + 10:
            now += 10**9
            writer.tick(now)
    writer.close(has_ended=True)
    samples = writer.samples()
    assert samples.total(SPOOL_RETRIES, cause="descriptors") >= 10
    assert samples.total(SPOOL_RETRIES, cause="disk") == samples.total(SPOOL_ROWS_DROPPED) == 0
    assert sum(segment.rows for segment in SpoolReader(tmp_path)) == rows
    assert SpoolReader(tmp_path).gaps() == []


def test_a_reader_that_finds_no_descriptor_commits_nothing_and_keeps_the_reserve(tmp_path: Path) -> None:
    write_committed(tmp_path, ReaderCommit(3, 30))
    (tmp_path / ".reserve").write_bytes(bytes(4096))
    with without_descriptors(), pytest.raises(SpoolFullError, match=r"no free file descriptor.*ulimit -n"):
        write_committed(tmp_path, ReaderCommit(4, 40))
    assert (tmp_path / ".reserve").exists()
    write_committed(tmp_path, ReaderCommit(4, 40))


def test_a_followed_folder_is_read_once_and_completely(tmp_path: Path) -> None:
    write(tmp_path / "a", capture_of(range(3)), 1)
    follower = Follower(tmp_path)
    assert follower.read(3) == [0, 1, 2]
    write(tmp_path / ".b", capture_of(range(10, 14)), 2)  # hidden: no listing may find it before the shortage
    with without_descriptors():
        (tmp_path / ".b").rename(tmp_path / "b")
        while follower.capture.samples("x").total(FILES_RETRIED) < 3:
            follower.idle()
    assert follower.read(4) == [10, 11, 12, 13]
    assert follower.capture.samples("x").total(FILES_REFUSED) == 0
    write(tmp_path / "c", capture_of(range(20, 22)), 3)
    assert follower.read(2) == [20, 21]
    assert follower.end() == {"files": 3}


def test_files_that_another_process_had_read_are_not_read_again(tmp_path: Path) -> None:
    write(tmp_path / "a", capture_of(range(3)), 1)
    write(tmp_path / "b", capture_of(range(3, 5)), 2)
    first = Follower(tmp_path)
    assert first.read(5) == [0, 1, 2, 3, 4]
    again = first.again()
    with without_descriptors():
        while again.capture.samples("x").total(FILES_RETRIED) < 3:
            again.idle()
    write(tmp_path / "c", capture_of(range(5, 7)), 3)
    assert again.read(2) == [5, 6]
    assert again.end() == {"files": 1}


def test_a_collector_keeps_datagrams_until_it_can_open_its_next_file(tmp_path: Path) -> None:
    sent = 0
    with Collector(settings(tmp_path, rotate_size=1 << 20, receive_buffer=4 << 20)) as running, sender() as exporter:

        def send(datagrams: int) -> None:
            nonlocal sent
            for _ in range(datagrams):
                sent += 1
                payload = struct.pack(">I", sent).ljust(60_000, b"~")
                exporter.sendto(payload, ("127.0.0.1", running.sockets[0].port))
                while running.samples().total(DATAGRAMS) < sent:
                    time.sleep(0.001)

        send(10)
        with without_descriptors():
            send(20)
            while running.samples().total(COLLECTOR_RETRIED) < 2:
                time.sleep(0.01)
        send(10)
    samples = running.samples()
    assert samples.total(UNWRITTEN) == 0
    assert samples.total(FILES) == len(list(tmp_path.glob("*.pcap"))) > 2
    assert [struct.unpack(">I", each.payload[:4])[0] for each in recorded(tmp_path)] == list(range(1, 41))


def test_a_watchlist_that_could_not_be_opened_is_read_at_the_next_look(tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_text("10.0.0.1\n")
    watched = Watchlists().open(WatchedFile(str(path), Form.ADDRESSES))
    watched.read()
    path.write_text("10.0.0.1\n10.0.0.2\n")
    now = time.monotonic() + CHECK_INTERVAL
    with without_descriptors():
        assert watched.refresh(now) is CheckResult.FAILED
    assert watched.refresh(now + CHECK_INTERVAL) is CheckResult.RELOADED


PIPELINE = """
[links.Tap]
capture = "tap"
spool = "spool/tap"
promise = "late 2s"
[queries.pairs]
sql = "SELECT srcIP, destIP, count(*) AS n FROM Tap [RANGE 10 seconds] GROUP BY srcIP, destIP"
[node]
memory = "64MiB"
segment_time = "100ms"
segment_bytes = "64Ki"
"""


def test_a_node_survives_hundreds_of_connections_and_a_time_without_any_descriptor(tmp_path: Path) -> None:
    """The report's attack: 600 connections at a limit of 200; then no free descriptor at all for a while."""
    (tmp_path / "p.toml").write_text(PIPELINE)
    os.mkfifo(tmp_path / "tap")
    content = BEGINNING + packets(*range(2, 200))
    third = len(content) // 3
    with held_open(tmp_path / "tap") as tap, node(tmp_path) as running:
        pid = running.process.pid
        before = count_descriptors(pid)
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (200, hard))
        port = next(
            int(line.split(":")[-1].split("/")[0]) for line in running.first_lines if line.startswith("metrics at")
        )
        with ExitStack() as stack:
            for number in range(600):
                source = (f"127.0.2.{1 + number % 60}", 0)
                connection = socket.create_connection(("127.0.0.1", port), source_address=source)
                stack.enter_context(connection)
            os.write(tap, content[:third])
            time.sleep(0.5)  # some segments are due
        running.until(lambda: 'connections_refused_total{cause="connections"}' in page(running), "refused connections")
        running.until(lambda: count_descriptors(pid) <= before, "closed connections")
        with process_without_descriptors(pid):
            os.write(tap, content[third : 2 * third])
            time.sleep(1)
            assert running.process.poll() is None
        os.write(tap, content[2 * third :])
        running.until(
            lambda: 'wiretide_spool_retries_total{cause="descriptors",link="Tap"}' in page(running), "retries"
        )
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, tap)  # the last writer has gone
        os.close(nothing)
        _, err = running.process.communicate()
        assert (running.process.returncode, err) == (0, "")
    (tmp_path / "tap.pcap").write_bytes(content)
    plans = read_pipeline(tmp_path / "p.toml").plans()
    assert through_spools(plans, [tmp_path / "spool/tap"]) == inline(
        plans, [Input("Tap", tmp_path / "tap.pcap", "Tap")]
    )


def count_descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def page(running) -> str:
    """The metrics, or nothing while the server is busy."""
    try:
        return running.metrics()
    except OSError as error:
        getattr(error, "close", lambda: None)()
        return ""
