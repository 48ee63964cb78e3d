"""Sampling rates of flows, by hand: all ways in which exporters send them, and which of several rates is used.

The tests detect a rate that is applied twice or to another exporter's flows, and a rate from a field with another
meaning. They detect counters that are corrected although the raw counters are missing.
"""

import struct
from fractions import Fraction
from ipaddress import ip_address
from typing import Any

import pytest

from capture.flows.decoder import FlowDecoder
from capture.flows.sampling import MAX_SESSION_KEYS, Sampling, announced_rate
from capture.metrics import FLOW_SAMPLING_REFUSED
from tests.references.flow_rows import Sent, decoded
from tests.references.netflow_bytes import Spec, a_set, ipfix, ipfix_options, template, v5, v5_record, v9, v9_options

COLUMNS = ("raw_packets", "packets", "raw_bytes", "bytes", "sampling_rate")
SENDER = ("192.0.2.1", 2055)
COUNTERS: list[Spec] = [(2, 4), (1, 4)]
FIVE = struct.pack(">II", 5, 500)


def rows(datagrams: list[bytes | Sent], sampling: Any = None) -> list[tuple[Any, ...]]:
    """(raw packets, packets, rate) of each record. The bytes are the packets times 100."""
    sent = [each if isinstance(each, tuple) else (each, SENDER, 0) for each in datagrams]
    found = decoded(FlowDecoder(COLUMNS, 16, sampling=sampling), sent, COLUMNS)
    assert all((row["raw_bytes"], row["bytes"]) == (row["raw_packets"] * 100, row["packets"] * 100) for row in found)
    return [(row["raw_packets"], row["packets"], row["sampling_rate"]) for row in found]


def plain(version: int = 9) -> bytes:
    """A datagram with a template of counters and one record of it."""
    if version == 9:
        return v9([a_set(0, template(256, COUNTERS)), a_set(256, FIVE)])
    return ipfix([a_set(2, template(256, COUNTERS)), a_set(256, FIVE)])


def v9_says(scope: Spec, about: int, fields: list[Spec], data: bytes, number: int = 300) -> bytes:
    """A datagram in which options say something about a scope."""
    body = about.to_bytes(scope[1], "big") + data
    return v9([a_set(1, v9_options(number, [scope], fields)), a_set(number, body)])


def test_without_a_word_counters_are_taken_as_they_are_and_the_rate_is_null() -> None:
    assert rows([plain()]) == [(5, 5, None)]


@pytest.mark.parametrize(
    ("mode_and_interval", "rate"), [(0, None), (1000, 1000), (0x4000 | 100, 100), (0x8000, None), (0xFFFF, 0x3FFF)]
)
def test_the_header_of_netflow_5_has_14_bits_of_interval(mode_and_interval: int, rate: int | None) -> None:
    message = v5([v5_record(packets=5, octets=500)], sampling=mode_and_interval)
    assert rows([message]) == [(5, 5 * (rate or 1), rate)]


def test_the_header_of_each_datagram_of_netflow_5_speaks_for_itself() -> None:
    record = [v5_record(packets=5, octets=500)]
    assert rows([v5(record, sampling=10), v5(record), v5(record, sampling=20)]) == [
        (5, 50, 10), (5, 5, None), (5, 100, 20),
    ]  # fmt: skip


def test_options_about_the_system_hold_for_the_flows_that_follow() -> None:
    says = v9_says((1, 4), 0, [(34, 4), (35, 1)], struct.pack(">IB", 100, 2))
    assert rows([plain(), says, plain()]) == [(5, 5, None), (5, 500, 100)]


def test_options_of_one_session_are_nothing_to_another() -> None:
    says = v9_says((1, 4), 0, [(34, 4)], struct.pack(">I", 100))
    other_port = (plain(), (SENDER[0], 2056), 0)
    other_domain = v9([a_set(0, template(256, COUNTERS)), a_set(256, FIVE)], domain=1)
    assert rows([says, other_port, other_domain, plain(10), plain()]) == [(5, 5, None)] * 3 + [(5, 500, 100)]


def test_a_record_that_names_its_sampler_is_sampled_by_its_rate() -> None:
    named: list[Spec] = [*COUNTERS, (48, 2)]
    data = [FIVE + number.to_bytes(2, "big") for number in (1, 2, 3)]
    says = [v9_says((1, 4), 0, [(48, 1), (49, 1), (50, 4)], struct.pack(">BBI", number, 2, rate))
            for number, rate in ((1, 10), (2, 1000))]  # fmt: skip
    flows = v9([a_set(0, template(257, named)), a_set(257, b"".join(data))])
    assert rows([*says, flows]) == [(5, 50, 10), (5, 5000, 1000), (5, 5, None)]  # nobody announced the third
    default = v9_says((1, 4), 0, [(34, 4)], struct.pack(">I", 7), number=301)
    assert rows([default, *says, flows])[2] == (5, 35, 7)


def test_a_record_that_names_no_sampler_is_sampled_by_the_only_rate_there_is() -> None:
    one = v9_says((1, 4), 0, [(48, 1), (50, 4)], struct.pack(">BI", 1, 10))
    same = v9_says((1, 4), 0, [(48, 1), (50, 4)], struct.pack(">BI", 2, 10))
    other = v9_says((1, 4), 0, [(48, 1), (50, 4)], struct.pack(">BI", 3, 20))
    assert rows([one, plain(), same, plain(), other, plain()]) == [(5, 50, 10), (5, 50, 10), (5, 5, None)]


def test_an_interface_may_have_a_rate_of_its_own() -> None:
    flows = v9([a_set(0, template(257, [*COUNTERS, (10, 4)])),
                a_set(257, b"".join(FIVE + number.to_bytes(4, "big") for number in (7, 8)))])  # fmt: skip
    says = v9_says((2, 4), 7, [(34, 4)], struct.pack(">I", 10))
    other = v9_says((2, 4), 8, [(34, 4)], struct.pack(">I", 20))
    assert rows([says, other, flows]) == [(5, 50, 10), (5, 100, 20)]


@pytest.mark.parametrize(
    ("fields", "data", "rate"),
    [
        ([(304, 2), (305, 4), (306, 4)], struct.pack(">HII", 1, 10, 990), 100),
        ([(305, 4), (306, 4)], struct.pack(">II", 1, 0), 1),
        ([(305, 4)], struct.pack(">I", 1000), None),  # contains how many packets are selected, not how many are skipped
        ([(307, 4), (308, 4)], struct.pack(">II", 1, 9), 10),
        ([(309, 4), (310, 4)], struct.pack(">II", 1, 512), 512),
        ([(311, 8)], struct.pack(">d", 0.001), 1000),
        ([(34, 4)], struct.pack(">I", 0), None),
        ([(34, 4)], struct.pack(">I", 2**32 - 1), None),  # nobody looks at one packet in four billion
    ],
)
def test_the_ways_of_psamp(fields: list[Spec], data: bytes, rate: int | None) -> None:
    says = ipfix([a_set(3, ipfix_options(300, [(149, 4)], fields)), a_set(300, bytes(4) + data)])
    assert rows([says, plain(10)]) == [(5, 5 * (rate or 1), rate)]


def test_selectors_are_found_by_their_number() -> None:
    says = ipfix(
        [
            a_set(3, ipfix_options(300, [(302, 8)], [(309, 4), (310, 4)])),
            a_set(300, struct.pack(">QIIQII", 2**64 - 1, 1, 10, 4, 1, 20)),
        ]
    )
    flows = ipfix([a_set(2, template(257, [*COUNTERS, (302, 8)])),
                   a_set(257, FIVE + struct.pack(">Q", 4) + FIVE + struct.pack(">Q", 2**64 - 1))])  # fmt: skip
    assert rows([says, flows]) == [(5, 100, 20), (5, 50, 10)]


def test_a_fraction_is_corrected_exactly_and_rounded_once() -> None:
    fields: list[Spec] = [(2, 4), (1, 4), (305, 4), (306, 4)]
    data = struct.pack(">IIII", 5, 500, 3, 4)  # seven packets for three: 11.67 and 1166.67
    decoder = FlowDecoder(COLUMNS, 16)
    message = ipfix([a_set(2, template(256, fields)), a_set(256, data)])
    ((row),) = decoded(decoder, [(message, SENDER, 0)], COLUMNS)
    assert [row[name] for name in COLUMNS] == [5, 12, 500, 1167, 2]


def test_what_the_record_says_counts_more_than_what_was_announced() -> None:
    says = v9_says((1, 4), 0, [(34, 4)], struct.pack(">I", 100))
    flows = v9(
        [a_set(0, template(257, [*COUNTERS, (34, 4)])), a_set(257, FIVE + struct.pack(">I", 3) + FIVE + bytes(4))]
    )
    assert rows([says, flows]) == [(5, 15, 3), (5, 500, 100)]


@pytest.mark.parametrize("sampling", [50, {ip_address("192.0.2.1"): 50, ip_address("192.0.2.2"): 9}])
def test_a_rate_set_by_hand_stands_whatever_is_said(sampling: Any) -> None:
    says = v9_says((1, 4), 0, [(34, 4)], struct.pack(">I", 100))
    flows = v9([a_set(0, template(257, [*COUNTERS, (34, 4)])), a_set(257, FIVE + struct.pack(">I", 3))])
    record = v5([v5_record(packets=5, octets=500)], sampling=10)
    assert rows([says, flows, plain(), record], sampling) == [(5, 250, 50)] * 3


def test_a_rate_set_for_another_exporter_is_not_this_ones() -> None:
    assert rows([plain()], {ip_address("192.0.2.9"): 50}) == [(5, 5, None)]


def test_records_without_counters_have_none_to_correct() -> None:
    message = v9([a_set(0, template(256, [(4, 1)])), a_set(256, b"\x06")])
    (row,) = decoded(FlowDecoder(COLUMNS, 16, sampling=10), [(message, SENDER, 0)], COLUMNS)
    assert row == dict.fromkeys(COLUMNS) | {"sampling_rate": 10}


def test_keys_are_bounded_and_counted() -> None:
    sampling = Sampling()
    for number in range(MAX_SESSION_KEYS + 5):
        sampling.read_options({48: number.to_bytes(4, "big"), 50: b"\x0a"})
    assert (len(sampling.rates_by_key), sampling.refused_keys) == (MAX_SESSION_KEYS, 5)
    decoder = FlowDecoder(COLUMNS, 16)
    says = [
        v9_says((1, 4), 0, [(48, 4), (50, 4)], struct.pack(">II", number, 10)) for number in range(MAX_SESSION_KEYS + 5)
    ]
    decoded(decoder, [(each, SENDER, 0) for each in says], COLUMNS)
    assert decoder.samples("link").total(FLOW_SAMPLING_REFUSED) == 5


def test_a_probability_that_no_sampler_has_says_nothing() -> None:
    for share in (0.0, -1.0, 5e-324, 1e-12, 1.5, float("nan"), float("inf")):
        assert announced_rate({311: struct.pack(">d", share)}) is None
    assert announced_rate({311: struct.pack(">f", 0.25)}) == Fraction(4)
