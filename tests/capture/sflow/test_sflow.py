"""sFlow datagrams to listed samples, against the twin of `tests.references.sflow_oracle`.

* Datagrams made of random structures catch a field that is read from a wrong place, in either form of a sample.
* The same ones harmed catch trust in a length or a count of the wire.
* The kernel as plain Python on guarded arrays catches a read or write outside them that machine code hides.
* Datagrams by hand fix what every structure means: which record wins, what an interface's number is, what is no row.
* Sequences by hand fix what is a gap, a late datagram, a restart, a wrap.
"""

from ipaddress import IPv4Address, IPv6Address
from random import Random
from typing import Any

import numpy as np
import pytest

from capture.sflow.columns import COUNTER_NAMES, SAMPLE_FIELDS
from capture.sflow.lister import Datagrams, ListedSamples, SampleLister
from capture.sflow.samples import MAX_SAMPLES, MAX_SEQUENCES, SLOT_WORDS, list_samples
from tests.harness.guarded import Guarded, GuardedBytes
from tests.references import sflow_oracle
from tests.references.random_sflow import harmed, random_datagram
from tests.references.sflow_bytes import (
    counter_sample,
    datagram,
    flow_sample,
    header_record,
    ip_record,
    record,
    switch_record,
    words,
)

LARGEST = 2**32 - 1
FRAME = bytes(range(60))
HEADER = header_record(FRAME)


def laid_out(payloads: list[bytes], gap: int = 3) -> tuple[np.ndarray, Datagrams]:
    """Payloads in one buffer with bytes between them that are no zeros; datagram d arrives at time 1000 + d."""
    data = b"".join(payload + b"\xff" * gap for payload in payloads)
    lengths = np.array([len(payload) for payload in payloads], np.int64)
    offsets = np.cumsum(lengths + gap) - lengths - gap
    return np.frombuffer(data, np.uint8), Datagrams(offsets, lengths, np.arange(len(payloads)) + 1000)


def rows_of(listed: ListedSamples, datagrams: Datagrams) -> list[tuple[int, dict[str, Any]]]:
    """(number of the datagram, row) as the twin has them."""
    rows = []
    for values in zip(*(listed.field(name).tolist() for name in SAMPLE_FIELDS), strict=True):
        row: dict[str, Any] = dict(zip(SAMPLE_FIELDS, values, strict=True))
        version, high, low = (row.pop(f"agent_{part}") % 2**64 for part in ("version", "high", "low"))
        row["agent"] = {0: None, 4: IPv4Address(low % 2**32), 6: IPv6Address(high << 64 | low)}[version]
        number = row.pop("datagram")
        assert row.pop("ts") == datagrams.times[number]
        row["header"] -= datagrams.offsets[number]
        row |= {name: None for name in ("input_if", "output_if", "input_vlan", "output_vlan") if row[name] == -1}
        rows.append((number, row))
    return rows


def read(payloads: list[bytes], capacity: int = 4096) -> tuple[list[tuple[int, dict]], dict[str, int]]:
    """Return the rows that the product decodes from datagrams, and the non-zero counters."""
    data, datagrams = laid_out(payloads)
    lister = SampleLister(capacity)
    rows = [row for listed in lister.list(data, datagrams) for row in rows_of(listed, datagrams)]
    return rows, {name: count for name, count in lister.counts.items() if count}


@pytest.mark.parametrize("harm", [False, True])
def test_random_datagrams_are_listed_as_the_twin_reads_them(harm: bool) -> None:
    random = Random(5 + harm)
    payloads = [random_datagram(random) for _ in range(600)]
    if harm:
        payloads = [harmed(random, payload) for payload in payloads for _ in range(4)]
    rows, counts = read(payloads)
    expected, seen = sflow_oracle.read_all(payloads)
    assert [pair for pair in zip(rows, expected, strict=True) if pair[0] != pair[1]] == []
    assert counts == seen
    if harm:
        assert {name for name in COUNTER_NAMES if name != "untracked"} <= set(counts)


def test_a_datagram_cut_at_any_byte_gives_what_its_bytes_say_and_no_more() -> None:
    random = Random(11)
    whole = [random_datagram(random) for _ in range(12)]
    payloads = [payload[:size] for payload in whole for size in range(len(payload) + 1)]
    assert read(payloads) == sflow_oracle.read_all(payloads)


def test_the_kernel_as_plain_python_stays_inside_its_arrays_and_agrees_with_its_machine_code() -> None:
    random = Random(3)
    payloads = [harmed(random, random_datagram(random)) for _ in range(400)]
    native, plain = (
        [
            np.zeros(size, np.int64)
            for size in (MAX_SEQUENCES * SLOT_WORDS, len(SAMPLE_FIELDS) * MAX_SAMPLES, len(COUNTER_NAMES) + 1)
        ]
        for _ in range(2)
    )
    listed = 0
    for number, payload in enumerate(payloads):
        where = [np.array([value], np.int64) for value in (0, len(payload), number)]
        sequences, out, counts = native
        rows = list_samples(
            np.frombuffer(payload or b"\0", np.uint8), *where, 1, 0, sequences, out, MAX_SAMPLES, counts
        )
        sequences, out, counts = map(Guarded, plain)
        with np.errstate(over="ignore"):
            same = list_samples.function(
                GuardedBytes(payload), *map(Guarded, where), 1, 0, sequences, out, MAX_SAMPLES, counts
            )
        assert same == rows
        assert all(np.array_equal(one, other) for one, other in zip(native, plain, strict=True))
        listed += rows
    assert listed > 300


def test_what_does_not_fit_is_handed_out_later() -> None:
    payloads = [datagram([flow_sample([HEADER], sequence=n)] * 9, sequence=n) for n in range(1, 500)]
    data, datagrams = laid_out(payloads)
    whole, _ = read(payloads)
    assert [number for number, _ in whole] == [n for n in range(499) for _ in range(9)]
    for capacity in (1, 10, 100, 4000):
        batches = [listed.sample_count for listed in SampleLister(capacity).list(data, datagrams)]
        assert max(batches) == capacity
        assert read(payloads, capacity)[0] == whole


def test_the_longest_datagram_fits() -> None:
    smallest = flow_sample([header_record(b"")])
    payload = datagram([smallest] * MAX_SAMPLES, agent=None)
    rows, counts = read([payload + bytes(9)], MAX_SAMPLES)
    assert (len(smallest), len(rows)) == (64, 1023)
    assert (counts["flow"], counts["cut"]) == (1023, 1)


ROW = {
    "agent": IPv4Address("192.0.2.1"), "sub_agent": 0, "source_class": 0, "source_id": 1, "sampling_rate": 1,
    "sample_pool": 0, "sample_drops": 0, "input_if": None, "output_if": None, "input_vlan": None, "output_vlan": None,
    "link_type": 1, "wire": 60, "captured": 60,
}  # fmt: skip
IP4 = ip_record("10.0.0.1", "10.0.0.2", 900, 6, (1, 2), 0, 0)
IP6 = ip_record("2001:db8::1", "2001:db8::2", 901, 6, (1, 2), 0, 0)


@pytest.mark.parametrize("expanded", [False, True])
@pytest.mark.parametrize(
    "what, records, options, expected",
    [
        ("a packet header", [HEADER], {}, {}),
        ("a header cut at its end", [header_record(FRAME[:14], wire=99)], {}, {"wire": 99, "captured": 14}),
        ("an odd length", [header_record(FRAME[:15]), IP4], {}, {"wire": 15, "captured": 15}),
        ("a header wins over an IP record", [IP4, HEADER, IP6], {}, {}),
        ("the first header wins", [HEADER, header_record(FRAME, protocol=11)], {}, {}),
        ("an IPv4 record alone", [IP4], {}, {"link_type": -4, "wire": 900, "captured": 0}),
        ("an IPv6 record alone", [IP6], {}, {"link_type": -6, "wire": 901, "captured": 0}),
        ("VLANs", [HEADER, switch_record(7, 4094)], {}, {"input_vlan": 7, "output_vlan": 4094}),
        ("a vendor's record", [record(1, b"\1" * 5, enterprise=9), HEADER], {}, {}),
        ("an unknown record", [record(1002, bytes(16)), HEADER], {}, {}),
        ("bytes behind the records", [HEADER, b"\7" * 12], {"count": 1}, {}),
        ("802.11", [header_record(FRAME, protocol=15)], {}, {"link_type": 105}),
        ("X.25", [header_record(FRAME, protocol=6)], {}, {"link_type": -1}),
        ("numbers", [HEADER], {"rate": 512, "pool": LARGEST, "drops": 3},
         {"sampling_rate": 512, "sample_pool": LARGEST, "sample_drops": 3}),
        ("a source", [HEADER], {"source": (2, 2**24 - 1)}, {"source_class": 2, "source_id": 2**24 - 1}),
        ("interfaces", [HEADER], {"input_if": (0, 2**30 - 1), "output_if": (0, 1)},
         {"input_if": 2**30 - 1, "output_if": 1}),
        ("a discarded packet", [HEADER], {"input_if": (0, 4), "output_if": (1, 6)}, {"input_if": 4}),
        ("a packet sent to several", [HEADER], {"input_if": (0, 4), "output_if": (2, 7)}, {"input_if": 4}),
    ],
)  # fmt: skip
def test_a_sample_becomes_a_row(what: str, records: list, options: dict, expected: dict, expanded: bool) -> None:
    payload = datagram([flow_sample(records, expanded=expanded, **options)])
    [(_, row)], counts = read([payload])
    header = row.pop("header")
    assert row == ROW | expected
    assert counts == {"datagrams": 1, "flow": 1}
    if row["captured"]:
        assert payload[header : header + row["captured"]] == FRAME[: row["captured"]]


def test_an_expanded_sample_has_room_for_whole_numbers() -> None:
    numbers = {"source": (2**32 - 1, 2**32 - 1), "input_if": (0, 2**32 - 1), "output_if": (0, 2**31)}
    [(_, row)], _ = read([datagram([flow_sample([HEADER], expanded=True, **numbers)])])
    assert (row["source_class"], row["source_id"]) == (2**32 - 1, 2**32 - 1)
    assert (row["input_if"], row["output_if"]) == (2**32 - 1, 2**31)


@pytest.mark.parametrize("agent", [None, "192.0.2.77", "2001:db8:ffff::ffff:1"])
def test_the_agent_is_whom_the_datagram_names(agent: str | None) -> None:
    [(_, row)], _ = read([datagram([flow_sample([HEADER])], agent=agent, sub_agent=2**32 - 1)])
    assert (row["agent"] and str(row["agent"]), row["sub_agent"]) == (agent, 2**32 - 1)


SAMPLE = flow_sample([HEADER])
SHORT = {"malformed": 1}


@pytest.mark.parametrize(
    "what, payload, counts",
    [
        ("nothing", b"", {"header_cut": 1}),
        ("version 4", datagram([SAMPLE], version=4), {"other_version": 1}),
        ("an address of type 3", words(5, 3) + bytes(60), {"address_type": 1}),
        ("no samples", datagram([]), {}),
        ("a counter sample of each form", datagram([counter_sample(), counter_sample(expanded=True)]), {"counter": 2}),
        ("dropped packets and a vendor's sample", datagram([record(5, bytes(40)), record(1, b"", 7)]), {"other": 2}),
        ("fewer samples than announced", datagram([counter_sample()], count=2**32 - 1), {"counter": 1, "cut": 1}),
        ("a sample longer than its datagram", datagram([words(1, 2**32 - 1) + SAMPLE[8:]]), {"cut": 1}),
        ("31 bytes of a sample", datagram([record(1, SAMPLE[8:39])]), SHORT),
        ("43 bytes of an expanded sample", datagram([record(3, SAMPLE[8:51])]), SHORT),
        ("more records than there are", datagram([flow_sample([HEADER], count=2)]), SHORT),
        ("a record longer than its sample", datagram([flow_sample([words(1, 4000) + HEADER[8:]])]), SHORT),
        ("a header longer than its record", datagram([flow_sample([record(1, words(1, 60, 0, 61) + FRAME)])]), SHORT),
        ("a header's record without its fields", datagram([flow_sample([record(1, bytes(15))])]), SHORT),
        ("31 bytes of an IPv4 record", datagram([flow_sample([record(3, bytes(31))])]), SHORT),
        ("55 bytes of an IPv6 record", datagram([flow_sample([record(4, bytes(55))])]), SHORT),
        ("15 bytes of VLANs", datagram([flow_sample([HEADER, record(1001, bytes(15))])]), SHORT),
        ("no packet", datagram([flow_sample([switch_record(1, 2)])]), {"no_header": 1}),
        ("no records", datagram([flow_sample([])]), {"no_header": 1}),
    ],
)
def test_what_is_no_row_is_counted_by_cause(what: str, payload: bytes, counts: dict[str, int]) -> None:
    assert read([payload]) == ([], {"datagrams": 1, **counts})


def test_a_malformed_sample_does_not_hide_the_next() -> None:
    rows, counts = read([datagram([flow_sample([HEADER], count=2), SAMPLE])])
    assert (len(rows), counts) == (1, {"datagrams": 1, "malformed": 1, "samples_repeated": 1, "flow": 1})


def followed(*numbers: tuple[int, int], **agent: Any) -> dict[str, int]:
    """Return the sequence counters after datagrams with these (sequence number, uptime)."""
    _, counts = read([datagram([], sequence=number, uptime=uptime, **agent) for number, uptime in numbers])
    del counts["datagrams"]
    return counts


@pytest.mark.parametrize(
    "what, numbers, expected",
    [
        ("one after another", [(1, 0), (2, 5), (3, 5)], {}),
        ("the first number is any", [(2**31, 0), (2**31 + 1, 0)], {}),
        ("a gap of three", [(1, 0), (5, 0)], {"datagrams_missing": 3}),
        ("two exchanged", [(1, 10), (3, 30), (2, 20), (4, 40)], {"datagrams_missing": 1, "datagrams_reordered": 1}),
        ("one twice", [(1, 0), (1, 0), (2, 0)], {"datagrams_repeated": 1}),
        ("all twice", [(number // 2, 0) for number in range(90)], {"datagrams_repeated": 45}),
        (
            "late, and twice",
            [(1, 0), (3, 0), (2, 0), (2, 0)],
            {"datagrams_missing": 1, "datagrams_reordered": 1, "datagrams_repeated": 1},
        ),
        ("from before the first", [(5, 0), (4, 0), (6, 0)], {"datagrams_repeated": 1}),
        (
            "late from before a restart",
            [(9000, 10**8), (9005, 10**8), (1, 20), (8500, 20), (2, 30)],
            {"datagrams_missing": 4 + 8498, "restarts": 2},
        ),
        (
            "late over the wrap",
            [(2**32 - 40, 0), (40, 0), *((number % 2**32, 0) for number in range(-39, 40))],
            {"datagrams_missing": 79, "datagrams_reordered": 79},
        ),
        ("the number wraps", [(2**32 - 1, 0), (0, 0), (2, 0)], {"datagrams_missing": 1}),
        ("the uptime wraps", [(1, 2**32 - 5), (2, 5)], {}),
        ("a restart", [(9000, 10**8), (1, 20), (2, 30)], {"restarts": 1}),
        ("a restart soon after the start", [(30, 100_000), (1, 20), (2, 30)], {"restarts": 1}),
        ("a number far behind", [(9000, 0), (1, 0), (2, 0)], {"restarts": 1}),
        ("as late as may be", [(900, 0), (2000, 0), (977, 0)], {"datagrams_missing": 1099, "datagrams_reordered": 1}),
        ("later than that", [(900, 0), (2000, 0), (976, 0)], {"datagrams_missing": 1099, "restarts": 1}),
        ("ahead by half of all numbers", [(0, 0), (2**31 - 1, 0)], {"datagrams_missing": 2**31 - 2}),
        ("ahead by more", [(0, 0), (2**31, 0)], {"restarts": 1}),
    ],
)
def test_sequence_numbers_of_a_sub_agent(what: str, numbers: list[tuple[int, int]], expected: dict) -> None:
    assert followed(*numbers) == expected
    assert followed(*numbers, agent="2001:db8::9", sub_agent=4) == expected


@pytest.mark.parametrize("seed", range(10))
def test_what_is_missing_less_what_was_reordered_is_what_never_came(seed: int) -> None:
    random = Random(seed)
    first = random.choice([0, 2**32 - 500])
    middle = [number for number in range(1, 999) if random.random() < 0.7 for _ in range(random.choice([1, 1, 1, 3]))]
    late = random.choice([0, 5, 400])
    places = sorted((number + random.uniform(0, late), number) for number in middle)
    arrived = [0, *(number for _, number in places), 999]
    found = followed(*(((first + number) % 2**32, 0) for number in arrived))
    assert found["datagrams_missing"] - found.get("datagrams_reordered", 0) == 1000 - len(set(arrived)), found
    assert found["datagrams_repeated"] == len(arrived) - len(set(arrived))


def test_agents_sub_agents_and_sources_count_by_themselves() -> None:
    def sample(number: int, source: tuple[int, int], expanded: bool = False) -> bytes:
        return flow_sample([HEADER], sequence=number, source=source, expanded=expanded)

    payloads = [
        datagram([sample(1, (0, 1)), sample(50, (0, 2)), sample(7, (1, 1))], sequence=100),
        datagram([sample(9, (0, 1))], sequence=5, sub_agent=1),
        datagram([sample(90, (0, 1))], sequence=7, agent="192.0.2.2"),
        datagram([sample(900, (0, 1))], sequence=8, agent="::c000:201"),  # the bits of 192.0.2.1
        datagram([sample(2, (0, 1), True), sample(51, (0, 2), True), sample(10, (1, 1))], sequence=101),
        datagram([counter_sample(sequence=77), sample(3, (0, 1))], sequence=102),
    ]
    _, counts = read(payloads)
    assert counts == {"datagrams": 6, "flow": 10, "counter": 1, "samples_missing": 2}


def test_more_agents_than_are_followed_are_counted() -> None:
    count = MAX_SEQUENCES + 100
    payloads = [datagram([], agent=str(IPv4Address(n)), sequence=n % 7) for n in range(count)]
    data, datagrams = laid_out([*payloads, *payloads])
    lister = SampleLister(1)
    assert list(lister.list(data, datagrams)) == []
    followed = int(lister.sequences[:, 4].sum())
    assert count - MAX_SEQUENCES <= count - followed < count // 10
    assert lister.counts["untracked"] == 2 * (count - followed)
    assert lister.counts["datagrams_repeated"] == followed  # each of them came twice
