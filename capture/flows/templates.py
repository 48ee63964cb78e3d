"""Templates: the definitions of an exporter's records (RFC 3954 §5.2 and §6.1, RFC 7011 §3.4).

A definition is stored as the bytes of its field specifiers, eight bytes per field. So thousands of templates of a
hostile sender need little memory.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Iterator
from dataclasses import fields

from capture.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DecoderLimits:
    """Limits of a decoder, as numbers of objects or in bytes. Raises ValueError if a limit is below 1."""

    sessions: int = 4096
    """Sessions. Beyond this limit the longest idle session is removed, with its templates and waiting sets."""
    session_templates: int = 1024
    """Templates of one session. Beyond this limit the template announced longest ago is evicted."""
    templates: int = 16_384
    """Templates of all sessions. Beyond this limit the template announced longest ago is evicted."""
    session_waiting_bytes: int = 1 << 18
    """Bytes of waiting data of one session. Beyond this limit the oldest set is dropped."""
    waiting_bytes: int = 1 << 24
    """Bytes of waiting data of all sessions. Beyond this limit the oldest set is dropped."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value < 1:
                raise ValueError(f"{limit.name}: got {value}, expected at least 1")


V5, V7, V9, IPFIX = 5, 7, 9, 10
"""Versions of the export header. The version of IPFIX is 10."""

VARIABLE_LENGTH = 65535
"""Length that a template states for a field of variable length. Each record contains the real length (RFC 7011 §7)."""

MAX_FIELDS = 512
"""Maximum number of fields of a template; a datagram of 1500 bytes can define 370."""

SPECIFIER = struct.Struct(">HHI")
"""A stored field specifier: element number, length, enterprise number."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a template. `id`: element number. `length`: bytes, or VARIABLE_LENGTH. `enterprise`: 0 for IANA."""

    id: int
    length: int
    enterprise: int = 0


@dataclass(frozen=True, slots=True)
class Definition:
    """Definition of the records of one template, without its ID. `specifiers`: its fields, eight bytes each.

    The first `scope_fields` fields of an options template are its scope. In NetFlow v9 a scope field number below 6 is
    a scope type, not an element.
    """

    version: int
    specifiers: bytes
    is_options: bool = False
    scope_fields: int = 0

    @classmethod
    def of(cls, version: int, fields: Iterable[Field], is_options: bool = False, scope_fields: int = 0) -> Definition:
        """Make a definition from fields."""
        packed = b"".join(SPECIFIER.pack(field.id, field.length, field.enterprise) for field in fields)
        return cls(version, packed, is_options, scope_fields)

    @property
    def fields(self) -> tuple[Field, ...]:
        """Fields in the order of the record."""
        return _fields(self.specifiers)

    @property
    def min_record_bytes(self) -> int:
        """Length in bytes of the shortest record. A field of variable length has at least one length byte."""
        return sum(1 if field.length == VARIABLE_LENGTH else field.length for field in self.fields)

    @property
    def has_fixed_length(self) -> bool:
        """True if all records have the shortest length."""
        return all(field.length != VARIABLE_LENGTH for field in self.fields)


@functools.lru_cache(maxsize=1024)
def _fields(specifiers: bytes) -> tuple[Field, ...]:
    return tuple(Field(number, length, enterprise) for number, length, enterprise in SPECIFIER.iter_unpack(specifiers))


@dataclass(frozen=True, slots=True)
class Announcement:
    """One template record.

    `definition` is None if the record is rejected, or is a withdrawal (RFC 7011 §8.1). A withdrawal removes template
    `id`. ID 2 removes all flow templates, ID 3 all options templates. `refusal_cause` is the cause for which the record
    is rejected, or None.
    """

    id: int
    definition: Definition | None
    refusal_cause: str | None = None


REFUSAL_CAUSES = ("cut", "id_below_256", "no_bytes", "too_many_fields")
"""Causes for which a template is rejected: a truncated record; an ID below 256, which is reserved; data records without
bytes; more than MAX_FIELDS fields."""


def read_announcements(version: int, is_options: bool, body: bytes) -> Iterator[Announcement]:
    """Read the template records of one set; `body` is the set without header. Stop after a truncated record."""
    offset = 0
    while offset + 4 <= len(body):
        template, second = struct.unpack_from(">HH", body, offset)
        if template == 0:
            return  # padding
        if version == IPFIX and second == 0:
            yield Announcement(template, None)
            offset += 4
            continue
        offset += 4
        count, scope_fields = second, 0
        if is_options:
            if offset + 2 > len(body):
                yield Announcement(template, None, "cut")
                return
            third = int.from_bytes(body[offset : offset + 2], "big")
            offset += 2
            if version == IPFIX:
                scope_fields = third
            else:
                scope_fields, count = second // 4, second // 4 + third // 4
        specifiers = []
        for _ in range(count):
            if offset + 4 > len(body):
                yield Announcement(template, None, "cut")
                return
            number, length = struct.unpack_from(">HH", body, offset)
            offset += 4
            enterprise = 0
            if version == IPFIX and number & 0x8000:
                if offset + 4 > len(body):
                    yield Announcement(template, None, "cut")
                    return
                number &= 0x7FFF
                enterprise = int.from_bytes(body[offset : offset + 4], "big")
                offset += 4
            specifiers.append(SPECIFIER.pack(number, length, enterprise))
        definition = Definition(version, b"".join(specifiers), is_options, scope_fields)
        refusal_cause = None
        if template < 256:
            refusal_cause = "id_below_256"
        elif count > MAX_FIELDS:
            refusal_cause = "too_many_fields"
        elif definition.min_record_bytes == 0:
            refusal_cause = "no_bytes"
        yield Announcement(template, None if refusal_cause else definition, refusal_cause)
