"""The slow, obvious twin of `capture.flows`: datagrams read with slices of bytes, one dict per record.

It shares no code with the product, and computes a column by searching the fields of every record. Sampling is kept as
fractions, times as integers of nanoseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

Sender = tuple[str | None, int]
"""Address and port."""

Specs = list[tuple[int, int, int]]
"""Element, length, enterprise of each field."""

WRAP = 2**32
UNSIGNED = {"unsigned8", "unsigned16", "unsigned32", "unsigned64", "unknown"}
SAME_AS = {40000: 371, 40001: 225, 40002: 226, 40003: 227, 40004: 228, 40005: 233}

V5_FIELDS = "8:4 12:4 15:4 10:2 14:2 2:4 1:4 22:4 21:4 7:2 11:2 0:1 6:1 4:1 5:1 16:2 17:2 9:1 13:1 0:2"
BUILT_IN: dict[int, Specs] = {
    version: [(int(each.split(":")[0]), int(each.split(":")[1]), 0) for each in text.split()]
    for version, text in ((5, V5_FIELDS), (7, V5_FIELDS + " 43:4"))
}


@dataclass
class Session:
    """State of one session."""

    templates: dict[int, tuple[bool, int, Specs]] = field(default_factory=dict)  # options, scope fields, all fields
    rate: Fraction | None = None
    rates: dict[tuple[str, int], Fraction] = field(default_factory=dict)
    started: int | None = None  # ms
    waiting: list[tuple[int, bytes, dict[str, Any]]] = field(default_factory=list)


@dataclass
class Record:
    """One flow record: the values of the header, the raw fields, and the sampling that was known at that time."""

    header: dict[str, Any]
    values: list[tuple[int, int, bytes]]
    specs: Specs
    started: int | None
    rate: Fraction | None
    rates: dict[tuple[str, int], Fraction]

    def get(self, element: int, enterprise: int = 0) -> bytes | None:
        """Return the bytes of an element's first field, or None if the template has no such field."""
        place = self._place(element, enterprise)
        return None if place is None else self.values[place][2]

    def here(self, element: int) -> bytes | None:
        """The same, but None too for a field that the template gives no bytes."""
        place = self._place(element, 0)
        return None if place is None or self.specs[place][1] == 0 else self.values[place][2]

    def varies(self, element: int) -> bool:
        """Whether an element's length is not in the template."""
        place = self._place(element, 0)
        return place is not None and self.specs[place][1] == 65535

    def _place(self, element: int, enterprise: int) -> int | None:
        for place, (number, owner, _) in enumerate(self.values):
            known = SAME_AS.get(number, number) if self.header["version"] == 9 else number
            if (known, owner) == (element, enterprise):
                return place
        return None


class Collector:
    """Reads datagrams of any sender in the order in which they come."""

    def __init__(self) -> None:
        self.sessions: dict[tuple, Session] = {}
        self.options = 0

    def feed(self, data: bytes, sender: Sender = (None, 0), arrival: int = 0) -> list[Record]:
        """The records that a datagram brings: its own, and those that waited for it."""
        version = int.from_bytes(data[:2], "big") if len(data) >= 2 else 0
        lengths = {5: 24, 7: 24, 9: 20, 10: 16}
        if version not in lengths or len(data) < lengths[version]:
            return []
        header: dict[str, Any] = {"version": version, "exporter": sender[0], "port": sender[1], "arrival": arrival}
        body = data[lengths[version] :]
        uptime, seconds, rest, sequence = struct.unpack(">IIII", (data[4:20] + bytes(16))[:16])
        if version in (5, 7):
            header |= {"uptime": uptime, "export": seconds * 10**9 + rest, "sequence": sequence}
            header["domain"] = int.from_bytes(data[20:22], "big") if version == 5 else 0
            return self._fixed(body, header, int.from_bytes(data[2:4], "big"), data)
        if version == 9:
            header |= {"uptime": uptime, "export": seconds * 10**9, "sequence": rest, "domain": sequence}
        else:
            length = int.from_bytes(data[2:4], "big")
            if length < 16:
                return []
            if length <= len(data):
                body = data[16:length]
            header |= {"uptime": None, "export": uptime * 10**9, "sequence": seconds, "domain": rest}
        session = self.sessions.setdefault((version, *sender, header["domain"]), Session())
        found: list[Record] = []
        at = 0
        came: dict[int, None] = {}  # templates that data waits for
        while at + 4 <= len(body):
            number, size = struct.unpack(">HH", body[at : at + 4])
            if (number, size) == (0, 0) or size < 4 or at + size > len(body):
                break
            found += self._set(session, header, number, body[at + 4 : at + size], came)
            at += size
        for number in came:
            if number in session.templates:
                waited = [each for each in session.waiting if each[0] == number]
                session.waiting = [each for each in session.waiting if each[0] != number]
                for _, data, old in waited:
                    found += self._data(session, old, number, data)
        return found

    def _fixed(self, body: bytes, header: dict[str, Any], count: int, data: bytes) -> list[Record]:
        specs = BUILT_IN[header["version"]]
        size = sum(length for _, length, _ in specs)
        rate = None
        if header["version"] == 5 and (interval := int.from_bytes(data[22:24], "big") & 0x3FFF):
            rate = Fraction(interval)
        pieces = [body[each * size : (each + 1) * size] for each in range(min(count, len(body) // size))]
        return [Record(header, cut(piece, specs)[0], specs, None, rate, {}) for piece in pieces]

    def _set(
        self, session: Session, header: dict[str, Any], number: int, body: bytes, came: dict[int, None]
    ) -> list[Record]:
        late = header["version"] == 10
        if number in ((2, 3) if late else (0, 1)):
            self._templates(session, header["version"], body, number in (1, 3), came)
            return []
        if number < 256:
            return []
        if number not in session.templates:
            session.waiting.append((number, body, header))
            return []
        return self._data(session, header, number, body)

    def _templates(self, session: Session, version: int, body: bytes, options: bool, came: dict[int, None]) -> None:
        for number, scope, specs in announced(version, body, options):
            if specs is None:
                for each in [number] if number > 3 else list(session.templates):
                    if number > 3 or session.templates[each][0] == (number == 3):
                        session.templates.pop(each, None)
                continue
            shortest = sum(1 if length == 65535 else length for _, length, _ in specs)
            if number < 256 or shortest == 0 or len(specs) > 512:
                continue
            if session.templates.get(number) != (options, scope, specs):
                session.templates[number] = (options, scope, specs)
                if any(each[0] == number for each in session.waiting):
                    came[number] = None

    def _data(self, session: Session, header: dict[str, Any], number: int, body: bytes) -> list[Record]:
        options, scope, specs = session.templates[number]
        shortest = sum(1 if length == 65535 else length for _, length, _ in specs)
        found = []
        while len(body) >= shortest:
            values, body = cut(body, specs)
            if len(values) < len(specs):
                break
            if options:
                self.options += 1
                self._option(session, header["version"], values, scope)
            else:
                found.append(Record(header, values, specs, session.started, *usual(session)))
        return found

    def _option(self, session: Session, version: int, values: list[tuple[int, int, bytes]], scope: int) -> None:
        known: dict[Any, bytes] = {}
        for place, (element, enterprise, data) in enumerate(values):
            if place < scope and version == 9 and element < 6:
                if element == 2:
                    known["interface"] = data
            elif not enterprise:
                known.setdefault(element, data)
                if place < scope and element in (10, 14):
                    known["interface"] = data
        numbers = {each: int.from_bytes(data, "big") for each, data in known.items() if 0 < len(data) <= 8}
        if len(known.get(160, b"")) == 8:
            session.started = min(numbers[160], 2**63 - 1)
        rate = option_rate(numbers, known)
        if rate is None:
            return
        for element, kind in ((302, "selector"), (48, "sampler"), ("interface", "interface")):
            if element in numbers:
                session.rates[kind, numbers[element]] = rate
                return
        session.rate = rate


def usual(session: Session) -> tuple[Fraction | None, dict[tuple[str, int], Fraction]]:
    """Return the known sampling of a session."""
    every = set(session.rates.values())
    rates = dict(session.rates)
    rates["else", 0] = session.rate or Fraction(0)
    return session.rate or (every.pop() if len(every) == 1 else None), rates


def option_rate(numbers: dict[Any, int], known: dict[Any, bytes]) -> Fraction | None:
    """The rate that an option record tells, by the first of the ways there are."""
    rate = None
    if numbers.get(50):
        rate = Fraction(numbers[50])
    elif numbers.get(34):
        rate = Fraction(numbers[34])
    elif numbers.get(305) and 306 in numbers:
        rate = Fraction(numbers[305] + numbers[306], numbers[305])
    elif numbers.get(307) and 308 in numbers:
        rate = Fraction(numbers[307] + numbers[308], numbers[307])
    elif numbers.get(309) and numbers.get(310, 0) >= numbers[309]:
        rate = Fraction(numbers[310], numbers[309])
    elif len(known.get(311, b"")) == 8:
        (share,) = struct.unpack(">d", known[311])
        rate = Fraction(1 / share).limit_denominator(1000) if 2.0**-31 < share <= 1 else None
    return rate if rate is not None and rate >= 1 and rate.numerator < 2**31 else None


def announced(version: int, body: bytes, options: bool) -> Iterator[tuple[int, int, Specs | None]]:
    """(number, scope fields, fields) of each whole template record; no fields mean a withdrawal."""
    while len(body) >= 4:
        number, count = struct.unpack(">HH", body[:4])
        if number == 0:
            return
        body = body[4:]
        if version == 10 and count == 0:
            yield number, 0, None
            continue
        scope = 0
        if options:
            if len(body) < 2:
                return
            (third,) = struct.unpack(">H", body[:2])
            body = body[2:]
            scope, count = (third, count) if version == 10 else (count // 4, count // 4 + third // 4)
        specs: Specs = []
        for _ in range(count):
            if len(body) < 4:
                return
            element, length = struct.unpack(">HH", body[:4])
            body = body[4:]
            enterprise = 0
            if version == 10 and element >= 0x8000:
                if len(body) < 4:
                    return
                element, enterprise, body = element - 0x8000, int.from_bytes(body[:4], "big"), body[4:]
            specs.append((element, length, enterprise))
        yield number, scope, specs


def cut(body: bytes, specs: Specs) -> tuple[list[tuple[int, int, bytes]], bytes]:
    """Return the fields of one record and the remaining data. A cut record has fewer fields."""
    values = []
    for element, length, enterprise in specs:
        if length == 65535:
            if not body:
                return values, b""
            length, body = body[0], body[1:]
            if length == 255:
                if len(body) < 2:
                    return values, b""
                length, body = int.from_bytes(body[:2], "big"), body[2:]
        if length > len(body):
            return values, b""
        values.append((element, enterprise, body[:length]))
        body = body[length:]
    return values, body
