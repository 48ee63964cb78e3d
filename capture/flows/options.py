"""Records of options: the few of them that change how flows are read are looked at, one by one, in Python."""

from __future__ import annotations

from collections.abc import Iterator

from capture.flows.sampling import SCOPE_INTERFACE
from capture.flows.templates import V9, VARIABLE, Definition

SCOPE_TYPES = 6
"""Numbers below are scope types in NetFlow v9 (RFC 3954 §6.1): system, interface, line card, cache, template."""

V9_INTERFACE = 2
INGRESS, EGRESS = 10, 14

STARTED = 160
"""systemInitTimeMilliseconds."""


def records(definition: Definition, body: bytes) -> Iterator[list[bytes]]:
    """Cut a set's bytes into records of fields. One that goes on behind the set is not there."""
    at = 0
    shortest = definition.shortest
    fields = definition.fields
    while at + shortest <= len(body):
        found: list[bytes] = []
        for each in fields:
            length = each.length
            if length == VARIABLE:
                length = body[at] if at < len(body) else 0
                at += 1
                if length == 255:
                    length = int.from_bytes(body[at : at + 2], "big")
                    at += 2
            if at + length > len(body):
                return
            found.append(body[at : at + length])
            at += length
        yield found


def option_values(definition: Definition, record: list[bytes]) -> dict[int, bytes]:
    """Registered elements of an option record by number, the scope's too; its interface under SCOPE_INTERFACE."""
    values: dict[int, bytes] = {}
    for number, (each, data) in enumerate(zip(definition.fields, record, strict=True)):
        scope = number < definition.scope
        if scope and definition.version == V9 and each.id < SCOPE_TYPES:
            if each.id == V9_INTERFACE:
                values[SCOPE_INTERFACE] = data
        elif not each.enterprise:
            values.setdefault(each.id, data)
            if scope and each.id in (INGRESS, EGRESS):
                values[SCOPE_INTERFACE] = data
    return values
