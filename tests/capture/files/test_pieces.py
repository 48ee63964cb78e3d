"""The index that threads build together: it must be the index that one walk builds, whatever the pieces were.

* Disordered files, some with imitations of records, are compared with the written records. The tests detect a record in
  two pieces or in none, and a low watermark that ignores other pieces.
* Damage in any piece must end the file there, though later pieces were walked as well.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from capture.files.blocks import END_OF_FILE, Index
from capture.files.capture import Capture
from capture.files.scan import PiecewiseScan, scan
from capture.open import open_capture
from tests.references.mixed_captures import mixed
from tests.references.pcap_bytes import pcap_bytes


def capture(path: Path, content: bytes) -> Capture:
    path.write_bytes(content)
    file = open_capture(path)
    assert isinstance(file, Capture)
    return file


def indexed(file: Capture, pieces: int, block_records: int) -> Index:
    """The index of `pieces` pieces, walked in four threads."""
    whole = PiecewiseScan(file, pieces, block_records)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(whole.walk, range(whole.piece_count)))
    return whole.index()


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("seed", range(5))
def test_the_pieces_of_any_file_are_the_walk_over_it(seed: int, pieces: int, tmp_path: Path) -> None:
    records = mixed(seed)
    times = [ts for ts, _ in records]
    index = indexed(capture(tmp_path / "a.pcap", pcap_bytes(records)), pieces, Random(seed).choice([1, 5, 64]))
    at, seen = 24, 0
    for block in index.blocks:
        inside = records[seen : seen + block.records]
        assert (block.start, block.end) == (at, at + sum(16 + len(frame) for _, frame in inside))
        assert (block.min_ts, block.max_ts) == (min(ts for ts, _ in inside), max(ts for ts, _ in inside))
        at, seen = block.end, seen + block.records
        assert block.watermark == min(times[seen:], default=END_OF_FILE)
    assert (seen, index.damage) == (len(records), None)


@pytest.mark.parametrize("pieces", [1, 2, 9])
@pytest.mark.parametrize("seed", range(6))
def test_damage_ends_the_file_in_whatever_piece_it_is(seed: int, pieces: int, tmp_path: Path) -> None:
    random = Random(seed)
    content = pcap_bytes(mixed(seed))
    if seed % 2:
        content = content[: random.randrange(24, len(content))]
    else:
        place = random.randrange(24, len(content))
        content = content[:place] + b"\xff" * 40 + content[place:]
    file = capture(tmp_path / "a.pcap", content)
    whole, index = scan(file), indexed(file, pieces, 64)
    assert (index.records, index.damage, index.watermark) == (whole.records, whole.damage, whole.watermark)
    assert [block.end for block in index.blocks][-1:] == [block.end for block in whole.blocks][-1:]


@pytest.mark.parametrize("content", [pcap_bytes([]), pcap_bytes([]) + b"123"])
@pytest.mark.parametrize("pieces", [1, 4])
def test_a_file_without_records_has_an_index(content: bytes, pieces: int, tmp_path: Path) -> None:
    file = capture(tmp_path / "a.pcap", content)
    assert indexed(file, pieces, 64) == scan(file)


def test_progress_adds_up_to_the_file_whether_guesses_were_right_or_not(tmp_path: Path) -> None:
    for seed in range(6):
        content = pcap_bytes(mixed(seed))
        whole = PiecewiseScan(capture(tmp_path / f"{seed}.pcap", content), 5, 4)
        told: list[int] = []
        for piece in range(whole.piece_count):
            whole.walk(piece, told.append)
        assert min(told) > 0
        whole.index(told.append)
        assert sum(told) == len(content)
