"""Templates: what an exporter says its records are made of (RFC 3954 §5.2 and §6.1, RFC 7011 §3.4).

A definition is kept as the bytes of its field specifiers, eight of each field: a table of thousands of templates of a
hostile sender stays a table of bytes.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Bounds:
    """Numbers are of things, or bytes where they say so. ValueError where one is below 1."""

    sessions: int = 4096
    """Sessions; beyond them the one that was silent longest is forgotten, with all that belongs to it."""
    session_templates: int = 1024
    """Templates of one session; a new one evicts the one that was announced longest ago."""
    templates: int = 16_384
    """Templates of all sessions; a new one evicts the one that was announced longest ago."""
    session_waiting_bytes: int = 1 << 18
    """Bytes of data of one session that waits for its template; beyond them the oldest is dropped."""
    waiting_bytes: int = 1 << 24
    """Bytes of data of all sessions that waits; beyond them the oldest is dropped."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value < 1:
                raise ValueError(f"{each.name}: got {value}, expected at least 1")


V5, V7, V9, IPFIX = 5, 7, 9, 10
"""Versions of the export header; IPFIX calls itself 10."""

VARIABLE = 65535
"""Length of a field whose length stands in front of its bytes (RFC 7011 §7)."""

MAX_FIELDS = 512
"""Fields of a template that are believed; a datagram of 1500 bytes has room for 370."""

SPECIFIER = struct.Struct(">HHI")


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a template: the element's number, the length in bytes or VARIABLE, and the enterprise or 0."""

    id: int
    length: int
    enterprise: int = 0


@dataclass(frozen=True, slots=True)
class Definition:
    """What the records of one template hold, whatever its number: `specifiers` are the fields, eight bytes each.

    Of an options template the first `scope` fields say what the rest is about. In NetFlow v9 a scope field's number
    below 6 is none of an element but a scope type.
    """

    version: int
    specifiers: bytes
    options: bool = False
    scope: int = 0

    @classmethod
    def of(cls, version: int, fields: Iterable[Field], options: bool = False, scope: int = 0) -> Definition:
        """Define by fields."""
        packed = b"".join(SPECIFIER.pack(each.id, each.length, each.enterprise) for each in fields)
        return cls(version, packed, options, scope)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields in the order of the record."""
        return _fields(self.specifiers)

    @property
    def shortest(self) -> int:
        """Bytes of the shortest record: a field of variable length takes at least the one that says its length."""
        return sum(1 if each.length == VARIABLE else each.length for each in self.fields)

    @property
    def fixed(self) -> bool:
        """Whether every record is as long as the shortest."""
        return all(each.length != VARIABLE for each in self.fields)


@functools.lru_cache(maxsize=1024)
def _fields(specifiers: bytes) -> tuple[Field, ...]:
    return tuple(Field(number, length, enterprise) for number, length, enterprise in SPECIFIER.iter_unpack(specifiers))


@dataclass(frozen=True, slots=True)
class Announcement:
    """One template record: `definition` None is a withdrawal (RFC 7011 §8.1), of all templates where `id` is below 4.

    `refused` is None, or why the record cannot be used.
    """

    id: int
    definition: Definition | None
    refused: str | None = None


REFUSALS = ("cut", "id_below_256", "no_bytes", "too_many_fields")
"""Why a template is not taken: its record ends before its fields; its number is that of a set; records of it would be
empty; it has more than MAX_FIELDS fields."""


def announcements(version: int, options: bool, body: bytes) -> Iterator[Announcement]:
    """Read the template records of one set, `body` without the set's header. What follows a cut one is not read."""
    at = 0
    while at + 4 <= len(body):
        template, second = struct.unpack_from(">HH", body, at)
        if template == 0:
            return  # padding
        if version == IPFIX and second == 0:
            yield Announcement(template, None)
            at += 4
            continue
        at += 4
        count, scope = second, 0
        if options:
            if at + 2 > len(body):
                yield Announcement(template, None, "cut")
                return
            third = int.from_bytes(body[at : at + 2], "big")
            at += 2
            if version == IPFIX:
                scope = third
            else:
                scope, count = second // 4, second // 4 + third // 4
        specifiers = []
        for _ in range(count):
            if at + 4 > len(body):
                yield Announcement(template, None, "cut")
                return
            number, length = struct.unpack_from(">HH", body, at)
            at += 4
            enterprise = 0
            if version == IPFIX and number & 0x8000:
                if at + 4 > len(body):
                    yield Announcement(template, None, "cut")
                    return
                number &= 0x7FFF
                enterprise = int.from_bytes(body[at : at + 4], "big")
                at += 4
            specifiers.append(SPECIFIER.pack(number, length, enterprise))
        definition = Definition(version, b"".join(specifiers), options, scope)
        refused = None
        if template < 256:
            refused = "id_below_256"
        elif count > MAX_FIELDS:
            refused = "too_many_fields"
        elif definition.shortest == 0:
            refused = "no_bytes"
        yield Announcement(template, None if refused else definition, refused)
