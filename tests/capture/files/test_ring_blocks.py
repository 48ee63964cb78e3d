"""Blocks of the kernel's ring: the walk over their frames and the columns that they become, without any socket.

* Seeded random blocks are compared with their frames, in runs of every size. This detects a frame that is lost or
  doubled at the end of a run. It detects a tag that is not put back or is put back twice, and lengths without the tag.
* Plain Python on arrays that check every index, and machine code on the same bytes, detect access outside the block for
  arbitrary header values.
* Random frames against the row each must become catch a walk that decodes other bytes than those on the wire.
"""

from pathlib import Path
from random import Random

import numpy as np
import pytest

from capture.errors import InputError
from capture.files.blocks import (
    BAD_LENGTH,
    BLOCK_WORDS,
    CONTINUE,
    END_OF_DATA,
    NO_WATERMARK,
    TRUNCATED_HEADER,
    Block,
    WalkState,
)
from capture.files.ring_frames import COUNTER_COUNT, RingFormat, scan_ring
from capture.files.stream import StreamedCapture
from capture.live.hardware import HARDWARE, hardware_of
from capture.packets.decode_kernels import decode_ring
from capture.packets.decoder import Decoder
from tests.harness.guarded import Guarded
from tests.references.random_frames import random_frame
from tests.references.ring_bytes import HEADER, Sent, completed_frames, expected, random_sent, ring_block

LINKS = (1, 101, 113)


def random_block(random: Random, link_type: int, most: int = 12) -> tuple[list[Sent], bytearray]:
    inside = 101 if link_type == 113 else link_type
    frames = [random_sent(random, random_frame(random, inside)[0]) for _ in range(random.randrange(1, most))]
    return frames, ring_block(frames, random.choice([20, 30, 46]))


def walk(data: np.ndarray, link_type: int, records: int) -> tuple[list[list[int]], int, RingFormat]:
    """Return all runs of a block, one by one, the status at the end, and the counters."""
    form = RingFormat("eth0", link_type)
    state = WalkState(48)
    rows = np.empty((1, BLOCK_WORDS), np.int64)
    found = []
    while state.status == CONTINUE:
        if form.walk(data, len(data), records, rows, state):
            found.append(rows[0].tolist())
    return found, state.status, form


@pytest.mark.parametrize("link_type", LINKS)
def test_frames_are_what_was_on_the_wire_in_runs_of_any_size(link_type: int) -> None:
    random = Random(link_type)
    for _ in range(60):
        frames, content = random_block(random, link_type)
        wanted = [expected(each, link_type) for each in frames]
        for records in (1, 2, 5, len(frames), 100):
            data = np.frombuffer(bytes(content), np.uint8).copy()
            runs, status, form = walk(data, link_type, records)
            assert status == END_OF_DATA
            read = [completed_frames(data, start, end) for start, end, *_ in runs]
            assert [each for run in read for each in run] == wanted
            assert [row[2:5] for row in runs] == [
                [len(run), min(ts for ts, _, _ in run), max(ts for ts, _, _ in run)] for run in read
            ]
            assert all(len(run) <= records for run in read)
            assert form.truncated == sum(each.more_on_wire > 0 for each in frames)
            again, _, _ = walk(data, link_type, records)  # nothing is put back a second time
            assert again == runs
            assert [each for start, end, *_ in again for each in completed_frames(data, start, end)] == wanted


def test_a_tag_that_has_no_room_before_its_frame_stays_away() -> None:
    sent = Sent(10**18, bytes(12) + b"\x08\x00" + bytes(46), tag=(0x8100, 5))
    data = np.frombuffer(bytes(ring_block([sent], room=3)), np.uint8).copy()
    runs, status, _ = walk(data, 1, 10)
    assert (len(runs), status) == (1, END_OF_DATA)
    assert completed_frames(data, 48, len(data)) == [(sent.ts, sent.frame, len(sent.frame))]


def test_numbers_that_lead_astray_stay_inside_the_block() -> None:
    random = Random(11)
    ends = {BAD_LENGTH: 0, TRUNCATED_HEADER: 0, END_OF_DATA: 0}
    guard = 64
    for _ in range(500):
        link_type = random.choice(LINKS)
        _, content = random_block(random, link_type, 4)
        places = range(48, len(content), 16)
        for _ in range(random.randrange(1, 4)):  # spoil a number of some frame's header, or any bytes
            at = random.choice(places) + random.choice([0, 12, 16, 20, 24])
            spoiled = random.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x44\0\0\0", random.randbytes(2)])
            content[at : at + len(spoiled)] = spoiled
        data = bytes(content)[: random.randrange(48, len(content) + 1)]
        machine = np.full(len(data) + guard, 0xA5, np.uint8)
        machine[: len(data)] = np.frombuffer(data, np.uint8)
        plain = machine.copy()
        found = []
        for kernel, buffer in ((scan_ring, machine), (scan_ring.function, plain)):
            rows = np.zeros((8, BLOCK_WORDS), np.int64)
            state, counts = np.array([48, CONTINUE], np.int64), np.zeros(COUNTER_COUNT, np.int64)
            arrays = buffer, rows.reshape(-1), state, counts
            if kernel is scan_ring:
                runs = kernel(arrays[0], len(data), link_type, 2, 8, *arrays[1:])
            else:
                first, *rest = (Guarded(each) for each in (buffer[: len(data)], *arrays[1:]))
                runs = kernel(first, len(data), link_type, 2, 8, *rest)
            found.append((runs, rows.tolist(), state.tolist(), counts.tolist(), buffer.tobytes()))
        assert found[0] == found[1]
        runs, rows, (at, status), _, after = found[0]
        assert after[len(data) :] == b"\xa5" * guard
        assert 48 <= at <= len(data)
        ends[status] += 1
        for start, end, records, *_ in rows[:runs]:
            assert 48 <= start < end <= len(data)
            out = np.zeros((80, 4), np.int64)
            counted = np.zeros(40, np.int64)
            decoded = decode_ring(machine, start, end, records, link_type, 7, 0, 1, out.reshape(-1), 4, counted)
            assert decoded == records
    assert min(ends.values()) > 5


class Held(StreamedCapture):
    """A capture that is a block of bytes."""

    def __init__(self, data: np.ndarray, form: RingFormat) -> None:
        self.path, self.data, self._format = Path("interface:eth0"), data, form


@pytest.mark.parametrize("link_type", [1, 127])
def test_rows_are_those_of_the_frames(link_type: int) -> None:
    random = Random(3 + link_type)
    made = [random_frame(random, link_type) for _ in range(120)]
    data = np.frombuffer(bytes(ring_block([Sent(10**18 + n, frame) for n, (frame, _) in enumerate(made)])), np.uint8)
    data = data.copy()
    runs, _, form = walk(data, link_type, 50)
    names = ("ts", "len", "caplen", "protocol", "srcPort")
    decoder = Decoder(Held(data, form), names, 50, every_frame=True)
    got = []
    for start, end, records, first, last, _ in runs:
        packets = decoder.decode(Block(start, end, records, first, last, NO_WATERMARK))
        got += list(zip(*(packets.field(name).tolist() for name in names), strict=True))
    wanted = []
    for number, (frame, row) in enumerate(made):
        protocol, port = (-1 if row[name] is None else row[name] for name in ("protocol", "srcPort"))
        wanted.append((10**18 + number, len(frame), len(frame), protocol, port))
    assert got == wanted


def test_the_column_vlan_sees_a_tag_that_the_kernel_took_off() -> None:
    frame = bytes(12) + b"\x08\x00" + bytes.fromhex("45000014000000004001000a000000010a0000020a")[:20]
    sent = [Sent(n, frame, tag=tag) for n, tag in enumerate([None, (0x8100, 0x2007), (0x88A8, 9), (None, 4095)])]
    data = np.frombuffer(bytes(ring_block(sent)), np.uint8).copy()
    runs, _, form = walk(data, 1, 10)
    packets = Decoder(Held(data, form), ("ts", "vlan", "len"), 10).decode(Block(*runs[0][:5], NO_WATERMARK))
    assert packets.field("vlan").tolist() == [-1, 7, 9, 4095]
    assert packets.field("len").tolist() == [34, 38, 38, 38]


def test_hardware_that_is_not_known_is_refused_with_the_list_of_what_is() -> None:
    assert {hardware_of(number, "x").link_type for number in HARDWARE} == {1, 101, 105, 113, 119, 127}
    with pytest.raises(InputError, match=r"interface:nl0: got .* 824, .*supported: 1 \(Ethernet\), .*772 \(loopback\)"):
        hardware_of(824, "interface:nl0")


def test_headers_are_as_long_as_the_kernel_says() -> None:
    assert HEADER == 68
