"""The format of segments: files with checksums.

    Arrow IPC stream   schema with the header in its metadata, one batch, end of stream
    trailer            64 bytes: kind and size of the stream, its checksum, and a checksum of the trailer

The batch has the columns `query: string, low: int64, partials: binary` and one row for each item, in order. Punctuation
has a `low` and no `partials`; partials have no `low`. Any Arrow reader reads the stream and ignores the rest of the
file. The trailer is at the end of the file, so a file that was cut has none.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from lowlevel.punctuation import BEGINNING, END, Item, Punctuation
from lowlevel.spool.folder import SegmentFormatError, SegmentLostError
from lowlevel.spool.pending import pack, unpack

FORMAT = 1
HEADER = b"wiretide.segment"
SCHEMA = pa.schema([("query", pa.string()), ("low", pa.int64()), ("partials", pa.binary())])
OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")

MAGIC = b"WTSPOOL\x01"
FIELDS = struct.Struct("<8sQQQQqqI")
CHECK = struct.Struct("<I")
TRAILER = FIELDS.size + CHECK.size
CHUNK = 1 << 20

PlanNames = tuple[tuple[str, str], ...]
"""Name and fingerprint of each plan."""


@dataclass(frozen=True, slots=True)
class Trailer:
    """The end of a file: bytes of the stream, items and rows of partials in it, and their times.

    `first` and `last` are the instants (ns, of the writer's clock) of the first and last item; 0 if unknown. `checksum`
    is the CRC-32 of the stream.
    """

    number: int
    length: int
    items: int
    rows: int
    first: int
    last: int
    checksum: int

    def encode(self) -> bytes:
        """Return the bytes that follow the stream."""
        said = FIELDS.pack(MAGIC, self.number, self.length, self.items, self.rows, self.first, self.last, self.checksum)
        return said + CHECK.pack(zlib.crc32(said))

    @staticmethod
    def decode(data: bytes, size: int) -> Trailer | None:
        """Decode the trailer of a file of `size` bytes; None if the file is not whole."""
        if len(data) != TRAILER or CHECK.unpack(data[FIELDS.size :])[0] != zlib.crc32(data[: FIELDS.size]):
            return None
        magic, *said = FIELDS.unpack(data[: FIELDS.size])
        trailer = Trailer(*said)
        return trailer if magic == MAGIC and trailer.length + TRAILER == size else None


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a segment.

    * `epoch`: number of starts of writers in this folder, from 0.
    * `lows`: the watermark of each plan before this segment; BEGINNING if there was none.
    * `rows_before`: rows of all segments ever before this one, including deleted ones.
    * `shed_before`: rows that were shed before this segment.
    * `ended`: whether the link has ended with this segment.
    * `position`: the position in the input, as the caller of the writer gave it.
    * `skipped`: times of packets that the node did not process since the segment before, because it was overloaded.
    """

    link: str
    number: int
    epoch: int
    plans: PlanNames
    lows: tuple[int, ...]
    rows_before: int = 0
    shed_before: int = 0
    ended: bool = False
    position: str | None = None
    skipped: tuple[tuple[int, int], ...] = ()

    def encode(self) -> bytes:
        """Return the text for the metadata of the schema."""
        return json.dumps({"format": FORMAT, **asdict(self)}).encode()

    @staticmethod
    def decode(text: bytes) -> Header:
        """Decode the text. Raises SegmentFormatError for another format."""
        said = json.loads(text)
        found = said.pop("format", None)
        if found != FORMAT:
            raise SegmentFormatError(
                f"got a segment of format {found}, expected {FORMAT}: of another version of Wiretide; read the spool "
                "to its end with that one, or name another folder"
            )
        plans = tuple((name, print_of) for name, print_of in said.pop("plans"))
        skipped = tuple((start, end) for start, end in said.pop("skipped", ()))
        return Header(plans=plans, lows=tuple(said.pop("lows")), skipped=skipped, **said)


@dataclass(frozen=True)
class Segment:
    """A decoded segment. `new`: its items in order, each with the name and fingerprint of its plan."""

    header: Header
    trailer: Trailer
    new: list[tuple[str, str, Item]]

    @property
    def number(self) -> int:
        """The number of the segment; the next one has the next number."""
        return self.header.number

    @property
    def link(self) -> str:
        """The link of the partials."""
        return self.header.link

    @property
    def plans(self) -> PlanNames:
        """Name and fingerprint of every plan of the writer, also of plans without items here."""
        return self.header.plans

    @property
    def ended(self) -> bool:
        """Whether the link has ended: the header says so, or the watermark of every plan is END."""
        return self.header.ended or (bool(self.plans) and all(low == END for low in self.lows))

    @property
    def rows(self) -> int:
        """Rows of partials in the segment."""
        return self.trailer.rows

    @cached_property
    def repeated(self) -> list[tuple[str, str, Item]]:
        """The last punctuation of each plan before this segment, so that a reader can begin here."""
        return [
            (name, print_of, Punctuation(self.link, low))
            for (name, print_of), low in zip(self.plans, self.header.lows, strict=True)
            if low != BEGINNING
        ]

    @cached_property
    def items(self) -> list[tuple[str, str, Item]]:
        """The repeated punctuations, then the items of the segment."""
        return self.repeated + self.new

    @property
    def lows(self) -> tuple[int, ...]:
        """The watermark of each plan after this segment."""
        found = dict(zip(self.plans, self.header.lows, strict=True))
        for name, print_of, item in self.new:
            if isinstance(item, Punctuation):
                found[name, print_of] = item.watermark
        return tuple(found.values())


def encode(header: Header, items: Sequence[tuple[int, Item]], first: int, last: int) -> tuple[pa.Buffer, Trailer]:
    """Return the stream of a segment and its trailer. The number of an item is the index of its plan in the header."""
    names = pa.array([header.plans[number][0] for number, _ in items], pa.string())
    lows = pa.array([item.watermark if isinstance(item, Punctuation) else None for _, item in items], pa.int64())
    packed = [None if isinstance(item, Punctuation) else pack([item]).to_pybytes() for _, item in items]
    schema = SCHEMA.with_metadata({HEADER: header.encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=OPTIONS) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([names, lows, pa.array(packed, pa.binary())], schema=schema))
    stream = sink.getvalue()
    rows = sum(0 if isinstance(item, Punctuation) else item.num_rows for _, item in items)
    checksum = zlib.crc32(memoryview(stream))
    return stream, Trailer(header.number, stream.size, len(items), rows, first, last, checksum)


def decode(path: Path) -> Segment:
    """Read a segment.

    Raises SegmentLostError if it is damaged, SegmentFormatError if it has another version, FileNotFoundError if it is
    missing.
    """
    data = path.read_bytes()
    trailer = Trailer.decode(data[-TRAILER:], len(data))
    if trailer is None or zlib.crc32(memoryview(data)[: trailer.length]) != trailer.checksum:
        raise SegmentLostError(f"{path}: not whole: {len(data)} bytes that do not have their checksum")
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        try:
            header = Header.decode(reader.schema.metadata[HEADER])
        except SegmentFormatError as error:
            raise SegmentFormatError(f"{path}: {error}") from None
        batch = reader.read_next_batch()
    prints = dict(header.plans)
    names, lows, partials = (batch.column(place) for place in range(3))
    items: list[tuple[str, str, Item]] = []
    for row in range(batch.num_rows):
        name, low = names[row].as_py(), lows[row].as_py()
        item = unpack(partials[row].as_buffer()) if low is None else Punctuation(header.link, low)
        items.append((name, prints[name], item))
    return Segment(header, trailer, items)


def read_header(path: Path) -> Header:
    """Read only the header of a whole segment."""
    with path.open("rb") as file, pa.ipc.open_stream(file) as reader:
        return Header.decode(reader.schema.metadata[HEADER])


def read_trailer(path: Path) -> Trailer | None:
    """Read only the trailer of a file; None if the file is not whole."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - TRAILER, 0))
        return Trailer.decode(file.read(), size)


def check(path: Path) -> Trailer | None:
    """Verify the checksum of a file, in small steps; return its trailer, or None if it is damaged."""
    trailer = read_trailer(path)
    if trailer is None:
        return None
    checksum, left = 0, trailer.length
    with path.open("rb", buffering=0) as file:
        while left:
            data = file.read(min(left, CHUNK))
            if not data:
                return None
            checksum = zlib.crc32(data, checksum)
            left -= len(data)
    return trailer if checksum == trailer.checksum else None
