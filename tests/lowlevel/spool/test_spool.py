"""A spool returns the items that were written: random items against a list, over rotations, restarts and commits.

The twin is a list of the items that were appended. The tests detect lost, doubled and reordered items, wrong types of
narrowed columns, and numbers or watermarks that do not continue after a restart.
"""

import json
import os
from dataclasses import fields, replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from lowlevel.integer_ranges import unite
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation
from lowlevel.spool.fingerprint import fingerprint
from lowlevel.spool.folder import SegmentLostError, SpoolError, segment_path
from lowlevel.spool.limits import SpoolLimits, WhenFull
from lowlevel.spool.pending import MAX_SKIPPED_RANGES
from lowlevel.spool.reader import SpoolReader
from lowlevel.spool.segment import COUNTS_BYTES, Header, LinkCounts
from lowlevel.spool.writer import SpoolWriter
from tests.references.spool_items import LINK, items_of_plans, pairs_plan, random_batch, random_items, random_plans

SECOND = 10**9
SMALL = SpoolLimits(segment_bytes=4000, segment_time=SECOND, spool_bytes=1 << 24)


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the system its time to write: what is on the disk when is the matter of other tests."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


def named(plans: list) -> list[tuple[str, str]]:
    """Names and fingerprints of plans."""
    return [(f"query {number}", fingerprint(plan)) for number, plan in enumerate(plans)]


def items_in(folder: Path) -> list[tuple[str, Item]]:
    """All items that a reader finds in whole segments."""
    return [(name, item) for segment in SpoolReader(folder) for name, _, item in segment.items]


@pytest.mark.parametrize("seed", range(12))
def test_what_is_appended_is_what_is_read(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    plans = random_plans(random, random.randrange(1, 4))
    names = named(plans)
    appended: list[tuple[str, Item]] = []
    now = 1_700_000_000 * SECOND
    items = random_items(random, plans, random.randrange(1, 120))
    starts = random.randrange(1, 4)
    for start in range(starts):
        writer = SpoolWriter(tmp_path, LINK, names, SMALL)
        for number, item in items[start * len(items) // starts : (start + 1) * len(items) // starts]:
            writer.append(number, item)
            appended.append((names[number][0], item))
            if random.random() < 0.2:
                now += random.randrange(2 * SECOND)
                writer.tick(now)
        writer.close(has_ended=start == starts - 1)
        rows = sum(item.num_rows for _, item in appended if not isinstance(item, Punctuation))
        assert writer.waiting == 0
    appended += [(name, Punctuation(LINK, END)) for name, _ in names]
    assert items_of_plans(items_in(tmp_path)) == items_of_plans(appended)
    reader = SpoolReader(tmp_path)
    segments = [reader.read(number) for number in reader.segments()]
    assert reader.segments() == list(range(len(segments)))
    assert reader.link == LINK
    assert [segment.ended for segment in segments] == [False] * (len(segments) - 1) + [True]
    assert {segment.plans for segment in segments} == {tuple(names)}
    assert [segment.header.epoch for segment in segments] == sorted(segment.header.epoch for segment in segments)
    assert sum(segment.rows for segment in segments) == rows
    before = [segment.header.rows_before for segment in segments]
    assert before == [sum(segment.rows for segment in segments[:place]) for place in range(len(segments))]
    for segment in segments:
        for name, print_of, item in segment.new_items:
            plan = plans[[each for each, _ in names].index(name)]
            assert print_of == fingerprint(plan)
            assert isinstance(item, Punctuation) or item.schema == plan.schema


def test_a_reader_may_start_at_any_segment_and_knows_every_promise(tmp_path: Path) -> None:
    random = Random(5)
    plans = random_plans(random, 3)
    with_names = named(plans)
    writer = SpoolWriter(tmp_path, LINK, with_names, SMALL)
    for number, item in random_items(random, plans, 200):
        writer.append(number, item)
    writer.close()
    reader = SpoolReader(tmp_path)
    lows = {name: BEGINNING for name, _ in with_names}
    assert len(reader.segments()) > 5
    for number in reader.segments():
        segment = reader.read(number)
        repeated = {
            name: item.watermark for name, _, item in segment.repeated_punctuations if isinstance(item, Punctuation)
        }
        assert repeated == {name: low for name, low in lows.items() if low != BEGINNING}
        for name, _, item in segment.new_items:
            if isinstance(item, Punctuation):
                assert item.watermark > lows[name]
                lows[name] = item.watermark
        assert segment.watermarks == tuple(lows.values())


def test_segments_are_cut_by_size_and_by_time(tmp_path: Path) -> None:
    plan = pairs_plan()
    batch = random_batch(Random(1), plan, 10)
    writer = SpoolWriter(tmp_path, LINK, named([plan]), SpoolLimits(segment_bytes=1 << 20, segment_time=SECOND))
    writer.tick(100 * SECOND)
    writer.append(0, batch)
    writer.tick(101 * SECOND - 1)
    assert SpoolReader(tmp_path).segments() == []
    writer.tick(101 * SECOND)  # a second after the first item
    writer.append(0, batch.slice(0, 0))  # an empty batch adds no item
    writer.tick(109 * SECOND)  # nothing waits: no empty segment
    writer.append(0, batch)
    writer.tick(109 * SECOND + 5)
    writer.append(0, batch)
    writer.flush()
    writer.append(0, random_batch(Random(2), plan, 20_000))  # over a mebibyte
    writer.close()
    reader = SpoolReader(tmp_path)
    assert [reader.read(number).rows for number in reader.segments()] == [10, 20, 20_000]
    SpoolWriter(tmp_path, LINK, named([plan])).close()  # no item: no segment
    trailers = [reader.read(number).trailer for number in (0, 1)]
    assert [(each.first, each.last) for each in trailers] == [(100 * SECOND,) * 2, (109 * SECOND, 109 * SECOND + 5)]


def test_committed_segments_are_deleted_but_the_newest(tmp_path: Path) -> None:
    plan = pairs_plan()
    writer = SpoolWriter(tmp_path, LINK, named([plan]))
    reader = SpoolReader(tmp_path)
    for low in range(4):
        writer.append(0, Punctuation(LINK, low))
        writer.flush()
    reader.commit(1)
    assert reader.segments() == [0, 1, 2, 3]
    writer.tick(5)
    assert reader.segments() == [2, 3]
    reader.commit(3)
    reader.commit(2)  # already said
    writer.close()
    assert reader.committed == 3
    assert reader.segments() == [3]
    assert list(reader) == []
    with pytest.raises(SegmentLostError, match="gone: committed and deleted"):
        reader.read(0)
    with pytest.raises(SpoolError, match="got 4 to commit, expected at most 3"):
        reader.commit(4)
    writer = SpoolWriter(tmp_path, LINK, named([plan]))
    writer.append(0, Punctuation(LINK, 3))  # promised before
    writer.append(0, Punctuation(LINK, 9))
    writer.close()
    (segment,) = list(reader)
    assert (segment.number, segment.header.epoch) == (4, 1)
    assert [item for _, _, item in segment.items] == [Punctuation(LINK, 3), Punctuation(LINK, 9)]


def test_a_folder_has_one_writer_of_one_link(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, LINK, [("a", "1")])
    with pytest.raises(SpoolError, match="another process is writing this spool"):
        SpoolWriter(tmp_path, LINK, [("a", "1")])
    writer.append(0, Punctuation(LINK, 1))
    writer.close()
    writer.close()
    with pytest.raises(SpoolError, match="got link eth1, expected eth0"):
        SpoolWriter(tmp_path, "eth1", [("a", "1")])
    again = SpoolWriter(tmp_path, LINK, [("b", "1"), ("a", "1")])
    assert not again.ended
    again.close(has_ended=True)
    ended = SpoolWriter(tmp_path, LINK, [("a", "1")])
    assert ended.ended
    with pytest.raises(SpoolError, match="has ended here"):
        ended.append(0, Punctuation(LINK, 2))
    ended.close(has_ended=True)
    with pytest.raises(ValueError, match="expected different names"):
        SpoolWriter(tmp_path / "other", LINK, [("a", "1"), ("a", "2")])
    with pytest.raises(SpoolError, match="no folder, expected a spool"):
        SpoolReader(tmp_path / "none")


def test_promises_go_on_with_a_plan_of_the_same_fingerprint(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, LINK, [("a", "1"), ("b", "2")])
    writer.append(0, Punctuation(LINK, 7))
    writer.append(1, Punctuation(LINK, 8))
    writer.close()
    writer = SpoolWriter(tmp_path, LINK, [("b", "3"), ("c", "4"), ("a", "1")])
    writer.append(1, Punctuation(LINK, 1))
    writer.close()
    segment = SpoolReader(tmp_path).read(1)
    assert segment.header.lows == (BEGINNING, BEGINNING, 7)
    assert segment.items == [("a", "1", Punctuation(LINK, 7)), ("c", "4", Punctuation(LINK, 1))]


def test_cuts_are_the_only_ends_of_segments_where_they_are_asked_for(tmp_path: Path) -> None:
    plan = pairs_plan()
    limits = SpoolLimits(segment_bytes=1, segment_time=1, spool_bytes=1 << 20)
    writer = SpoolWriter(tmp_path, LINK, named([plan]), limits, cuts=True)
    assert not writer.is_due
    for number in range(6):
        writer.append(0, random_batch(Random(number), plan, 5))
        writer.tick(100 + number)
        assert writer.is_due
        if number % 3 == 2:
            writer.cut(f"block {number}")
    writer.cut("nothing came since")
    writer.append(0, random_batch(Random(7), plan, 5))
    writer.close()  # or is killed: rows after the last cut are read again
    reader = SpoolReader(tmp_path)
    assert [reader.read(number).rows for number in reader.segments()] == [15, 15]
    assert reader.read(1).header.position == "block 5"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: SpoolLimits(segment_bytes=0), "got segments of 0 bytes, expected 1 to 1073741824"),
        (lambda: SpoolLimits(segment_time=0), "got a segment time of 0 ns, expected at least 1"),
        (lambda: SpoolLimits(spool_bytes=1 << 20), "got a spool of 1048576 bytes, expected at least 67174400"),
        (lambda: SpoolLimits(when_full="wait"), "got 'wait' for a spool that is full, expected stop or oldest"),  # type: ignore[arg-type]
    ],
)
def test_limits_are_checked_when_they_are_made(made, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made()


def test_limits_may_be_texts_of_a_file() -> None:
    assert SpoolLimits(when_full=WhenFull("oldest")).when_full is WhenFull.OLDEST


def test_segments_are_arrow_streams_for_everybody(tmp_path: Path) -> None:
    plan = pairs_plan()
    writer = SpoolWriter(tmp_path, LINK, named([plan]))
    writer.append(0, random_batch(Random(3), plan, 5))
    writer.append(0, Punctuation(LINK, 60))
    writer.close()
    with pa.ipc.open_stream(tmp_path / "000000000000.segment") as stream:
        table = stream.read_all()
    assert table.column_names == ["query", "low", "partials"]
    assert table.column("low").to_pylist() == [None, 60]
    with pa.ipc.open_stream(table.column("partials")[0].as_buffer()) as stream:
        assert stream.read_all().num_rows == 5


def test_a_clock_that_is_set_back_delays_no_segment(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, LINK, [("a", "1")], SMALL)
    writer.tick(1000 * SECOND)
    writer.append(0, Punctuation(LINK, 1))
    writer.tick(10 * SECOND)
    writer.append(0, Punctuation(LINK, 2))
    writer.tick(11 * SECOND)
    writer.flush()
    assert SpoolReader(tmp_path).segments() == [0, 1]
    writer.close()


def test_what_came_before_the_first_tick_came_with_it(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, LINK, [("a", "1")])
    writer.append(0, Punctuation(LINK, 1))
    writer.tick(5 * SECOND)
    writer.close()
    trailer = SpoolReader(tmp_path).read(0).trailer
    assert (trailer.first, trailer.last) == (5 * SECOND, 5 * SECOND)


def test_the_end_of_a_link_is_said_to_each_plan_once(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, LINK, [("a", "1"), ("b", "2")])
    writer.append(1, Punctuation(LINK, END))
    writer.close(has_ended=True)
    assert SpoolReader(tmp_path).read(0).new_items == [
        ("b", "2", Punctuation(LINK, END)),
        ("a", "1", Punctuation(LINK, END)),
    ]


def test_numbers_go_on_behind_what_was_committed_where_nothing_else_is_left(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, LINK, [("a", "1")])
    for low in range(3):
        writer.append(0, Punctuation(LINK, low))
        writer.flush()
    writer.close()
    reader = SpoolReader(tmp_path)
    reader.commit(2)
    for number in reader.segments():
        segment_path(tmp_path, number).unlink()
    assert reader.segments() == []
    with pytest.raises(SegmentLostError, match="no undamaged segment yet"):
        _ = reader.link
    writer = SpoolWriter(tmp_path, LINK, [("a", "1")])
    writer.append(0, Punctuation(LINK, 0))
    writer.close()
    assert [segment.number for segment in reader] == [3]


@pytest.mark.parametrize("seed", range(20))
def test_skipped_times_are_exact_up_to_a_number_of_ranges_and_then_cover_more(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    plan = pairs_plan()
    writer = SpoolWriter(tmp_path, LINK, named([plan]), SMALL)
    count = random.choice([3, 10, 60])
    added = [(start, start + random.randrange(1, 40)) for start in random.sample(range(2000), count)]
    for start, end in added:
        writer.skip(start, end)
    writer.append(0, random_batch(random, plan, 3))
    writer.flush()
    writer.append(0, random_batch(random, plan, 3))
    writer.close(has_ended=True)
    first, second = (SpoolReader(tmp_path).read(number).header.skipped for number in (0, 1))
    exact = unite(added)
    covered = {time for start, end in first for time in range(start, end)}
    assert first == tuple(unite(first))
    assert covered >= {time for start, end in exact for time in range(start, end)}
    assert len(first) == min(len(exact), MAX_SKIPPED_RANGES)
    assert second == ()
    if len(exact) <= MAX_SKIPPED_RANGES:
        assert first == tuple(exact)


def test_a_last_segment_without_items_names_skipped_times(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, LINK, named([pairs_plan()]), SMALL)
    writer.skip(5, 9)
    writer.close()
    assert [segment.header.skipped for segment in SpoolReader(tmp_path)] == [((5, 9),)]


def test_counters_in_a_header_have_a_bounded_size() -> None:
    without = Header(LINK, 3, 0, (("query", "print"),), (BEGINNING,))
    most = replace(without, counts=LinkCounts(*[2**63 - 1] * len(fields(LinkCounts))))
    assert len(most.encode()) - len(without.encode()) <= COUNTS_BYTES
    assert Header.decode(most.encode()) == most


def test_a_header_without_later_fields_is_that_of_an_earlier_version() -> None:
    header = Header(LINK, 3, 0, (("query", "print"),), (BEGINNING,))
    values = json.loads(header.encode())
    del values["skipped"], values["counts"]
    assert Header.decode(json.dumps(values).encode()) == header
