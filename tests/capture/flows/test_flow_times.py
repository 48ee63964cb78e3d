"""Start and end of flows, by hand: clocks that wrap, count from a start, or are not there.

The tests detect an uptime that wraps and is read as 49 days, and a boot time rounded to the header's seconds. They
detect NTP fractions read as numbers, and a record without times stored in 1970.
"""

import struct
from typing import Any

import pytest

from capture.flows.decoder import FlowDecoder
from capture.metrics import FLOW_FIELDS_UNREADABLE, FLOW_TIMES_GUESSED
from tests.references.flow_rows import Sent, decoded
from tests.references.netflow_bytes import Spec, a_set, ipfix, ipfix_options, template, v5, v5_record, v9

SECOND = 10**9
MS = 10**6
EXPORT = 1_700_000_000
SENDER = ("192.0.2.1", 2055)


def rows(datagrams: list[bytes], columns: tuple[str, ...] = ("start_ts", "end_ts")) -> tuple[list[Any], FlowDecoder]:
    sent: list[Sent] = [(each, SENDER, 0) for each in datagrams]
    decoder = FlowDecoder(columns, 16)
    return [tuple(row[name] for name in columns) for row in decoded(decoder, sent, columns)], decoder


def one_record(version: int, fields: list[Spec], data: bytes, uptime: int = 0) -> tuple[tuple[int, int], int]:
    """Start and end of one record less the export's time, and how many times were guessed."""
    number = 256
    if version == 9:
        message = v9([a_set(0, template(number, fields)), a_set(number, data)], uptime=uptime, seconds=EXPORT)
    else:
        message = ipfix([a_set(2, template(number, fields)), a_set(number, data)], seconds=EXPORT)
    ((start, end),), decoder = rows([message])
    guessed = decoder.samples("link").total(FLOW_TIMES_GUESSED)
    return (start - EXPORT * SECOND, end - EXPORT * SECOND), int(guessed)


@pytest.mark.parametrize(
    ("uptime", "first", "last", "expected"),
    [
        (10_000, 9_000, 10_000, (-1000, 0)),
        (10_000, 10_500, 10_500, (500, 500)),  # a little ahead of the header: its clock was read before
        (3_381, 0xFFFFFFFF, 2_577, (-3_382, -804)),  # the uptime wrapped between first and header
        (1_000, 2**31 + 1_001, 900, (-(2**31) + 1, -100)),
        (1_000, 2**31 + 1_000, 900, (2**31, -100)),  # half the range is still ahead
        (2**32 - 1, 0, 2**32 - 1, (-(2**32) + 1, 0)),  # a flow as old as the uptime goes
    ],
)
def test_an_uptime_ahead_by_more_than_half_its_range_is_from_before_the_wrap(
    uptime: int, first: int, last: int, expected: tuple[int, int]
) -> None:
    found, _ = one_record(9, [(22, 4), (21, 4)], struct.pack(">II", first, last), uptime)
    assert found == (expected[0] * MS, expected[1] * MS)


def test_netflow_5_keeps_the_nanoseconds_of_its_header() -> None:
    message = v5([v5_record(first=1, last=2)], uptime=3, seconds=EXPORT, nanoseconds=280_328_007)
    ((start, end),), _ = rows([message])
    assert (start, end) == tuple(EXPORT * SECOND + 280_328_007 - ago * MS for ago in (2, 1))


def test_a_netflow_9_exporter_may_use_absolute_times() -> None:
    found, guessed = one_record(9, [(152, 8), (153, 8)], struct.pack(">QQ", EXPORT * 1000 - 7, EXPORT * 1000 + 5))
    assert (found, guessed) == ((-7 * MS, 5 * MS), 0)


@pytest.mark.parametrize(
    ("start", "end", "length", "data", "expected"),
    [
        (150, 151, 4, struct.pack(">II", EXPORT - 3, EXPORT - 1), (-3 * SECOND, -1 * SECOND)),
        (152, 153, 8, struct.pack(">QQ", EXPORT * 1000 - 1, EXPORT * 1000), (-1 * MS, 0)),
        # 0x80000000 is half a second. The lower 11 bits have no meaning for microseconds but full meaning for
        # nanoseconds.
        (154, 155, 8, struct.pack(">IIII", *[EXPORT + 2_208_988_800, 0x800007FF] * 2), (SECOND // 2, SECOND // 2)),
        (
            156, 157, 8, struct.pack(">IIII", *[EXPORT + 2_208_988_800, 0x800007FF] * 2),
            (500_000_000 + 2047 * SECOND // 2**32, 500_000_000 + 2047 * SECOND // 2**32),
        ),
        (158, 159, 4, struct.pack(">II", 1_500, 0), (-1_500_000, 0)),
    ],
)  # fmt: skip
def test_absolute_times_of_every_precision(
    start: int, end: int, length: int, data: bytes, expected: tuple[int, int]
) -> None:
    assert one_record(10, [(start, length), (end, length)], data) == (expected, 0)


def test_ntp_times_go_on_after_2036() -> None:
    seconds = 2**32 - 2_208_988_800 + 10  # ten seconds into the next era
    message = ipfix(
        [a_set(2, template(256, [(156, 8), (157, 8)])), a_set(256, struct.pack(">IIII", 10, 0, 10, 0))], seconds=seconds
    )
    assert rows([message])[0] == [(seconds * SECOND, seconds * SECOND)]


@pytest.mark.parametrize(
    ("fields", "data", "expected", "guessed"),
    [
        ([(4, 1)], b"\x06", (0, 0), 1),
        ([(152, 8)], struct.pack(">Q", EXPORT * 1000 - 5), (-5 * MS, -5 * MS), 1),
        ([(153, 8)], struct.pack(">Q", EXPORT * 1000 - 5), (-5 * MS, -5 * MS), 1),
        ([(152, 8), (161, 4)], struct.pack(">QI", EXPORT * 1000 - 5, 3), (-5 * MS, -2 * MS), 0),
        ([(153, 8), (162, 4)], struct.pack(">QI", EXPORT * 1000 - 5, 3), (-5 * MS - 3000, -5 * MS), 0),
        ([(161, 4)], struct.pack(">I", 3), (-3 * MS, 0), 1),
        ([(323, 8)], struct.pack(">Q", EXPORT * 1000 - 5), (-5 * MS, -5 * MS), 0),  # an event begins and ends at once
        ([(152, 8), (323, 8)], struct.pack(">QQ", EXPORT * 1000 - 9, EXPORT * 1000 - 5), (-9 * MS, -5 * MS), 0),
    ],
)
def test_what_is_missing_is_taken_from_the_duration_the_event_the_other_end_or_the_export(
    fields: list[Spec], data: bytes, expected: tuple[int, int], guessed: int
) -> None:
    assert one_record(10, fields, data) == (expected, guessed)


def test_a_time_beyond_2262_is_none_and_counted() -> None:
    message = ipfix([a_set(2, template(256, [(153, 8)])), a_set(256, b"\xff" * 8)], seconds=EXPORT)
    found, decoder = rows([message])
    assert found == [(EXPORT * SECOND, EXPORT * SECOND)]
    assert decoder.samples("link").total(FLOW_FIELDS_UNREADABLE) == 1


def test_an_end_that_cannot_be_said_is_the_start() -> None:
    latest = (2**63 - 1) // MS  # in 2262
    fields: list[Spec] = [(152, 8), (161, 4)]
    data = struct.pack(">QI", latest, 2**32 - 1)
    found, _ = rows([ipfix([a_set(2, template(256, fields)), a_set(256, data)], seconds=EXPORT)])
    assert found == [(latest * MS, latest * MS)]


def test_uptimes_of_ipfix_count_from_where_the_exporter_says_it_started() -> None:
    started = (EXPORT - 100) * 1000
    fields: list[Spec] = [(22, 4), (21, 4)]
    announced = a_set(3, ipfix_options(300, [(144, 4)], [(160, 8)])) + a_set(300, struct.pack(">IQ", 1, started))
    data = a_set(256, struct.pack(">II", 1_000, 99_000))
    in_record = a_set(2, template(257, [*fields, (160, 8)])) + a_set(257, struct.pack(">IIQ", 5, 6, started))
    found, decoder = rows(
        [
            ipfix([a_set(2, template(256, fields)), data], seconds=EXPORT),  # nobody knows yet
            ipfix([announced, data], seconds=EXPORT),
            ipfix([in_record], seconds=EXPORT),
        ]
    )
    start = started * MS
    assert found == [
        (EXPORT * SECOND, EXPORT * SECOND),
        (start + SECOND, start + 99 * SECOND),
        (start + 5 * MS, start + 6 * MS),
    ]
    assert decoder.samples("link").total(FLOW_TIMES_GUESSED) == 1


def test_an_uptime_of_ipfix_wraps_too() -> None:
    up = 2**32 + 5_000  # ms
    started = EXPORT * 1000 - up
    fields: list[Spec] = [(22, 4), (21, 4), (160, 8)]
    data = struct.pack(">IIQ", 2**32 - 1_000, 4_000, started)
    assert one_record(10, fields, data)[0] == (-6_000 * MS, -1_000 * MS)


def test_the_header_and_the_packet_give_two_more_times() -> None:
    message = v5([v5_record()], seconds=EXPORT, nanoseconds=1)
    decoder = FlowDecoder(["export_ts", "arrival_ts"], 16)
    assert decoded(decoder, [(message, SENDER, 42)], ["export_ts", "arrival_ts"]) == [
        {"export_ts": EXPORT * SECOND + 1, "arrival_ts": 42}
    ]
