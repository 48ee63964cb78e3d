"""The recording kernel against dpkt, against Python's own addresses, and against its plain self.

* dpkt computes every checksum and length anew: a header field at a wrong place, or a carry lost in a checksum.
* `ipaddress` computes which sender is in which prefix, with masks of IPv4 between masks of IPv6.
* The plain twin on the same memory, with bounds checked: an index that leaves its array, a number that overflows.
"""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_address, ip_network
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from capture.collector import recorder as recorder_module
from capture.collector.chunks import BATCH_DATAGRAMS, CHUNK_BYTES, Batch
from capture.collector.record_files import PCAP_HEADER
from capture.collector.recorder import OTHER_LABEL, ExporterCounts, Recorder
from capture.collector.records import record_datagrams
from capture.collector.sockets import UdpSocket
from tests.harness.collected import Datagram, datagrams, port_only
from tests.harness.plain_kernels import plain
from tests.references.recorded_datagrams import NS, START, fill, run, settings


@pytest.fixture
def udp() -> UdpSocket:
    return port_only()


def some(random: Random, count: int, port: int, hosts: int = 50) -> list[Datagram]:
    """Datagrams of both families and all lengths; half of them have payloads of ones, which carry far."""
    made = []
    for _ in range(count):
        version, host = random.choice([4, 6]), random.randrange(1, hosts)
        network = "10.255.255." if version == 4 else "2001:db8:ffff:ffff:ffff:ffff:ffff:"
        length = random.choice([0, 1, 2, 3, random.randrange(1500), 40_000, 65_507])
        payload = bytes([255]) * length if random.random() < 0.5 else random.randbytes(length)
        time = START + random.randrange(5 * NS)
        made.append(Datagram(time, f"{network}{host}", random.randrange(65536), f"{network}{host + 1}", port, payload))
    return made


def files(chunks: list[tuple[int | None, bytes]]) -> list[bytes]:
    """Put chunks together as the writer does."""
    made: list[bytes] = []
    for starts, data in chunks:
        if starts is not None:
            made.append(PCAP_HEADER)
        made[-1] += data
    return made


def read(folder: Path, data: bytes) -> list[Datagram]:
    path = folder / "one.pcap"
    path.write_bytes(data)
    return list(datagrams(path))


@pytest.mark.parametrize("seed", range(5))
def test_records_are_the_datagrams_with_headers_that_another_decoder_finds_right(
    seed: int, udp: UdpSocket, tmp_path: Path
) -> None:
    batch = Batch()
    recorder = Recorder(settings(rotate_every=0), batch)
    found = some(Random(seed), BATCH_DATAGRAMS, udp.port)
    fill(batch, found)
    chunks = run(recorder, udp, BATCH_DATAGRAMS)
    assert len(chunks) > 2  # the longest datagrams fill more than one
    assert all(len(data) <= CHUNK_BYTES for _, data in chunks)
    [whole] = files(chunks)
    assert read(tmp_path, whole) == found
    sent = Counter(each.source for each in found)
    counted = recorder.exporters.snapshot()
    assert {name: counts.datagrams for name, counts in counted.items()} == sent
    for name, counts in counted.items():
        ours = [each for each in found if each.source == name]
        assert counts == ExporterCounts(len(ours), sum(len(x.payload) for x in ours), max(x.time for x in ours))


@pytest.mark.parametrize("seed", range(3))
def test_the_plain_twin_writes_the_same_bytes_within_its_bounds(
    seed: int, udp: UdpSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    allow = (ip_network("10.255.255.0/28"), ip_network("2001:db8:ffff:ffff:ffff:ffff:ffff:0/124"))
    asked = settings(allow=allow, exporters=5, rotate_every=NS, rotate_size=1 << 20)
    found = [each for each in some(random, 60, udp.port) if len(each.payload) < 2000]
    states, written = [], []
    for twin in (False, True):
        batch = Batch()
        fill(batch, found)
        recorder = Recorder(asked, batch)
        with monkeypatch.context() as patch:
            if twin:
                memory = [batch.slots, batch.rows, recorder.exporters.keys, recorder.exporters.counts]
                patch.setattr(recorder_module, "record_datagrams", plain(record_datagrams, *memory))
            written.append(run(recorder, udp, len(found)))
        states.append((recorder.exporters.snapshot(), recorder.refused, recorder.exporter_count))
    assert written[0] == written[1]
    assert len(files(written[0])) > 1
    assert states[0] == states[1]
    assert 0 < states[0][1] < len(found)


def test_senders_outside_every_allowed_prefix_are_refused_and_counted(udp: UdpSocket, tmp_path: Path) -> None:
    random = Random(7)
    networks = [
        ip_network(text) for text in ("10.255.255.8/29", "2001:db8:ffff:ffff:ffff:ffff:ffff:30/124", "0.0.0.0/32")
    ]
    batch = Batch()
    recorder = Recorder(settings(allow=tuple(networks), rotate_every=0), batch)
    found = some(random, BATCH_DATAGRAMS, udp.port)
    fill(batch, found)
    wanted = [each for each in found if any(ip_address(each.source) in network for network in networks)]
    assert 0 < len(wanted) < BATCH_DATAGRAMS
    [whole] = files(run(recorder, udp, BATCH_DATAGRAMS))
    assert read(tmp_path, whole) == wanted
    assert recorder.refused == BATCH_DATAGRAMS - len(wanted)


@pytest.mark.parametrize(("text", "allowed"), [("0.0.0.0/0", 4), ("::/0", 6)])
def test_everything_of_one_family_is_nothing_of_the_other(
    text: str, allowed: int, udp: UdpSocket, tmp_path: Path
) -> None:
    batch = Batch()
    recorder = Recorder(settings(allow=(ip_network(text),), rotate_every=0), batch)
    found = some(Random(3), BATCH_DATAGRAMS, udp.port)
    fill(batch, found)
    [whole] = files(run(recorder, udp, BATCH_DATAGRAMS))
    assert read(tmp_path, whole) == [each for each in found if ip_address(each.source).version == allowed]


def test_exporters_beyond_the_bound_are_counted_together_and_never_move(udp: UdpSocket) -> None:
    batch = Batch()
    recorder = Recorder(settings(exporters=3, rotate_every=0), batch)
    order = ["10.0.0.1", "10.0.0.2", "::1", "10.0.0.3", "::1", "10.0.0.4", "10.0.0.1", "10.0.0.3"]
    fill(batch, [Datagram(START, source, 1, source, udp.port, b"abc") for source in order])
    run(recorder, udp, len(order))
    counted = {name: (counts.datagrams, counts.bytes) for name, counts in recorder.exporters.snapshot().items()}
    assert counted == {"10.0.0.1": (2, 6), "10.0.0.2": (1, 3), "::1": (2, 6), OTHER_LABEL: (3, 9)}
    assert recorder.exporter_count == 3


def test_addresses_that_share_bits_are_exporters_of_their_own(udp: UdpSocket) -> None:
    """An IPv4 address and the IPv6 address of the same number differ in the version alone."""
    batch = Batch()
    recorder = Recorder(settings(rotate_every=0), batch)
    order = ["10.0.0.1", "::a00:1", "a00:1::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "255.255.255.255"]
    fill(batch, [Datagram(START, source, 1, source, udp.port, b"") for source in order])
    run(recorder, udp, len(order))
    assert set(recorder.exporters.snapshot()) == {str(ip_address(text)) for text in order}


def at(*seconds: float) -> list[Datagram]:
    return [Datagram(START + round(each * NS), "10.0.0.1", 1, "10.0.0.2", 0, bytes(10)) for each in seconds]


def times(data: bytes, folder: Path) -> list[float]:
    return [(each.time - START) / NS for each in read(folder, data)]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        # START is a multiple of ten seconds: files are [0, 10), [10, 20), …
        ([0, 9.999999999, 10, 19, 20], [[0, 9.999999999], [10, 19], [20]]),
        ([9, 11, 9.5, 12], [[9], [11, 9.5, 12]]),  # a datagram of another socket may be read later
        ([25, 95], [[25], [95]]),
        ([100, 15, 16, 105], [[100], [15, 16], [105]]),  # the clock was set back by more than an interval, and forward
        ([-0.5, 0], [[-0.5], [0]]),
    ],
)
def test_files_take_one_interval_of_the_clock_each(
    seconds: list[float], expected: list[list[float]], udp: UdpSocket, tmp_path: Path
) -> None:
    batch = Batch()
    recorder = Recorder(settings(rotate_every=10 * NS), batch)
    fill(batch, at(*seconds))
    chunks = run(recorder, udp, len(seconds))
    assert [times(data, tmp_path) for data in files(chunks)] == expected
    assert [((starts or 0) - START) / NS for starts, _ in chunks] == [each[0] for each in expected]


def test_no_file_is_longer_than_it_may_be_and_none_is_cut_early(udp: UdpSocket, tmp_path: Path) -> None:
    limit = 1 << 20
    batch = Batch()
    recorder = Recorder(settings(rotate_size=limit, rotate_every=0), batch)
    random = Random(5)
    found = some(random, BATCH_DATAGRAMS, udp.port)
    fill(batch, found)
    made = files(run(recorder, udp, BATCH_DATAGRAMS))
    assert [each for data in made for each in read(tmp_path, data)] == found
    assert len(made) > 2
    for data, after in pairwise(made):
        first = 16 + int.from_bytes(after[24 + 8 : 24 + 12], "little")
        assert len(data) <= limit < len(data) + first


def test_a_sender_of_port_zero_and_an_empty_datagram_are_records_too(udp: UdpSocket, tmp_path: Path) -> None:
    batch = Batch()
    recorder = Recorder(settings(rotate_every=0), batch)
    found = [Datagram(START, "10.0.0.1", 0, "10.0.0.2", udp.port, b""), Datagram(START, "::1", 0, "::2", udp.port, b"")]
    fill(batch, found)
    [whole] = files(run(recorder, udp, 2))
    assert read(tmp_path, whole) == found
