"""The collector in one process, and as the command `wiretide capture`, with datagrams over loopback.

Only these tests detect datagrams that are lost or written twice between the threads, and a loss that is not counted.
They detect a process that does not end or ends with a wrong status, and files that are unreadable after a kill.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import struct
import threading
from collections import Counter
from ipaddress import ip_network
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pytest

from bench.datagram_sender import RECORDS
from bench.datagram_sender import datagram as netflow
from capture.collector import collector as collector_module
from capture.collector import inspection  # noqa: F401  # declares its kernels
from capture.collector.chunks import ChunkQueue
from capture.collector.collector import Collector
from capture.collector.metrics import (
    BYTES,
    DATAGRAMS,
    DROPPED,
    EXPORTERS,
    FILES,
    FILES_DELETED,
    METRICS,
    REFUSED,
    UNINSPECTED,
    UNWRITTEN,
    WRITTEN,
)
from capture.collector.recvmmsg import recvmmsg_is_supported
from capture.files.scan import scan
from capture.files.stream import StreamedCapture
from capture.metrics import Samples
from capture.open import open_capture
from dashboards.output.console import compile_kernels
from tests.harness import in_ns
from tests.harness.capture_process import POLL_SECONDS, POLLS, collector
from tests.harness.collected import datagrams, recorded, send, sender
from tests.harness.collector_settings import LOCAL, settings
from tests.harness.command_line import run
from tests.harness.datagram_senders import has_ipv6

LINUX = pytest.mark.skipif(not recvmmsg_is_supported(), reason="this system does not tell what it drops")


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    """Compiled once, or the first process would say on standard error that it does."""
    compile_kernels()
    compile_kernels("capture")


def payloads(random: Random, count: int) -> list[bytes]:
    """Numbered, of all lengths, among them empty ones and the longest."""
    lengths = [0, 1, 7, 65_507, *(random.randrange(8, 2000) for _ in range(20))]
    return [
        struct.pack(">Q", number)[: (length := random.choice(lengths))].ljust(length, b"~") for number in range(count)
    ]


@pytest.mark.parametrize("system", [pytest.param("linux", marks=LINUX), "another"])
@pytest.mark.parametrize("seed", range(2))
def test_everything_that_is_sent_is_recorded_once_and_in_order(
    tmp_path: Path, seed: int, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if system == "another":
        monkeypatch.setattr(collector_module, "recvmmsg_is_supported", lambda: False)
    random = Random(seed)
    sent = payloads(random, 1000)
    listen = [LOCAL, LOCAL, *([("::1", 0)] if has_ipv6() else [])]
    with Collector(settings(tmp_path, *listen, rotate_size=1 << 20)) as running:
        ports = [(str(udp.address), udp.port) for udp in running.sockets]
        assert len(ports) == len(listen)
        senders = {host: sender(host) for host in {host for host, _ in ports}}
        to: dict[tuple[str, int], list[bytes]] = {each: [] for each in ports}
        for each in sent:
            target = random.choice(ports)
            to[target].append(each)
            send(senders[target[0]], each, *target)
        named = {host: made.getsockname()[1] for host, made in senders.items()}
        for made in senders.values():
            made.close()
    found = recorded(tmp_path)
    for (host, port), expected in to.items():
        ours = [each for each in found if each.destination_port == port]
        assert [each.payload for each in ours] == expected
        assert {(each.source, each.source_port, each.destination) for each in ours} == {(host, named[host], host)}
    assert len(found) == len(sent)
    samples = running.samples()
    assert samples.total(DATAGRAMS) == len(sent)
    assert samples.total(BYTES) == sum(map(len, sent))
    assert samples.total(EXPORTERS) == len(senders)
    assert samples.total(FILES) == len(list(tmp_path.glob("*.pcap"))) > 1
    assert samples.total(WRITTEN) == sum(path.stat().st_size for path in tmp_path.glob("*.pcap"))
    assert samples.total(REFUSED) == samples.total(DROPPED) == samples.total(UNWRITTEN) == 0
    assert {name for name, _ in samples} <= {metric.name for metric in METRICS}


def test_counters_can_be_asked_for_while_the_collector_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = Collector(settings(tmp_path))
    udp, asking, found = running.sockets[0], threading.Event(), []
    memory, closing_samples = udp.read_memory, running.samples

    def slow_memory() -> int | None:
        if threading.current_thread() is scraper:
            asking.set()
            closed.wait(0.2)  # it never is meanwhile: the socket is there until the answer is
        return memory()

    def last_samples() -> Samples:
        last = closing_samples()
        scraper.start()
        asking.wait()
        return last

    closed = threading.Event()
    scraper = threading.Thread(target=lambda: found.append(closing_samples()))
    monkeypatch.setattr(udp, "read_memory", slow_memory)
    monkeypatch.setattr(running, "samples", last_samples)
    running.close()
    closed.set()
    scraper.join()
    assert [each.total(UNWRITTEN) for each in found] == [0]


def test_our_own_query_and_another_decoder_see_the_same_datagrams(tmp_path: Path) -> None:
    with Collector(settings(tmp_path)) as running, sender() as exporter:
        for number in range(300):
            send(exporter, bytes(number), "127.0.0.1", running.sockets[0].port)
    sql = (
        "SELECT srcIP, destIP, destPort, count(*) AS n, sum(len) AS bytes FROM packets GROUP BY srcIP, destIP, destPort"
    )
    [row] = in_ns.query(sql, tmp_path).to_pylist()
    port = running.sockets[0].port
    assert row == {
        "srcIP": "127.0.0.1", "destIP": "127.0.0.1", "destPort": port, "n": 300, "bytes": sum(range(300)) + 300 * 28,
    }  # fmt: skip
    assert [each.payload for each in recorded(tmp_path)] == [bytes(number) for number in range(300)]


def test_senders_that_are_not_allowed_are_counted_and_nothing_else(tmp_path: Path) -> None:
    allow = (ip_network("127.0.0.4/30"),)
    with Collector(settings(tmp_path, allow=allow, exporters=2)) as running:
        for last in range(1, 9):
            with sender(f"127.0.0.{last}") as exporter:
                for _ in range(last):
                    send(exporter, b"%d" % last, "127.0.0.1", running.sockets[0].port)
    assert Counter(each.source for each in recorded(tmp_path)) == {f"127.0.0.{last}": last for last in (4, 5, 6, 7)}
    samples = running.samples()
    assert samples.total(REFUSED) == 1 + 2 + 3 + 8
    assert samples.total(DATAGRAMS, exporter="127.0.0.4") == 4
    assert samples.total(DATAGRAMS, exporter="other") == 6 + 7


def test_folders_go_on_where_they_were_and_stay_within_their_bound(tmp_path: Path) -> None:
    asked = settings(tmp_path, rotate_size=1 << 20, keep=3 << 20)
    deleted = 0
    for start in range(4):
        before = {path: path.read_bytes() for path in tmp_path.glob("*.pcap")}
        with Collector(asked) as running, sender() as exporter:
            for number in range(20):
                payload = struct.pack(">II", start, number).ljust(60_000, b"~")
                send(exporter, payload, "127.0.0.1", running.sockets[0].port)
        kept = {path: data for path, data in before.items() if path.exists()}
        assert all(path.read_bytes() == data for path, data in kept.items())
        deleted += int(running.samples().total(FILES_DELETED))
        assert sum(path.stat().st_size for path in tmp_path.glob("*.pcap")) <= 3 << 20
    assert deleted > 0
    numbers = [struct.unpack(">II", each.payload[:8]) for each in recorded(tmp_path)]
    assert numbers == [(start, number) for start in range(4) for number in range(20)][-len(numbers) :]


def test_whoever_follows_the_folder_sees_every_datagram_once_while_files_rotate(tmp_path: Path) -> None:
    followed = open_capture(tmp_path, follow=True)
    assert isinstance(followed, StreamedCapture)
    seen: list[int] = []
    count = 400

    def follow() -> None:
        for block in followed.blocks():
            at = block.start if block else 0
            while block and at < block.end:
                # A record's header, then 20 bytes of IPv4 and 8 of UDP.
                [captured] = struct.unpack_from("<I", followed.data, at + 8)
                [number] = struct.unpack_from(">I", followed.data, at + 16 + 28)
                seen.append(number)
                at += 16 + captured
            if len(seen) == count:
                return

    with Collector(settings(tmp_path, rotate_size=1 << 20)) as running, sender() as exporter:
        reader = threading.Thread(target=follow)
        reader.start()
        for number in range(count):
            send(exporter, struct.pack(">I", number).ljust(20_000), "127.0.0.1", running.sockets[0].port)
        # While the collector still runs: nothing waits for its end.
        for _ in range(POLLS):
            reader.join(POLL_SECONDS)
            if not reader.is_alive():
                break
    followed.stop()
    reader.join()
    followed.close()
    assert seen == list(range(count))
    assert len(list(tmp_path.glob("*.pcap"))) > 5


class Looker:
    """An inspector that records its input, waits at a gate, and fails on request."""

    def __init__(self, *, fails: bool = False) -> None:
        self.seen = bytearray()
        self.gate = threading.Event()
        self.fails = fails
        self.closed = 0

    def inspect(self, records: npt.NDArray[np.uint8]) -> None:
        self.gate.wait()
        if self.fails:
            raise ValueError("a bug in a decoder")
        self.seen += records.tobytes()

    def samples(self) -> Samples:
        return Samples()

    def close(self) -> None:
        self.closed += 1


def test_what_is_recorded_is_shown_to_the_inspector(tmp_path: Path) -> None:
    looker = Looker()
    looker.gate.set()
    with Collector(settings(tmp_path, rotate_size=1 << 20), looker) as running, sender() as exporter:
        for number in range(100):
            send(exporter, bytes([number]) * 60_000, "127.0.0.1", running.sockets[0].port)
    paths = sorted(tmp_path.glob("*.pcap"))
    assert len(paths) > 1
    assert bytes(looker.seen) == b"".join(path.read_bytes()[24:] for path in paths)
    assert running.samples().total(UNINSPECTED) == 0
    assert looker.closed == 1


def test_an_inspector_that_fails_or_is_slow_costs_counters_and_never_datagrams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(collector_module, "ChunkQueue", lambda: ChunkQueue(8))
    monkeypatch.setattr(collector_module, "MAX_WAITING_INSPECTIONS", 2)
    looker = Looker(fails=True)
    sent = [bytes([number]) * 60_000 for number in range(200)]  # 12 chunks of 1 MiB
    with Collector(settings(tmp_path), looker) as running, sender() as exporter:
        for each in sent:
            send(exporter, each, "127.0.0.1", running.sockets[0].port)
        while not any(path.stat().st_size > 11_000_000 for path in tmp_path.glob("*.pcap")):
            pass
        assert running.samples().total(UNINSPECTED) > 0
        looker.gate.set()
    assert [each.payload for each in recorded(tmp_path, checked=False)] == sent
    samples = running.samples()
    assert samples.total(UNINSPECTED) == len(sent)
    assert samples.total(DROPPED) == 0
    assert "recording continues" in capfd.readouterr().err


@LINUX
@pytest.mark.parametrize("size", [0, 200, 1464])
@pytest.mark.slow("stopped processes")
def test_what_a_stopped_collector_loses_is_counted_exactly(tmp_path: Path, size: int) -> None:
    count = 5000
    with collector(tmp_path, "--buffer", "200K") as running, sender() as exporter:
        running.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, running.process.pid, os.WSTOPPED)
        for number in range(count):
            exporter.sendto(struct.pack(">I", number).ljust(size, b"~")[:size], ("127.0.0.1", running.port))
        running.process.send_signal(signal.SIGCONT)
        status, out, err = running.end()
    assert (status, err) == (0, "")
    found = recorded(tmp_path)
    assert 0 < len(found) < count
    assert f"recorded {len(found):,} datagrams" in out
    assert f"lost before they could be received: {count - len(found):,} datagrams" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_with_a_summary_and_status_0(tmp_path: Path, number: int) -> None:
    with (
        collector(tmp_path / "new" / "folder", "--rotate-every", "1h", "--keep", "1Gi") as running,
        sender() as exporter,
    ):
        for each in range(10):
            send(exporter, bytes(each), "127.0.0.1", running.port)
        status, out, err = running.end(number)
    assert (status, err) == (0, "")
    assert re.fullmatch(
        r"recorded 10 datagrams \(45 bytes\) of 1 exporter into 1 file \(509 bytes\) in .*/new/folder\n"
        r"refused: 0 datagrams; lost before they could be received: (0 datagrams|unknown on this system)\n\n"
        r"exporter   datagrams  bytes\n-+  -+  -+\n127.0.0.1         10     45\n",
        out,
    )
    assert "keeping the newest 1.0 GiB of them" in running.first_lines[-3]


def test_datagrams_are_in_the_file_while_the_collector_runs(tmp_path: Path) -> None:
    with collector(tmp_path) as running, sender() as exporter:
        for number in range(3):
            send(exporter, b"%d" % number, "127.0.0.1", running.port)
            running.until(lambda: len(recorded(tmp_path)) == number + 1, f"datagram {number}")  # noqa: B023
        assert running.end()[0] == 0


def size(folder: Path) -> int:
    """Bytes in the folder's files."""
    return sum(path.stat().st_size for path in folder.glob("*.pcap"))


@pytest.mark.parametrize("seed", range(3))
def test_a_kill_at_any_moment_leaves_whole_datagrams_and_one_cut_record_at_most(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    sent = 0
    runs = []
    for _ in range(2):
        with collector(tmp_path, "--rotate-size", "1Mi") as running, sender() as exporter:
            enough = random.randrange(1 << 22)
            first = sent
            before = size(tmp_path)
            while size(tmp_path) - before < enough:
                assert running.process.poll() is None
                for _ in range(50):
                    payload = struct.pack(">I", sent).ljust(random.choice([4, 1464, 60_000]))
                    send(exporter, payload, "127.0.0.1", running.port)
                    sent += 1
            status, _, _ = running.end(signal.SIGKILL)
        assert status == -signal.SIGKILL
        runs.append((first, sent))
    found = []
    for path in sorted(tmp_path.glob("*.pcap")):
        capture = open_capture(path)
        index = scan(capture)
        assert index.damage in (None, "cut_in_record", "cut_in_record_header")
        read = [struct.unpack(">I", each.payload[:4])[0] for each in datagrams(path)]
        assert len(read) == index.records
        found.append(read)
    numbers = [number for read in found for number in read]
    # Each run's datagrams from its first on, without a gap, up to where it was killed.
    expected = []
    for first, end in runs:
        ours = [number for number in numbers if first <= number < end]
        expected += list(range(first, first + len(ours)))
        assert ours
    assert numbers == expected


def test_a_disk_that_takes_no_more_ends_the_collector_with_what_was_lost(tmp_path: Path) -> None:
    """The system's bound for the size of a file is the disk here."""

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    sent = 300
    with collector(tmp_path, preexec_fn=small_disk) as running, sender() as exporter:
        for _ in range(sent):
            send(exporter, bytes(1000), "127.0.0.1", running.port)
        out, err = running.process.communicate()
        status = running.process.returncode
    assert status == 1
    [path] = tmp_path.glob("*.pcap")
    assert err == f"wiretide: {path}: cannot be written: File too large\n"
    found = recorded(tmp_path)
    said = re.search(r"^recorded ([\d,]+) datagrams", out, re.MULTILINE)
    lost = re.search(r"^lost because the disk failed: ([\d,]+) datagrams?$", out, re.MULTILINE)
    assert said
    assert lost
    assert int(said[1].replace(",", "")) - int(lost[1].replace(",", "")) == len(found)
    assert scan(open_capture(path)).damage is None


def refused(*options: str, cwd: Path) -> tuple[int, str]:
    """Return the status and standard error of a collector that does not start. It must print no other message."""
    status, out, err = run("capture", *options, cwd=cwd)
    assert out == ""
    return status, err


@pytest.mark.slow("many processes")
def test_ports_in_use_and_folders_that_are_none_end_with_status_1(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with sender() as taken, socket.create_server(("127.0.0.1", 0)) as served:
        port = taken.getsockname()[1]
        status, err = refused("--udp", f"127.0.0.1:{port}", "-o", "out", cwd=tmp_path)
        assert status == 1
        assert err.startswith(f"wiretide: cannot listen on 127.0.0.1 port {port}: ")
        status, err = refused("--udp", "127.0.0.1:0", "-o", "file", cwd=tmp_path)
        assert (status, err) == (1, "wiretide: file: cannot record here: Not a directory\n")
        metrics = f"127.0.0.1:{served.getsockname()[1]}"
        status, err = refused("--udp", "127.0.0.1:0", "-o", "out", "--metrics", metrics, cwd=tmp_path)
        assert status == 1
        assert "choose another port with --metrics" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--udp", "nowhere"], "expected HOST:PORT"),
        (["--udp", "127.0.0.1:0", "--allow", "10.0.0.1/8"], "has host bits set"),
        (["--udp", "127.0.0.1:0", "--keep", "1M"], "room for at least two files"),
        (["--udp", "127.0.0.1:0", "--rotate-every", "soon"], "got no duration"),
        (["--udp", "127.0.0.1:0", "--metrics", "x"], "expected HOST:PORT"),
        ([], "got no --udp"),
    ],
)
@pytest.mark.slow("a process for each message")
def test_a_wrong_command_line_ends_with_status_2(options: list[str], message: str, tmp_path: Path) -> None:
    status, err = refused(*options, "-o", "out", cwd=tmp_path)
    assert status == 2
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_metrics_are_served_while_it_runs(tmp_path: Path) -> None:
    with collector(tmp_path, "--metrics", "127.0.0.1:0", "--allow", "127.0.0.0/8") as running, sender() as exporter:
        for _ in range(7):
            send(exporter, b"1234", "127.0.0.1", running.port)
        send(exporter, netflow(), "127.0.0.1", running.port)
        running.until_metric('wiretide_collector_datagrams_total{exporter="127.0.0.1"} 8.0')
        text = running.metrics()
        assert f'wiretide_collector_bytes_total{{exporter="127.0.0.1"}} {7 * 4 + len(netflow())}.0' in text
        link = tmp_path.name
        assert f'wiretide_flow_records_total{{exporter="127.0.0.1",link="{link}",version="5"}} {RECORDS}.0' in text
        assert f'wiretide_flow_datagrams_refused_total{{cause="version_unknown",link="{link}"}} 7.0' in text
        assert 'wiretide_collector_refused_total{cause="not_allowed"} 0.0' in text
        assert f'wiretide_collector_receive_buffer_bytes{{socket="127.0.0.1:{running.port}"}}' in text
        if recvmmsg_is_supported():
            assert f'wiretide_collector_dropped_total{{socket="127.0.0.1:{running.port}"}} 0.0' in text
        assert running.end()[0] == 0
