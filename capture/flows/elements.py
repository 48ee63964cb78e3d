"""IPFIX information elements: names and data types of template fields.

`elements.csv` is IANA's registry (RFC 7012): number, name and abstract data type. NetFlow v9 field types 1 to 127 have
the same numbers. ALIASES contains the field types that Cisco used before the elements were registered. Names of
unregistered elements are made of numbers: `ie_33002`, or `e5951_128` for element 128 of enterprise 5951. Names with the
prefix `reverse` are for the opposite direction of a biflow (RFC 5103).
"""

from __future__ import annotations

import csv
import functools
import re
from enum import StrEnum
from pathlib import Path

from capture.lazy_dataclasses import dataclass

REVERSE_ENTERPRISE = 29305
"""Enterprise number of reverse elements (RFC 5103 §6.1). Element n of this enterprise is the registered element n for
the opposite direction of a biflow."""

ALIASES: dict[int, int] = {40000: 371, 40001: 225, 40002: 226, 40003: 227, 40004: 228, 40005: 233}
"""For NetFlow v9 field types of Cisco firewalls: the number of the registered element with the same meaning."""

ELEMENTS_FILE = Path(__file__).with_name("elements.csv")
"""The registry of IANA."""

NUMBERED_NAME = re.compile(
    r"(?:ie_(?P<id>[0-9]{1,5})|e(?P<enterprise>[0-9]{1,10})_(?P<element>[0-9]{1,5}))(?:_(?P<form>text|hex))?"
)
"""Names of unregistered elements. With the suffix `_text` or `_hex` the bytes are text or octets, not a number."""


class DataType(StrEnum):
    """Abstract data types (RFC 7012 §3.1, RFC 6313, RFC 9740), and UNKNOWN for unregistered elements."""

    OCTET_ARRAY = "octetArray"
    UNSIGNED8 = "unsigned8"
    UNSIGNED16 = "unsigned16"
    UNSIGNED32 = "unsigned32"
    UNSIGNED64 = "unsigned64"
    UNSIGNED256 = "unsigned256"
    SIGNED8 = "signed8"
    SIGNED16 = "signed16"
    SIGNED32 = "signed32"
    SIGNED64 = "signed64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BOOLEAN = "boolean"
    MAC_ADDRESS = "macAddress"
    STRING = "string"
    SECONDS = "dateTimeSeconds"
    MILLISECONDS = "dateTimeMilliseconds"
    MICROSECONDS = "dateTimeMicroseconds"
    NANOSECONDS = "dateTimeNanoseconds"
    IPV4_ADDRESS = "ipv4Address"
    IPV6_ADDRESS = "ipv6Address"
    BASIC_LIST = "basicList"
    SUB_TEMPLATE_LIST = "subTemplateList"
    SUB_TEMPLATE_MULTI_LIST = "subTemplateMultiList"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Element:
    """One information element. `enterprise` 0 means IANA."""

    id: int
    enterprise: int
    name: str
    type: DataType


@functools.cache
def registered_elements() -> dict[int, Element]:
    """Return the registered elements by number. The file is read once."""
    with ELEMENTS_FILE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {int(row["id"]): Element(int(row["id"]), 0, row["name"], DataType(row["type"])) for row in rows}


@functools.cache
def elements_by_name() -> dict[str, Element]:
    """Return the registered elements and their reverses by lower-case name."""
    both = [
        element_
        for number in registered_elements()
        for element_ in (element(number), element(number, REVERSE_ENTERPRISE))
    ]
    return {element_.name.lower(): element_ for element_ in both}


def element(number: int, enterprise: int = 0) -> Element:
    """Return any element by its number, registered or not.

    >>> element(8).name, element(8, REVERSE_ENTERPRISE).name, element(128, 5951).name, element(33002).name
    ('sourceIPv4Address', 'reverseSourceIPv4Address', 'e5951_128', 'ie_33002')
    """
    if enterprise in (0, REVERSE_ENTERPRISE) and (known := registered_elements().get(number)):
        name = "reverse" + known.name[:1].upper() + known.name[1:] if enterprise else known.name
        return Element(number, enterprise, name, known.type)
    return Element(number, enterprise, f"e{enterprise}_{number}" if enterprise else f"ie_{number}", DataType.UNKNOWN)


def element_named(name: str) -> Element | None:
    """Find an element by its name, case-insensitive. Return None if no element has this name.

    A name made of numbers denotes an unregistered element. The suffixes `_text` and `_hex` change its type to string or
    octet array. Registered elements cannot be named by their numbers.
    """
    if registered_element := elements_by_name().get(name.lower()):
        return registered_element
    match = NUMBERED_NAME.fullmatch(name.lower())
    if match is None:
        return None
    number = int(match["id"] or match["element"])
    candidate = element(number, int(match["enterprise"] or 0))
    if number >= 1 << 16 or candidate.enterprise >= 1 << 32 or candidate.type is not DataType.UNKNOWN:
        return None
    data_type = {"text": DataType.STRING, "hex": DataType.OCTET_ARRAY, None: DataType.UNKNOWN}[match["form"]]
    name = candidate.name + (f"_{match['form']}" if match["form"] else "")
    return Element(number, candidate.enterprise, name, data_type)
