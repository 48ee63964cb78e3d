"""pcapng as its specification has it: every kind of block, both byte orders, every clock.

* Files written by hand catch a field that is misread in the same way by the reader and by its twin.
* The same frames as classic pcap catch a frame that begins or ends at the wrong byte.
* Random files against the twin catch what depends on the order of sections, interfaces and packets.
* The kernels as plain Python catch what only machine code does (wrapped numbers, reads outside).
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from capture.errors import InputError
from capture.files.blocks import BLOCK_WORDS, WalkState
from capture.files.interfaces import MAX_TIME
from capture.files.pcapng import scan_pcapng
from capture.files.scan import scan
from capture.open import open_capture
from capture.packets import decoder as decoder_module
from capture.packets.decoder import Decoder
from tests.harness.plain_kernels import plain
from tests.references.packet_rows import rows_of
from tests.references.pcap_bytes import NS
from tests.references.pcapng_bytes import block, custom, enhanced, interface, obsolete, options, section, simple
from tests.references.pcapng_oracle import parse_pcapng
from tests.references.pcapng_rows import NAMES, expected_rows, read_file
from tests.references.random_frames import random_frame
from tests.references.random_pcapng import random_pcapng

FRAME = random_frame(Random(1), 1)[0]
SIZES = [1, 3, 64]
NOW = 1_700_000_000


def times(data: bytes, folder: Path) -> list[int]:
    path = folder / "times.pcapng"
    path.write_bytes(data)
    return [row["ts"] for row in read_file(path, 4)[0]]


@pytest.mark.parametrize("order", ["<", ">"])
def test_every_kind_of_packet_block_is_a_record_and_every_other_block_is_passed_over(
    order: str, tmp_path: Path
) -> None:
    path = tmp_path / "kinds.pcapng"
    path.write_bytes(
        section(order, more=options((1, b"made by hand"), order=order))
        + block(4, b"\0\0\0\0", order)
        + interface(1, order, name="eth0")
        + enhanced(NOW * 10**6 + 5, FRAME, order, wire=2000, more=options((2, bytes(4)), order=order))
        + custom(order)
        + custom(order, copied=False)
        + obsolete(NOW * 10**6 + 4, FRAME, order)
        + block(5, bytes(12), order)
        + interface(101, order)
        + simple(FRAME, order)
        + enhanced(NOW * 10**6 + 3, FRAME[:20], order, number=1)
        + block(0x80001234, b"of a vendor", order)
        + block(10, bytes(100), order)
    )
    rows, replaced, names, damage = read_file(path, 64)
    assert [(row["ts"], row["interface"], row["caplen"], row["len"]) for row in rows] == [
        (NOW * NS + 5000, 0, len(FRAME), 2000),
        (NOW * NS + 4000, 0, len(FRAME), len(FRAME)),
        (0, 0, len(FRAME), len(FRAME)),
        (NOW * NS + 3000, 1, 20, 20),
    ]
    assert (names, damage, replaced) == (["eth0", "1"], None, {"no_timestamp": 1})


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("padding", [0, 1, 2, 3])
def test_frames_of_every_padding_are_read_whole(count: int, padding: int, tmp_path: Path) -> None:
    path = tmp_path / "padded.pcapng"
    frames = [bytes([45]) * (4 * each + padding) for each in range(count)]
    data = section() + interface(229) + b"".join(enhanced(9, frame) + simple(frame) for frame in frames)
    path.write_bytes(data)
    assert [row["caplen"] for row in read_file(path, 3)[0]] == [len(frame) for frame in frames for _ in (0, 1)]


def test_sections_of_different_byte_orders_number_their_interfaces_anew(tmp_path: Path) -> None:
    path = tmp_path / "sections.pcapng"
    path.write_bytes(
        section()
        + interface(1, name="a")
        + interface(1, name="b")
        + enhanced(1, FRAME, number=1)
        + section(">", length=4)  # a length that nobody may believe
        + interface(101, ">", name="c")
        + enhanced(2, FRAME, ">")
        + section()
        + section("<", version=(1, 2))
        + interface(1)
        + enhanced(3, FRAME)
    )
    rows, _, names, damage = read_file(path, 64)
    assert [(row["ts"], row["interface"]) for row in rows] == [(1000, 1), (2000, 2), (3000, 3)]
    assert (names, damage) == (["a", "b", "c", "3"], None)


def test_no_block_straddles_sections_and_their_promises_hold(tmp_path: Path) -> None:
    path = tmp_path / "straddle.pcapng"
    first = section() + interface() + enhanced(8, FRAME) + enhanced(7, FRAME)
    second = section(">") + interface(1, ">") + enhanced(5, FRAME, ">") + enhanced(6, FRAME, ">")
    path.write_bytes(first + second)
    one, other = scan(open_capture(path)).blocks
    assert (one.records, one.min_ts, one.max_ts, one.watermark, one.end) == (2, 7000, 8000, 5000, len(first))
    assert (other.records, other.min_ts, other.max_ts, other.end) == (2, 5000, 6000, len(first + second))
    assert one.section != other.section


@pytest.mark.parametrize(
    ("resolution", "count", "expected"),
    [
        (None, NOW * 10**6 + 999_999, NOW * NS + 999_999_000),
        (0, NOW, NOW * NS),
        (3, NOW * 1000 + 7, NOW * NS + 7_000_000),
        (9, NOW * NS + 123_456_789, NOW * NS + 123_456_789),
        (10, NOW * 10**10 + 19, NOW * NS + 1),  # finer than ns: down
        (18, 10**18 + 999_999_999, NS),
        (19, 18 * 10**18 + 10**10 - 1, 1_800_000_000),
        (0x80, NOW, NOW * NS),
        (0x80 | 1, 2 * NOW + 1, NOW * NS + 500_000_000),
        (0x80 | 10, 1024 * NOW + 1, NOW * NS + 976_562),
        (0x80 | 32, (NOW << 32) + 2**32 - 1, NOW * NS + 999_999_999),
        (0x80 | 33, (NOW << 33) + 2**33 - 1, NOW * NS + 999_999_999),
        (0x80 | 63, 2**63 + 2**62, 1_500_000_000),
        (0x80 | 63, 2**64 - 1, 1_999_999_999),
    ],
)
def test_times_are_exact_whatever_the_clock_counts(
    resolution: int | None, count: int, expected: int, tmp_path: Path
) -> None:
    assert times(section() + interface(resolution=resolution) + enhanced(count, FRAME), tmp_path) == [expected]


@pytest.mark.parametrize(
    ("resolution", "offset", "count", "expected"),
    [
        (6, NOW, 5, NOW * NS + 5000),
        (6, -1, NOW * 10**6, (NOW - 1) * NS),
        (6, -NOW, NOW * 10**6 + 3, 3000),
        (9, -(10**9), 2 * 10**18 + 1, 10**18 + 1),
        (0, -(2**63), 2**63 + NOW, NOW * NS),  # the sum fits into int64, the count alone does not
        (12, NOW, 1001, NOW * NS + 1),
        (0x80 | 33, -1, (NOW << 33) + (1 << 32), (NOW - 1) * NS + 500_000_000),
    ],
)
def test_an_offset_moves_a_clock_by_whole_seconds(
    resolution: int, offset: int, count: int, expected: int, tmp_path: Path
) -> None:
    data = section(">") + interface(1, ">", resolution=resolution, offset=offset) + enhanced(count, FRAME, ">")
    assert times(data, tmp_path) == [expected]


@pytest.mark.parametrize(
    ("resolution", "offset", "count", "expected", "moved"),
    [
        (9, None, MAX_TIME, MAX_TIME, 0),
        (9, None, MAX_TIME + 1, MAX_TIME, 1),
        (6, None, MAX_TIME // 1000, MAX_TIME // 1000 * 1000, 0),
        (6, None, MAX_TIME // 1000 + 1, MAX_TIME, 1),
        (6, None, 2**64 - 1, MAX_TIME, 1),
        (0, None, MAX_TIME // NS, MAX_TIME // NS * NS, 0),
        (0, None, MAX_TIME // NS + 1, MAX_TIME, 1),
        (0, 2**63 - 1, 2**64 - 1, MAX_TIME, 1),
        (0, 2**63 - 1, 0, MAX_TIME, 1),
        (6, MAX_TIME // NS, 427_387, MAX_TIME // NS * NS + 427_387_000, 0),
        (6, MAX_TIME // NS, 427_388, MAX_TIME, 1),
        (6, MAX_TIME // NS, 10**6, MAX_TIME, 1),
        (6, -1, 999_999, 0, 1),
        (6, -1, 10**6, 0, 0),
        (6, -(2**63), 2**64 - 1, 0, 1),
        (0x80 | 63, MAX_TIME // NS + 1, 0, MAX_TIME, 1),
    ],
)
def test_a_time_outside_the_span_is_moved_to_its_bound_and_counted(
    resolution: int, offset: int | None, count: int, expected: int, moved: int, tmp_path: Path
) -> None:
    path = tmp_path / "far.pcapng"
    path.write_bytes(section() + interface(resolution=resolution, offset=offset) + enhanced(count, FRAME) * 2)
    rows, replaced, _, damage = read_file(path, 1)
    assert ([row["ts"] for row in rows], damage) == ([expected] * 2, None)
    assert replaced == ({"out_of_range": 2} if moved else {})


def test_a_simple_packet_has_the_first_interface_no_time_and_what_the_snapshot_length_lets_through(
    tmp_path: Path,
) -> None:
    path = tmp_path / "simple.pcapng"
    path.write_bytes(
        section()
        + interface(1, snaplen=30, offset=1000)
        + interface(101, snaplen=10)
        + simple(FRAME[:30], wire=1500)
        + simple(FRAME[:13], wire=13)
        + enhanced(7, FRAME[:40], number=1)
    )
    rows, replaced, _, damage = read_file(path, 8)
    assert [(row["ts"], row["interface"], row["caplen"], row["len"]) for row in rows] == [
        (0, 0, 30, 1500),
        (0, 0, 13, 13),
        (7000, 1, 40, 40),  # longer than its interface's snapshot length: the captured length is in the block
    ]
    assert (replaced, damage) == ({"no_timestamp": 2}, None)


def test_each_packet_has_the_link_type_of_its_interface(tmp_path: Path) -> None:
    random = Random(3)
    path = tmp_path / "mixed.pcapng"
    types = (1, 101, 113, 0, 276)
    frames = [random_frame(random, types[number % 5]) for number in range(50)]
    path.write_bytes(
        section()
        + b"".join(interface(link_type) for link_type in types)
        + b"".join(enhanced(n, frame, number=n % 5) for n, (frame, _) in enumerate(frames))
    )
    rows = read_file(path, 7)[0]
    assert [row["srcIP"] for row in rows] == [made["srcIP"] for _, made in frames]


@pytest.mark.parametrize("seed", range(25))
def test_random_files_are_the_twins_and_their_frames_those_of_classic_pcap(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    data = random_pcapng(random, 60)
    path = tmp_path / "random.pcapng"
    path.write_bytes(data)
    twin = parse_pcapng(data)
    rows, replaced, names, damage = read_file(path, random.choice(SIZES))
    assert (damage, twin.damage, names, replaced) == (None, None, twin.names, twin.replaced)
    assert rows == expected_rows(twin, tmp_path)


@pytest.mark.parametrize("size", SIZES)
def test_blocks_have_the_records_the_times_and_the_true_low_watermark(size: int, tmp_path: Path) -> None:
    data = random_pcapng(Random(size), 200, (1,))
    path = tmp_path / "blocks.pcapng"
    path.write_bytes(data)
    records = parse_pcapng(data).records
    seen = 0
    for found in scan(open_capture(path), size).blocks:
        here = records[seen : seen + found.records]
        seen += found.records
        assert (found.start, found.min_ts, found.max_ts) == (
            here[0].start,
            min(record.ts for record in here),
            max(record.ts for record in here),
        )
        assert len({record.section for record in here}) == 1
        assert found.watermark == min((record.ts for record in records[seen:]), default=2**63 - 1)
        assert found.records <= size
    assert seen == len(records)


def test_a_second_walk_meets_the_same_interfaces_and_adds_none(tmp_path: Path) -> None:
    path = tmp_path / "again.pcapng"
    path.write_bytes(random_pcapng(Random(2), 100, (1,)))
    file = open_capture(path)
    first = scan(file, 16)
    names = list(file.format.interface_names)
    assert scan(file, 16) == first
    assert file.format.interface_names == names


@pytest.mark.parametrize("seed", range(8))
def test_a_walk_goes_on_in_other_buffers_at_other_offsets(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    data = random_pcapng(random, 80, (1, 101))
    path = tmp_path / "whole.pcapng"
    path.write_bytes(data)
    file = open_capture(path)
    expected = [(each.min_ts, each.max_ts) for each in scan(file, 1).blocks]
    form = type(file.format)()
    state = WalkState(form.first_record)
    rows = np.empty((1, BLOCK_WORDS), np.int64)
    buffer = np.empty(0, np.uint8)
    at, found = 0, []
    while at < len(data):
        size = random.randrange(1, 300)
        gap = random.randrange(20)  # what is left moves to another place
        rest = buffer[state.offset :].tobytes() + data[at : at + size]
        at += size
        buffer = np.frombuffer(bytes(gap) + rest, np.uint8)
        state.offset, state.status = gap, 1
        while state.status == 1:
            if form.walk(buffer, len(buffer), 1, rows, state):
                found.append((int(rows[0, 3]), int(rows[0, 4])))
    assert found == expected
    assert form.interface_names == file.format.interface_names


@pytest.mark.parametrize("seed", range(4))
def test_the_kernels_as_plain_python_agree_with_their_machine_code(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "both.pcapng"
    path.write_bytes(random_pcapng(Random(seed), 40))
    file = open_capture(path)
    blocks = scan(file, 7).blocks
    table = file.format.interfaces
    walks = []
    for run in (scan_pcapng, plain(scan_pcapng)):
        state = WalkState(0)
        rows = np.zeros(BLOCK_WORDS * 50, np.int64)
        count = run(file.data, len(file.data), 7, 50, table, rows, state.words)
        walks.append((count, rows.tolist(), state.words.tolist()))
    assert walks[0] == walks[1]
    decoder, twin = (Decoder(file, NAMES, 7, every_frame=True) for _ in (0, 1))
    machine = [rows_of(decoder.decode(each), file.data, NAMES) for each in blocks]
    monkeypatch.setattr(decoder_module, "decode_pcapng", plain(decoder_module.decode_pcapng, twin.matrix))
    assert [rows_of(twin.decode(each), file.data, NAMES) for each in blocks] == machine
    assert twin.replaced_time_counts.tolist() == decoder.replaced_time_counts.tolist()


@pytest.mark.parametrize("seed", range(30))
def test_a_file_that_has_changed_since_its_scan_is_not_read_beyond_its_blocks(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    path = tmp_path / "changed.pcapng"
    path.write_bytes(random_pcapng(random, 30, (1, 101)))
    file = open_capture(path)
    blocks = scan(file, 8).blocks
    harmed = np.concatenate([file.data, np.zeros(64, np.uint8)])
    for place in random.sample(range(len(file.data)), 40):
        harmed[place] = random.choice([0, 1, 3, 255])
    decoder = Decoder(replace(file, data=harmed), NAMES, 8, every_frame=True)
    for each in blocks:
        rows = rows_of(decoder.decode(each), harmed, NAMES)
        assert len(rows) <= each.records
        assert all(0 <= row["interface"] < len(file.format.interface_names) for row in rows)
        assert sum(row["caplen"] for row in rows) <= each.end - each.start


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (section()[:27], "truncated in the pcapng section header: got 27 bytes, expected 28"),
        (section()[:8] + b"abcd" + section()[12:], "its byte-order magic is 61 62 63 64, not 1a 2b 3c 4d"),
        (section(version=(2, 0)), "pcapng version 2.0 is not supported, expected 1.x"),
        (section(">", version=(0, 1)), "pcapng version 0.1 is not supported, expected 1.x"),
    ],
)
def test_a_file_that_only_begins_like_pcapng_is_refused_with_the_reason(
    content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "foreign.pcapng"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        open_capture(path)


def test_the_name_of_a_file_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "named.pcap"
    path.write_bytes(section() + interface() + enhanced(1, FRAME))
    assert scan(open_capture(path)).records == 1


def test_names_of_interfaces_are_cut_and_made_up_where_they_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "names.pcapng"
    names = ["x" * 300, None, "", "wlan0", "wlan0", "\u00e4\u00f6"]
    path.write_bytes(section() + b"".join(interface(name=name) for name in names) + simple(b""))
    found = read_file(path, 1)[2]
    assert found == ["x" * 127, "1", "2", "wlan0", "wlan0", "\u00e4\u00f6"]
    assert Counter(found)["wlan0"] == 2
