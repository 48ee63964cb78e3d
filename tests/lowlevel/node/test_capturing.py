"""One link of a node: the spool contains the partials of all its packets after any number of stops.

The tests detect partials that are lost or doubled when a node is stopped, killed and restarted, and a spool that ends
before its input. They detect packets that vanish uncounted while the spool is full, and a file that is not waited for.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import astuple, replace
from itertools import count, pairwise
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from capture.errors import InputError
from capture.files.blocks import Block
from capture.files.followed import FollowedCapture
from capture.files.positions import initial_position
from capture.generate import Profile, generate
from capture.metrics import BYTES_READ, PACKETS_DECODED, RECORDS_READ
from capture.open import open_capture
from capture.units import SECOND
from highlevel.inline.engine import Input
from highlevel.plan.plan import Plan
from lowlevel.metrics import (
    ITEMS_WAITING,
    PARTIALS_WRITTEN,
    RECORDS_SHED,
    ROWS_BELOW_WATERMARK,
    SAMPLING_RATE,
    SAMPLING_REQUIRED,
    SPOOL_ROWS_DROPPED,
    SPOOL_ROWS_WRITTEN,
)
from lowlevel.node import link_worker
from lowlevel.node.link_worker import COUNTER_INTERVAL, RETRIES_AFTER_STOP, LinkWorker
from lowlevel.node.node import Node
from lowlevel.node.shedding import SAMPLING_FACTOR_KEY
from lowlevel.punctuation import BEGINNING, Item, Punctuation
from lowlevel.spool import segment_thread
from lowlevel.spool.fingerprint import fingerprint
from lowlevel.spool.folder import SpoolError, SpoolFullError, write_durably
from lowlevel.spool.limits import SpoolLimits
from lowlevel.spool.segment import LinkCounts
from lowlevel.spool.writer import SpoolWriter
from lowlevel.table.flushing import Flushing
from lowlevel.watermarks.rule import parse_rule
from queries.gsql import compile_query
from tests.references.spool_items import random_batch
from tests.references.spool_twin import inline, segments, through_spools

MEBIBYTE = 1 << 20
PACKETS = 200_000
SMALL = SpoolLimits(segment_bytes=1 << 14, segment_time=1)
"""A segment after almost every block."""


def compiled(**texts: str) -> list[Plan]:
    return [compile_query(sql, name).with_row_counts() for name, sql in texts.items()]


PLANS = compiled(
    pairs="SELECT srcIP, destIP, count(*) AS n, sum(len) AS s FROM A [RANGE 10 seconds] GROUP BY srcIP, destIP",
    most="SELECT srcIP, max(len) AS m FROM A [RANGE 20 seconds, SLIDE 10 seconds, WA ts] GROUP BY srcIP",
    same="SELECT srcIP, destIP, min(len) AS m FROM A [RANGE 10 seconds] GROUP BY srcIP, destIP HAVING count(*) > 3",
    all="SELECT count(*) AS n FROM A [RANGE 1 minute]",
)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("capturing") / "a.pcap"
    profile = Profile(packets=PACKETS, rate=2000, groups=500, disorder="band", disorder_span=10**9, seed=4)
    generate(profile, path)
    return path


@pytest.fixture(scope="module")
def answer(capture: Path) -> list[list[tuple[object, ...]]]:
    return inline(PLANS, [Input("A", capture, "A")])


def capturing(
    path: Path, spool: Path, limits: SpoolLimits = SMALL, slots: int = 1 << 12, promise: str = "exact", **more: bool
) -> LinkWorker:
    """A node on `path`. Its clock advances by a nanosecond per call."""
    opened = open_capture(path, **more)
    low = [(plan.name, plan.leaves[0].low) for plan in PLANS]
    node = Node(
        "A", opened, [plan for _, plan in low], slots, watermark_rule=parse_rule(promise), flushing=Flushing("paced")
    )
    named = [(name, fingerprint(plan)) for name, plan in low]
    writer = SpoolWriter(spool, "A", named, limits, cuts=initial_position(opened) is not None)
    return LinkWorker(opened, node, low, writer, count(10**18).__next__)


def after(polls: int) -> Callable[[], bool]:
    """Return True, meaning stop, after a number of calls."""
    left = iter(range(polls))
    return lambda: next(left, None) is None


def never() -> bool:
    return False


def test_partials_of_provisional_plans_are_merged_until_they_are_released(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plan,) = compiled(changes="SELECT srcIP, count(*) AS n FROM A [RANGE 2 minutes] GROUP BY srcIP EMIT CHANGES")
    low = plan.leaves[0].low
    counted: list[Counter[tuple[object, ...]]] = []
    partials = []
    for interval in (0, link_worker.RELEASE_INTERVAL):
        monkeypatch.setattr(link_worker, "RELEASE_INTERVAL", interval)
        opened = open_capture(capture)
        node = Node("A", opened, [low], 1 << 12, watermark_rule=parse_rule("late 2s"))
        folder = tmp_path / str(interval)
        writer = SpoolWriter(folder, "A", [("changes", fingerprint(low))], SMALL, cuts=True)
        LinkWorker(opened, node, [("changes", low)], writer, count(10**18, SECOND // 30).__next__).run(never)
        counts: Counter[tuple[object, ...]] = Counter()
        batches = 0
        watermark = BEGINNING
        for segment in segments(folder):
            for _, _, item in segment.items:
                if isinstance(item, Punctuation):
                    watermark = item.watermark
                    continue
                batches += item.num_rows
                for row in item.to_pylist():
                    counts[row["pane"], row[low.keys[0].name]] += row[low.subaggregates[0].name]
                    assert (row["pane"] + 1) * low.pane > watermark, "a partial follows the watermark of its pane"
        counted.append(counts)
        partials.append(batches)
    assert counted[0] == counted[1]
    assert counted[0].total() == PACKETS
    assert partials[1] < partials[0] * 0.7


@pytest.mark.parametrize("slots", [1 << 8, 1 << 14])
def test_what_comes_through_the_spool_is_the_answer(
    capture: Path, answer: list[list[tuple[object, ...]]], slots: int, tmp_path: Path
) -> None:
    link = capturing(capture, tmp_path / "s", slots=slots)
    link.run(never)
    assert link.has_ended
    found = segments(tmp_path / "s")
    ends = [each.ended for each in found]
    assert ends == sorted(ends)
    assert ends[-1]
    assert not any(each.new_items for each in found[ends.index(True) + 1 :])
    assert through_spools(PLANS, [tmp_path / "s"]) == answer
    samples = link.samples
    assert samples.total(RECORDS_READ) == PACKETS
    assert samples.total(PARTIALS_WRITTEN) == samples.total(SPOOL_ROWS_WRITTEN) == sum(each.rows for each in found)
    assert not samples.total(RECORDS_SHED) + samples.total(SPOOL_ROWS_DROPPED) + samples.total(ITEMS_WAITING)


def test_a_file_that_is_stopped_again_and_again_is_gone_on_with_where_it_was_left(
    capture: Path, answer: list[list[tuple[object, ...]]], tmp_path: Path
) -> None:
    random = Random(7)
    runs = read = 0
    while True:
        link = capturing(capture, tmp_path / "s")
        if link.spool.ended:  # with the last cut, before it was asked to stop
            break
        link.run(after(random.randrange(1, 8)))
        runs += 1
        read += int(link.samples.total(RECORDS_READ))
        if link.has_ended:
            break
    assert runs > 2
    assert read == PACKETS  # none is read twice
    assert through_spools(PLANS, [tmp_path / "s"]) == answer
    segments(tmp_path / "s")


class Killed(BaseException):
    """The end of a process, without a last word."""


def killed_after(capturing: LinkWorker, blocks: int) -> bool:
    """Run, and die after a number of blocks without closing anything. Return False if the input ended first."""
    if capturing.spool.ended:  # with the last cut
        return False
    dying = after(blocks)

    def call_at_signal() -> bool:
        if dying():
            raise Killed
        return False

    capturing._close = lambda *_: None if dying() else LinkWorker._close(capturing, never)  # type: ignore[method-assign]
    try:
        capturing.run(call_at_signal)
    except Killed:
        capturing.spool.abandon()
        return True
    return not capturing.has_ended


def test_a_file_whose_node_is_killed_again_and_again_is_reduced_exactly_once(
    capture: Path, answer: list[list[tuple[object, ...]]], tmp_path: Path
) -> None:
    random = Random(11)
    runs = 0
    while killed_after(capturing(capture, tmp_path / "s"), random.randrange(2, 9)):
        runs += 1
    assert runs > 1
    assert through_spools(PLANS, [tmp_path / "s"]) == answer
    segments(tmp_path / "s")


def test_a_compressed_file_is_gone_on_with_too(
    capture: Path, answer: list[list[tuple[object, ...]]], tmp_path: Path
) -> None:
    import gzip

    packed = tmp_path / "a.pcap.gz"
    packed.write_bytes(gzip.compress(capture.read_bytes(), 1))
    for stop in (3, 1, 5):
        link = capturing(packed, tmp_path / "s")
        link.run(after(stop))
        assert not link.has_ended
    capturing(packed, tmp_path / "s").run(never)
    assert through_spools(PLANS, [tmp_path / "s"]) == answer


def test_a_folder_that_is_followed_is_gone_on_with_in_the_middle_of_a_file(
    capture: Path, answer: list[list[tuple[object, ...]]], tmp_path: Path
) -> None:
    content = capture.read_bytes()
    places = [24]
    while places[-1] < len(content):
        places.append(places[-1] + 16 + struct.unpack_from("<I", content, places[-1] + 8)[0])
    assert len(places) == PACKETS + 1
    folder = tmp_path / "f"
    folder.mkdir()
    for number in range(3):
        begin, end = (places[PACKETS * each // 3] for each in (number, number + 1))
        (folder / f"{number}.pcap").write_bytes(content[:24] + content[begin:end])
        os.utime(folder / f"{number}.pcap", (number + 1, number + 1))
    read = 0
    for stop in (2, 4, 3, 100):
        link = capturing(folder, tmp_path / "s", follow=True, promise="late 10s")
        assert isinstance(link.capture, FollowedCapture)
        polls = after(stop)
        link.run(lambda polls=polls, link=link, read=read: polls() or link.node.records + read >= PACKETS)  # type: ignore[misc]
        assert not link.has_ended  # a folder never does
        read += int(link.samples.total(RECORDS_READ))
    assert read == PACKETS
    writer = SpoolWriter(tmp_path / "s", "A", [(plan.name, fingerprint(plan.leaves[0].low)) for plan in PLANS])
    writer.close(has_ended=True)
    assert through_spools(PLANS, [tmp_path / "s"]) == answer


def test_another_file_is_not_taken_for_the_one_that_was_begun(capture: Path, tmp_path: Path) -> None:
    capturing(capture, tmp_path / "s").run(after(2))
    other = tmp_path / "other.pcap"
    other.write_bytes(capture.read_bytes()[: 24 + 16 + 86])
    with pytest.raises(
        InputError, match=r"got a file of [\d,]+ bytes, expected the file whose partials the spool contains"
    ):
        capturing(other, tmp_path / "s")


def without_room_now_and_then(link: LinkWorker, seed: int) -> list[int]:
    """Let the spool refuse one append in three; returns a list that grows by one each time."""
    random, refused, append = Random(seed), [], link.spool.append

    def refusing(number: int, item: Item) -> None:
        if not isinstance(item, Punctuation) and random.random() < 1 / 3:
            refused.append(1)
            raise SpoolFullError("no room")
        append(number, item)

    link.spool.append = refusing  # type: ignore[method-assign]
    return refused


def test_a_file_waits_for_room_in_its_spool(
    capture: Path, answer: list[list[tuple[object, ...]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lowlevel.node.link_worker.RETRY_PAUSE", 0.0001)
    link = capturing(capture, tmp_path / "s")
    refused = without_room_now_and_then(link, 5)
    link.run(never)
    assert len(refused) > 20
    assert link.has_ended
    assert not link.samples.total(RECORDS_SHED)
    assert through_spools(PLANS, [tmp_path / "s"]) == answer


def test_a_file_that_is_stopped_while_it_waits_for_room_is_read_again_from_the_last_cut(
    capture: Path, answer: list[list[tuple[object, ...]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lowlevel.node.link_worker.RETRY_PAUSE", 0.0001)
    monkeypatch.setattr("lowlevel.node.link_worker.RETRIES_AFTER_STOP", 2)
    given_up = 0
    for seed in range(6):
        link = capturing(capture, tmp_path / "s")
        append, random = link.spool.append, Random(seed)

        def refusing(
            number: int, item: Item, append: Callable[[int, Item], None] = append, random: Random = random
        ) -> None:
            if not isinstance(item, Punctuation) and random.random() < 0.9:
                raise SpoolFullError("no room")
            append(number, item)

        asked = after(random.randrange(3, 30))
        link.spool.append = refusing  # type: ignore[method-assign]
        link.run(asked)
        given_up += bool(link.waiting_items)
    assert given_up
    capturing(capture, tmp_path / "s").run(never)
    assert through_spools(PLANS, [tmp_path / "s"]) == answer
    segments(tmp_path / "s")


def full_disk(monkeypatch: pytest.MonkeyPatch, first: int, last: int) -> None:
    """Let the disk be full for the segments that are tried as the `first` to the `last`, beginning at 0."""
    tries = count()

    def write(part: Path, path: Path, content: list[bytes | memoryview]) -> int:
        if first <= next(tries) <= last:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_durably(part, path, content)

    monkeypatch.setattr(segment_thread, "write_durably", write)


def test_a_file_goes_on_where_the_disk_was_full_for_a_while(
    capture: Path, answer: list[list[tuple[object, ...]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_disk(monkeypatch, 1, 6)
    link = capturing(capture, tmp_path / "s")
    link.run(never)
    assert link.has_ended
    assert through_spools(PLANS, [tmp_path / "s"]) == answer
    segments(tmp_path / "s")


def test_a_file_that_is_stopped_while_the_disk_is_full_is_read_again_from_the_last_cut(
    capture: Path, answer: list[list[tuple[object, ...]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full_disk(full, 1, 1000)
        link = capturing(capture, tmp_path / "s")
        link.run(after(6))
        assert not link.has_ended
    capturing(capture, tmp_path / "s").run(never)
    assert through_spools(PLANS, [tmp_path / "s"]) == answer
    segments(tmp_path / "s")


def test_counters_go_on_while_a_file_waits_for_room_and_it_waits_once_where_it_is_to_stop(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lowlevel.node.link_worker.RETRY_PAUSE", 0.0001)
    link = capturing(capture, tmp_path / "s")
    asked: list[int] = []

    def clock() -> int:
        asked.append(1)
        return 2 * 10**18 + COUNTER_INTERVAL * len(asked)

    def refusing(number: int, item: Item) -> None:
        raise SpoolFullError("no room")

    link.clock = clock
    link.spool.append = refusing  # type: ignore[method-assign]
    link.waiting_items.append((0, Punctuation("A", 0)))
    link._retry_waiting(lambda: True)
    assert len(asked) == RETRIES_AFTER_STOP
    assert link.samples.total(ITEMS_WAITING) == 1
    link._has_skipped = True
    link._retry_waiting(lambda: True)
    assert len(asked) == RETRIES_AFTER_STOP
    link.spool.abandon()


def test_a_spool_that_fails_is_let_go(capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(part: Path, path: Path, content: list[bytes | memoryview]) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(segment_thread, "write_durably", write)
    link = capturing(capture, tmp_path / "s")
    with pytest.raises(SpoolError, match="cannot be written: Input/output error"):
        link.run(never)
    capturing(capture, tmp_path / "s").spool.abandon()


def test_what_leaves_a_table_at_once_is_cut_so_that_its_spool_can_take_it(capture: Path, tmp_path: Path) -> None:
    limits = SpoolLimits(segment_bytes=1 << 14, spool_bytes=1 << 18)
    link = capturing(capture, tmp_path / "s", limits)
    whole = random_batch(Random(1), PLANS[0].leaves[0].low, 20_000)
    parts = list(link._split(0, whole))
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([whole]))
    for part in parts:
        assert link.spool._sizes.item_bytes(0, part) <= limits.spool_bytes // 4
    link.spool.abandon()


def test_a_stream_is_not_ended_by_a_record_that_cannot_be(capture: Path, tmp_path: Path) -> None:
    """Its writer still runs, so later data are lost. The link has failed and can be restarted."""
    os.mkfifo(tmp_path / "wire")
    writing = os.open(tmp_path / "wire", os.O_RDWR)
    content = capture.read_bytes()
    first = 24 + 16 + struct.unpack_from("<I", content, 24 + 8)[0]
    os.write(writing, content[:first] + b"\xff" * 100)
    link = capturing(tmp_path / "wire", tmp_path / "s", promise="late 10s")
    with pytest.raises(
        InputError, match=r"wire: impossible record length, after 1 whole records; later records cannot be read"
    ):
        link.run(never)
    os.close(writing)
    assert not link.has_ended
    assert packets_of_all(tmp_path / "s") == 1
    assert not segments(tmp_path / "s")[-1].ended


@pytest.fixture
def wire(capture: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A named pipe that the capture is written to, as often as somebody reads it."""
    path = capture.parent / "wire.fifo"
    os.mkfifo(path)
    content = capture.read_bytes()

    def write() -> None:
        with contextlib.suppress(BrokenPipeError), path.open("wb", buffering=0) as pipe:
            pipe.write(content)

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    yield path
    rest = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # lets it go on that waits for a reader, or for room
    while writing.is_alive():
        with contextlib.suppress(BlockingIOError):
            os.read(rest, MEBIBYTE)
        writing.join(0.001)
    os.close(rest)
    path.unlink()


def test_a_wire_whose_spool_is_full_sheds_and_everything_is_counted(wire: Path, tmp_path: Path) -> None:
    """The spool has no reader: first blocks are sampled, then all are skipped. The end is still written."""
    limits = SpoolLimits(segment_bytes=1 << 14, segment_time=1, spool_bytes=1 << 18)
    link = capturing(wire, tmp_path / "s", limits, promise="late 10s")
    link.run(lambda: link.node.records + sum(link.shedding.skipped_records.values()) == PACKETS)
    samples = link.samples
    shed = samples.total(RECORDS_SHED)
    assert 0 < shed < PACKETS
    assert samples.total(RECORDS_READ) + shed == PACKETS
    assert samples.total(RECORDS_SHED, cause="spool_full") > 0
    found = segments(tmp_path / "s")
    assert sum(path.stat().st_size for path in (tmp_path / "s").iterdir()) <= limits.spool_bytes
    assert samples.total(PARTIALS_WRITTEN) == sum(each.rows for each in found)
    assert not found[-1].ended
    assert found[-1].header.counts == LinkCounts(
        records=round(samples.total(RECORDS_READ)),
        bytes=round(samples.total(BYTES_READ)),
        packets=round(samples.total(PACKETS_DECODED)),
        late=round(samples.total(ROWS_BELOW_WATERMARK)),
        shed=round(shed),
        lateness=link.node.lateness["packets"].quantile(0.99),
    )


def test_counters_in_segments_never_fall(capture: Path, tmp_path: Path) -> None:
    link = capturing(capture, tmp_path / "s", SMALL)
    link.run(never)
    headers = [each.header for each in segments(tmp_path / "s")]
    counts = [astuple(replace(each.counts, lateness=0)) for each in headers if each.counts is not None]
    assert len(counts) > 3
    for before, after in pairwise(counts):
        assert all(one <= other for one, other in zip(before, after, strict=True))
    assert counts[-1][0] == PACKETS


def packets_of_all(spool: Path) -> int:
    """Packets in the partials of the query that counts them all."""
    return sum(
        sum(item.column(item.schema.names[-1]).to_pylist())
        for segment in segments(spool)
        for name, _, item in segment.new_items
        if name == "all" and isinstance(item, pa.RecordBatch)
    )


def test_a_wire_does_not_wait_but_what_it_has_reduced_does(wire: Path, tmp_path: Path) -> None:
    link = capturing(wire, tmp_path / "s", promise="late 10s")
    refused = without_room_now_and_then(link, 6)
    link.run(never)
    assert len(refused) > 5
    samples = link.samples
    assert samples.total(RECORDS_READ) + samples.total(RECORDS_SHED, cause="spool_full") == PACKETS
    assert packets_of_all(tmp_path / "s") == samples.total(RECORDS_READ)


def packets_per_pane(spool: Path) -> Counter[int]:
    """Packets in the partials of the query that counts them by pair, for each pane."""
    packets: Counter[int] = Counter()
    for segment in segments(spool):
        for name, _, item in segment.new_items:
            if name == "pairs" and isinstance(item, pa.RecordBatch):
                for pane, count_of_pair in zip(item["pane"].to_pylist(), item["s0"].to_pylist(), strict=True):
                    packets[pane] += count_of_pair
    return packets


def test_segments_name_the_times_of_packets_that_were_not_processed(capture: Path, wire: Path, tmp_path: Path) -> None:
    capturing(capture, tmp_path / "whole").run(never)
    link = capturing(wire, tmp_path / "s", promise="late 10s")
    without_room_now_and_then(link, 6)
    link.run(never)
    plan = PLANS[0].leaves[0].low
    sent, processed = packets_per_pane(tmp_path / "whole"), packets_per_pane(tmp_path / "s")
    incomplete = {pane for pane in sent if processed[pane] < sent[pane]}
    skipped = {
        pane
        for segment in segments(tmp_path / "s")
        for start, end in segment.header.skipped
        for pane in range((start - plan.origin) // plan.pane, (end - 1 - plan.origin) // plan.pane + 1)
    }
    assert incomplete
    assert incomplete == skipped < set(sent)


def test_while_blocks_are_refused_nothing_is_learnt_of_the_ring(wire: Path, tmp_path: Path) -> None:
    link = capturing(wire, tmp_path / "s", promise="late 10s")
    calls: list[str] = []
    for of, name in ((link.pressure, "update"), (link.pressure, "restart_mean"), (link.shedding, "count_skipped")):
        noting(of, name, calls)
    without_room_now_and_then(link, 6)
    link.run(never)
    before = [call for call, following in pairwise(calls) if following == "count_skipped"]
    assert len(before) > 5
    assert set(before) == {"restart_mean"}
    assert calls.count("restart_mean") + calls.count("update") > calls.count("count_skipped")


def noting(of: object, name: str, calls: list[str]) -> None:
    """Record in `calls` each call of a method."""
    method = getattr(of, name)

    def call(*arguments: object) -> object:
        calls.append(name)
        return method(*arguments)

    setattr(of, name, call)


def test_a_wire_that_fails_leaves_what_was_read_before(wire: Path, tmp_path: Path) -> None:
    link = capturing(wire, tmp_path / "s", promise="late 10s")
    blocks = link.capture.blocks  # type: ignore[union-attr]

    def failing(records: int) -> Iterator[Block | None]:
        with contextlib.closing(blocks(records)) as all_of_them:  # type: ignore[type-var]
            for block in all_of_them:
                if link.node.records > PACKETS // 2:
                    raise InputError("the wire is cut")
                yield block

    link.capture.blocks = failing  # type: ignore[union-attr, method-assign, assignment]
    with pytest.raises(InputError, match="the wire is cut"):
        link.run(never)
    assert not link.has_ended
    assert packets_of_all(tmp_path / "s") == link.samples.total(RECORDS_READ) > PACKETS // 2


def test_partials_of_a_sampled_wire_say_what_they_stand_for(wire: Path, tmp_path: Path) -> None:
    """Room is left, but the reported use of the spool is nearly its limit."""
    link = capturing(wire, tmp_path / "s", SpoolLimits(segment_bytes=1 << 14, segment_time=1), promise="late 10s")
    link.shedding.spool_k = 2
    link.shedding.next_spool_k = lambda used, bound: 2  # type: ignore[method-assign]
    link.run(never)
    assert link.has_ended
    looked_at = stood_for = 0
    for segment in segments(tmp_path / "s"):
        for name, _, item in segment.new_items:
            if name == "all" and isinstance(item, pa.RecordBatch):
                factor = int(item.schema.metadata[SAMPLING_FACTOR_KEY])
                assert factor == 4
                packets = sum(item.column(item.schema.names[-1]).to_pylist())
                looked_at += packets // factor
                stood_for += packets
    assert looked_at == link.samples.total(RECORDS_READ)
    assert link.samples.total(RECORDS_READ) + link.samples.total(RECORDS_SHED, cause="spool_filling") == PACKETS
    assert stood_for == 4 * looked_at


class FilledRing:
    """In place of a ring: empty for the first quarter of the capture, then full; blocks are 250 ms apart."""

    def __init__(self, link: LinkWorker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.link = link
        self.rates: list[tuple[float, int]] = []
        monkeypatch.setattr(type(link.capture), "occupancy", property(lambda _: self.share))
        times = count(10**18, 250 * 10**6)
        link.clock = lambda: next(times)

    @property
    def share(self) -> float:
        """Return the occupancy of the ring, and record it with the sampling factor at that time."""
        seen = self.link.node.records + sum(self.link.shedding.skipped_records.values())
        share = 0.0 if seen < PACKETS // 4 else 1.0
        self.rates.append((share, self.link.shedding.factor))
        return share


def test_a_wire_whose_ring_is_full_is_sampled_and_its_partials_say_so(
    wire: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = capturing(wire, tmp_path / "s", SpoolLimits(segment_bytes=1 << 14, segment_time=1), promise="late 10s")
    ring = FilledRing(link, monkeypatch)
    link.run(never)
    samples = link.samples
    shed = samples.total(RECORDS_SHED, cause="ring_filling")
    assert 0 < shed < PACKETS
    assert samples.total(RECORDS_SHED) == shed  # and for no other cause
    assert samples.total(RECORDS_READ) + shed == PACKETS
    assert ring.rates == sorted(ring.rates)  # none while it is empty, and more and more while it is full
    assert ring.rates[0] == (0.0, 1)
    assert ring.rates[-1][1] >= 4
    factors = set()
    looked_at = 0
    for segment in segments(tmp_path / "s"):
        for name, _, item in segment.new_items:
            if name == "all" and isinstance(item, pa.RecordBatch):
                factor = int((item.schema.metadata or {}).get(SAMPLING_FACTOR_KEY, b"1"))
                packets = sum(item.column(item.schema.names[-1]).to_pylist())
                assert packets % factor == 0
                looked_at += packets // factor
                factors.add(factor)
    assert looked_at == samples.total(RECORDS_READ)  # a packet represents the number that was valid when it was reduced
    assert 1 in factors
    assert len(factors) > 1
    assert samples.total(SAMPLING_REQUIRED, cause="ring") == samples.total(SAMPLING_RATE) >= 4
    assert samples.total(SAMPLING_REQUIRED, cause="spool") == 1
