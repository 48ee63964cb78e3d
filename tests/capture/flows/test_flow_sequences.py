"""Sequence numbers of exporters, by hand: what is lost, late, twice or new, by the rule of each version.

The tests detect records counted instead of datagrams, a template message counted as data, and a restart counted as a
loss of billions. They detect a loss that is counted again when a late datagram cancels it, and a loss cancelled by a
datagram that was not missing. In every order, lost minus recovered is the number of datagrams that never arrived.
"""

import struct
from random import Random

import pytest

from capture.flows.decoder import FlowDecoder
from capture.metrics import FLOW_SEQUENCE_EVENTS, FLOW_UNITS_LOST, FLOW_UNITS_RECOVERED, Samples
from tests.references.flow_rows import decoded
from tests.references.netflow_bytes import a_set, ipfix, ipfix_options, template, v5, v5_record, v7, v9

SENDER = ("192.0.2.1", 2055)
EXPORT = 1_700_000_000
THREE = a_set(256, bytes(12))
TEMPLATE = template(256, [(8, 4)])
OPTIONS = a_set(3, ipfix_options(300, [(149, 4)], [(41, 8)])) + a_set(300, bytes(24))


def events(datagrams: list[bytes]) -> dict[str, int]:
    """Return the non-zero counters of a new decoder after one sender's datagrams."""
    decoder = FlowDecoder(["ts"], 16)
    decoded(decoder, [(each, SENDER, 0) for each in datagrams], ["ts"])
    return counted(decoder.samples("link"))


def counted(samples: Samples) -> dict[str, int]:
    found = {"lost": samples.total(FLOW_UNITS_LOST), "recovered": samples.total(FLOW_UNITS_RECOVERED)}
    found |= {
        event: samples.total(FLOW_SEQUENCE_EVENTS, event=event) for event in ("gap", "late", "duplicate", "reset")
    }
    return {name: int(amount) for name, amount in found.items() if amount}


def five(sequence: int, records: int = 2, uptime: int = 10_000, seconds: int = EXPORT) -> bytes:
    return v5([v5_record()] * records, sequence=sequence % 2**32, uptime=uptime, seconds=seconds)


def nine(sequence: int, sets: tuple[bytes, ...] = (), uptime: int = 10_000, seconds: int = EXPORT) -> bytes:
    sets = (a_set(0, TEMPLATE), THREE, *sets)
    return v9(sets, sequence=sequence % 2**32, uptime=uptime, seconds=seconds)


def ten(sequence: int, *sets: bytes) -> bytes:
    return ipfix([a_set(2, TEMPLATE), *sets], sequence=sequence % 2**32)


def test_netflow_5_and_7_number_their_records() -> None:
    assert events([five(0), five(2), five(4)]) == {}
    assert events([five(0), five(5)]) == {"lost": 3, "gap": 1}
    assert events([v7([bytes(52)] * 2, sequence=each) for each in (0, 2, 7)]) == {"lost": 3, "gap": 1}


def test_netflow_9_numbers_its_datagrams() -> None:
    assert events([nine(7), nine(8), nine(9)]) == {}
    assert events([nine(7), nine(10)]) == {"lost": 2, "gap": 1}


def test_ipfix_numbers_its_data_records_options_too_and_templates_not() -> None:
    assert events([ten(0, THREE), ten(3, THREE, THREE), ten(9), ten(9, THREE)]) == {}
    assert events([ten(0, OPTIONS), ten(2, THREE)]) == {}  # two option records
    assert events([ten(0, THREE), ten(5)]) == {"lost": 2, "gap": 1}


def test_numbers_wrap() -> None:
    assert events([five(2**32 - 3), five(2**32 - 1), five(1)]) == {}
    assert events([nine(2**32 - 1), nine(0), nine(2)]) == {"lost": 1, "gap": 1}
    assert events([ten(2**32 - 2, THREE), ten(1, THREE), ten(5)]) == {"lost": 1, "gap": 1}


def test_a_late_datagram_makes_good_what_was_lost_and_one_that_comes_twice_is_told_apart() -> None:
    assert events([five(0), five(4), five(2), five(6)]) == {"lost": 2, "gap": 1, "late": 1, "recovered": 2}
    assert events([nine(0), nine(2), nine(1), nine(3)]) == {"lost": 1, "gap": 1, "late": 1, "recovered": 1}
    assert events([nine(0), nine(1), nine(1), nine(2)]) == {"duplicate": 1}
    assert events([five(0), five(0), five(2)]) == {"duplicate": 1}


def test_only_what_was_missing_is_made_good_and_once() -> None:
    late_twice = [five(0), five(6), five(2), five(2), five(4), five(8)]
    assert events(late_twice) == {"lost": 4, "gap": 1, "late": 2, "duplicate": 1, "recovered": 4}
    half_known = [five(0), five(4), five(2, records=4), five(6)]  # numbers 2 to 5, of which only 2 and 3 were missing
    assert events(half_known) == {"lost": 2, "gap": 1, "late": 1, "recovered": 2}
    middle_first = [five(0), five(12), five(6), five(2, records=4), five(8, records=4), five(14)]
    assert events(middle_first) == {"lost": 10, "gap": 1, "late": 3, "recovered": 10}
    before_a_new_start = [five(100), five(110), five(0, uptime=1, seconds=EXPORT + 60), five(2), five(104)]
    assert "recovered" not in events(before_a_new_start)
    over_the_wrap = [five(2**32 - 6), five(2), five(2**32 - 2, records=4), five(2**32 - 4), five(4)]
    assert events(over_the_wrap) == {"lost": 6, "gap": 1, "late": 2, "recovered": 6}


@pytest.mark.parametrize("seed", range(40))
def test_what_was_lost_less_what_was_recovered_is_what_never_came(seed: int) -> None:
    random = Random(seed)
    version = random.choice([five, nine])
    number = random.choice([0, 2**32 - 50])
    sent = []
    for _ in range(60):
        units = 1 if version is nine else random.randint(1, 5)
        sent.append((number, units))
        number += units
    middle = [each for each in sent[1:-1] if random.random() < 0.8 for _ in range(random.choice([1, 1, 1, 2]))]
    places = [(place + random.uniform(0, 4), each) for place, each in enumerate(middle)]
    arrived = [sent[0], *(each for _, each in sorted(places)), sent[-1]]
    datagrams = [version(number) if version is nine else five(number, units) for number, units in arrived]
    found = events(datagrams)
    never = sum(units for _, units in set(sent) - set(arrived))
    assert found.get("lost", 0) - found.get("recovered", 0) == never, (found, arrived)


def test_an_exporter_that_numbers_by_another_rule_never_recovers_more_than_it_lost() -> None:
    random = Random(7)
    sizes = [random.randint(1, 20) for _ in range(200)]
    # The number of the record behind the message, not of its first one: softflowd 1.1 numbers IPFIX like this.
    behind = [five(sum(sizes[: place + 1]), size) for place, size in enumerate(sizes)]
    # One number for all datagrams that are sent together.
    together = [five(place // 3 * 6, 2) for place in range(60)]
    found = events(behind)
    assert found["gap"] > 50 < found["late"]
    assert (found["lost"] > 300, found.get("recovered", 0)) == (True, 0)
    assert events(together) == {"lost": 76, "gap": 19, "duplicate": 40}


@pytest.mark.parametrize("version", [five, nine])
def test_an_exporter_that_starts_anew_lost_nothing_that_can_be_counted(version: type) -> None:
    datagrams = [version(1_000_000, seconds=EXPORT), version(0, uptime=100, seconds=EXPORT + 60)]
    assert events(datagrams) == {"reset": 1}
    # The same without a new start of the uptime, far behind: only a new start explains it.
    assert events([version(2**30), version(0)]) == {"reset": 1}


def test_a_new_start_of_ipfix_is_told_by_its_numbers_alone() -> None:
    assert events([ten(3_000_000_000, THREE), ten(0, THREE), ten(3)]) == {"reset": 1}


def test_a_clock_that_is_set_or_an_uptime_that_wraps_is_no_new_start() -> None:
    assert events([nine(5), nine(8, seconds=EXPORT + 4)]) == {"lost": 2, "gap": 1}
    wrapped = [nine(5, uptime=2**32 - 1_000), nine(8, uptime=1_000, seconds=EXPORT + 2)]
    assert events(wrapped) == {"lost": 2, "gap": 1}


def test_a_message_whose_records_cannot_be_counted_is_followed_by_a_new_beginning() -> None:
    unknown = ipfix([a_set(999, bytes(20))], sequence=0)
    assert events([unknown, ten(17, THREE), ten(20)]) == {}
    cut = ipfix([a_set(2, TEMPLATE), THREE], sequence=0, length=5000)
    assert events([cut, ten(900, THREE), ten(903)]) == {}
    short = v5([v5_record()], count=30)
    assert events([short, five(30), five(32)]) == {}


def test_the_sequences_of_sessions_are_apart() -> None:
    decoder = FlowDecoder(["ts"], 16)
    other = v9([a_set(0, TEMPLATE)], sequence=900, domain=1)
    sent = [(five(0), SENDER, 0), (nine(50), SENDER, 0), (other, SENDER, 0), (five(2), SENDER, 0)]
    sent += [(nine(51), SENDER, 0), (five(70), (SENDER[0], 9), 0), (nine(7), ("2001:db8::1", 2055), 0)]
    decoded(decoder, sent, ["ts"])
    assert counted(decoder.samples("link")) == {}


def test_a_late_datagram_is_known_a_thousand_numbers_later_and_not_two_thousand() -> None:
    assert events([nine(0), nine(1_000), nine(1)])["late"] == 1
    assert events([nine(0), nine(2_000), nine(1)])["reset"] == 1


def test_a_data_set_with_a_record_of_no_whole_length_is_padding() -> None:
    padded = ipfix([a_set(2, TEMPLATE), a_set(256, bytes(12), padding=3)], sequence=0)
    assert events([padded, ten(3)]) == {}
    assert struct.unpack(">H", padded[2:4])[0] == len(padded)
