"""Target `compressed`: streams of bytes, compressed or not, and the captures in them.

The first byte of an input chooses a codec (or none) and the use of the other bytes. They are compressed, or they are
treated as compressed bytes. Then the result is cut, changed, doubled, padded or extended.
"""

from __future__ import annotations

import lzma
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from capture.errors import InputError
from capture.files.byte_source import FileBytes
from capture.files.capture import Capture
from capture.files.decompressed import DecompressedSource, is_skippable
from capture.files.formats import HEAD_BYTES, record_format
from capture.files.messages import ExportFormat
from capture.files.scan import scan
from capture.files.stream import StreamedCapture
from tests.fuzz import pcap_files
from tests.harness.streamed import records_of
from tests.references.compressed_bytes import COMPRESS, skippable

QUICK = {**COMPRESS, "xz": lambda data: lzma.compress(data, preset=0)}  # the others take 100 MB for an input
CODECS: tuple[Callable[[bytes], bytes], ...] = (lambda data: data, *QUICK.values())

CHANGES: tuple[Callable[[bytes, int], bytes], ...] = (
    lambda data, at: data,
    lambda data, at: data[: len(data) * at // 256],
    lambda data, at: data[: len(data) * at // 256] + bytes([at]) + data[len(data) * at // 256 + 1 :],
    lambda data, at: data + data,
    lambda data, at: data + bytes(at),
    lambda data, at: data + data[:at],
    lambda data, at: skippable(at) + data + skippable(5)[: at % 16],
)

MOST = 1 << 20
"""Maximum number of decompressed bytes to check, because a few bytes may expand to any size."""


class Memory(FileBytes):
    """A file that lies in memory."""

    def __init__(self, data: bytes) -> None:
        descriptor = os.memfd_create("fuzz")
        os.write(descriptor, data)
        super().__init__(descriptor)


class Trickle:
    """A source that returns a few bytes per read, and sometimes none. It can be read only once."""

    live = False
    size = 0

    def __init__(self, data: bytes, step: int) -> None:
        self.data = data
        self.step = step
        self.consumed = 0
        self.silent = False

    def read_into(self, buffer: memoryview, wait: float) -> int | None:
        self.silent = not self.silent
        if self.silent and self.step % 2:
            return None
        piece = self.data[self.consumed : self.consumed + min(self.step, len(buffer))]
        buffer[: len(piece)] = piece
        self.consumed += len(piece)
        return len(piece)

    def rewind(self) -> None:
        self.consumed = 0

    def close(self) -> None:
        pass


def content(source: Any, room: int) -> tuple[bytes, str | None, DecompressedSource]:
    """Return the decompressed content of a source, up to MOST bytes, and how it ends."""
    decompressed = DecompressedSource(source)
    buffer = memoryview(bytearray(room))
    found = b""
    while len(found) < MOST:
        count = decompressed.read_into(buffer, 0)
        if count == 0:
            break
        found += bytes(buffer[: count or 0])
    decompressed.close()
    return found, decompressed.damage, decompressed


def compressed(data: bytes) -> bytes:
    """The file that an input stands for."""
    if len(data) < 3:
        return data
    packed = data[2:] if data[0] & 0x80 else CODECS[data[0] % len(CODECS)](data[2:])
    return CHANGES[(data[0] & 0x7F) // len(CODECS) % len(CHANGES)](packed, data[1])


def check(data: bytes) -> None:
    """Decompress an input as a file and as a pipe. Read the capture in it as a stream and as a map."""
    file = compressed(data)
    whole, damage, decompressed = content(Memory(file), 1 << 16)
    slow, slow_damage, _ = content(Trickle(file, 1 + len(data) % 61), 1 + len(data) % 997)
    if len(whole) >= MOST:
        return
    assert slow == whole if damage is None else whole.startswith(slow), "a pipe gives other bytes than a file"
    assert (damage is None) == (slow_damage is None)
    if decompressed.codec is not None and decompressed.codec.name == "gzip":
        other = zlib.decompressobj(31)
        try:
            first = other.decompress(file)
        except zlib.error:
            first = b""
        assert whole.startswith(first), "zlib gives other bytes than isal"
    elif decompressed.codec is None:
        assert file.endswith(whole)
        assert (whole, damage) == (file, None) or is_skippable(file)
    check_stream(file, whole, damage, 64 + len(data) % 512)


def check_stream(file: bytes, whole: bytes, damage: str | None, chunk: int) -> None:
    """The capture that `file` stands for, read in chunks, has the records of its content `whole`."""
    try:
        stream = StreamedCapture(Path("fuzz"), Memory(file), chunk)
    except InputError:
        try:
            form = record_format(whole[:HEAD_BYTES], "fuzz")
        except InputError:
            return
        assert isinstance(form, ExportFormat), "a stream is refused that holds a capture"
        return
    records = records_of(stream)
    mapped = Capture(Path("fuzz"), record_format(whole[:HEAD_BYTES], "fuzz"), np.frombuffer(whole, np.uint8), None)
    index = scan(mapped, 1)
    assert records == [(whole[each.start : each.end], each.min_ts, each.section) for each in index.blocks]
    unmended = index.damage not in (None, "cut_in_record_header", "cut_in_record")
    assert stream.damage == (index.damage if unmended else damage or index.damage)
    assert stream.format.interface_names == mapped.format.interface_names
    stream.close()


def seeds() -> dict[str, bytes]:
    """A capture through every codec, and through every change."""
    captures = pcap_files.seeds()
    made = {}
    for codec in range(len(CODECS)):
        for change in range(len(CHANGES)):
            head = bytes([codec + len(CODECS) * change, 100 + 20 * codec])
            made[f"codec-{codec}-change-{change}"] = head + captures["little-0" if change % 2 else "many"][:700]
    for codec, name in enumerate(COMPRESS):
        made[f"packed-{name}"] = bytes([0x80, codec]) + COMPRESS[name](captures["big-2"])
    return made
