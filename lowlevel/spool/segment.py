"""The format of segments: the files of a spool, with checksums.

    Arrow IPC stream   schema with the header in its metadata, one batch, end of stream
    trailer            64 bytes: magic number, number and size of the segment, counts, times, checksums of the stream
                       and of the trailer

An item is a batch of partials or a punctuation. The batch of the stream has the columns
`query: string, low: int64, partials: binary` and one row per item, in order. A punctuation has its watermark in `low`
and NULL in `partials`; a batch of partials has NULL in `low`. Every Arrow reader can read the stream: it ignores the
bytes after it. The trailer is at the end of the file, so a truncated file has no valid trailer.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation
from lowlevel.spool.folder import SegmentFormatError, SegmentLostError
from lowlevel.spool.pending import pack, unpack

FORMAT = 1
"""Version of the format."""
HEADER_KEY = b"wiretide.segment"
SCHEMA = pa.schema([("query", pa.string()), ("low", pa.int64()), ("partials", pa.binary())])
OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")

MAGIC = b"WTSPOOL\x01"
TRAILER_FIELDS = struct.Struct("<8sQQQQqqI")
TRAILER_CHECKSUM = struct.Struct("<I")
TRAILER_BYTES = TRAILER_FIELDS.size + TRAILER_CHECKSUM.size
CHUNK_BYTES = 1 << 20

PlanNames = tuple[tuple[str, str], ...]
"""Name and fingerprint of each plan."""


@dataclass(frozen=True, slots=True)
class Trailer:
    """The end of a segment file.

    * `number`: the number of the segment.
    * `length`, `checksum`: bytes and CRC-32 of the stream.
    * `items`, `rows`: number of items, and of rows of partials.
    * `first`, `last`: times at which the first and the last item were appended (ns, the writer's clock); 0 if unknown.
    """

    number: int
    length: int
    items: int
    rows: int
    first: int
    last: int
    checksum: int

    def encode(self) -> bytes:
        """Return the 64 bytes of the trailer."""
        values = self.number, self.length, self.items, self.rows, self.first, self.last, self.checksum
        fields = TRAILER_FIELDS.pack(MAGIC, *values)
        return fields + TRAILER_CHECKSUM.pack(zlib.crc32(fields))

    @staticmethod
    def decode(data: bytes, size: int) -> Trailer | None:
        """Decode the trailer of a file with `size` bytes. Returns None if the file is truncated or corrupt."""
        if len(data) != TRAILER_BYTES or TRAILER_CHECKSUM.unpack(data[TRAILER_FIELDS.size :])[0] != zlib.crc32(
            data[: TRAILER_FIELDS.size]
        ):
            return None
        magic, *values = TRAILER_FIELDS.unpack(data[: TRAILER_FIELDS.size])
        trailer = Trailer(*values)
        return trailer if magic == MAGIC and trailer.length + TRAILER_BYTES == size else None


@dataclass(frozen=True, slots=True)
class LinkCounts:
    """Counters of a link from the start of the node to the end of the segment.

    `records`, `bytes`, `packets`: numbers that were read from the input. `late`: rows below the watermark. `lulls`:
    number of times that the clock advanced the watermark. `dropped`: packets that were lost because the ring of the
    interface was full. `shed`: records that an overloaded node did not process. `lateness`: a time in ns that the
    lateness of 99 % of the late rows does not exceed; 0 without late rows.
    """

    records: int = 0
    bytes: int = 0
    packets: int = 0
    late: int = 0
    lulls: int = 0
    dropped: int = 0
    shed: int = 0
    lateness: int = 0


COUNTS_BYTES = 8 * 36
"""Maximum bytes of the counters in the header of a segment."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a segment.

    * `epoch`: number of writers started in this folder before the writer of this segment.
    * `lows`: the watermark of each plan before this segment; BEGINNING if there was none.
    * `rows_before`: number of rows in all earlier segments, including deleted segments.
    * `shed_before`: number of rows that were shed before this segment.
    * `ended`: True if this is the last segment of the link.
    * `position`: the position in the input, a text from the caller of the writer.
    * `skipped`: ranges of times whose packets an overloaded node did not process since the last segment.
    * `counts`: the counters of the link; None if the writer has none.
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
    counts: LinkCounts | None = None

    def encode(self) -> bytes:
        """Return the header as JSON, for the metadata of the schema."""
        return json.dumps({"format": FORMAT, **asdict(self)}).encode()

    @staticmethod
    def decode(text: bytes) -> Header:
        """Decode the JSON. Raises SegmentFormatError for another format."""
        values = json.loads(text)
        segment_format = values.pop("format", None)
        if segment_format != FORMAT:
            raise SegmentFormatError(
                f"got a segment of format {segment_format}, expected {FORMAT}: another version of Wiretide wrote it; "
                "read the spool to its end with that version, or name another folder"
            )
        plans = tuple((name, fingerprint) for name, fingerprint in values.pop("plans"))
        skipped = tuple((start, end) for start, end in values.pop("skipped", ()))
        counted = values.pop("counts", None)
        counts = None if counted is None else LinkCounts(**counted)
        return Header(plans=plans, lows=tuple(values.pop("lows")), skipped=skipped, counts=counts, **values)


@dataclass(frozen=True)
class Segment:
    """A decoded segment. `new_items`: name and fingerprint of the plan, and the item, in order."""

    header: Header
    trailer: Trailer
    new_items: list[tuple[str, str, Item]]

    @property
    def number(self) -> int:
        """The number of the segment. Numbers are consecutive; a dropped segment leaves a gap."""
        return self.header.number

    @property
    def link(self) -> str:
        """The link of the partials."""
        return self.header.link

    @property
    def plans(self) -> PlanNames:
        """Name and fingerprint of every plan of the writer, including plans without an item in this segment."""
        return self.header.plans

    @property
    def ended(self) -> bool:
        """True if the link has ended: the header states this, or the watermark of every plan is END."""
        return self.header.ended or (bool(self.plans) and all(watermark == END for watermark in self.watermarks))

    @property
    def rows(self) -> int:
        """Number of rows of partials in the segment."""
        return self.trailer.rows

    @cached_property
    def repeated_punctuations(self) -> list[tuple[str, str, Item]]:
        """The last punctuation of each plan before this segment, so that a reader can begin with this segment."""
        return [
            (name, fingerprint, Punctuation(self.link, low))
            for (name, fingerprint), low in zip(self.plans, self.header.lows, strict=True)
            if low != BEGINNING
        ]

    @cached_property
    def items(self) -> list[tuple[str, str, Item]]:
        """The repeated punctuations, then the items of the segment."""
        return self.repeated_punctuations + self.new_items

    @property
    def watermarks(self) -> tuple[int, ...]:
        """The watermark of each plan after this segment."""
        watermarks = dict(zip(self.plans, self.header.lows, strict=True))
        for name, fingerprint, item in self.new_items:
            if isinstance(item, Punctuation):
                watermarks[name, fingerprint] = item.watermark
        return tuple(watermarks.values())


def encode(header: Header, items: Sequence[tuple[int, Item]], first: int, last: int) -> tuple[pa.Buffer, Trailer]:
    """Return the stream and the trailer of a segment. `items`: index of the plan in the header, and the item."""
    names = pa.array([header.plans[index][0] for index, _ in items], pa.string())
    lows = pa.array([item.watermark if isinstance(item, Punctuation) else None for _, item in items], pa.int64())
    packed = [None if isinstance(item, Punctuation) else pack([item]).to_pybytes() for _, item in items]
    schema = SCHEMA.with_metadata({HEADER_KEY: header.encode()})
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
    trailer = Trailer.decode(data[-TRAILER_BYTES:], len(data))
    if trailer is None or zlib.crc32(memoryview(data)[: trailer.length]) != trailer.checksum:
        raise SegmentLostError(f"{path}: not whole: the checksum of its {len(data)} bytes is wrong")
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        try:
            header = Header.decode(reader.schema.metadata[HEADER_KEY])
        except SegmentFormatError as error:
            raise SegmentFormatError(f"{path}: {error}") from None
        batch = reader.read_next_batch()
    fingerprints = dict(header.plans)
    names, lows, partials = (batch.column(index) for index in range(3))
    items: list[tuple[str, str, Item]] = []
    for row in range(batch.num_rows):
        name, low = names[row].as_py(), lows[row].as_py()
        item = unpack(partials[row].as_buffer()) if low is None else Punctuation(header.link, low)
        items.append((name, fingerprints[name], item))
    return Segment(header, trailer, items)


def read_header(path: Path) -> Header:
    """Read only the header of an undamaged segment."""
    with path.open("rb") as file, pa.ipc.open_stream(file) as reader:
        return Header.decode(reader.schema.metadata[HEADER_KEY])


def read_trailer(path: Path) -> Trailer | None:
    """Read only the trailer of a file. Returns None if the trailer is missing or corrupt."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - TRAILER_BYTES, 0))
        return Trailer.decode(file.read(), size)


def check(path: Path) -> Trailer | None:
    """Verify the checksum of a file, in chunks of CHUNK bytes. Returns its trailer, or None if the file is damaged."""
    trailer = read_trailer(path)
    if trailer is None:
        return None
    checksum, remaining = 0, trailer.length
    with path.open("rb", buffering=0) as file:
        while remaining:
            data = file.read(min(remaining, CHUNK_BYTES))
            if not data:
                return None
            checksum = zlib.crc32(data, checksum)
            remaining -= len(data)
    return trailer if checksum == trailer.checksum else None
