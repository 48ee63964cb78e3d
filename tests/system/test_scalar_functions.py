"""Functions of addresses, times and patterns as SQL over captures, against plain Python over the same rows.

The tests detect a mask of the wrong half of an IPv6 address, a week that begins on the wrong day, a remainder of a time
before 1970 that is negative, and a pattern whose special characters are not literal.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wiretide
from lowlevel.expressions.columns import Vector
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.tree import Column, Literal
from lowlevel.expressions.types import Type
from queries.binding.comparisons import Operand
from queries.binding.time_functions import EXTRACT_FIELDS, UNIT_LENGTHS, time_function
from queries.text.tree import Word
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, UDP, ip

DAY = 86_400 * NS
TIMES = [0, 1, 59 * NS, DAY - NS, 4 * DAY - 1, 4 * DAY, 951_782_400 * NS, 1_700_000_001_234_567_890]
ADDRESSES = [
    *("10.255.3.4", "172.15.255.255", "172.31.0.1", "192.168.1.1", "127.0.0.1", "169.254.1.1", "239.1.1.1"),
    *("255.255.255.255", "2001:db8:1234:5678:9abc:def0:1234:5678", "fe80::1", "ff02::1", "::1", "fd00::1"),
]
PAYLOADS = [
    b"GET / HTTP/1.1\r\nHost: a.com\r\n",
    b"get /index",
    b"100%",
    b"1000",
    b"a_b",
    b"axb",
    b"a\\b",
    b"\xff\x00G",
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packets of each address; the first also have the payloads."""
    path = tmp_path_factory.mktemp("captures") / "a.pcap"
    frames = []
    for number, source in enumerate(ADDRESSES):
        target = "192.0.2.1" if ip_address(source).version == 4 else "2001:db8::1"
        payload = PAYLOADS[number] if number < len(PAYLOADS) else b"none"
        header = 20 if ip_address(source).version == 4 else 40
        segment = struct.pack(">HHHH", 1000 + number, 53, 8 + len(payload), 0) + payload
        frames.append((number * NS, ip(source, target, UDP, segment, header + len(segment))))
    path.write_bytes(pcap_bytes(frames, RAW_IP))
    return path


def column(expression: str, path: Path) -> list[Any]:
    """The values of an expression, by the source address."""
    table = wiretide.query(f"SELECT srcIP, {expression} AS x FROM packets", path).to_pylist()
    found = {row["srcIP"]: row["x"] for row in table}
    return [found[str(ip_address(address))] for address in ADDRESSES]


@pytest.mark.parametrize("bits", [(0, 0), (8, 33), (24, 64), (31, 65), (32, 128)])
def test_a_mask_is_the_network_of_the_address(bits: tuple[int, int], path: Path) -> None:
    def network(address: str) -> str:
        length = bits[0 if ip_address(address).version == 4 else 1]
        return str(ip_network((address, length), strict=False).network_address)

    assert column(f"mask(srcIP, {bits[0]}, {bits[1]})", path) == [network(address) for address in ADDRESSES]
    if bits[0] == 24:
        assert column("mask(srcIP, 24)", path)[-5:] == [
            str(ip_network((address, 24), strict=False).network_address) for address in ADDRESSES[-5:]
        ]


TESTS: list[tuple[str, Callable[[Any], bool]]] = [
    ("is_multicast", lambda address: address.is_multicast),
    ("is_loopback", lambda address: address.is_loopback),
    ("is_link_local", lambda address: address.is_link_local),
    (
        "is_private",
        lambda address: any(
            address in ip_network(text)
            for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
            if ip_network(text).version == address.version
        ),
    ),
]


@pytest.mark.parametrize("name, test", TESTS, ids=[name for name, _ in TESTS])
def test_ranges_of_addresses(name: str, test: Callable[[Any], bool], path: Path) -> None:
    expected = [test(ip_address(address)) for address in ADDRESSES]
    assert column(f"{name}(srcIP)", path) == expected
    assert len(set(expected)) == 2


def test_families_and_conversations(path: Path) -> None:
    assert column("family(srcIP)", path) == [ip_address(address).version for address in ADDRESSES]
    targets = ["192.0.2.1" if ip_address(address).version == 4 else "2001:db8::1" for address in ADDRESSES]
    pairs = [sorted(map(ip_address, pair), key=int) for pair in zip(ADDRESSES, targets, strict=True)]
    assert column("least(srcIP, destIP)", path) == [str(pair[0]) for pair in pairs]
    assert column("greatest(srcIP, destIP)", path) == [str(pair[1]) for pair in pairs]


PATTERNS = [
    ("LIKE 'GET %'", rb"\AGET .*\Z"),
    ("LIKE '%HTTP%'", rb"HTTP"),
    ("ILIKE 'get%'", rb"(?i)\Aget.*\Z"),
    ("ILIKE '%HOST: %.COM%'", rb"(?i)\A.*host: .*\.com.*\Z"),
    ("LIKE '100%'", rb"\A100.*\Z"),
    (r"LIKE '100\%'", rb"\A100%\Z"),
    ("LIKE 'a_b'", rb"\Aa.b\Z"),
    (r"LIKE 'a\_b'", rb"\Aa_b\Z"),
    (r"LIKE 'a\\b'", rb"\Aa\\b\Z"),
    ("LIKE '%G'", rb"\A.*G\Z"),
    ("NOT LIKE '%0%'", rb"\A[^0]*\Z"),
    ("LIKE ''", rb"\A\Z"),
    ("LIKE '%'", rb""),
]


@pytest.mark.parametrize("operator, pattern", PATTERNS, ids=[operator for operator, _ in PATTERNS])
def test_patterns_of_payloads(operator: str, pattern: bytes, path: Path) -> None:
    expected = [re.search(pattern, payload, re.DOTALL) is not None for payload in PAYLOADS]
    assert column(f"payload {operator}", path)[: len(PAYLOADS)] == expected


def test_matches_searches_anywhere_in_bytes_and_texts(path: Path) -> None:
    found = column(r"matches(payload, '\xff.G|HTTP/1\.[01]')", path)[: len(PAYLOADS)]
    assert found == [True, *[False] * 6, True]
    assert set(column("matches(link, '^a$')", path)) == {True}
    assert set(column("link LIKE 'b%'", path)) == {False}


def by_datetime(field: str, time: int) -> int:
    """The value of extract by the calendar of Python."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time // 1000)
    values = {"second": moment.second, "minute": moment.minute, "hour": moment.hour, "epoch": time // NS}
    return {**values, "dow": moment.isoweekday() % 7, "isodow": moment.isoweekday()}[field]


def start_by_datetime(unit: str, time: int) -> int:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time // 1000)
    clock = {"hour": 0, "minute": 0, "second": 0, "microsecond": 0}
    fewer = {
        "microsecond": {},
        "millisecond": {"microsecond": moment.microsecond // 1000 * 1000},
        "second": {"microsecond": 0},
        "minute": {"second": 0, "microsecond": 0},
        "hour": {"minute": 0, "second": 0, "microsecond": 0},
        "day": clock,
        "week": clock,
    }[unit]
    start = moment.replace(**fewer) - timedelta(days=moment.weekday() if unit == "week" else 0)
    return (start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


@pytest.mark.parametrize(
    "function, part", [("extract", each) for each in EXTRACT_FIELDS] + [("date_trunc", u) for u in UNIT_LENGTHS]
)
def test_parts_of_times_are_those_of_the_calendar(function: str, part: str) -> None:
    times = [*TIMES, *(-time for time in TIMES)]
    operands = [Operand("", 0, Literal(part.upper(), Type.TEXT)), Operand("", 0, Column("ts", Type.TIME))]
    bound = time_function("", Word(function, 0), operands)
    vector = evaluate(bound, {"ts": Vector(np.array(times))})
    assert isinstance(vector, Vector)
    expected = by_datetime if function == "extract" else start_by_datetime
    assert vector.data.tolist() == [expected(part, time) for time in times]
    assert bound.type is (Type.INT if function == "extract" else Type.TIME)


def test_extract_and_date_trunc_as_sql(path: Path) -> None:
    assert column("extract(second FROM ts)", path) == list(range(len(ADDRESSES)))
    assert {time.isoformat() for time in column("date_trunc('minute', ts)", path)} == {"1970-01-01T00:00:00+00:00"}
