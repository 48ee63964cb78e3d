"""Captures that are read once: pipes, standard input, and files through small chunks.

* Chunks of every size catch a record that is lost, doubled or torn where two chunks meet, in a header or a body.
* Large records catch a buffer that is too small, or one that grows with the file.
* Pipes with a writer that waits for its reader detect complete records that are held back, and a wait that never ends.
  They detect a cut at the end that is not reported.
* Threads counted at the end catch a reader that lives on when nobody reads any more.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from capture.errors import InputError
from capture.files.blocks import Block
from capture.files.read_ahead import BUFFER_COUNT, CHUNK_BYTES, HEADROOM_BYTES
from capture.files.stream import StreamedCapture
from capture.open import open_capture, open_mapped
from capture.packets.decoder import Decoder
from tests.harness.streamed import as_stream, mapped_records, records_of
from tests.references.compressed_bytes import COMPRESS
from tests.references.pcap_bytes import pcap_bytes
from tests.references.pcapng_bytes import custom, enhanced, interface, section
from tests.references.random_frames import random_frame
from tests.references.random_pcapng import random_pcapng

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name == "wiretide-read-ahead"] == []


def small_files() -> dict[str, bytes]:
    random = Random(5)
    frames = [(n * 10**9, random_frame(random, 1)[0][:40]) for n in range(6)]
    return {
        "little": pcap_bytes(frames),
        "big": pcap_bytes(frames, order=">", nanoseconds=False),
        "modified": pcap_bytes(frames, modified=True),
        "cut": pcap_bytes(frames)[:-3],
        "bad": pcap_bytes(frames) + b"\xff" * 40 + pcap_bytes(frames),
        "no records": pcap_bytes([]),
        "pcapng": random_pcapng(random, 5),
        "pcapng cut": random_pcapng(random, 4)[:-5],
    }


@pytest.mark.drawn
@pytest.mark.parametrize("name", small_files())
def test_records_are_the_same_wherever_two_chunks_meet(name: str, tmp_path: Path) -> None:
    data = small_files()[name]
    path = tmp_path / "small"
    path.write_bytes(data)
    records, damage = mapped_records(path)
    for chunk in range(1, len(data) + 2):
        capture = as_stream(path, chunk)
        assert records_of(capture) == records
        assert capture.damage == damage
        capture.close()


def test_a_file_can_be_read_again_and_in_blocks_of_any_size(tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.write_bytes(small_files()["little"])
    records, _ = mapped_records(path)
    capture = as_stream(path, 100)
    for size in (1, 2, 64):
        blocks = records_of(capture, size)
        assert b"".join(found for found, _, _ in blocks) == b"".join(found for found, _, _ in records)
    assert (capture.size, capture.consumed, capture.live) == (path.stat().st_size, path.stat().st_size, False)
    capture.close()


def test_a_block_larger_than_the_buffers_is_read_and_does_not_stay_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.pcapng"
    packets = [enhanced(n, bytes(600)) for n in range(3)]
    large = custom(data=bytes(2 * (CHUNK_BYTES + HEADROOM_BYTES) + 8))
    path.write_bytes(section() + interface() + packets[0] + large + packets[1] + large + packets[2] * 9_000)
    records, damage = mapped_records(path)
    assert len(records) == 9_002
    capture = as_stream(path)
    assert records_of(capture) == records
    assert capture.damage is damage is None
    assert len(capture.data) == CHUNK_BYTES + HEADROOM_BYTES
    capture.close()


def test_decoding_reads_the_data_of_each_block(tmp_path: Path) -> None:
    random = Random(7)
    frames = [(n * 10**9, random_frame(random, 1)[0]) for n in range(300)]
    path = tmp_path / "small.pcap"
    path.write_bytes(pcap_bytes(frames))
    columns = ("ts", "srcIP", "destIP", "len", "srcPort")
    mapped = open_mapped(path, "a test")
    whole = Decoder(mapped, columns, 300)
    expected = whole.decode(Block(24, len(mapped.data), 300, 0, 0, 0))
    capture = as_stream(path, 1000)
    decoder = Decoder(capture, columns, 16)
    rows, buffers = 0, set()
    for block in capture.blocks(16):
        assert block is not None
        buffers.add(capture.data.ctypes.data)
        packets = decoder.decode(block)
        for name in ("ts", "src_high", "src_low", "dest_high", "dest_low", "len", "srcPort"):
            assert packets.field(name).tolist() == expected.field(name)[rows : rows + packets.row_count].tolist()
        rows += packets.row_count
    assert rows == expected.row_count > 200
    assert len(buffers) == BUFFER_COUNT
    capture.close()


class Pipe:
    """A FIFO that is written piece by piece, and its reader's blocks."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "fifo"
        os.mkfifo(self.path)
        self.capture = open_capture(self.path)
        assert isinstance(self.capture, StreamedCapture)
        self.blocks = self.capture.blocks()
        self.writing = -1

    def write(self, data: bytes) -> None:
        if self.writing < 0:
            self.writing = os.open(self.path, os.O_WRONLY)
        os.write(self.writing, data)

    def records(self) -> int:
        """Wait for the next block; how many records it has."""
        block = next(block for block in self.blocks if block is not None)
        return block.records

    def end(self) -> list[Block]:
        """Close the pipe and return the remaining records."""
        os.close(self.writing)
        found = [block for block in self.blocks if block is not None]
        self.capture.close()
        return found


def test_whole_records_are_handed_out_while_the_writer_is_silent(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path)
    assert pipe.capture.live
    assert pipe.capture.size == 0
    assert next(pipe.blocks) is None  # nobody has opened it yet
    data = pcap_bytes([(n, bytes(60)) for n in range(10)])
    record = 76
    pipe.write(data[:10])
    assert next(pipe.blocks) is None
    pipe.write(data[10 : 24 + record])
    assert pipe.records() == 1
    pipe.write(data[24 + record : 24 + 3 * record + 20])  # two whole ones and a piece of the next
    assert pipe.records() == 2
    assert next(pipe.blocks) is None
    pipe.write(data[24 + 3 * record + 20 : 24 + 4 * record])
    assert pipe.records() == 1
    pipe.write(data[24 + 4 * record :])
    assert sum(block.records for block in pipe.end()) == 6
    assert (pipe.capture.damage, pipe.capture.consumed) == (None, len(data))


@pytest.mark.parametrize("codec", COMPRESS)
def test_a_compressed_pipe_gives_what_can_be_decompressed(codec: str, tmp_path: Path) -> None:
    pipe = Pipe(tmp_path)
    data = pcap_bytes([(n, bytes(60)) for n in range(5)])
    first, second = COMPRESS[codec](data[:110]), COMPRESS[codec](data[110:])
    pipe.write(first[:3])
    assert next(pipe.blocks) is None
    pipe.write(first[3:])
    assert pipe.records() == 1
    assert next(pipe.blocks) is None
    pipe.write(second[:-2])
    rest = pipe.end()
    assert sum(block.records for block in rest) in (0, 4)  # whether the codec has given them before its check sum
    assert pipe.capture.damage == "cut_in_compression"


@pytest.mark.parametrize("left, damage", [(20, "cut_in_record"), (70, "cut_in_record_header"), (0, None)])
def test_a_writer_that_goes_away_in_a_record_leaves_damage(left: int, damage: str | None, tmp_path: Path) -> None:
    pipe = Pipe(tmp_path)
    data = pcap_bytes([(n, bytes(60)) for n in range(3)])
    pipe.write(data[: len(data) - left])
    assert sum(block.records for block in pipe.end()) == (3 if damage is None else 2)
    assert pipe.capture.damage == damage


def test_stop_ends_a_pipe_with_what_was_read_and_no_damage(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path)
    pipe.write(pcap_bytes([(n, bytes(60)) for n in range(3)])[:-20])
    assert pipe.records() == 2
    threading.Timer(0.01, pipe.capture.stop).start()
    assert [block for block in pipe.blocks if block is not None] == []
    assert pipe.capture.damage is None
    os.close(pipe.writing)
    pipe.capture.close()


def test_stop_before_anything_came_is_no_error(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path)
    pipe.capture.stop()
    assert [block for block in pipe.blocks if block is not None] == []
    pipe.capture.close()


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "not a pcap or pcapng capture: it is empty"),
        (b"no capture at all, but more than enough bytes", "it begins with 6e 6f 20 63"),
        (pcap_bytes([])[:20], "truncated in the pcap file header: got 20 bytes, expected 24"),
    ],
)
def test_a_pipe_that_holds_no_capture_is_an_error_of_its_blocks(content: bytes, message: str, tmp_path: Path) -> None:
    pipe = Pipe(tmp_path)
    with pytest.raises(RuntimeError, match="the format of a live input is known from its first block on"):
        _ = pipe.capture.format
    pipe.write(content)
    with pytest.raises(InputError, match=f"{pipe.path}: .*{message}"):
        pipe.end()
    pipe.capture.close()


def test_a_reader_that_gives_up_ends_its_thread(tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.write_bytes(pcap_bytes([(n, bytes(60)) for n in range(300)]))
    capture = as_stream(path, 100)
    blocks = capture.blocks(1)
    assert next(blocks) is not None
    blocks.close()  # type: ignore[attr-defined]
    capture.close()


READ_STANDARD_INPUT = """
from capture.errors import InputError
from capture.open import open_capture
try:
    capture = open_capture("-")
    print(sum(block.records for block in capture.blocks() if block), capture.size, capture.damage)
    capture.close()
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize("through", ["pipe", "file"])
def test_standard_input_is_read_from_a_pipe_and_from_a_file(through: str, tmp_path: Path) -> None:
    data = pcap_bytes([(n, bytes(60)) for n in range(3)])
    path = tmp_path / "input"
    path.write_bytes(data)
    command = [sys.executable, "-c", READ_STANDARD_INPUT]
    with path.open("rb") as file:
        how = {"input": data} if through == "pipe" else {"stdin": file}
        done = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, **how)
    assert done.stdout.decode() == f"3 {0 if through == 'pipe' else len(data)} None\n"


@pytest.mark.slow("several processes")
def test_a_query_reads_standard_input() -> None:
    data = pcap_bytes(
        [(n, bytes.fromhex("4500001c 00010000 40110000 0a000001 0a000002 0035 1234 0008 0000")) for n in range(7)], 101
    )
    command = [Path(sys.prefix) / "bin" / "wiretide", "query", "--format", "csv", "-"]
    sql = "SELECT destPort, count(*) AS packets FROM packets GROUP BY destPort"
    for given in (data, COMPRESS["zstd"](data)):
        done = subprocess.run([*command, sql], input=given, capture_output=True, check=True)
        assert done.stdout == b"destPort,packets\n4660,7\n"


def test_standard_input_that_is_empty_or_no_file_is_refused() -> None:
    command = [sys.executable, "-c", READ_STANDARD_INPUT]
    done = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, input=b"")
    assert done.stdout.decode() == "-: not a pcap or pcapng capture: it is empty\n"
    done = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, stdin=subprocess.DEVNULL)
    assert done.stdout.decode().startswith("-: got a terminal, a device or a socket as standard input, expected a file")
