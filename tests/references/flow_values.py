"""Columns of a flow record, computed from its fields one by one: the second half of the reference implementation."""

from __future__ import annotations

import struct
from fractions import Fraction
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from tests.references.flow_oracle import WRAP, Record

MAX = 2**63 - 1
LAST_MS = MAX // 10**6

NUMBERS: dict[str, tuple[tuple[int, ...], int]] = {
    "srcPort": ((7, 182, 180), 16),
    "destPort": ((11, 183, 181), 16),
    "protocol": ((4,), 8),
    "tos": ((5,), 8),
    "tcp_flags": ((6,), 16),
    "raw_packets": ((2, 86, 24, 172, 298, 402), 64),
    "raw_bytes": ((1, 85, 23, 171, 231, 352, 353), 64),
    "input": ((10, 252), 32),
    "output": ((14, 253), 32),
    "srcAS": ((16,), 32),
    "destAS": ((17,), 32),
    "srcMask": ((9, 29), 8),
    "destMask": ((13, 30), 8),
    "vlan": ((58, 243), 16),
    "srcMAC": ((56, 81), 48),
    "destMAC": ((80, 57), 48),
    "direction": ((61,), 8),
}
"""Elements of the core columns that are numbers, and their bits."""

ADDRESSES = {"srcIP": (8, 27, 44, 170), "destIP": (12, 28, 45, 169), "nextHop": (15, 62)}
ICMP = {"icmp_type": ((176, 178), 0), "icmp_code": ((177, 179), 1)}


def signed64(number: int) -> int:
    return number - 2**64 if number > MAX else number


def typed(kind: str, data: bytes) -> Any:
    """Return a value of an element's abstract data type, or None if the bytes are invalid for the type."""
    number = int.from_bytes(data, "big")
    match kind:
        case "string":
            return data.rstrip(b"\0").decode(errors="backslashreplace")
        case "octetArray" | "unsigned256" | "basicList" | "subTemplateList" | "subTemplateMultiList":
            return data.hex()
        case "ipv4Address":
            return IPv4Address(data) if len(data) == 4 else None
        case "ipv6Address":
            return IPv6Address(data) if len(data) == 16 else None
        case "float32" | "float64":
            return struct.unpack(">d" if len(data) == 8 else ">f", data)[0] if len(data) in (4, 8) else None
        case "dateTimeMicroseconds" | "dateTimeNanoseconds":
            return ntp(data, kind) if len(data) == 8 else None
    if not 0 < len(data) <= 8:
        return None
    match kind:
        case "signed8" | "signed16" | "signed32" | "signed64":
            return int.from_bytes(data, "big", signed=True)
        case "boolean":
            return {1: True, 2: False}.get(number)
        case "macAddress":
            return number if number < 2**48 else None
        case "dateTimeSeconds":
            return number * 10**9 if number <= LAST_MS // 1000 else None
        case "dateTimeMilliseconds":
            return number * 10**6 if number <= LAST_MS else None
    return signed64(number)


def ntp(data: bytes, kind: str) -> int:
    seconds, fraction = struct.unpack(">II", data)
    if kind == "dateTimeMicroseconds":
        fraction -= fraction % 2**11
    seconds -= 2_208_988_800
    if seconds < 0:
        seconds += 2**32
    return seconds * 10**9 + fraction * 10**9 // 2**32


def number(data: bytes, bits: int) -> int | None:
    value = int.from_bytes(data, "big")
    if not 0 < len(data) <= 8 or (bits < 64 and value >= 2**bits):
        return None
    return signed64(value)


def core(record: Record, name: str) -> Any:
    """One core column of a record."""
    header = record.header
    if name in ("version", "observation_domain", "export_ts", "arrival_ts"):
        return header[{"observation_domain": "domain", "export_ts": "export", "arrival_ts": "arrival"}.get(name, name)]
    if name in ("exporter", "exporter_port"):
        if header["exporter"] is None:
            return None
        address = header["exporter"]
        own = IPv6Address(address) if ":" in address else IPv4Address(address)
        return own if name == "exporter" else header["port"]
    if name in NUMBERS:
        elements, bits = NUMBERS[name]
        data = first(record, elements)
        return None if data is None else number(data, bits)
    if name in ADDRESSES:
        return address_of(record, ADDRESSES[name])
    if name in ICMP:
        elements, place = ICMP[name]
        data = first(record, elements)
        if data is None:
            both = [record.here(each) for each in (32, 139) if not record.varies(each)]
            data = next((each[place : place + 1] for each in both if each is not None and len(each) == 2), None)
        return None if data is None else number(data, 8)
    if name == "ip_version":
        found = core(record, "srcIP") or core(record, "destIP")
        return None if found is None else found.version
    if name in ("ts", "start_ts", "end_ts"):
        start, end = times(record)
        return start if name == "start_ts" else end
    rate = sampled(record)
    if name == "sampling_rate":
        return None if rate is None else nearest(rate)
    raw = core(record, f"raw_{name}")
    return raw if raw is None or rate is None else signed64(nearest(raw * rate) % 2**64)


def nearest(value: Fraction) -> int:
    """The nearest integer, halves upwards."""
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)


def first(record: Record, elements: tuple[int, ...]) -> bytes | None:
    """The field of the first element that the record's template has bytes for."""
    return next((data for data in map(record.here, elements) if data is not None), None)


def address_of(record: Record, elements: tuple[int, ...]) -> Any:
    """Return the first address. If the IPv4 address is 0.0.0.0, return the first IPv6 address that is not ::."""
    there = [(element, data) for element in elements if (data := record.here(element)) is not None]
    if not there:
        return None
    narrow = {8, 12, 15, 44, 45}
    element, data = there[0]
    kind = "ipv4Address" if element in narrow else "ipv6Address"
    found = typed(kind, data)
    if element in narrow and (found is None or int(found) == 0):
        wide = [data for other, data in there[1:] if other not in narrow]
        if wide and len(wide[0]) == 16 and any(wide[0]):
            return IPv6Address(wide[0])
    return found


def times(record: Record) -> tuple[int, int]:
    """Start and end, ns."""
    late = record.header["version"] == 10
    export = record.header["export"]
    absolute = {
        "start": [(156, "dateTimeNanoseconds"), (154, "dateTimeMicroseconds"), (152, "dateTimeMilliseconds")],
        "end": [(157, "dateTimeNanoseconds"), (155, "dateTimeMicroseconds"), (153, "dateTimeMilliseconds")],
    }
    seen = [
        (325, "dateTimeNanoseconds"),
        (324, "dateTimeMicroseconds"),
        (323, "dateTimeMilliseconds"),
        (322, "dateTimeSeconds"),
    ]
    got: dict[str, int | None] = {}
    has: dict[str, bool] = {}
    for side, delta, uptime, seconds in (("start", 158, 22, 150), ("end", 159, 21, 151)):
        order: list[tuple[int, str]] = [*absolute[side], (delta, "delta")]
        order += (
            [(seconds, "dateTimeSeconds"), (uptime, "uptime")]
            if late
            else [(uptime, "uptime"), (seconds, "dateTimeSeconds")]
        )
        got[side], has[side] = moment(record, order, export)
    if not has["end"]:
        got["end"], has["end"] = moment(record, seen, export)
        if has["end"] and not has["start"]:
            got["start"] = moment(record, seen, export)[0]
    start, end = got["start"], got["end"]
    lasts = duration(record)
    if start is not None and lasts is not None and start + lasts > MAX:
        lasts = None
    if end is None:
        end = export if start is None else start + (lasts or 0)
    if start is None:
        start = end if lasts is None else end - lasts
    return start, end


def moment(record: Record, order: list[tuple[int, str]], export: int) -> tuple[int | None, bool]:
    """The first element of `order` that there is, as a time; and whether there was any."""
    for element, kind in order:
        data = record.here(element)
        if data is None:
            continue
        if kind == "uptime":
            return since_start(record, data, export), True
        if kind == "delta":
            ago = number(data, 32)
            return (None if ago is None else export - ago * 1000), True
        return typed(kind, data), True
    return None, False


def since_start(record: Record, data: bytes, export: int) -> int | None:
    """A time of sysUpTime, modulo its range: up to half of it ahead of the header's, else from before the wrap."""
    if not 0 < len(data) <= 8:
        return None
    value = int.from_bytes(data, "big") % WRAP
    uptime = record.header["uptime"]
    if uptime is None:
        own = record.here(160)
        started = record.started if own is None else number(own, 64)
        if own is not None and started is not None and not 0 <= started <= LAST_MS:
            started = None
        if started is None:
            return None
        uptime = (export // 10**6 - started) % WRAP
    if value > uptime + WRAP // 2:
        value -= WRAP
    return export // 10**6 * 10**6 - (uptime - value) * 10**6 + export % 10**6 * (record.header["uptime"] is not None)


def duration(record: Record) -> int | None:
    for element, unit in ((162, 1000), (161, 10**6)):
        data = record.here(element)
        if data is not None:
            value = int.from_bytes(data, "big")
            return value * unit if 0 < len(data) <= 8 and value < 2**32 else None
    return None


def sampled(record: Record) -> Fraction | None:
    """Return the sampling rate of a record. Fields of the record take precedence over the state of its session."""
    rate = record.rate
    kinds = {kind for kind, _ in record.rates}
    for element, kind in ((10, "interface"), (48, "sampler"), (302, "selector")):
        data = record.get(element)
        if data and len(data) <= 8 and kind in kinds:
            rate = record.rates.get((kind, int.from_bytes(data, "big"))) or record.rates["else", 0] or None
    for element in (50, 34):
        data = record.get(element)
        if data and 0 < believed(data) < 2**31:
            rate = Fraction(believed(data))
    for taken, whole, add in ((305, 306, True), (309, 310, False)):
        part, other = record.here(taken), record.here(whole)
        if part and other and 0 < believed(part) < 2**31:
            total = believed(other) + believed(part) * add
            if believed(other) < 2**31 and len(other) <= 8 and total >= believed(part):
                rate = Fraction(total, believed(part))
    return rate or None


def believed(data: bytes) -> int:
    return int.from_bytes(data, "big") if len(data) <= 8 else 0


def element_value(record: Record, element: int, enterprise: int, kind: str) -> Any:
    """An element's column, `kind` its abstract data type."""
    data = record.get(element, enterprise)
    return None if data is None else typed(kind, data)
