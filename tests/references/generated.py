"""Reads what was generated, by the format's definition and apart from `capture`: integer ns, one record at a time."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}


@dataclass(frozen=True)
class Record:
    ts: int
    wire_length: int
    data: bytes


def records(path: Path) -> Iterator[Record]:
    """Yield every record; fail on a cut one or on bytes that are left over."""
    content = path.read_bytes()
    order, tick = MAGICS[content[:4]]
    place = 24
    while place < len(content):
        seconds, fraction, captured, wire = struct.unpack_from(f"{order}IIII", content, place)
        assert fraction * tick < 1_000_000_000
        data = content[place + 16 : place + 16 + captured]
        assert len(data) == captured <= wire
        yield Record(seconds * 1_000_000_000 + fraction * tick, wire, data)
        place += 16 + captured
