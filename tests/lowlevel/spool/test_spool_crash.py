"""A spool after a crash at any byte, and after damage at any byte: whole segments only, each of them right.

After a crash, a segment that was being written is a prefix of its `.part`, with any part of the bytes on disk. It never
has the segment's name. A file with the segment's name was complete on disk. For it the tests apply damage: cut off at
any byte, or any byte changed. It catches a length believed without a checksum, a checksum that leaves bytes out, a
left-over that is read, a number that is used twice.
"""

import fcntl
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest

from lowlevel.punctuation import Punctuation
from lowlevel.spool import segment
from lowlevel.spool.folder import (
    COMMITTED_NAME,
    ReaderCommit,
    SegmentFormatError,
    SegmentLostError,
    SpoolError,
    read_committed,
    segment_numbers,
    segment_path,
    write_committed,
    write_durably,
)
from lowlevel.spool.reader import LOCK_NAME, Gap, SpoolReader
from lowlevel.spool.writer import SpoolWriter
from tests.references.spool_items import LINK, items_of_plans, pairs_plan, random_batch

PLANS = [("pairs", "0")]


def three_segments(folder: Path, count: int = 3) -> list[bytes]:
    """Write segments 0 to 2, or the first `count`, with a few rows each; return their bytes."""
    writer = SpoolWriter(folder, LINK, PLANS)
    for number in range(count):
        writer.append(0, random_batch(Random(number), pairs_plan(), 2 + number))
        writer.append(0, Punctuation(LINK, number))
        writer.flush()
    writer.close()
    return [segment_path(folder, number).read_bytes() for number in range(count)]


def replace(path: Path, content: bytes) -> None:
    """Replace the content of a file by another file, so that a reader cannot regard it as unchanged."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def test_a_segment_that_is_cut_at_any_byte_is_none(tmp_path: Path) -> None:
    whole = three_segments(tmp_path)[1]
    reader, path = SpoolReader(tmp_path), segment_path(tmp_path, 1)
    assert reader.segments() == [0, 1, 2]
    for length in range(len(whole)):
        replace(path, whole[:length])
        assert reader.segments() == [0, 2], length
        with pytest.raises(SegmentLostError, match="not whole"):
            reader.read(1)
    assert reader.gaps() == [Gap(1, 1, None)]
    path.unlink()
    assert reader.gaps() == [Gap(1, 1, 3)]
    replace(path, whole)
    assert reader.segments() == [0, 1, 2]
    assert reader.gaps() == []


def test_a_segment_with_any_byte_changed_is_none(tmp_path: Path) -> None:
    random = Random(1)
    whole = three_segments(tmp_path)[1]
    reader, path = SpoolReader(tmp_path), segment_path(tmp_path, 1)
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= random.randrange(1, 256)
        replace(path, bytes(changed))
        assert reader.segments() == [0, 2], place
        with pytest.raises(SegmentLostError):
            reader.read(1)


def test_a_segment_with_bytes_put_in_anywhere_is_none(tmp_path: Path) -> None:
    whole = three_segments(tmp_path)[1]
    reader, path = SpoolReader(tmp_path), segment_path(tmp_path, 1)
    for place in range(len(whole) + 1):
        replace(path, whole[:place] + b"x" + whole[place:])
        assert reader.segments() == [0, 2], place


@pytest.mark.parametrize("seed", range(30))
def test_a_segment_with_random_bytes_in_it_or_behind_it_is_none(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    whole = bytearray(three_segments(tmp_path)[1])
    first = random.randrange(len(whole))
    last = min(len(whole), first + random.randrange(1, 200))
    noise = random.choice(
        [bytes(last - first), random.randbytes(last - first), random.randbytes(random.randrange(300))]
    )
    changed = random.choice([whole[:first] + noise + whole[last:], whole[:first] + noise, whole + noise])
    if changed == whole:
        changed += b"0"
    replace(segment_path(tmp_path, 1), bytes(changed))
    assert SpoolReader(tmp_path).segments() == [0, 2]


def test_a_segment_under_another_number_is_none(tmp_path: Path) -> None:
    content = three_segments(tmp_path)
    replace(segment_path(tmp_path, 1), content[2])
    reader = SpoolReader(tmp_path)
    assert reader.segments() == [0, 2]
    with pytest.raises(SegmentLostError, match="got segment 2 under this name, expected 1"):
        reader.read(1)


def test_a_write_that_stops_at_any_byte_leaves_nothing_to_read_and_the_next_writer_removes_it(tmp_path: Path) -> None:
    whole = three_segments(tmp_path / "whole")[2]
    three_segments(tmp_path, count=2)
    part = tmp_path / f"{2:012d}.segment.part"
    for length in range(0, len(whole) + 1, 7):
        part.write_bytes(whole[:length])
        assert SpoolReader(tmp_path).segments() == [0, 1]
        writer = SpoolWriter(tmp_path, LINK, PLANS)
        assert not part.exists()
        writer.abandon()
    writer = SpoolWriter(tmp_path, LINK, PLANS)
    writer.append(0, Punctuation(LINK, 50))
    writer.close()
    segment = SpoolReader(tmp_path).read(2)
    assert [item.watermark for _, _, item in segment.items if isinstance(item, Punctuation)] == [1, 50]


@pytest.mark.parametrize("length", [0, 1, 700, 10**6])
def test_numbers_go_on_behind_a_newest_segment_that_is_damaged(tmp_path: Path, length: int) -> None:
    content = three_segments(tmp_path)
    replace(segment_path(tmp_path, 2), content[2][:length] if length < 10**6 else bytes(len(content[2])))
    reader = SpoolReader(tmp_path)
    assert reader.segments() == [0, 1]
    writer = SpoolWriter(tmp_path, LINK, PLANS)
    writer.append(0, Punctuation(LINK, 50))
    writer.close()
    assert reader.segments() == [0, 1, 3]
    assert reader.gaps() == [Gap(2, 2, None)]
    assert reader.read(3).header.lows == (1,)
    assert reader.read(3).header.epoch == 1
    reader.commit(3)
    SpoolWriter(tmp_path, LINK, PLANS).close()
    assert segment_numbers(tmp_path) == [3]


def three_cuts(folder: Path) -> None:
    """Write segments 0 to 2 of an input that can be read again."""
    writer = SpoolWriter(folder, LINK, PLANS, cuts=True)
    for number in range(3):
        writer.append(0, Punctuation(LINK, number))
        writer.cut(f"place {number}")
    writer.close()


def test_an_input_is_read_again_from_before_a_damaged_segment_that_nobody_took(tmp_path: Path) -> None:
    three_cuts(tmp_path)
    SpoolReader(tmp_path).commit(0)
    for number in (1, 2):
        replace(segment_path(tmp_path, number), b"nonsense")
    writer = SpoolWriter(tmp_path, LINK, PLANS, cuts=True)
    assert writer.position == "place 0"
    writer.close()


@pytest.mark.parametrize(
    ("damaged", "committed", "message"),
    [
        ((2,), 2, "000000000002.segment: damaged, .* has committed up to 2, so its rows would be counted twice"),
        ((1, 2), 1, "000000000001.segment: damaged, .* has committed up to 1,"),
        ((0, 1, 2), None, "000000000000.segment: damaged, .* no older segment contains a position in the input"),
    ],
)
def test_an_input_is_not_read_again_where_that_would_count_twice(
    tmp_path: Path, damaged: tuple[int, ...], committed: int | None, message: str
) -> None:
    three_cuts(tmp_path)
    if committed is not None:
        SpoolReader(tmp_path).commit(committed)
    for number in damaged:
        replace(segment_path(tmp_path, number), b"nonsense")
    for _ in range(2):  # the folder is let go of each time
        with pytest.raises(SpoolError, match=message):
            SpoolWriter(tmp_path, LINK, PLANS, cuts=True)
    SpoolWriter(tmp_path, LINK, PLANS).close()  # a live input continues


def test_a_segment_of_another_version_is_not_taken_for_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_cuts(tmp_path)
    monkeypatch.setattr(segment, "FORMAT", 2)
    for cuts in (True, False):
        with pytest.raises(SegmentFormatError, match=r"02\.segment: got a segment of format 1, expected 2: another"):
            SpoolWriter(tmp_path, LINK, PLANS, cuts=cuts)
    with pytest.raises(SegmentFormatError, match=r"01\.segment: got a segment of format 1"):
        SpoolReader(tmp_path).read(1)


def test_the_order_in_which_a_folder_lists_its_files_means_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_segments(tmp_path)
    listed = list(os.scandir(tmp_path))
    for seed in range(10):
        order = Random(seed).sample(listed, len(listed))
        monkeypatch.setattr(os, "scandir", lambda _, order=order: nullcontext(order))
        assert SpoolReader(tmp_path).segments() == [0, 1, 2]
        assert [segment.number for segment in SpoolReader(tmp_path)] == [0, 1, 2]
        SpoolWriter(tmp_path, LINK, PLANS).abandon()
        monkeypatch.undo()


def test_other_files_in_the_folder_mean_nothing(tmp_path: Path) -> None:
    three_segments(tmp_path)
    for name in ("1.segment", "0000000000001.segment", "000000000009.segment~", "x", "00000000000a.segment"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "000000000007.segment").mkdir()
    assert segment_numbers(tmp_path) == [0, 1, 2]
    assert SpoolReader(tmp_path).segments() == [0, 1, 2]


def test_a_commit_that_is_cut_or_changed_at_any_byte_is_refused_and_the_next_one_mends_it(tmp_path: Path) -> None:
    three_segments(tmp_path)
    reader = SpoolReader(tmp_path)
    reader.commit(1)
    path = tmp_path / COMMITTED_NAME
    whole = path.read_bytes()
    random = Random(2)
    damaged = [whole[:length] for length in range(len(whole))]
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= random.randrange(1, 256)
        damaged.append(bytes(changed))
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(SpoolError, match="damaged"):
            _ = reader.committed
        writer = SpoolWriter(tmp_path, LINK, PLANS)
        writer.tick(1)
        writer.abandon()
        assert reader.segments() == [0, 1, 2]
    reader.commit(1)
    assert read_committed(tmp_path) == ReaderCommit(1, 5)
    path.with_name(f"{COMMITTED_NAME}.part").write_bytes(whole[:5])  # of a commit that a crash has stopped
    assert reader.committed == 1
    reader.commit(2)
    assert read_committed(tmp_path) == ReaderCommit(2, 9)
    assert not path.with_name(f"{COMMITTED_NAME}.part").exists()


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_file_is_replaced_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path, part = tmp_path / "file", tmp_path / "file.part"
    calls: list[str] = []

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(file: int) -> None:
        calls.append("fsync folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "fsync")
        real_fsync(file)

    def replace_path(self: Path, target: Path) -> Path:
        calls.append("replace")
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace_path)
    assert write_durably(part, path, [b"old", b"er"]) == 5
    assert calls == ["fsync", "replace", "fsync folder"]

    def content() -> Iterator[bytes]:
        yield b"new"
        if call == "write":
            fail()

    if call == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    if call == "replace":
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="Input/output error"):
        write_durably(part, path, content())
    assert path.read_bytes() == b"older"
    assert list(tmp_path.iterdir()) == [path]


def test_reading_goes_on_behind_a_lost_segment_with_every_promise(tmp_path: Path) -> None:
    three_segments(tmp_path)
    reader = SpoolReader(tmp_path)
    whole = items_of_plans([(name, item) for segment in reader for name, _, item in segment.items])["pairs"]
    segment_path(tmp_path, 1).unlink()
    left = items_of_plans([(name, item) for segment in reader for name, _, item in segment.items])["pairs"]
    assert left == [whole[0], 0, 1, whole[4], 2]


def test_a_segment_that_vanishes_while_others_are_read_is_passed_over(tmp_path: Path) -> None:
    three_segments(tmp_path)
    reading = iter(SpoolReader(tmp_path))
    assert next(reading).number == 0
    segment_path(tmp_path, 1).unlink()
    assert [segment.number for segment in reading] == [2]


def test_gaps_are_told_behind_what_was_committed_or_is_named(tmp_path: Path) -> None:
    three_segments(tmp_path)
    reader = SpoolReader(tmp_path)
    segment_path(tmp_path, 1).unlink()
    assert reader.gaps(0) == [Gap(1, 1, 3)]
    reader.commit(0)
    segment_path(tmp_path, 0).unlink()  # committed segments keep their row counts
    assert reader.gaps() == [Gap(1, 1, 3)]


@pytest.mark.parametrize("kept", ["file", "time"])
def test_a_segment_that_changes_at_its_size_is_looked_at_again(kept: str, tmp_path: Path) -> None:
    """As another file of the same time, or as the same file at another time."""
    whole = three_segments(tmp_path)[1]
    reader, path = SpoolReader(tmp_path), segment_path(tmp_path, 1)
    assert reader.segments() == [0, 1, 2]
    before = path.stat()
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 1
    changed = path if kept == "file" else tmp_path / "other"
    with changed.open("r+b" if kept == "file" else "wb") as file:  # in place it is the same file
        file.write(broken)
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns + (kept == "file")))
    changed.replace(path)
    after = path.stat()
    assert after.st_size == before.st_size
    assert (after.st_ino == before.st_ino, after.st_mtime_ns == before.st_mtime_ns) == (kept == "file", kept == "time")
    assert reader.segments() == [0, 2]


def test_a_commit_waits_for_another_and_never_goes_back(tmp_path: Path) -> None:
    three_segments(tmp_path)
    lock = os.open(tmp_path / LOCK_NAME, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    committing = threading.Thread(target=SpoolReader(tmp_path).commit, args=(0,))
    try:
        committing.start()
        committing.join(0.2)  # it would be done by now, were it not for the lock
        assert committing.is_alive()
        write_committed(tmp_path, ReaderCommit(1, 5))
    finally:
        os.close(lock)
        committing.join()
    assert read_committed(tmp_path) == ReaderCommit(1, 5)
    SpoolReader(tmp_path).commit(2)  # the lock is free again
    assert read_committed(tmp_path).number == 2


def test_what_is_committed_leaves_no_gap(tmp_path: Path) -> None:
    three_segments(tmp_path)
    reader = SpoolReader(tmp_path)
    reader.commit(1)
    segment_path(tmp_path, 1).unlink()
    assert reader.gaps() == []
