"""The slow, obvious twin of the pcapng reader: slices of bytes, and times as fractions. It shares no code with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

LATEST = 2**62 - 1
LARGEST_BLOCK = 16 * 2**20
LARGEST_FRAME = 262_144
MOST_INTERFACES = 65_536


@dataclass
class Interface:
    """An interface as its section numbers it; `units` a second, `number` in the file."""

    number: int
    link_type: int
    snaplen: int
    units: int = 1_000_000
    offset: int = 0


@dataclass
class Record:
    """One packet. `start`: offset of its block; `section`: number of section headers before it."""

    ts: int
    wire: int
    frame: bytes
    link_type: int
    interface: int
    start: int
    section: int


@dataclass
class Pcapng:
    """Contents of a file, the reason of a bad end, and the number of times that are not from the file, by cause."""

    records: list[Record] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    damage: str | None = None
    replaced: Counter[str] = field(default_factory=Counter)


class DamagedError(Exception):
    """Ends the reading; its argument is the cause."""


def parse_pcapng(data: bytes) -> Pcapng:
    """Read the bytes of a whole file."""
    file = Pcapng()
    try:
        read_blocks(data, file)
    except DamagedError as damage:
        file.damage = str(damage)
    return file


def read_blocks(data: bytes, file: Pcapng) -> None:
    order = None
    interfaces: list[Interface] = []
    section = 0
    at = 0
    while at < len(data):
        rest = data[at:]
        if len(rest) < 8:
            raise DamagedError("cut_in_record_header")
        if rest[:4] == b"\n\r\r\n":
            if len(rest) < 12:
                raise DamagedError("cut_in_record")
            if rest[8:12] not in (b"\x4d\x3c\x2b\x1a", b"\x1a\x2b\x3c\x4d"):
                raise DamagedError("bad_section_header")
            order = "little" if rest[8] == 0x4D else "big"
            section += 1
        if order is None:
            raise DamagedError("bad_section_header")

        def number(start: int, end: int, order: str = order, rest: bytes = rest) -> int:
            return int.from_bytes(rest[start:end], order)

        kind, length = number(0, 4), number(4, 8)
        if length < 12 or length % 4 or length > LARGEST_BLOCK:
            raise DamagedError("impossible_record_length")
        if len(rest) < length:
            raise DamagedError("cut_in_record")
        if rest[4:8] != rest[length - 4 : length]:
            raise DamagedError("impossible_record_length")
        body = rest[8 : length - 4]
        if kind == 0x0A0D0D0A:
            if len(body) < 16 or number(12, 14) != 1:
                raise DamagedError("bad_section_header")
            interfaces = []
        elif kind == 1:
            if len(file.names) == MOST_INTERFACES:
                raise DamagedError("too_many_interfaces")
            interfaces.append(read_interface(body, order, file))
        elif kind in (2, 3, 6):
            header = 4 if kind == 3 else 20
            if len(body) < header:
                raise DamagedError("impossible_record_length")
            of = {2: number(8, 10), 3: 0, 6: number(8, 12)}[kind]
            if of >= len(interfaces):
                raise DamagedError("unknown_interface")
            read_packet(kind, body, header, order, interfaces[of], file)
            file.records[-1].start, file.records[-1].section = at, section
        at += length


def read_interface(body: bytes, order: str, file: Pcapng) -> Interface:
    if len(body) < 8:
        raise DamagedError("bad_interface_description")
    found = Interface(len(file.names), int.from_bytes(body[:2], order), int.from_bytes(body[4:8], order))
    name = None
    seen = Counter()
    rest = body[8:]
    while rest:
        code, length = int.from_bytes(rest[:2], order), int.from_bytes(rest[2:4], order)
        value, rest = rest[4 : 4 + length], rest[4 + (length + 3) // 4 * 4 :]
        seen[code] += 1
        wrong = {0: length != 0, 9: length != 1, 14: length != 8}.get(code, False)
        if wrong or len(value) < length or (code in (9, 14) and seen[code] > 1):
            raise DamagedError("bad_interface_description")
        if code == 0:
            break
        if code == 2 and name is None:
            name = value.rstrip(b"\0").decode("utf-8", "replace")[:127]
        elif code == 9:
            found.units = 2 ** (value[0] - 128) if value[0] >= 128 else 10 ** value[0]
            if found.units >= 2**64:
                raise DamagedError("bad_interface_description")
        elif code == 14:
            found.offset = int.from_bytes(value, order, signed=True)
    file.names.append(name or str(found.number))
    return found


def read_packet(kind: int, body: bytes, header: int, order: str, interface: Interface, file: Pcapng) -> None:
    numbers = [int.from_bytes(body[start : start + 4], order) for start in range(0, header, 4)]
    if kind == 3:
        wire = numbers[0]
        snaplen = interface.snaplen
        captured = min(wire, snaplen if 0 < snaplen <= LARGEST_FRAME else LARGEST_FRAME)
        ts, cause = 0, "no_timestamp"
    else:
        _, high, low, captured, wire = numbers
        exact = floor((Fraction(high * 2**32 + low, interface.units) + interface.offset) * 10**9)
        ts = min(max(exact, 0), LATEST)
        cause = None if ts == exact else "out_of_range"
    frame = body[header : header + captured]
    if captured > LARGEST_FRAME or len(frame) < captured:
        raise DamagedError("impossible_record_length")
    if cause:
        file.replaced[cause] += 1
    file.records.append(Record(ts, wire, frame, interface.link_type, interface.number, 0, 0))
