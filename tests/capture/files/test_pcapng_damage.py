"""pcapng captures that end or break in the middle: everything before the damage is read, and the damage is named.

* Every prefix catches a block that is accepted although it is cut, and a whole one that is thrown away.
* Every byte changed catches crashes, endless walks, and trust in a length or a number that the file does not have.
* A table of damages catches a cause that is taken for another.
* Files with only headers detect memory and time that grow with the lengths in a file.
"""

import sys
import tracemalloc
from pathlib import Path
from random import Random

import numpy as np
import pytest

from capture.errors import InputError
from capture.files.blocks import BLOCK_WORDS, WalkState
from capture.files.interfaces import MAX_INTERFACES
from capture.files.pcapng import MAX_BLOCK_BYTES, PcapngFormat
from capture.files.scan import scan
from capture.open import open_capture
from tests.conftest import Rounds
from tests.references.pcapng_bytes import block, custom, enhanced, interface, obsolete, options, section, simple
from tests.references.pcapng_oracle import parse_pcapng
from tests.references.pcapng_rows import read_file
from tests.references.random_frames import random_frame

FRAME = random_frame(Random(4), 1)[0]
HEAD = section() + interface(1, name="eth0")
RECORD = enhanced(1_700_000_000_000_000, FRAME)


def small_file(order: str) -> bytes:
    """One block of every kind, and a section of the other byte order."""
    other = "<" if order == ">" else ">"
    return (
        section(order, more=options((1, b"comment"), order=order))
        + interface(1, order, snaplen=70, resolution=9, offset=3, name="eth0")
        + enhanced(77, FRAME, order, more=options((2, bytes(4)), order=order))
        + custom(order)
        + interface(101, order)
        + obsolete(5, FRAME, order, number=1)
        + simple(FRAME[:33], order)
        + section(other)
        + interface(113, other, resolution=0x94)
        + enhanced(9, FRAME[:21], other)
        + block(5, bytes(8), other)
    )


def agrees(data: bytes, path: Path) -> bool:
    """Check that the reader returns the rows of the reference. Return False if the bytes are not a capture."""
    path.write_bytes(data)
    try:
        rows, replaced, names, damage = read_file(path, 2)
    except InputError:
        return False
    twin = parse_pcapng(data)
    assert damage == twin.damage
    assert [(row["ts"], row["interface"], row["len"], row["caplen"]) for row in rows] == [
        (record.ts, record.interface, record.wire, len(record.frame)) for record in twin.records
    ]
    assert (names, replaced) == (twin.names, twin.replaced)
    return True


@pytest.mark.parametrize("order", ["<", ">"])
def test_every_prefix_gives_its_whole_records_and_says_how_it_ends(order: str, tmp_path: Path) -> None:
    data = small_file(order)
    read = [agrees(data[:size], tmp_path / "prefix.pcapng") for size in range(len(data) + 1)]
    assert read == [size >= 28 for size in range(len(data) + 1)]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.slow("a file for each byte")
def test_every_byte_changed_is_read_as_far_as_the_twin_reads_it(order: str, tmp_path: Path, rounds: Rounds) -> None:
    data = small_file(order)
    random = Random(5)
    refused = 0
    for place in rounds(len(data)):
        for value in {0, 1, 255, data[place] ^ 1 << random.randrange(8)}:
            harmed = data[:place] + bytes([value]) + data[place + 1 :]
            refused += not agrees(harmed, tmp_path / "harmed.pcapng")
    assert 0 < refused < 60  # those that harm the magic or the version at the beginning


def with_lengths(data: bytes, first: int, last: int) -> bytes:
    """A block whose two lengths say something else."""
    return data[:4] + first.to_bytes(4, "little") + data[8:-4] + last.to_bytes(4, "little")


LONG = len(RECORD)
DAMAGES = {
    "nothing": (b"", None),
    "one byte": (b"\6", "cut_in_record_header"),
    "seven bytes": (RECORD[:7], "cut_in_record_header"),
    "only the header": (RECORD[:8], "cut_in_record"),
    "all but a byte": (RECORD[:-1], "cut_in_record"),
    "length 0": (with_lengths(RECORD, 0, 0), "impossible_record_length"),
    "length 8": (with_lengths(RECORD, 8, 8), "impossible_record_length"),
    "length 12 of a packet": (block(6, b""), "impossible_record_length"),
    "length no multiple of 4": (with_lengths(RECORD, LONG + 1, LONG + 1) + bytes(8), "impossible_record_length"),
    "trailing length differs": (with_lengths(RECORD, LONG, LONG + 4), "impossible_record_length"),
    "trailing length differs in a block passed over": (with_lengths(custom(), 24, 28), "impossible_record_length"),
    "length beyond the largest": (with_lengths(RECORD, MAX_BLOCK_BYTES + 4, LONG), "impossible_record_length"),
    "largest length": (with_lengths(RECORD, MAX_BLOCK_BYTES, LONG), "cut_in_record"),
    "largest number": (with_lengths(RECORD, 2**32 - 4, 2**32 - 4), "impossible_record_length"),
    "captured more than the block holds": (
        RECORD[:20] + (len(FRAME) + 4).to_bytes(4, "little") + RECORD[24:],
        "impossible_record_length",
    ),
    "captured 2^32 - 1": (RECORD[:20] + b"\xff" * 4 + RECORD[24:], "impossible_record_length"),
    "captured more than libpcap believes": (enhanced(0, bytes(262_145)), "impossible_record_length"),
    "captured as much as libpcap believes": (enhanced(0, bytes(262_144)), None),
    "simple packet longer than its block": (simple(FRAME, wire=len(FRAME) + 4), "impossible_record_length"),
    "interface that is not there": (enhanced(0, FRAME, number=1), "unknown_interface"),
    "interface 2^32 - 1": (enhanced(0, FRAME, number=2**32 - 1), "unknown_interface"),
    "obsolete interface 65535": (obsolete(0, FRAME, number=65535), "unknown_interface"),
    "interface of the section before": (section() + enhanced(0, FRAME), "unknown_interface"),
    "simple packet without interface": (section() + simple(FRAME), "unknown_interface"),
    "magic": (section()[:8] + b"\x1a\x2b\x3c\x4e" + section()[12:], "bad_section_header"),
    "version 2": (section(version=(2, 0)), "bad_section_header"),
    "version 256 + 1": (section(version=(257, 0)), "bad_section_header"),
    "short section header": (block(0x0A0D0D0A, section()[8:20]), "bad_section_header"),
    "section header of another order": (section()[:8] + section(">")[8:], "impossible_record_length"),
    "short interface": (block(1, bytes(4)), "bad_interface_description"),
    "if_tsresol of 10^-20": (interface(resolution=20), "bad_interface_description"),
    "if_tsresol of 10^-19": (interface(resolution=19), None),
    "if_tsresol of 2^-64": (interface(resolution=0x80 | 64), "bad_interface_description"),
    "if_tsresol twice": (block(1, bytes(8) + options((9, b"\6"), (9, b"\6"))), "bad_interface_description"),
    "if_tsresol of 4 bytes": (block(1, bytes(8) + options((9, bytes(4)))), "bad_interface_description"),
    "if_tsoffset twice": (block(1, bytes(8) + options((14, bytes(8)), (14, bytes(8)))), "bad_interface_description"),
    "if_tsoffset of 4 bytes": (block(1, bytes(8) + options((14, bytes(4)))), "bad_interface_description"),
    "option longer than its block": (block(1, bytes(8) + b"\2\0\x40\0name"), "bad_interface_description"),
    "end of options with a length": (block(1, bytes(8) + b"\0\0\4\0name"), "bad_interface_description"),
    "no end of options": (block(1, bytes(8) + options((2, b"eth"), end=False)), None),
    "anything after the end of options": (block(1, bytes(8) + options((2, b"eth")) + b"\xff" * 8), None),
    "zeros": (bytes(64), "impossible_record_length"),
    "a classic pcap after it": (b"\xd4\xc3\xb2\xa1\2\0\4\0" + bytes(16), "impossible_record_length"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named_and_what_is_before_it_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.pcapng"
    tail, damage = DAMAGES[name]
    data = HEAD + RECORD * 3 + tail
    assert agrees(data, path)
    rows, _, _, found = read_file(path, 2)
    assert found == damage
    assert len(rows) == 3 + (name == "captured as much as libpcap believes")


def test_a_packet_without_any_interface_is_damage_and_no_crash(tmp_path: Path) -> None:
    for packet in (RECORD, obsolete(0, FRAME), simple(FRAME)):
        assert agrees(section() + packet, tmp_path / "none.pcapng")


@pytest.mark.slow("a large file")
def test_a_file_has_no_more_interfaces_than_the_bound_and_their_memory_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "many.pcapng"
    wide = interface(name="\U0001f4e1" * 300)  # 4 bytes a character, as text is kept too
    path.write_bytes(section() + wide * (MAX_INTERFACES - 1) + interface() + RECORD + interface() + RECORD)
    file = open_capture(path)
    index = scan(file)
    table = file.format.table
    assert (index.damage, index.records, len(table.names)) == ("too_many_interfaces", 1, MAX_INTERFACES)
    assert table.matrix.nbytes + sum(sys.getsizeof(name) for name in table.names) < 48 << 20


def test_a_description_as_long_as_a_block_may_be_is_read_in_the_memory_of_two(tmp_path: Path) -> None:
    path = tmp_path / "long.pcapng"
    comments = ((1, bytes(65532)) for _ in range((MAX_BLOCK_BYTES - 100) // 65536))
    path.write_bytes(section() + block(1, bytes(8) + options(*comments, (9, b"\x09"))) + enhanced(77, FRAME))
    file = open_capture(path)
    tracemalloc.start()
    index = scan(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (index.watermark, index.damage) == (77, None)
    assert peak < 2 * MAX_BLOCK_BYTES + (4 << 20)


def test_sections_and_unknown_blocks_without_end_take_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "sections.pcapng"
    path.write_bytes((section() + section(">") + block(7, b"", ">")) * 50_000 + section() + interface() + RECORD)
    file = open_capture(path)
    rows = np.empty((4, BLOCK_WORDS), np.int64)
    state = WalkState(0)
    tracemalloc.start()
    found = file.format.walk(file.data, len(file.data), 10, rows, state)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found, int(rows[0, 2]), state.status) == (1, 1, 0)
    assert peak < 1 << 20


def test_a_section_and_an_interface_for_each_packet_are_a_run_each(tmp_path: Path) -> None:
    data = (section() + interface() + RECORD) * 300
    assert agrees(data, tmp_path / "runs.pcapng")
    index = scan(open_capture(tmp_path / "runs.pcapng"))
    assert [each.records for each in index.blocks] == [1] * 300


def test_random_bytes_after_a_section_header_never_give_what_is_not_there(tmp_path: Path) -> None:
    random = Random(6)
    for _ in range(300):
        noise = bytes(random.choice([0, 0, 0, 1, 2, 3, 6, 12, 16, 28, 32, 255]) for _ in range(random.randrange(200)))
        assert agrees(HEAD + noise, tmp_path / "noise.pcapng")


def test_a_walk_may_begin_in_a_section_that_it_is_told_of(tmp_path: Path) -> None:
    data = np.frombuffer(HEAD + RECORD * 2, np.uint8)
    form = PcapngFormat()
    rows = np.empty((1, BLOCK_WORDS), np.int64)
    state = WalkState(0)
    assert form.walk(data, len(data), 1, rows, state) == 1
    other = WalkState(state.offset, state.section, state.interfaces)
    assert form.walk(data, len(data), 5, rows, other) == 1
    assert (int(rows[0, 0]), int(rows[0, 2]), other.offset) == (len(HEAD + RECORD), 1, len(data))
