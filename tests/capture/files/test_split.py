"""Byte ranges of captures: their union is the file, whatever the payloads imitate.

* Ranges over random files, cut anywhere, are compared with the written records. The tests detect a range that starts
  inside a record, reads a record twice or loses one.
* Payloads that are themselves records, chains of them long enough to be believed, prove that a wrong guess is found
  out. The test shows that the guess without its checks is wrong for these files. Otherwise it would be no proof.
"""

from itertools import accumulate, pairwise
from pathlib import Path
from random import Random

import pytest

from capture.files.capture import Capture
from capture.files.pcap import FILE_HEADER_BYTES
from capture.files.scan import scan
from capture.files.split import (
    ByteRange,
    RangeScan,
    even_offsets,
    find_plausible_chain,
    guess_record_boundary,
    ranges_are_contiguous,
    split,
)
from capture.open import open_capture
from tests.references.imitating_frames import START, imitating_frames
from tests.references.pcap_bytes import NS, pcap_bytes


def written(path: Path, frames: list[bytes], **options: object) -> list[int]:
    """Write a capture and return every record boundary, the file's end last."""
    content = pcap_bytes([(START + number * 1000, frame) for number, frame in enumerate(frames)], **options)
    path.write_bytes(content)
    header = 24 if options.get("modified") else 16
    return list(accumulate((header + len(frame) for frame in frames), initial=FILE_HEADER_BYTES))


def random_frames(seed: int) -> list[bytes]:
    random = Random(seed)
    return [random.randbytes(random.choice([1, 14, 60, 1500])) for _ in range(random.randrange(1, 600))]


def walked(file: Capture, ranges: list[ByteRange], block_records: int = 64) -> int:
    """Records in all the ranges together."""
    scans = (RangeScan(file, each.start, each.end, block_records) for each in ranges)
    return sum(block.records for each in scans for block in each)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("frames", [random_frames, imitating_frames])
@pytest.mark.parametrize("seed", range(4))
def test_ranges_tile_the_file_at_record_boundaries(seed: int, frames, count: int, tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    boundaries = written(path, frames(seed))
    file = open_capture(path)
    ranges = split(file, count)
    assert ranges[0].start == FILE_HEADER_BYTES
    assert ranges[-1] == ByteRange(ranges[-1].start, boundaries[-1], None)
    assert all(before.end == after.start for before, after in pairwise(ranges))
    assert {each.end for each in ranges} <= set(boundaries)
    assert 1 <= len(ranges) <= count
    assert walked(file, ranges) == len(boundaries) - 1
    assert ranges_are_contiguous(ranges, FILE_HEADER_BYTES, len(file.data))


@pytest.mark.parametrize(
    "options",
    [{"order": ">"}, {"nanoseconds": False}, {"modified": True}, {"version": (2, 2)}, {"version": (2, 3)}],
    ids=str,
)
def test_every_form_of_the_file_is_cut_where_its_records_are(options: dict, tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    boundaries = written(path, [bytes([60]) * 60] * 400, **options)
    file = open_capture(path)
    for cut in Random(1).sample(range(FILE_HEADER_BYTES, boundaries[-1] - 2000), 50):
        assert guess_record_boundary(file, cut) == min(each for each in boundaries if each >= cut)
    assert len(split(file, 8)) == 8


def test_a_chain_of_imitations_is_believed_and_then_found_out(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    boundaries = written(path, imitating_frames(1))
    file = open_capture(path)
    cut = boundaries[len(boundaries) // 2] + 40
    believed = guess_record_boundary(file, cut)
    assert believed is not None
    assert believed not in boundaries
    first = RangeScan(file, FILE_HEADER_BYTES, cut)
    list(first)
    second = RangeScan(file, believed, len(file.data))
    list(second)
    assert first.range.end == min(each for each in boundaries if each >= cut)
    assert not ranges_are_contiguous([first.range, second.range], FILE_HEADER_BYTES, len(file.data))


@pytest.mark.parametrize("count", [1, 2, 5, 16])
@pytest.mark.parametrize("lost", [1, 10, 17, 70])
def test_a_cut_file_ends_with_the_damage_that_a_scan_finds(lost: int, count: int, tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    written(path, random_frames(9))
    path.write_bytes(path.read_bytes()[:-lost])
    file = open_capture(path)
    index = scan(file)
    ranges = split(file, count)
    assert ranges[-1].damage == index.damage
    assert all(each.damage is None for each in ranges[:-1])
    assert walked(file, ranges) == index.records


@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_nothing_behind_an_impossible_length_is_in_a_range(count: int, tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    boundaries = written(path, [bytes([60]) * 60] * 300)
    content = bytearray(path.read_bytes())
    content[boundaries[100] + 8 : boundaries[100] + 12] = b"\xff\xff\xff\x7f"
    path.write_bytes(content)
    file = open_capture(path)
    ranges = split(file, count)
    assert (ranges[-1].end, ranges[-1].damage) == (boundaries[100], "impossible_record_length")
    assert walked(file, ranges) == 100


def test_a_file_without_records_is_one_empty_range_or_none(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap_bytes([]))
    assert split(open_capture(path), 4) == []
    path.write_bytes(pcap_bytes([]) + b"123")
    assert split(open_capture(path), 4) == [ByteRange(FILE_HEADER_BYTES, FILE_HEADER_BYTES, "cut_in_record_header")]


def test_runs_of_zero_bytes_are_no_chain_of_empty_records(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    boundaries = written(path, [bytes(1000)] * 50)
    file = open_capture(path)
    assert guess_record_boundary(file, boundaries[10] + 100) == boundaries[11]


@pytest.mark.parametrize("seed", range(3))
def test_the_kernel_and_its_python_twin_guess_alike(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    boundaries = written(path, [*random_frames(seed)[:60], *imitating_frames(seed)[:4]])
    file = open_capture(path)
    for cut in Random(seed).sample(range(FILE_HEADER_BYTES, boundaries[-1]), 12):
        common = (cut, min(cut + 2000, boundaries[-1]), boundaries[-1], 0, NS, 16, 0, 65535, 8, 60)
        assert find_plausible_chain(file.data, *common) == find_plausible_chain.function(file.data, *common)


def test_joined_refuses_gaps_overlaps_and_early_ends() -> None:
    whole = [ByteRange(24, 100), ByteRange(100, 200)]
    assert ranges_are_contiguous(whole, 24, 200)
    assert not ranges_are_contiguous(whole, 24, 201)
    assert not ranges_are_contiguous([ByteRange(24, 100), ByteRange(101, 200)], 24, 200)
    assert not ranges_are_contiguous([ByteRange(25, 100), ByteRange(100, 200)], 24, 200)
    assert not ranges_are_contiguous([ByteRange(24, 100, "cut_in_record"), ByteRange(100, 200)], 24, 200)
    assert ranges_are_contiguous([ByteRange(24, 100), ByteRange(100, 150, "cut_in_record")], 24, 200)
    assert not ranges_are_contiguous([], 24, 200)


def test_cuts_are_even_and_span_the_records() -> None:
    assert even_offsets(24, 124, 4) == [24, 49, 74, 99, 124]
    assert even_offsets(24, 24, 2) == [24, 24, 24]
