"""Sigma rules as queries: hand-checked answers of each kind of correlation, conditions, and parts that are refused.

Finds: a modifier or a key of a correlation that is dropped without an error, an alternative that is read as a
conjunction, and rules of a temporal correlation that match in a wrong order.
"""

from pathlib import Path
from typing import Any

import pytest

import wiretide
from queries.text.errors import QueryError
from queries.translation.sigma import sigma_to_sql
from tests.references.small_captures import udp, write

BEGIN = 1020
"""Seconds of the first packet: a full minute."""

RULE = """\
title: {name}
name: {name}
detection:
    selection:
        destination.port: {port}
    condition: selection
---
"""
RULES = "".join(RULE.format(name=name, port=port) for name, port in (("a", 1), ("b", 2), ("c", 3)))


def correlation(text: str, rules: str = "[a, b]", span: str = "10s") -> str:
    keys = f"rules: {rules}\n    group-by: [source.ip]\n    timespan: {span}\n"
    return f"{RULES}title: both\ncorrelation:\n    {text}\n    {keys}"


def answer(rule: str, events: str, tmp_path: Path, source: str = "10.0.0.1") -> list[tuple[Any, ...]]:
    """Return the rows of a rule over packets, one a second: `a` to port 1, and so on; `.` none."""
    ports = {"a": 1, "b": 2, "c": 3}
    packets = [
        (BEGIN + at, udp(source, f"10.9.9.{at + 1}", 4000, ports[event]))
        for at, event in enumerate(events)
        if event != "."
    ]
    rows = wiretide.query(sigma_to_sql(rule), write(tmp_path / "a.pcap", packets)).to_pylist()
    return [
        tuple(value if isinstance(value, str | int) else value.value // 10**9 - BEGIN for value in row.values())
        for row in rows
    ]


COUNTED: list[tuple[str, str, str, list[tuple[Any, ...]]]] = [
    ("type: event_count\n    condition: {gte: 3}", "[a, b]", "abca", [(0, 60, "10.0.0.1", 3)]),
    ("type: event_count\n    condition: {gte: 4}", "[a, b]", "abca", []),
    ("type: event_count\n    condition: {gt: 1, lt: 3}", "a", "abca", [(0, 60, "10.0.0.1", 2)]),
    ("type: value_count\n    condition: {field: destination.port, gte: 2}", "[a, b]", "aab", [(0, 60, "10.0.0.1", 2)]),
    ("type: value_count\n    condition: {field: destination.port, gte: 2}", "[a, b]", "aaa", []),
    ("type: value_count\n    condition: {field: destination.ip, eq: 3}", "a", "aaa", [(0, 60, "10.0.0.1", 3)]),
]


@pytest.mark.parametrize(("text", "rules", "events", "expected"), COUNTED)
def test_counts_are_those_of_each_window(
    text: str, rules: str, events: str, expected: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    assert answer(correlation(text, rules, "1m"), events, tmp_path) == expected


TEMPORAL: list[tuple[str, str, str, list[tuple[Any, ...]]]] = [
    # correlation, rules, events, and begin and end of each match
    ("temporal_ordered", "[a, b]", "ab", [(0, 1)]),
    ("temporal_ordered", "[a, b]", "ba", []),
    ("temporal_ordered", "[a, b, c]", "acbabc", [(0, 5)]),
    ("temporal_ordered", "[a, b]", "aabab", [(0, 2), (3, 4)]),
    ("temporal_ordered", "[a, b]", "a.........b", []),
    ("temporal_ordered", "[a, b]", "a........b", [(0, 9)]),
    ("temporal", "[a, b]", "ba", [(0, 1)]),
    ("temporal", "[a, b]", "ab", [(0, 1)]),
    ("temporal", "[a, b]", "aaa", []),
    ("temporal", "[a, b, c]", "cab", [(0, 2)]),
    ("temporal", "[a, b, c]", "ccbbab", [(0, 4)]),
    ("temporal", "[a, b]", "a..........ba", [(11, 12)]),
]


@pytest.mark.parametrize(("kind", "rules", "events", "expected"), TEMPORAL)
def test_rules_match_in_their_order_or_in_any_order(
    kind: str, rules: str, events: str, expected: list[tuple[int, int]], tmp_path: Path
) -> None:
    rows = answer(correlation(f"type: {kind}", rules), events, tmp_path)
    assert [row[:3] for row in rows] == [("10.0.0.1", *each) for each in expected]


CONDITIONS = [
    ("a:\n        destination.port: [1, 2]", "a", "abc", 2),
    ("a:\n        destination.port: 1\n        source.ip: 10.0.0.2", "a", "abc", 0),
    ("a:\n      - destination.port: 1\n      - destination.port: 3", "a", "abc", 2),
    ("a:\n        destination.port|gte: 2\n    b:\n        destination.port: 3", "a and not b", "abc", 1),
    ("a1:\n        destination.port: 1\n    a2:\n        destination.port: 2", "1 of a*", "abc", 2),
    ("a1:\n        destination.port|gt: 1\n    a2:\n        destination.port|lt: 3", "all of them", "abc", 1),
    ("a:\n        destination.ip|cidr: 10.9.9.0/31", "a", "abc", 1),
    ("a:\n        network.transport: tcp", "not a", "abc", 3),
    ("a:\n        tcp_flags: null", "a", "abc", 3),
    ("a:\n        tcp_flags|exists: true", "a", "abc", 0),
    ("a:\n        destination.port: 1\n    b:\n        destination.port: 2", "(a or b) and not (b)", "abc", 1),
]


@pytest.mark.parametrize(("selections", "condition", "events", "count"), CONDITIONS)
def test_selections_and_conditions(selections: str, condition: str, events: str, count: int, tmp_path: Path) -> None:
    rule = f"title: t\ndetection:\n    {selections}\n    condition: {condition}\n"
    assert len(answer(rule, events, tmp_path)) == count


ONE = "title: t\ndetection:\n    a:\n        destination.port: 1\n    condition: a\n"
WRONG = [
    ("", "no rule with a detection"),
    ("a: [", "expected the node content"),
    ("- 1", "got a document of type list"),
    (ONE.replace("condition: a", "condition: b"), "no selection has the name 'b'"),
    (ONE.replace("condition: a", "condition: a and"), "the condition ends too early"),
    (ONE.replace("condition: a", "condition: a b"), "got 'b' in the condition"),
    (ONE.replace("condition: a", "condition: (a"), "no ')'"),
    (ONE.replace("destination.port: 1", "destination.port|re: 1"), "the modifier 're' is not supported"),
    (ONE.replace("destination.port: 1", "CommandLine: x"), "no column of packets has the field 'CommandLine'"),
    (ONE.replace("destination.port: 1", "source.ip: 10.0.*"), "got a pattern for the field 'source.ip'"),
    (ONE.replace("        destination.port: 1", "        - word"), "a selection of words"),
    (f"{ONE}---\n{ONE}", "got two rules with the name 't'"),
    (correlation("type: value_sum"), "got the type 'value_sum'"),
    (correlation("type: event_count"), "event_count has no condition"),
    (correlation("type: event_count\n    condition: {gte: x}"), "got gte: x"),
    (correlation("type: event_count\n    condition: {field: destination.ip, gte: 1}"), "got field: destination.ip"),
    (correlation("type: value_count\n    condition: {gte: 1}"), "got field: None in value_count"),
    (correlation("type: temporal\n    condition: a and not b"), "temporal with a condition"),
    (correlation("type: temporal\n    aliases: {x: {a: source.ip}}"), "'aliases' is not supported"),
    (correlation("type: temporal", "[a, d]"), "no rule has the name 'd'"),
    (correlation("type: temporal", span="10 seconds"), "the correlation has no timespan"),
    (RULES, "several rules without a correlation"),
]


@pytest.mark.parametrize(("rule", "message"), WRONG)
def test_a_part_that_is_not_translated_is_refused_by_name(rule: str, message: str) -> None:
    with pytest.raises(QueryError) as error:
        sigma_to_sql(rule)
    assert message in error.value.message
