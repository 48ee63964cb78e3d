"""The index of a capture: blocks, times and the true low watermark.

* The low watermark is compared with its definition on random disordered files, so that an off-by-one between a block
  and its promise shows.
* The blocks must tile the file, so that a record read twice or never shows.
"""

from pathlib import Path

import numpy as np
import pytest

from capture.files.blocks import END_OF_FILE, Block, Index
from capture.files.pcap import FILE_HEADER_BYTES, scan_blocks
from capture.files.scan import scan
from capture.open import open_capture
from tests.references.capture_oracle import read_pcap
from tests.references.disordered_captures import disordered
from tests.references.pcap_bytes import NS, pcap_bytes

RECORD_HEADER = 16
SIZES = [1, 2, 7, 64]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [0, 1, 2, 7, 14, 63, 64, 65, 500])
def test_low_is_the_smallest_time_of_all_later_records(count: int, size: int, tmp_path: Path) -> None:
    path = tmp_path / "disordered.pcap"
    records = disordered(count * 100 + size, count)
    path.write_bytes(pcap_bytes(records))
    index = scan(open_capture(path), size)
    times = [ts for ts, _ in records]
    seen = 0
    for block in index.blocks:
        here = times[seen : seen + block.records]
        seen += block.records
        assert (block.min_ts, block.max_ts) == (min(here), max(here))
        assert block.watermark == min(times[seen:], default=END_OF_FILE)
    assert index.watermark == min(times, default=END_OF_FILE)
    assert (seen, index.records, index.damage) == (count, count, None)


@pytest.mark.parametrize("size", SIZES)
def test_blocks_tile_the_file(size: int, tmp_path: Path) -> None:
    path = tmp_path / "tiles.pcap"
    records = disordered(3, 130)
    path.write_bytes(pcap_bytes(records))
    blocks = scan(open_capture(path), size).blocks
    edges = [FILE_HEADER_BYTES, *(block.end for block in blocks)]
    assert [block.start for block in blocks] == edges[:-1]
    assert edges[-1] == path.stat().st_size
    assert [block.records for block in blocks[:-1]] == [size] * (len(blocks) - 1)
    assert 1 <= blocks[-1].records <= size
    for number, block in enumerate(blocks):
        inside = records[number * size : number * size + block.records]
        assert block.end - block.start == sum(RECORD_HEADER + len(frame) for _, frame in inside)


def test_blocks_of_a_damaged_file_end_before_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "cut.pcap"
    whole = pcap_bytes([(9, b"abc"), (4, b"de")])
    path.write_bytes(whole + b"\0" * 15)
    index = scan(open_capture(path), 1)
    cut = len(whole)
    assert index == Index([Block(24, 43, 1, 9, 9, 4), Block(43, cut, 1, 4, 4, END_OF_FILE)], "cut_in_record_header")


def test_times_of_2038_and_2106_and_the_end_of_32_bits_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "late.pcap"
    times = [(2**31 - 1) * NS, 2**31 * NS, (2**32 - 1) * NS + NS - 1]
    path.write_bytes(pcap_bytes([(ts, b"") for ts in times]))
    assert [(block.min_ts, block.max_ts) for block in scan(open_capture(path), 1).blocks] == [(ts, ts) for ts in times]


def test_the_walk_goes_on_where_it_was_left(tmp_path: Path) -> None:
    path = tmp_path / "long.pcap"
    records = disordered(8, 37)
    path.write_bytes(pcap_bytes(records))
    data = open_capture(path).data
    rows = np.zeros((2, 6), np.int64)
    state = np.array([FILE_HEADER_BYTES, 1], np.int64)
    found = []
    while state[1] == 1:
        count = scan_blocks(data, len(data), False, 1, 16, 0, 262_144, 3, 2, rows.reshape(-1), state)
        found += rows[:count].tolist()
    index = scan(open_capture(path), 3)
    assert found == [[block.start, block.end, block.records, block.min_ts, block.max_ts, 0] for block in index.blocks]


def test_the_kernel_as_plain_python_agrees_with_its_machine_code(tmp_path: Path) -> None:
    path = tmp_path / "both.pcap"
    records = disordered(11, 90)
    for cut in (0, 1, 20):
        whole = pcap_bytes(records, order=">", nanoseconds=False, version=(2, 3), more_on_wire=4)
        path.write_bytes(whole[: len(whole) - cut])
        data = open_capture(path).data
        results = []
        for run in (scan_blocks, scan_blocks.function):
            rows = np.zeros(6 * 20, np.int64)
            state = np.array([FILE_HEADER_BYTES, 1], np.int64)
            results.append(
                (run(data, len(data), True, 1000, 16, 2, 262_144, 7, 20, rows, state), rows.tolist(), state.tolist())
            )
        assert results[0] == results[1]
        assert sum(row[2] for row in np.reshape(results[0][1], (20, 6))) == len(read_pcap(path).records)
