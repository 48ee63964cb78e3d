"""EQL rules as queries: hand-checked matches, random rules against their definition and against the package eql.

Finds: a match that is missing or doubled, a sequence that a newer one should have replaced, a wrong bound of maxspan, a
missing event that is judged too early, and a part of a rule that is dropped without an error.
"""

import random
from pathlib import Path
from typing import Any

import pytest

import wiretide
from queries.text.errors import QueryError
from queries.translation.eql import eql_to_sql
from tests.references.eql_sequences import UNTIL, Row, Rule, sequences
from tests.references.small_captures import udp, write

BEGIN = 1000
"""Seconds of the first packet."""


def capture(path: Path, packets: list[tuple[int, str, int]]) -> Path:
    """Write packets to 10.9.9.9: seconds from BEGIN, source, and port of the target."""
    return write(path, [(BEGIN + at, udp(source, "10.9.9.9", 4000, port)) for at, source, port in packets])


def times(rows: Any, events: int, key: str = "key1") -> list[tuple[Any, ...]]:
    """Return the key and the seconds from BEGIN of the events of each match."""
    names = [f"ts{event}" for event in range(1, events + 1)]
    return sorted(
        (*([row[key]] if key else []), *(row[name].value // 10**9 - BEGIN for name in names))
        for row in rows.to_pylist()
    )


A, B, C, D, X = 1, 2, 3, 4, 9
PACKETS = [(0, "10.0.0.1", A), (1, "10.0.0.2", A), (2, "10.0.0.1", B), (3, "10.0.0.2", C), (5, "10.0.0.2", B)]
BY = "sequence by source.ip"
HAND_CHECKED: dict[str, tuple[str, str, list[tuple[int, ...]]]] = {
    # name: events at seconds 0, 1, 2, … of one host ('.': none), rule, and the seconds of the events of each match
    "the next event, not each later one": ("ABB", "{BY} [A] [B]", [(0, 1)]),
    "a newer first event replaces the older one": ("AAB", "{BY} [A] [B]", [(1, 2)]),
    "a newer sequence in the same state replaces the older one": ("ABABC", "{BY} [A] [B] [C]", [(2, 3, 4)]),
    "a newer sequence in an earlier state does not": ("ABAC", "{BY} [A] [B] [C]", [(0, 1, 3)]),
    "sequences of one key may overlap": ("ABACBC", "{BY} [A] [B] [C]", [(0, 1, 3), (2, 4, 5)]),
    "maxspan is included": ("A..B", "{BY} with maxspan=3s [A] [B]", [(0, 3)]),
    "a longer time is not": ("A...B", "{BY} with maxspan=3s [A] [B]", []),
    "until ends open sequences": ("AXBAB", "{BY} [A] [B] until [X]", [(3, 4)]),
    "until after a match ends nothing": ("ABX", "{BY} [A] [B] until [X]", [(0, 1)]),
    "runs repeats an event": ("AAAB", "{BY} [A] with runs=3 [B]", [(0, 1, 2, 3)]),
    "a missing event between two": ("AXBAB", "{BY} with maxspan=9s [A] ![X] [B]", [(3, 4)]),
    "a missing event before": ("XAB..AB", "{BY} with maxspan=3s ![X] [A] [B]", [(5, 6)]),
    "a missing event after": ("AB.X.AB", "{BY} with maxspan=3s [A] [B] ![X]", [(5, 6)]),
    "a missing event later than maxspan does not count": ("AB..X", "{BY} with maxspan=3s [A] [B] ![X]", [(0, 1)]),
    "missing events before and after": (
        "AB..XAB..AB..AB",
        "{BY} with maxspan=2s ![X] [A] [B] ![X]",
        [(0, 1), (9, 10), (13, 14)],
    ),
    "one row may be two events of different sequences": ("ABC", "{BY} [AB] [BC]", [(0, 1), (1, 2)]),
}


def rule_text(text: str) -> str:
    """Replace `[AB]` by the event whose port is that of A or of B."""
    text = text.replace("{BY}", BY)
    for letters in ("AB", "BC", *"ABCX"):
        ports = ", ".join(str({"A": A, "B": B, "C": C, "X": X}[letter]) for letter in letters)
        text = text.replace(f"[{letters}]", f"[network where destination.port in ({ports})]")
    return text


@pytest.mark.parametrize("name", HAND_CHECKED)
def test_a_rule_finds_the_matches_that_are_checked_by_hand(name: str, tmp_path: Path) -> None:
    letters, text, expected = HAND_CHECKED[name]
    ports = {"A": A, "B": B, "C": C, "X": X}
    packets = [(at, "10.0.0.1", ports[letter]) for at, letter in enumerate(letters) if letter != "."]
    packets += [(100, "10.0.0.7", D)]
    sql = eql_to_sql(rule_text(text))
    events = len(expected[0]) if expected else 2
    rows = wiretide.query(sql, capture(tmp_path / "a.pcap", packets))
    assert times(rows, events) == [("10.0.0.1", *each) for each in expected]


def test_events_may_have_different_keys(tmp_path: Path) -> None:
    packets = [
        (BEGIN, udp("10.0.0.1", "10.0.0.2", 7, 1)),
        (BEGIN + 1, udp("10.0.0.3", "10.0.0.1", 2, 7)),
        (BEGIN + 2, udp("10.0.0.2", "10.0.0.1", 1, 7)),
    ]
    text = (
        "sequence [network where source.port == 7] by source.ip, destination.ip "
        "[network where destination.port == 7] by destination.ip, source.ip"
    )
    rows = wiretide.query(eql_to_sql(text), write(tmp_path / "a.pcap", packets))
    assert times(rows, 2) == [("10.0.0.1", 0, 2)]


def test_one_event_is_a_condition(tmp_path: Path) -> None:
    text = 'any where (destination.port == 2 or destination.port > 2 + 0) and not cidrMatch(source.ip, "10.0.0.2/32")'
    rows = wiretide.query(eql_to_sql(text), capture(tmp_path / "a.pcap", PACKETS))
    assert [row["srcIP"] for row in rows.to_pylist()] == ["10.0.0.1"]


def test_a_condition_without_a_value_is_false_and_its_negation_true(tmp_path: Path) -> None:
    path = capture(tmp_path / "a.pcap", PACKETS)
    assert wiretide.query(eql_to_sql("any where tcp_flags == 2"), path).num_rows == 0
    assert wiretide.query(eql_to_sql("any where not tcp_flags == 2"), path).num_rows == 5
    assert wiretide.query(eql_to_sql("any where tcp_flags == null"), path).num_rows == 5


def random_rule(chance: random.Random) -> tuple[str, Rule, list[frozenset[int]]]:
    """Return a rule over ports 1 to 5 as text, its form, and the ports of each event; the last is that of until."""
    events = chance.randint(1, 4)
    ports = [frozenset(chance.sample(range(1, 6), chance.choice((1, 1, 2)))) for _ in range(events)]
    span = chance.choice((None, 2, 5, 9))
    missing = {"before": False, "between": False, "after": False}
    until = chance.random() < 0.3
    if span is not None and not until:
        missing |= {name: chance.random() < 0.3 for name in ("before", "after")}
        missing["between"] = events == 2 and chance.random() < 0.5
    items = [f"[network where destination.port in ({', '.join(map(str, each))})]" for each in ports]
    text = " ".join(
        [
            BY,
            *([f"with maxspan={span}s"] if span is not None else []),
            *(["![network where destination.port == 6]"] if missing["before"] else []),
            items[0],
            *(["![network where destination.port == 7]"] if missing["between"] else []),
            *items[1:],
            *(["![network where destination.port == 8]"] if missing["after"] else []),
            *(["until [network where destination.port == 9]"] if until else []),
        ]
    )
    return text, Rule(events, span, **missing), ports


def events_of(port: int, ports: list[frozenset[int]], until: bool) -> frozenset[int | str]:
    names: dict[int, str] = {6: "before", 7: "between", 8: "after", **({9: UNTIL} if until else {})}
    found: set[int | str] = {event for event, each in enumerate(ports, 1) if port in each}
    return frozenset(found | ({names[port]} if port in names else set()))


def random_packets(chance: random.Random, hosts: int, count: int) -> list[tuple[int, str, int]]:
    weights = [4] * 5 + [1] * 4
    return [(at, f"10.0.0.{chance.randint(1, hosts)}", chance.choices(range(1, 10), weights)[0]) for at in range(count)]


def expected_matches(
    rule: Rule, ports: list[frozenset[int]], until: bool, packets: list[tuple[int, str, int]]
) -> list[tuple[Any, ...]]:
    rows: dict[str, list[Row]] = {}
    for at, source, port in packets:
        rows.setdefault(source, []).append((at, events_of(port, ports, until)))
    return sorted((key, *each) for key, own in rows.items() for each in sequences(rule, own))


@pytest.mark.parametrize("number", range(16))
def test_random_rules_find_the_matches_of_their_definition(number: int, tmp_path: Path) -> None:
    chance = random.Random(f"eql {number}")
    packets = random_packets(chance, 4, 150)
    path = capture(tmp_path / "a.pcap", packets)
    for _ in range(2):
        text, rule, ports = random_rule(chance)
        rows = wiretide.query(eql_to_sql(text), path)
        expected = expected_matches(rule, ports, "until" in text, packets)
        assert times(rows, rule.events) == expected, f"number {number}: {text}"


@pytest.mark.parametrize("number", range(200))
def test_the_definition_finds_the_matches_of_the_package_eql(number: int) -> None:
    eql = pytest.importorskip("eql", reason="the package eql is not installed: pip install eql==1.0.1")
    chance = random.Random(f"eql package {number}")
    packets = random_packets(chance, 3, 60)
    text, rule, ports = random_rule(chance)
    while "!" in text:  # the package reads missing events as events of another kind
        text, rule, ports = random_rule(chance)
    found: list[tuple[Any, ...]] = []
    if rule.events == 1:
        return  # the package needs two events
    with eql.parser.elasticsearch_syntax:
        query = eql.parse_query(text)
    engine = eql.PythonEngine({"data_source": None})
    engine.add_output_hook(
        lambda result: found.append((result.events[0].data["source"]["ip"], *(each.time for each in result.events)))
    )
    engine.add_query(query)
    second = 10_000_000  # the package counts 100 ns
    engine.stream_events(
        eql.Event("network", at * second, {"source": {"ip": source}, "destination": {"port": port}})
        for at, source, port in packets
    )
    shown = sorted((key, *(each // second for each in own)) for key, *own in found)
    assert shown == expected_matches(rule, ports, "until" in text, packets), f"number {number}: {text}"


WRONG = [
    ("sample by source.ip [any where true] [any where true]", 0, "'sample' is not supported"),
    ("join [any where true] [any where true]", 0, "'join' is not supported"),
    ("process where true", 0, "got the event category 'process'"),
    ("any where true | head 5", 15, "pipes are not supported"),
    ("any where source.name == 1", 10, "no column of packets has the field 'source.name'"),
    ('any where endsWith(source.ip, "1")', 10, "the function 'endsWith' is not supported"),
    ('any where source.port regex "8."', 22, "'regex' is not supported"),
    ('any where source.ip == "10.0.0"', 23, "'10.0.0'"),
    ('any where source.ip : "10.*"', 22, "got a pattern for the field 'source.ip'"),
    ('any where network.transport == "tpc"', 31, "unknown value 'tpc'"),
    ("sequence [any where true] ![any where true]", 26, "a missing event needs a time"),
    ("sequence with maxspan=3 [any where true]", 22, "got '3'"),
    ("sequence with maxspan=3s ![any where true]", 0, "missing events only"),
    ("sequence [any where true] by source.ip [any where true]", 39, "got 0 fields after by"),
    ("sequence with maxspan=1s [any where true] ![any where true] [any where true] [any where true]", 42, "between"),
    ("sequence with maxspan=1s [any where true] ![any where true] until [any where true]", 66, "until with a missing"),
    ("sequence [any where true] fork [any where true]", 26, "'fork' is not supported"),
    ("any where (source.port == 1", 27, "got the end of the rule"),
    ("any where source.port == 1 €", 27, "got '€'"),
    ("any where", 9, "got the end of the rule"),
    ("sequence", 8, "got the end of the rule"),
    ("", 0, "got the end of the rule"),
    ("any where " + "(" * 101 + "true", 111, "nested too deeply"),
]


@pytest.mark.parametrize(("text", "position", "message"), WRONG)
def test_a_part_that_is_not_translated_is_refused_with_its_place(text: str, position: int, message: str) -> None:
    with pytest.raises(QueryError) as error:
        eql_to_sql(text)
    assert message in error.value.message
    assert error.value.position == position


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_rule_never_gives_another_error(seed: int) -> None:
    chance = random.Random(f"damaged {seed}")
    text = rule_text("{BY} with maxspan=9s [A] ![X] [B]") + ' until [any where source.ip : "10.0.0.1" or not true]'
    for _ in range(300):
        at, length = chance.randrange(len(text)), chance.randint(0, 9)
        damaged = text[:at] + chance.choice(("", "(", "]", '"', "by", "not", "==", "9s", "*")) + text[at + length :]
        try:
            eql_to_sql(damaged)
        except QueryError:
            continue
