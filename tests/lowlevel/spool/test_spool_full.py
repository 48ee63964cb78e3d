"""A full spool, under both policies: the disk it takes, and the account of every row that was appended.

    rows appended = rows that can be read + rows counted as dropped       at any time, once all is written

It catches a bound that is passed, rows that are in no account or in two, and promises that are lost with a segment.
A file system that is full, slow or broken is a function put in between.
"""

import contextlib
import errno
import os
import subprocess
import threading
from pathlib import Path
from random import Random

import pytest

from lowlevel.metrics import SPOOL_BYTES, SPOOL_OLDEST_AGE, SPOOL_ROWS_DROPPED, SPOOL_ROWS_WRITTEN, SPOOL_SEGMENTS
from lowlevel.punctuation import BEGINNING, END, Punctuation
from lowlevel.spool import segment_thread
from lowlevel.spool.fingerprint import fingerprint
from lowlevel.spool.folder import BLOCK_BYTES, SegmentLostError, SpoolError, SpoolFullError, write_durably
from lowlevel.spool.limits import SpoolLimits, WhenFull
from lowlevel.spool.reader import SpoolReader
from lowlevel.spool.writer import OTHER_FILES_BYTES, SpoolWriter
from tests.references.spool_items import LINK, pairs_plan, random_batch, random_items, random_plans

SECOND = 10**9
PLANS = [("pairs", "0"), ("others", "1")]


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the system its time to write: what is on the disk when is the matter of other tests."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


def on_disk(folder: Path) -> int:
    """Bytes of the folder's files in whole blocks."""
    total = 0
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # renamed or deleted meanwhile
            total += -(-path.stat().st_size // BLOCK_BYTES) * BLOCK_BYTES
    return total


def rows_in(folder: Path) -> int:
    """Rows that a reader finds."""
    reader = SpoolReader(folder)
    return sum(reader.read(number).rows for number in reader.segments())


def limits(policy: WhenFull) -> SpoolLimits:
    """A spool of about thirty segments of one or two blocks."""
    return SpoolLimits(segment_bytes=4000, segment_time=SECOND, spool_bytes=40 * BLOCK_BYTES, when_full=policy)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", list(WhenFull))
def test_every_row_is_read_or_counted_as_dropped_and_the_bound_holds(
    tmp_path: Path, policy: WhenFull, seed: int
) -> None:
    random = Random(seed)
    plans = random_plans(random, 2)
    names = [(f"query {number}", fingerprint(plan)) for number, plan in enumerate(plans)]
    writer = SpoolWriter(tmp_path, LINK, names, limits(policy))
    appended = refused = 0
    lows = {name: BEGINNING for name, _ in names}
    most = 0
    for step, (number, item) in enumerate(random_items(random, plans, 300)):
        if isinstance(item, Punctuation):
            lows[names[number][0]] = item.watermark
            writer.append(number, item)
        else:
            appended += item.num_rows
            try:
                writer.append(number, item)
            except SpoolFullError:
                refused += item.num_rows
                writer.shed(number, item)
        if step % 5 == 0:
            writer.flush()  # what waits for the disk is on it: only the policy drops
            writer.tick(step * SECOND)
        most = max(most, on_disk(tmp_path), writer.used)
    writer.flush()
    samples = writer.samples()
    bound = writer.limits.spool_bytes
    assert bound // 2 < most <= bound
    assert on_disk(tmp_path) <= bound
    dropped = samples.total(SPOOL_ROWS_DROPPED)
    assert dropped > 0
    assert appended == rows_in(tmp_path) + dropped
    reader = SpoolReader(tmp_path)
    segments = reader.segments()
    if policy is WhenFull.STOP:
        assert segments[0] == 0
        assert samples.total(SPOOL_ROWS_DROPPED, cause="shed") == dropped == refused
        assert samples.total(SPOOL_ROWS_WRITTEN) == rows_in(tmp_path)
        assert reader.gaps() == []
    else:
        assert refused == 0
        assert samples.total(SPOOL_ROWS_DROPPED, cause="oldest") == dropped
        (gap,) = reader.gaps()
        assert (gap.first, gap.last, gap.rows) == (0, segments[0] - 1, dropped)
        assert sum(writer.counts.segments_dropped.values()) == segments[0]
        left = sum(len(reader.read(number).new_items) for number in segments)
        assert writer.counts.items == left + writer.counts.items_dropped["oldest"]
    reader.commit(segments[5])  # there is room now for promises that had none
    writer.tick(10**4 * SECOND)
    writer.close()
    last = reader.read(reader.segments()[-1])
    assert dict(zip((name for name, _ in names), last.watermarks, strict=True)) == lows
    assert last.header.shed_before == refused
    again = SpoolWriter(tmp_path, LINK, names, limits(policy))  # the account goes on with the next writer
    again.close(has_ended=True)
    last = reader.read(reader.segments()[-1])
    assert (last.header.shed_before, last.header.rows_before + last.rows) == (refused, appended - refused)


@pytest.mark.parametrize("policy", list(WhenFull))
def test_a_reader_that_keeps_up_loses_nothing(tmp_path: Path, policy: WhenFull) -> None:
    random = Random(1)
    plans = [pairs_plan()]
    writer = SpoolWriter(tmp_path, LINK, [("pairs", "0")], limits(policy))
    reader = SpoolReader(tmp_path)
    appended = read = 0
    for step in range(150):
        batch = random_batch(random, plans[0], 40)
        appended += batch.num_rows
        writer.append(0, batch)
        if step % 10 == 9:
            writer.flush()
            writer.tick(step * SECOND)
            for segment in reader:
                read += segment.rows
            reader.commit(segment.number)
    writer.close()
    assert read == appended
    assert writer.samples().total(SPOOL_ROWS_DROPPED) == 0


def test_progress_survives_a_full_spool_and_comes_when_there_is_room(tmp_path: Path) -> None:
    plan = pairs_plan()
    writer = SpoolWriter(tmp_path, LINK, PLANS, limits(WhenFull.STOP))
    batch = random_batch(Random(1), plan, 40)
    for _ in range(60):
        with contextlib.suppress(SpoolFullError):
            writer.append(0, batch)
            writer.flush()
    with pytest.raises(SpoolFullError, match=r"full: \d+ of 163840 bytes"):
        writer.append(0, batch)
    low = 0
    while not writer._waiting_punctuations:  # until a segment with only punctuation has no room
        low += 1
        writer.append(1, Punctuation(LINK, low))
        writer.flush() if low < 3 else writer.tick(low * SECOND)
        assert low < 1000
    writer.append(1, Punctuation(LINK, 5000))
    reader = SpoolReader(tmp_path)
    writer.tick(10**6 * SECOND)
    for segment in reader:
        reader.commit(segment.number)
    writer.tick(2 * 10**6 * SECOND)  # room: the missing watermark is sent, and written at the next due time
    writer.tick(3 * 10**6 * SECOND)
    writer.flush()
    assert dict(zip(("pairs", "others"), reader.read(reader.segments()[-1]).watermarks, strict=True))["others"] == 5000
    writer.append(0, batch)
    writer.close()


@pytest.mark.parametrize("policy", list(WhenFull))
def test_the_end_of_a_link_has_room_in_a_full_spool(tmp_path: Path, policy: WhenFull) -> None:
    writer = SpoolWriter(tmp_path, LINK, PLANS, limits(policy))
    batch = random_batch(Random(1), pairs_plan(), 30)
    for _ in range(100):
        try:
            writer.append(0, batch)
        except SpoolFullError:
            writer.shed(0, batch)
        writer.flush()
    for low in range(20):  # what partials have left goes to promises
        writer.append(0, Punctuation(LINK, low))
        writer.flush()
    writer.close(has_ended=True)
    assert writer.ended
    assert writer.used <= writer.limits.spool_bytes
    assert on_disk(tmp_path) <= writer.limits.spool_bytes
    reader = SpoolReader(tmp_path)
    last = reader.read(reader.segments()[-1])
    assert last.ended
    assert last.watermarks == (END, END)


def test_partials_are_shed_and_promises_never(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, LINK, PLANS)
    writer.shed(0, random_batch(Random(1), pairs_plan(), 7))
    writer.shed(0, Punctuation(LINK, 5))
    writer.close()
    assert (writer.counts.items_dropped, writer.counts.rows_dropped) == ({"shed": 1}, {"shed": 7})
    segment = SpoolReader(tmp_path).read(0)
    assert (segment.watermarks, segment.rows, segment.header.shed_before) == ((5, BEGINNING), 0, 7)


def test_room_is_kept_for_a_long_position(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, LINK, PLANS, cuts=True)
    writer.append(0, Punctuation(LINK, 1))
    writer.cut("x" * 20_000)
    assert writer.used > OTHER_FILES_BYTES + 20_000
    writer.flush()
    assert on_disk(tmp_path) <= writer.used
    writer.close()


def test_what_is_committed_goes_before_anything_is_dropped(tmp_path: Path) -> None:
    plan = pairs_plan()
    writer = SpoolWriter(tmp_path, LINK, PLANS, limits(WhenFull.OLDEST))
    reader = SpoolReader(tmp_path)
    batch = random_batch(Random(1), plan, 40)
    committed = 0
    for _ in range(100):
        writer.append(0, batch)
        writer.flush()
        if len(reader.segments()) > 20:
            committed = reader.segments()[10]
            reader.commit(committed)
    assert committed > 50
    assert not writer.counts.segments_dropped
    writer.close()


def appended_while(writer: SpoolWriter, used: int) -> int:
    """Append partials until `used` bytes are used or the spool is full. Return their rows."""
    batch = random_batch(Random(1), pairs_plan(), 100)
    rows = 0
    with contextlib.suppress(SpoolFullError):
        while writer.used < used:
            writer.append(0, batch)
            rows += batch.num_rows
    return rows


def test_the_newest_segment_is_never_dropped(tmp_path: Path) -> None:
    """It has not been read, and the next segment has no room in addition to it."""
    writer = SpoolWriter(tmp_path, LINK, PLANS, limits(WhenFull.OLDEST), cuts=True)
    appended = appended_while(writer, 20 * BLOCK_BYTES)
    writer.cut("half")
    writer.flush()
    appended += appended_while(writer, 41 * BLOCK_BYTES)
    with pytest.raises(SpoolFullError, match="the reader has not committed any of them"):
        writer.append(0, random_batch(Random(2), pairs_plan(), 100))
    assert SpoolReader(tmp_path).segments() == [0]
    assert not writer.counts.segments_dropped
    writer.cut("all")
    writer.close()
    assert rows_in(tmp_path) == appended


def test_an_item_that_no_spool_of_this_size_can_take_is_refused_for_good(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, LINK, PLANS, limits(WhenFull.OLDEST))
    with pytest.raises(SpoolError, match="expected at most a quarter of the spool's 163840"):
        writer.append(0, random_batch(Random(1), pairs_plan(), 2000))
    assert writer.waiting == 0
    writer.close()


@pytest.mark.parametrize("policy", list(WhenFull))
def test_a_full_file_system_stops_segments_in_their_order_until_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: WhenFull
) -> None:
    room = [3]

    def write(part: Path, path: Path, content) -> int:
        if not room[0]:
            part.write_bytes(b"half")
            part.unlink()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room[0] -= 1
        return write_durably(part, path, content)

    monkeypatch.setattr(segment_thread, "write_durably", write)
    writer = SpoolWriter(tmp_path, LINK, PLANS, SpoolLimits(1, SECOND, 1 << 20, policy))
    batch = random_batch(Random(1), pairs_plan(), 10)
    for _ in range(5):
        writer.append(0, batch)
    writer._thread.wait()
    reader = SpoolReader(tmp_path)
    assert reader.segments() == [0, 1, 2]
    with pytest.raises(SpoolFullError, match="the disk is full; free some space"):
        writer.flush()
    room[0] = 1
    writer.tick(SECOND)
    writer._thread.wait()
    assert reader.segments()[-1] == 3
    room[0] = 99
    writer.tick(2 * SECOND)
    writer.close()
    dropped = writer.samples().total(SPOOL_ROWS_DROPPED)
    assert rows_in(tmp_path) + dropped == 50
    assert reader.segments()[-1] == 4
    assert (dropped > 0) == (policy is WhenFull.OLDEST)


@pytest.mark.parametrize("policy", list(WhenFull))
def test_a_disk_that_stands_still_bounds_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: WhenFull
) -> None:
    moving = threading.Event()

    def write(part: Path, path: Path, content) -> int:
        assert moving.wait(3600)
        return write_durably(part, path, content)

    monkeypatch.setattr(segment_thread, "write_durably", write)
    writer = SpoolWriter(tmp_path, LINK, PLANS, SpoolLimits(segment_bytes=1 << 20, when_full=policy))
    batch = random_batch(Random(1), pairs_plan(), 5000)
    refused = set()
    for _ in range(100):
        try:
            writer.append(0, batch)
        except SpoolFullError as error:
            refused.add(str(error))
            writer.shed(0, batch)
    expected = {f"{tmp_path}: the disk is slower than the partials of link {LINK} arrive"}
    assert refused == expected
    taken = writer.waiting
    assert 6 << 20 < taken // 5000 * batch.nbytes < 9 << 20
    assert taken // 5000 * batch.nbytes < writer.used < 9 << 20
    moving.set()
    writer.close()
    samples = writer.samples()
    assert samples.total(SPOOL_ROWS_DROPPED, cause="shed") == samples.total(SPOOL_ROWS_DROPPED) == 500_000 - taken
    assert rows_in(tmp_path) == taken


def test_a_disk_that_fails_is_said_and_frees_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(part: Path, path: Path, content) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(segment_thread, "write_durably", write)
    writer = SpoolWriter(tmp_path, LINK, PLANS)
    writer.append(0, Punctuation(LINK, 1))
    with pytest.raises(SpoolError, match=r"000000000000\.segment: cannot be written: Input/output error"):
        writer.close()
    SpoolWriter(tmp_path, LINK, PLANS).close()


def test_a_damaged_commit_deletes_nothing_and_a_new_one_mends_it(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, LINK, PLANS)
    for low in range(3):
        writer.append(0, Punctuation(LINK, low))
        writer.flush()
    reader = SpoolReader(tmp_path)
    reader.commit(1)
    path = tmp_path / "committed"
    path.write_bytes(path.read_bytes().replace(b"1", b"2"))
    writer.tick(1)
    assert reader.segments() == [0, 1, 2]
    with pytest.raises(SpoolError, match="damaged: the progress of the reader is unknown"):
        _ = reader.committed
    reader.commit(0)
    assert reader.committed == 0
    writer.close()


def test_gauges_tell_how_far_the_reader_is_behind(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, LINK, PLANS)
    reader = SpoolReader(tmp_path)
    for second in (100, 103, 107):
        writer.tick(second * SECOND)
        writer.append(0, Punctuation(LINK, second))
        writer.flush()
    writer.tick(110 * SECOND)
    samples = writer.samples()
    assert samples.total(SPOOL_OLDEST_AGE) == 10
    assert samples.total(SPOOL_SEGMENTS) == 3
    assert samples.total(SPOOL_BYTES) == OTHER_FILES_BYTES + 3 * BLOCK_BYTES
    reader.commit(1)
    writer.tick(111 * SECOND)
    assert writer.samples().total(SPOOL_OLDEST_AGE) == 4
    reader.commit(2)
    writer.tick(112 * SECOND)
    assert writer.samples().total(SPOOL_OLDEST_AGE) == 0
    writer.close()


def test_a_reader_beside_a_spool_that_drops_sees_each_segment_whole_and_counts_the_others(tmp_path: Path) -> None:
    plan, random = pairs_plan(), Random(1)
    writer = SpoolWriter(tmp_path, LINK, PLANS, limits(WhenFull.OLDEST))
    reader = SpoolReader(tmp_path)
    done = threading.Event()
    seen: dict[int, tuple[int, int]] = {}

    def read() -> None:
        ended = False
        while not ended:
            ended = done.is_set()
            for number in reader.segments():
                if number not in seen:
                    with contextlib.suppress(SegmentLostError):  # dropped between the two calls
                        segment = reader.read(number)
                        seen[number] = segment.header.rows_before, segment.rows
            reader.gaps()

    thread = threading.Thread(target=read)
    thread.start()
    appended = 0
    for _ in range(400):
        batch = random_batch(random, plan, 40)
        appended += batch.num_rows
        while True:
            try:
                writer.append(0, batch)
            except SpoolFullError:  # the thread that writes is behind
                writer.flush()
            else:
                break
    writer.close()
    done.set()
    thread.join()
    through = lost = 0
    for before, rows in (seen[number] for number in sorted(seen)):
        assert before >= through
        lost += before - through
        through = before + rows
    assert through == appended
    assert sum(rows for _, rows in seen.values()) + lost == appended
    assert lost <= writer.counts.rows_dropped["oldest"]


@pytest.mark.parametrize("policy", list(WhenFull))
def test_a_file_system_that_is_really_full(tmp_path: Path, policy: WhenFull) -> None:
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k,mode=700", "tmpfs", tmp_path], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    try:
        plan, random = pairs_plan(), Random(1)
        writer = SpoolWriter(tmp_path, LINK, PLANS, SpoolLimits(4000, SECOND, 1 << 24, policy))
        for now in range(60):
            writer.append(0, random_batch(random, plan, 60))
            with contextlib.suppress(SpoolFullError):
                writer.flush()
            writer.tick(now * SECOND)
        dropped = writer.counts.rows_dropped["oldest"]
        assert rows_in(tmp_path) + dropped + writer.waiting == 3600
        assert (writer.waiting > 0) == (policy is WhenFull.STOP)
        assert (dropped > 0) == (policy is WhenFull.OLDEST)
        reader = SpoolReader(tmp_path)
        last = -1 if policy is WhenFull.STOP else reader.segments()[0] - 1
        read = 0
        while writer.waiting or reader.segments()[-1] > last:
            for segment in reader:
                assert segment.number == last + 1
                last = segment.number
                read += segment.rows
            reader.commit(last)
            writer.tick(10**6 * SECOND + last * SECOND)
            with contextlib.suppress(SpoolFullError):
                writer.flush()
        assert read + dropped == 3600
        writer.close()
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)


def test_no_segment_comes_before_one_that_had_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = [True]

    def write(part: Path, path: Path, content) -> int:
        if path.name.startswith("000000000001") and failing:
            failing.pop()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_durably(part, path, content)

    monkeypatch.setattr(segment_thread, "write_durably", write)
    writer = SpoolWriter(tmp_path, LINK, PLANS, SpoolLimits(1, SECOND, 1 << 20))
    for low in range(4):
        writer.append(0, Punctuation(LINK, low))
    writer._thread.wait()
    assert SpoolReader(tmp_path).segments() == [0]
    writer.tick(SECOND)
    writer.close()
    assert SpoolReader(tmp_path).segments() == [0, 1, 2, 3]
