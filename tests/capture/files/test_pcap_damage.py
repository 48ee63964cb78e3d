"""Captures that end or break in the middle: everything before the damage is read, and the damage is named.

* Every prefix of a file catches a record that is accepted although it is cut, and a whole one that is thrown away.
* Random bytes changed catch crashes, endless walks, and trust in a length that the file does not have.
"""

import struct
from pathlib import Path
from random import Random

import pytest

from capture.errors import InputError
from capture.files.pcap import MAX_CAPTURED_BYTES
from tests.references.capture_oracle import read_pcap
from tests.references.packet_rows import decode_file
from tests.references.pcap_bytes import pcap_bytes
from tests.references.random_frames import random_frame

RECORD_HEADER = 16


def small_capture(seed: int, link_type: int = 1, **container: object) -> tuple[list[bytes], bytes]:
    random = Random(seed)
    frames = [random_frame(random, link_type)[0] for _ in range(6)]
    return frames, pcap_bytes([(n * 10**9, frame) for n, frame in enumerate(frames)], link_type, **container)


@pytest.mark.parametrize("container", [{}, {"order": ">", "nanoseconds": False}, {"modified": True, "version": (2, 2)}])
def test_every_prefix_gives_its_whole_records_and_says_how_it_ends(container: dict, tmp_path: Path) -> None:
    frames, data = small_capture(1, **container)
    header = RECORD_HEADER + 8 * ("modified" in container)
    path = tmp_path / "prefix.pcap"
    whole_rows = None
    for size in range(len(data), -1, -1):
        path.write_bytes(data[:size])
        if size < 24:
            with pytest.raises(InputError):
                decode_file(path)
            continue
        rows, skipped, index = decode_file(path)
        whole_rows = whole_rows or rows
        left, whole = size - 24, 0
        while whole < len(frames) and left >= header + len(frames[whole]):
            left -= header + len(frames[whole])
            whole += 1
        assert index.damage == (None if left == 0 else "cut_in_record_header" if left < header else "cut_in_record")
        assert index.records == whole == len(rows) + sum(skipped.values())
        assert rows == whole_rows[: len(rows)]


@pytest.mark.parametrize("seed", range(20))
def test_changed_bytes_never_give_more_than_the_file_holds(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    _, data = small_capture(seed, random.choice([1, 101, 113, 192]))
    path = tmp_path / "harmed.pcap"
    for _ in range(40):
        harmed = bytearray(data)
        for _ in range(random.choice([1, 1, 2, 10])):
            harmed[random.randrange(random.choice([24, len(data)]))] = random.randrange(256)
        path.write_bytes(harmed)
        try:
            rows, skipped, index = decode_file(path, random.choice([1, 3, 64]))
        except InputError:
            continue
        twin = read_pcap(path)
        assert rows == [row for row in twin.rows() if isinstance(row, dict)]
        assert index.damage == twin.damage
        assert index.records == len(rows) + sum(skipped.values()) == len(twin.records)
        assert index.records * RECORD_HEADER <= len(data) - 24


@pytest.mark.parametrize(
    "length, records, damage",
    [
        (0, 2, None),
        (MAX_CAPTURED_BYTES, 2, None),
        (MAX_CAPTURED_BYTES + 1, 1, "impossible_record_length"),
        (2**31, 1, "impossible_record_length"),
        (2**32 - 1, 1, "impossible_record_length"),
    ],
)
def test_a_length_is_believed_up_to_libpcaps_bound(
    length: int, records: int, damage: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "long.pcap"
    body = bytes(min(length, MAX_CAPTURED_BYTES + 1))
    path.write_bytes(pcap_bytes([(1, b"")]) + struct.pack("<4I", 2, 0, length, 60) + body)
    _, _, index = decode_file(path)
    assert (index.records, index.damage) == (records, damage)
