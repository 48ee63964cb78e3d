"""One segment: a file that is whole, or is none.

    Arrow IPC stream   schema with a header of its own in the metadata, one batch, end of stream
    trailer            64 bytes: what and how much the stream is, its checksum, and a checksum of the trailer

The batch has the columns `query: string, low: int64, partials: binary`, one row for each item in order: punctuation has
a `low` and no `partials`, partials the other way round. The stream is what any Arrow reader reads, who ignores what
comes after its end; the trailer is at the end of the file, so that a file that was cut has none.
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
    """What the end of a file says of it: bytes of the stream, items and rows of partials in it, when they came.

    `first` and `last` are the instants (ns, of the writer's clock) between which items were appended; 0 where none was
    told. `checksum` is the CRC-32 of the stream.
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
        """Read the trailer of a file of `size` bytes; None where it is no whole file's."""
        if len(data) != TRAILER or CHECK.unpack(data[FIELDS.size :])[0] != zlib.crc32(data[: FIELDS.size]):
            return None
        magic, *said = FIELDS.unpack(data[: FIELDS.size])
        trailer = Trailer(*said)
        return trailer if magic == MAGIC and trailer.length + TRAILER == size else None


@dataclass(frozen=True, slots=True)
class Header:
    """What a segment says before its items.

    `epoch` counts the starts of writers in this folder, from 0. `lows` are the last punctuations of each plan before
    this segment (`BEGINNING` where there was none). `rows_before` are the rows of all segments ever before this one,
    whether they are still there or not; `shed_before` those that were appended and never came into a segment. `ended`
    says that the link has ended with this segment. `position` is what the writer's caller said of its input.
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

    def encode(self) -> bytes:
        """Return the text that is kept in the schema's metadata."""
        return json.dumps({"format": FORMAT, **asdict(self)}).encode()

    @staticmethod
    def decode(text: bytes) -> Header:
        """Read it back. Raises SegmentFormatError for another format."""
        said = json.loads(text)
        found = said.pop("format", None)
        if found != FORMAT:
            raise SegmentFormatError(
                f"got a segment of format {found}, expected {FORMAT}: of another version of Wiretide; read the spool "
                "to its end with that one, or name another folder"
            )
        plans = tuple((name, print_of) for name, print_of in said.pop("plans"))
        return Header(plans=plans, lows=tuple(said.pop("lows")), **said)


@dataclass(frozen=True)
class Segment:
    """A segment as it is read. `new` are its own items in order, each with its plan's name and fingerprint."""

    header: Header
    trailer: Trailer
    new: list[tuple[str, str, Item]]

    @property
    def number(self) -> int:
        """Its number; the next one written has the next number."""
        return self.header.number

    @property
    def link(self) -> str:
        """The link whose partials these are."""
        return self.header.link

    @property
    def plans(self) -> PlanNames:
        """Name and fingerprint of every plan that the writer has, with items here or without."""
        return self.header.plans

    @property
    def ended(self) -> bool:
        """Whether nothing follows on this link: it was said, or every plan's promise is END."""
        return self.header.ended or (bool(self.plans) and all(low == END for low in self.lows))

    @property
    def rows(self) -> int:
        """Rows of partials in it."""
        return self.trailer.rows

    @cached_property
    def repeated(self) -> list[tuple[str, str, Item]]:
        """The last punctuation of each plan before this segment, so that a reader may begin here."""
        return [
            (name, print_of, Punctuation(self.link, low))
            for (name, print_of), low in zip(self.plans, self.header.lows, strict=True)
            if low != BEGINNING
        ]

    @cached_property
    def items(self) -> list[tuple[str, str, Item]]:
        """All there is to read: the punctuations before it once more, then its own items."""
        return self.repeated + self.new

    @property
    def lows(self) -> tuple[int, ...]:
        """The last punctuation of each plan with this segment."""
        found = dict(zip(self.plans, self.header.lows, strict=True))
        for name, print_of, item in self.new:
            if isinstance(item, Punctuation):
                found[name, print_of] = item.low
        return tuple(found.values())


def encode(header: Header, items: Sequence[tuple[int, Item]], first: int, last: int) -> tuple[pa.Buffer, Trailer]:
    """Return the stream of a segment, and its trailer; items are numbered by their plan's place in the header."""
    names = pa.array([header.plans[number][0] for number, _ in items], pa.string())
    lows = pa.array([item.low if isinstance(item, Punctuation) else None for _, item in items], pa.int64())
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

    Raises SegmentLostError where it is not whole, SegmentFormatError where it is of another version, FileNotFoundError
    where it is not there.
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
    """Read what a whole segment says before its items, and no more of the file."""
    with path.open("rb") as file, pa.ipc.open_stream(file) as reader:
        return Header.decode(reader.schema.metadata[HEADER])


def read_trailer(path: Path) -> Trailer | None:
    """Read a file's end alone; None where it is not a whole file's."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - TRAILER, 0))
        return Trailer.decode(file.read(), size)


def check(path: Path) -> Trailer | None:
    """Read a whole file in small steps; its trailer if it is a whole segment, else None."""
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
