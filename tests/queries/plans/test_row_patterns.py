"""MATCH_RECOGNIZE: hand-checked cases, random patterns against Python's `re`, and wrong clauses.

Finds: a match that is not the preferred one, a wrong row after a match, a field that misses or doubles the tested row,
and a wrong clause that is accepted or refused without the remedy.
"""

from __future__ import annotations

import random
import re
import warnings
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from scapy.all import IP, TCP, Ether, Raw, wrpcap

import wiretide
from highlevel.patterns import memory
from highlevel.patterns.automaton import PatternError
from highlevel.patterns.kernels import matches as match_kernels
from queries.explain.plan import explain
from queries.gsql import compile_query
from queries.text.errors import QueryError
from tests.harness.plain_kernels import plain

SCHEMA = "PROTOCOL ticks { TIME ts (increasing); STRING host; STRING kind; LLONG price; }"

PRICES = [10, 8, 6, 5, 9, 4, 12, 7, 11, 10, 13]
"""Prices at 1 s, 2 s, …; those at 4, 6 and 8 s are of host b, the others of host a."""


def frame(rows: list[tuple[int, str, str, int | None]]) -> pa.Table:
    """Return rows with times in seconds."""
    times = pa.array([time * 10**9 for time, *_ in rows], pa.timestamp("ns"))
    _, hosts, kinds, prices = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.table({
        "ts": times,
        "host": pa.array(hosts, pa.string()),
        "kind": pa.array(kinds, pa.string()),
        "price": pa.array(prices, pa.int64()),
    })  # fmt: skip


TICKS = frame([(time, "b" if time in (4, 6, 8) else "a", "", price) for time, price in enumerate(PRICES, 1)])


def matches(clauses: str, select: str = "*", table: pa.Table = TICKS, after: str = "") -> list[tuple[Any, ...]]:
    """Return the rows of a query, times in seconds."""
    sql = f"SELECT {select} FROM ticks MATCH_RECOGNIZE ({clauses}){after}"
    result = wiretide.query(sql, table, schema=SCHEMA)
    columns = [
        [None if value is None else value.value // 10**9 for value in column.to_pylist()]
        if pa.types.is_timestamp(column.type)
        else column.to_pylist()
        for column in result.columns
    ]
    return sorted(zip(*columns, strict=True), key=repr)


PARTS = {
    "{H}": "PARTITION BY host ORDER BY ts",
    "{N}": "MEASURES count(*) AS n",
    "{F}": "MEASURES first(price) AS f",
    "{V}": "PATTERN (A D+ U+) DEFINE D AS D.price < PREV(D.price), U AS U.price > PREV(U.price)",
    "{DD}": "PATTERN (A B+) DEFINE B AS price < PREV(price)",
    "{D}": "PATTERN (A B) DEFINE B AS price < A.price",
}
"""Abbreviations in CASES."""

CASES: dict[str, tuple[str, str, list[tuple[Any, ...]]]] = {
    "names of variables are compared without case": (
        "{H} MEASURES count(d.*) AS n PATTERN (a d) DEFINE D AS price < A.price",
        "*",
        [("a", 1, 2, 1), ("a", 7, 9, 1), ("b", 4, 6, 1)],
    ),
    "without measures: the partition and the times": (
        "{H} {V}",
        "*",
        [("a", 1, 7), ("a", 9, 11), ("b", 4, 8)],
    ),
    "first, last and offsets": (
        "{H} MEASURES first(D.price) AS f, first(D.price, 1) AS f1, last(D.price) AS l, last(D.price, 1) AS l1 {V}",
        "host, f, f1, l, l1",
        [("a", 10, None, 10, None), ("a", 8, 6, 6, 8), ("b", 4, None, 4, None)],
    ),
    "a name without variable is the last row": (
        "{H} MEASURES price AS p, ts AS t {V}",
        "host, p, t",
        [("a", 12, 7), ("a", 13, 11), ("b", 7, 8)],
    ),
    "sums and averages": (
        "{H} MEASURES sum(D.price) AS s, avg(D.price) AS m, count(*) AS n {V}",
        "host, s, m, n",
        [("a", 10, 10.0, 3), ("a", 14, 7.0, 5), ("b", 4, 4.0, 3)],
    ),
    "extremes": (
        "{H} MEASURES min(price) AS low, max(price) AS high {V}",
        "host, low, high",
        [("a", 10, 13), ("a", 6, 12), ("b", 4, 7)],
    ),
    "MATCH_NUMBER counts in each partition": (
        "{H} MEASURES MATCH_NUMBER() AS m {V}",
        "host, m",
        [("a", 1), ("a", 2), ("b", 1)],
    ),
    "CLASSIFIER is the variable of the last row": (
        "{H} MEASURES CLASSIFIER() AS c PATTERN (A (D | U)) DEFINE D AS price < A.price",
        "host, c",
        [("a", "D"), ("a", "D"), ("a", "U"), ("a", "U"), ("b", "D")],
    ),
    "the first alternative is preferred": (
        "{H} MEASURES CLASSIFIER() AS c PATTERN (X | Y)",
        "host, c",
        [("a", "X")] * 8 + [("b", "X")] * 3,
    ),
    "a greedy quantifier takes as many rows as possible": (
        "{H} {N} PATTERN (A{2,4})",
        "host, n",
        [("a", 4), ("a", 4), ("b", 3)],
    ),
    "a reluctant quantifier takes as few as possible": (
        "{H} {N} PATTERN (A{2,4}?)",
        "host, n",
        [("a", 2)] * 4 + [("b", 2)],
    ),
    "an exact quantifier": (
        "{H} {N} PATTERN (A{3})",
        "host, n",
        [("a", 3), ("a", 3), ("b", 3)],
    ),
    "an upper bound alone": (
        "{H} MEASURES count(B.*) AS n PATTERN (A B{,2})",
        "host, n",
        [("a", 1), ("a", 2), ("a", 2), ("b", 2)],
    ),
    "reluctant + before a condition": (
        "{H} {N} PATTERN (A+? E) DEFINE E AS price > 8",
        "host, n",
        [("a", 2), ("a", 2), ("a", 4)],
    ),
    "an optional variable": (
        "{H} MEASURES count(O.*) AS n, last(O.price) AS o PATTERN (A O? E) DEFINE A AS price = 10, E AS price < 7",
        "host, n, o",
        [("a", 1, 8)],
    ),
    "a group with a quantifier": (
        "{H} {N} PATTERN ((D U){2}) DEFINE D AS price < 12, U AS price <> D.price",
        "host, n",
        [("a", 4)],
    ),
    "SKIP TO NEXT ROW: matches overlap": (
        "{H} {F} AFTER MATCH SKIP TO NEXT ROW {D}",
        "host, f",
        [("a", 10), ("a", 11), ("a", 12), ("a", 8), ("b", 5)],
    ),
    "SKIP PAST LAST ROW": (
        "{H} {F} AFTER MATCH SKIP PAST LAST ROW {D}",
        "host, f",
        [("a", 10), ("a", 12), ("b", 5)],
    ),
    "SKIP TO LAST of a variable": (
        "{H} {F}, count(*) AS n AFTER MATCH SKIP TO LAST B {DD}",
        "host, f, n",
        [("a", 10, 3), ("a", 12, 3), ("b", 5, 2)],
    ),
    "SKIP TO FIRST of a variable": (
        "{H} {F}, count(*) AS n AFTER MATCH SKIP TO FIRST B {DD}",
        "host, f, n",
        [("a", 10, 3), ("a", 11, 2), ("a", 12, 3), ("a", 8, 2), ("b", 5, 2)],
    ),
    "SKIP TO a variable is its last row": (
        "{H} {N} AFTER MATCH SKIP TO B {DD}",
        "host, n",
        [("a", 3), ("a", 3), ("b", 2)],
    ),
    "SKIP TO the first row of the match continues at the next row": (
        "{H} {F} AFTER MATCH SKIP TO A {D}",
        "host, f",
        [("a", 10), ("a", 11), ("a", 12), ("a", 8), ("b", 5)],
    ),
    "SKIP TO a variable without rows continues at the next row": (
        "{H} {F} AFTER MATCH SKIP TO X PATTERN (A (X | B)) DEFINE X AS price < 0, B AS price < A.price",
        "host, f",
        [("a", 10), ("a", 11), ("a", 12), ("a", 8), ("b", 5)],
    ),
    "WITHIN: the last row is less than this after the first": (
        "{H} {N} PATTERN (A D+ U+) WITHIN 5 seconds DEFINE D AS price < PREV(price), U AS price > PREV(price)",
        "host, match_start, n",
        [("a", 1, 4), ("a", 7, 4), ("b", 4, 3)],
    ),
    "WITHIN INTERVAL": (
        "{H} {N} PATTERN (A B) WITHIN INTERVAL '2' SECOND",
        "host, match_start, n",
        [("a", 1, 2), ("a", 9, 2)],
    ),
    "the tested row counts in aggregates of its variable": (
        "{H} MEASURES sum(A.price) AS s PATTERN (A+ B) DEFINE A AS sum(A.price) <= 24, B AS TRUE",
        "host, s",
        [("a", 23), ("a", 24), ("b", 9)],
    ),
    "aggregates of another variable do not count the tested row": (
        "{H} {N} PATTERN (A B+) DEFINE B AS B.price < sum(A.price) AND count(B.*) <= 2",
        "host, n",
        [("a", 3), ("a", 3), ("b", 2)],
    ),
    "conditions on columns of another variable": (
        "{H} MEASURES price - A.price AS d PATTERN (A B) DEFINE B AS price > A.price + 2 AND abs(price - A.price) < 5",
        "host, d",
        [("a", 3), ("a", 3), ("b", 3)],
    ),
    "no partition: all rows are one": (
        "ORDER BY ts {N} PATTERN (A B) DEFINE A AS host = 'a', B AS host = 'b'",
        "n",
        [(2,), (2,), (2,)],
    ),
    "a text of another row": (
        "ORDER BY ts MEASURES A.host AS one, B.host AS other PATTERN (A B) DEFINE B AS B.host <> A.host",
        "one, other",
        [("a", "b"), ("a", "b"), ("a", "b")],
    ),
    "RUNNING and FINAL are equal at the last row": (
        "{H} MEASURES FINAL last(price) AS l, RUNNING count(*) AS n ONE ROW PER MATCH {V}",
        "host, l, n",
        [("a", 12, 5), ("a", 13, 3), ("b", 7, 3)],
    ),
    "optional variables before a condition": (
        "{H} {N} PATTERN (A B? C? E) DEFINE E AS price > 11",
        "host, n",
        [("a", 3), ("a", 4)],
    ),
    "alternatives of different lengths: the first that matches": (
        "{H} {N} PATTERN ((A A | A A A) B) DEFINE B AS price > 8",
        "host, n",
        [("a", 3), ("a", 4)],
    ),
    "earlier and later rows of the partition": (
        (
            "{H} MEASURES prev(price, 2) AS p, prev(price, 0) AS x, next(price) AS n, next(price, 2) AS m "
            "PATTERN (A) DEFINE A AS price > 9"
        ),
        "p, x, n, m",
        [(None, 10, 8, 6), (6, 12, 11, 10), (9, 11, 10, 13), (12, 10, 13, None), (11, 13, None, None)],
    ),
    "a condition on the next row": (
        "{H} MEASURES price AS p PATTERN (A) DEFINE A AS price < prev(price) AND price < next(price)",
        "host, p",
        [("a", 6), ("a", 10), ("b", 4)],
    ),
    "rows before and after a row of a variable": (
        "{H} MEASURES prev(last(D.price, 1), 1) AS p, next(first(D.price), 2) AS n, prev(D.price) AS q {V}",
        "host, p, n, q",
        [("a", 10, 9, 8), ("a", None, None, 11), ("b", None, None, 5)],
    ),
    "a union of variables in MEASURES": (
        (
            "{H} MEASURES sum(M.price) AS s, first(M.price, 1) AS f, last(M.price, 1) AS l, count(M.*) AS n "
            "PATTERN (A D+ U+) SUBSET M = (D, U), W = (A) DEFINE D AS price < PREV(price), U AS price > PREV(price)"
        ),
        "host, s, f, l, n",
        [("a", 35, 6, 9, 4), ("a", 23, 13, 10, 2), ("b", 11, 7, 4, 2)],
    ),
    "a union of variables in DEFINE counts the tested row of its variables": (
        (
            "{H} {N}, sum(M.price) AS s PATTERN (A+ B C?) SUBSET M = (A, B) "
            "DEFINE A AS sum(M.price) < 20, B AS sum(M.price) < 30, C AS C.price > last(M.price)"
        ),
        "host, n, s",
        [("a", 4, 24), ("a", 2, 23), ("a", 2, 23), ("b", 3, 16)],
    ),
    "CLASSIFIER of a union": (
        (
            "{H} MEASURES classifier(M) AS m, classifier(D) AS d, classifier() AS c PATTERN (A (D | U) Z) "
            "SUBSET M = (A, U) DEFINE D AS price < PREV(price), U AS price > PREV(price)"
        ),
        "host, m, d, c",
        [("a", "A", "D", "Z"), ("a", "U", None, "Z"), ("b", "A", "D", "Z")],
    ),
    "CLASSIFIER in DEFINE": (
        "{H} {F} PATTERN ((A | B) C) SUBSET M = (A, B) DEFINE A AS price > 9, B AS price < 9, C AS classifier(M) = 'B'",
        "host, f",
        [("a", 8), ("b", 5)],
    ),
    "SKIP TO LAST of a union": (
        "{H} {F} AFTER MATCH SKIP TO LAST M PATTERN (A D U) SUBSET M = (D, A) DEFINE D AS price < 9, U AS TRUE",
        "host, f",
        [("a", 10), ("b", 5), ("a", 8)],
    ),
    "^: the first row of the partition": ("{H} {F} PATTERN (^ A B)", "host, f", [("a", 10), ("b", 5)]),
    "^ in one alternative": (
        "{H} {F}, classifier() AS c PATTERN (^ A | B) DEFINE B AS price > 11",
        "host, f, c",
        [("a", 10, "A"), ("a", 12, "B"), ("a", 13, "B"), ("b", 5, "A")],
    ),
    "^ that no row follows: an empty match at the first row": (
        "{H} MEASURES count(*) AS n, match_number() AS m PATTERN (^ A*) DEFINE A AS price < 10",
        "host, match_start, n, m",
        [("a", 1, 0, 1), ("b", 4, 3, 1)],
    ),
    "$: the last row of the partition": ("{H} {F} PATTERN (A B $)", "host, f", [("a", 10), ("b", 4)]),
    "$ and another end": (
        "{H} {F}, classifier() AS c PATTERN (A (B $ | C)) DEFINE C AS price > 11",
        "host, f, c",
        [("a", 9, "C"), ("a", 10, "B"), ("b", 4, "B")],
    ),
    "^ and $: the whole partition": ("{H} {N} PATTERN (^ A+ $)", "host, n", [("a", 8), ("b", 3)]),
    "^ and $ with quantifiers": ("{H} {N} PATTERN (^* A $+)", "host, n", [("a", 1), ("b", 1)]),
    "PERMUTE: every order": (
        (
            "{H} MEASURES A.price AS a, B.price AS b, C.price AS c PATTERN (PERMUTE(A, B, C)) "
            "DEFINE A AS price < 9, B AS price > 9, C AS price < 7 OR price > 12"
        ),
        "host, a, b, c",
        [("a", 8, 10, 6)],
    ),
    "PERMUTE: orders as they are written": (
        "{H} MEASURES A.price AS a, count(*) AS n PATTERN (PERMUTE(A?, B, C)) DEFINE A AS price <> 8",
        "host, a, n",
        [("a", 10, 3), ("a", 9, 3), ("a", None, 2), ("b", 5, 3)],
    ),
}


SKIP_ERRORS = "ignore:AFTER MATCH SKIP TO did not apply:RuntimeWarning"
"""Such matches are allowed, and a test of its own compares the warning."""


def _case(name: str) -> tuple[str, str, list[tuple[Any, ...]]]:
    clauses, select, expected = CASES[name]
    return _in_full(clauses), select, expected


def _in_full(clauses: str) -> str:
    for short, text in PARTS.items():
        clauses = clauses.replace(short, text)
    return clauses


@pytest.mark.filterwarnings(SKIP_ERRORS)
@pytest.mark.parametrize("name", CASES)
def test_a_case_has_the_rows_of_sql_2016(name: str) -> None:
    clauses, select, expected = _case(name)
    assert matches(clauses, select) == sorted(expected, key=repr)


SKIPS = {
    "a variable without a row in 4 of 5 matches": ("TO X PATTERN (A (X | B)) DEFINE X AS kind = 'x'", "aaxaab", 4),
    "the first row of each match": ("TO FIRST A PATTERN (A B) DEFINE B AS kind = 'b'", "abab", 2),
    "the last row of A may be the first row": ("TO LAST A PATTERN (A+ B) DEFINE A AS kind = 'a'", "aabab", 2),
    "empty matches continue at the next row": ("TO A PATTERN (A*) DEFINE A AS kind = 'x'", "aaa", 0),
    "another rule": ("TO NEXT ROW PATTERN (A B) DEFINE B AS kind = 'b'", "abab", 0),
}


@pytest.mark.parametrize("name", SKIPS)
@pytest.mark.parametrize("after", ["", " EMIT CHANGES"])
def test_skips_that_cannot_be_obeyed_are_counted_and_reported_once(name: str, after: str) -> None:
    clauses, kinds, expected = SKIPS[name]
    table = frame([(time, "a", kind, 0) for time, kind in enumerate(kinds, 1)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        matches(f"ORDER BY ts MEASURES count(*) AS n AFTER MATCH SKIP {clauses}", table=table, after=after)
    counted = "1 match:" if expected == 1 else f"{expected} matches:"
    assert [counted in str(each.message) for each in caught] == [True] * (expected > 0)


@pytest.mark.filterwarnings(SKIP_ERRORS)
@pytest.mark.parametrize("name", CASES)
def test_a_case_has_the_same_rows_in_every_order_of_arrival(name: str) -> None:
    """Reversed, and shuffled. The watermark waits for all rows."""
    clauses, select, expected = _case(name)
    late = SCHEMA.replace("(increasing)", "(banded_increasing(100 seconds))")
    sql = f"SELECT {select} FROM ticks MATCH_RECOGNIZE ({clauses})"
    in_order = wiretide.query(sql, TICKS, schema=SCHEMA)
    order = list(range(TICKS.num_rows))
    for indices in (order[::-1], random.Random(name).sample(order, len(order))):
        result = wiretide.query(sql, TICKS.take(indices), schema=late)
        assert sorted(result.to_pylist(), key=repr) == sorted(in_order.to_pylist(), key=repr)
    assert in_order.num_rows == len(expected)


def _rows(prices: list[int | None]) -> pa.Table:
    return frame([(time, "x", "", price) for time, price in enumerate(prices)])


def _answer(sql: str, table: pa.Table) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of a query, and its warnings."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        rows = wiretide.query(sql, table, schema=SCHEMA).to_pylist()
    return rows, [str(each.message) for each in warned]


@pytest.mark.parametrize("argument", ["price", "price * 4611686018427387904"])
def test_sums_beyond_64_bits_are_those_of_plain_sql_and_are_counted(argument: str) -> None:
    draw, overflows = random.Random(argument), 0
    for run in range(12):
        numbers = [2**62, -(2**62), 2**63 - 1, 1 - 2**63, 5, None]
        table = _rows([5, 5, 7, 1] if run == 0 else [draw.choice(numbers) for _ in range(draw.randint(1, 6))])
        aggregates = f"sum({argument}) AS s, avg({argument}) AS m, count({argument}) AS n"
        expected = _answer(f"SELECT {aggregates} FROM ticks", table)
        sql = f"SELECT s, m, n FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES {aggregates} PATTERN (A+))"
        assert _answer(sql, table) == expected, (argument, run, table["price"])
        overflows += len(expected[1])
    assert overflows > 0


def test_a_condition_on_a_sum_beyond_64_bits_is_null() -> None:
    clauses = "ORDER BY ts MEASURES count(A.*) AS n PATTERN (A B B) DEFINE B AS {}"
    table = _rows([1, 2**62, 2**62])
    assert matches(clauses.format("count(B.*) = 1 OR sum(B.price) > 0 OR sum(B.price) <= 0"), "n", table) == []
    assert matches(clauses.format("count(B.*) = 1 OR sum(B.price) IS NULL"), "n", table) == [(1,)]
    assert matches(clauses.format("avg(B.price) = 4611686018427387904.0"), "n", table) == [(1,)]


def test_floats_that_are_no_numbers_are_values_as_in_plain_sql() -> None:
    """NaN is a value and not NULL: in sums, averages, counts, extremes, conditions, and the last row."""
    schema, nan = "PROTOCOL levels { TIME ts (increasing); FLOAT level; }", float("nan")
    draw = random.Random(7)
    aggregates = "sum(level) AS s, avg(level) AS m, count(level) AS n, min(level) AS low, max(level) AS high"
    conditions = {
        "level = level": lambda value: value is not None and value == value,
        "level <> level": lambda value: value is not None and value != value,
        "level IS NULL": lambda value: value is None,
        "level < 2.5": lambda value: value is not None and value < 2.5,
        "NOT level < 2.5": lambda value: value is not None and not value < 2.5,
    }
    columns = [[1.0, nan, 2.0, 3.0], [nan], [None, nan], [None], [-nan, 1.0], [nan, None, 2.0]]
    columns += [[draw.choice([1.0, 2.0, 4.0, nan, None]) for _ in range(draw.randint(1, 5))] for _ in range(20)]
    for values in columns:
        times = pa.array([time * 10**9 for time in range(len(values))], pa.timestamp("ns"))
        table = pa.table({"ts": times, "level": pa.array(values, pa.float64(), from_pandas=False)})
        expected = wiretide.query(f"SELECT {aggregates} FROM levels", table, schema=schema).to_pylist()
        sql = f"SELECT s, m, n, low, high FROM levels MATCH_RECOGNIZE (ORDER BY ts MEASURES {aggregates} PATTERN (A+))"
        assert repr(wiretide.query(sql, table, schema=schema).to_pylist()) == repr(expected), values
        for condition, holds in conditions.items():
            of_register = condition.replace("level", "first(A.level)")
            sql = (
                "SELECT value FROM levels MATCH_RECOGNIZE (ORDER BY ts MEASURES A.level AS value "
                f"AFTER MATCH SKIP TO NEXT ROW PATTERN (A) DEFINE A AS {of_register})"
            )
            found = wiretide.query(sql, table, schema=schema)["value"].to_pylist()
            assert repr(found) == repr([value for value in values if holds(value)]), (values, condition)


def test_runs_with_nan_and_with_null_differ() -> None:
    """Of the runs from a row that are equal only the preferred one is kept: a NaN is not equal to NULL."""
    schema = "PROTOCOL levels { TIME ts (increasing); FLOAT level; }"
    times = pa.array([0, 10**9, 2 * 10**9], pa.timestamp("ns"))
    table = pa.table({"ts": times, "level": pa.array([1.0, float("nan"), 5.0], pa.float64(), from_pandas=False)})
    sql = (
        "SELECT n FROM levels MATCH_RECOGNIZE (ORDER BY ts MEASURES count(B.*) AS n PATTERN (A (B | C) D) "
        "DEFINE A AS level = 1, D AS B.level IS NULL)"
    )
    assert wiretide.query(sql, table, schema=schema)["n"].to_pylist() == [0]


# --- random patterns against regular expressions ---


DEFINITIONS = {"A": "a", "B": "b", "C": "[ab]", "D": "[abc]"}
"""The variables of random patterns, and the kinds of rows for which their conditions are true."""


class Pattern:
    """A random row pattern, and the same as a regular expression with a group for each variable."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.groups: list[str] = []
        self.rows, self.regex = self._choice(3)

    def _choice(self, depth: int) -> tuple[str, str]:
        parts = [self._sequence(depth) for _ in range(self.draw.choice([1, 1, 2]))]
        return " | ".join(rows for rows, _ in parts), "|".join(regex for _, regex in parts)

    def _sequence(self, depth: int) -> tuple[str, str]:
        parts = [self._quantified(depth) for _ in range(self.draw.randint(1, 3))]
        return " ".join(rows for rows, _ in parts), "".join(regex for _, regex in parts)

    def _quantified(self, depth: int) -> tuple[str, str]:
        if depth and self.draw.random() < 0.35:
            rows, regex = self._choice(depth - 1)
            if re.fullmatch(regex, ""):
                return rows if "|" not in rows else f"({rows})", f"(?:{regex})"
            rows, regex = f"({rows})", f"(?:{regex})"
        elif self.draw.random() < 0.06:
            return self.draw.choice([("^", r"\A"), ("$", r"\Z")])
        elif depth and self.draw.random() < 0.08:
            rows, regex = self._permutation()
        else:
            rows = self.draw.choice("ABCD")
            regex = self._group(rows)
        mark = self.draw.choice(["", "", "", "*", "+", "?", "{2}", "{1,3}", "{,2}", "{2,}"])
        if mark and self.draw.random() < 0.3:
            mark += "?"
        return rows + mark, regex + mark

    def _group(self, variable: str) -> str:
        self.groups.append(variable)
        return f"(?P<g{len(self.groups) - 1}>{DEFINITIONS[variable]})"

    def _permutation(self) -> tuple[str, str]:
        """Return PERMUTE, and all orders. One variable is not optional, so it matches a row."""
        parts = [(variable, self.draw.choice(["", "?", "+"])) for variable in self.draw.sample("ABC", 2)]
        parts.insert(self.draw.randint(0, 2), ("D", ""))
        orders = ["".join(self._group(name) + mark for name, mark in order) for order in permutations(parts)]
        return f"PERMUTE({', '.join(name + mark for name, mark in parts)})", f"(?:{'|'.join(orders)})"

    def expected(self, text: str, *, overlap: bool) -> list[tuple[int, int, list[int | None]]]:
        """Return start, length and the last row of each variable for each match."""
        compiled, found, start = re.compile(self.regex), [], 0
        while start < len(text):
            match = compiled.match(text, start)
            if match is None:
                start += 1
                continue
            lasts: list[int | None] = []
            for variable in "ABCD":
                places = [match.start(f"g{number}") for number, own in enumerate(self.groups) if own == variable]
                place = max(places, default=-1)
                lasts.append(None if place < 0 else place)
            found.append((start, match.end() - start, lasts))
            start = start + 1 if overlap else match.end()
        return found


@pytest.mark.parametrize("part", range(4))
def test_random_patterns_match_as_regular_expressions(part: int, soak: bool) -> None:
    tested = 0
    for seed in range(part, 20_000 if soak else 400, 4):
        draw = random.Random(seed)
        pattern = Pattern(draw)
        if re.fullmatch(pattern.regex, ""):
            continue  # Python and SQL:2016 continue at different rows after a match of no row
        text = "".join(draw.choice("aaabbc") for _ in range(draw.randint(1, 25)))
        overlap = draw.random() < 0.5
        skip = "AFTER MATCH SKIP TO NEXT ROW" if overlap else ""
        used = sorted(set(pattern.groups))
        if not used:
            continue  # anchors alone
        measures = ", ".join(f"last({variable}.price) AS {variable}" for variable in used)
        measures += ", last(U.price) AS u, prev(price, 2) AS p, next(price, 2) AS x"
        define = [f"{variable} AS kind IN ({', '.join(map(repr, _letters(variable)))})" for variable in used]
        clauses = (
            f"PARTITION BY host ORDER BY ts MEASURES count(*) AS n, {measures} {skip} PATTERN ({pattern.rows}) "
            f"SUBSET U = ({', '.join(used[:2])}) DEFINE {', '.join(define)}"
        )
        rows = [(place, "x", letter, place) for place, letter in enumerate(text)]
        expected = []
        for start, length, lasts in pattern.expected(text, overlap=overlap):
            end = start + length - 1
            of_variables = [lasts["ABCD".index(variable)] for variable in used]
            of_union = max((place for place in of_variables[:2] if place is not None), default=None)
            others = [place if 0 <= place < len(text) else None for place in (end - 2, end + 2)]
            expected.append(("x", start, end, length, *of_variables, of_union, *others))
        try:
            found = matches(clauses, table=frame(rows))
        except QueryError as error:
            if "a pattern that no rows match" not in str(error):
                raise
            found = []
        assert found == sorted(expected, key=repr), (seed, clauses, text)
        tested += 1
    assert tested > 50


def _letters(variable: str) -> str:
    return DEFINITIONS[variable].strip("[]")


def test_many_measures_and_large_offsets_are_possible() -> None:
    sums = ", ".join(f"sum(price + {number}) AS s{number}" for number in range(60))
    (found,) = matches(f"ORDER BY ts MEASURES {sums} PATTERN (A+)")
    assert found[2:] == tuple(sum(PRICES) + number * len(PRICES) for number in range(60))
    lasts = ", ".join(f"last({name}, 100) AS {name}" for name in ("price", "kind", "ts"))
    rows = [(time, "x", f"k{time}", 1_000 + time) for time in range(150)]
    (found,) = matches(f"ORDER BY ts MEASURES {lasts} PATTERN (A+)", "price, kind, ts", frame(rows))
    assert found == (1_049, "k49", 49)


def test_nested_quantifiers_cost_as_much_as_simple_ones() -> None:
    """Equal runs are united: otherwise this pattern would have 2**2,000 runs."""
    rows = [(place, "x", "a", place) for place in range(2_000)]
    assert (
        matches("ORDER BY ts MEASURES count(*) AS n PATTERN ((A+)+ B) DEFINE B AS kind = 'b'", table=frame(rows)) == []
    )


def test_too_many_runs_are_an_error_and_not_a_missing_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MAX_NODES", 4_096)
    rows = [(place, "x", "a", place) for place in range(4_000)]
    with pytest.raises(PatternError, match="got more than 4096 partial matches, expected fewer: a shorter window"):
        matches("ORDER BY ts PATTERN (A O* B) DEFINE B AS price = 3999", table=frame(rows))


@pytest.mark.filterwarnings(SKIP_ERRORS)
def test_kernels_read_and_write_within_their_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("match_rows", "end_runs", "earliest_candidate"):
        monkeypatch.setattr(match_kernels, name, plain(getattr(match_kernels, name)))
    for name in list(CASES)[::3]:
        clauses, select, expected = _case(name)
        assert matches(clauses, select) == sorted(expected, key=repr)


def test_functions_of_payloads_are_conditions_of_the_tested_row(tmp_path: Path) -> None:
    """Payloads do not leave the low level, so their functions are computed there."""
    path = tmp_path / "requests.pcap"
    payloads = [b"GET /a", b"x", b"GET /b", b"GET /c", b"y"]
    frames = [
        Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
        / IP(src="10.0.0.1", dst="10.0.0.2")
        / TCP(sport=1, dport=80, flags="PA")
        / Raw(payload)
        for payload in payloads
    ]
    wrpcap(str(path), frames)
    sql = (
        "SELECT n FROM packets MATCH_RECOGNIZE (ORDER BY ts MEASURES count(*) AS n PATTERN (G O) "
        "DEFINE G AS starts_with(payload, 'GET'), O AS NOT starts_with(payload, 'GET'))"
    )
    assert wiretide.query(sql, path)["n"].to_pylist() == [2, 2]
    for wrong, message in (
        (sql.replace("count(*)", "first(payload)"), "a measure of bytes"),
        (sql.replace("count(*)", "contains(payload, 'x')"), "a measure of bytes"),
        (sql.replace("NOT starts_with(payload, 'GET')", "contains(G.payload, 'x')"), "bytes of an earlier row"),
    ):
        with pytest.raises(QueryError, match=message):
            wiretide.query(wrong, path)


# --- wrong clauses ---

WRONG = {
    "()": ("PATTERN ()", "got ')'", "a variable"),
    "{- without -}": ("PATTERN (A {- B } C)", "got '}'", "or -} after"),
    "{3,2}": ("PATTERN (A{3,2})", "{3,2}", "an upper bound"),
    "{,}": ("PATTERN (A{,})", "{,} without a number", "{2,3}"),
    "{0}": ("PATTERN (A{0} B)", "{0,0}", "at least 1"),
    "{5000}": ("PATTERN (A{5000})", "5000", "at most 1000"),
    "many states": ("PATTERN ((A{1000}){3})", "more than 2000 variables", "count(A.*)"),
    "many arcs": ("PATTERN ((A?){1000} B)", "more than 20000 arcs", "A{,9} in place of (A?){9}"),
    "PERMUTE of many": ("PATTERN (PERMUTE(A, B, C, D, E, F, G))", "PERMUTE of 7 patterns", "at most 6"),
    "PERMUTE of many orders": ("PATTERN (PERMUTE(A?, B, C, D, E, F))", "more than 2000 variables", "count(A.*)"),
    "PERMUTE without ')'": ("PATTERN (PERMUTE(A, B)", "'(' is never closed", "expected ')'"),
    "PERMUTE of nothing": ("PATTERN (PERMUTE(A, ))", "got ')'", "a variable"),
    "many parts without rows": ("PATTERN ((((()){1000}){1000}){1000} A)", "more than 100000 parts", "{ }"),
    "{- -} with UNMATCHED ROWS": (
        "ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A {- B -})", "{- -} with UNMATCHED ROWS", "without {- -}",
    ),
    "^ after a row": ("PATTERN (A ^)", "that no rows match", "^ before the first row"),
    "$ before a row": ("PATTERN ($ A)", "that no rows match", "$ after the last"),
    "^ with nothing before '|'": ("PATTERN (| ^)", "got '|'", "a variable"),
    "unknown variable in DEFINE": ("PATTERN (A) DEFINE B AS TRUE", "'B' in DEFINE", "valid: A"),
    "defined twice": ("PATTERN (A) DEFINE A AS TRUE, a AS FALSE", "'a' is defined twice", "one condition"),
    "no condition": ("PATTERN (A) DEFINE A AS price", "is integer", "a condition"),
    "unknown variable in MEASURES": ("MEASURES X.price AS p PATTERN (A)", "a column of 'X'", "valid: A"),
    "unknown column": ("MEASURES A.prize AS p PATTERN (A)", "unknown column 'prize'", "price"),
    "measure without name": ("MEASURES price PATTERN (A)", "got 'PATTERN'", "AS and the name"),
    "two equal names": ("MEASURES price AS p, ts AS p PATTERN (A)", "a second column 'p'", "another name"),
    "ALL ROWS with an unknown word": ("ALL ROWS PER MATCH SHOW ROWS PATTERN (A)", "got 'SHOW'", "ALL ROWS PER MATCH"),
    "a measure with the name of a column": (
        "MEASURES count(*) AS price ALL ROWS PER MATCH PATTERN (A)", "a second column 'price'", "another name",
    ),
    "FINAL in DEFINE": ("PATTERN (A) DEFINE A AS FINAL last(price) > 1", "FINAL in DEFINE", "no FINAL"),
    "FINAL of a column": ("MEASURES FINAL A.price AS p PATTERN (A)", "got 'A'", "FINAL LAST(A.len)"),
    "FINAL PREV": ("MEASURES FINAL prev(price) AS p PATTERN (A)", "FINAL PREV", "FIRST, LAST or"),
    "FINAL within PREV": ("PATTERN (A) DEFINE A AS prev(FINAL last(price)) > 1", "FINAL in DEFINE", "no FINAL"),
    "SUBSET of an unknown variable": ("PATTERN (A B) SUBSET U = (A, C)", "'C' in SUBSET", "valid: A, B"),
    "SUBSET of a union": ("PATTERN (A B) SUBSET U = (A), W = (U)", "'U' in SUBSET", "valid: A, B"),
    "SUBSET with the name of a variable": ("PATTERN (A B) SUBSET b = (A)", "SUBSET b", "no variable of PATTERN"),
    "SUBSET twice": ("PATTERN (A B) SUBSET U = (A), u = (B)", "SUBSET u", "no other union"),
    "SUBSET without variables": ("PATTERN (A B) SUBSET U = ()", "got ')'", "a variable of PATTERN"),
    "SUBSET without '='": ("PATTERN (A B) SUBSET U (A, B)", "got '('", "SUBSET U = (A, B)"),
    "SUBSET after DEFINE": ("PATTERN (A B) DEFINE A AS TRUE SUBSET U = (A)", "got 'SUBSET'", "SUBSET, DEFINE"),
    "a condition of a union": ("PATTERN (A B) SUBSET U = (A) DEFINE U AS TRUE", "'U' in DEFINE", "valid: A, B"),
    "a union in PATTERN": ("PATTERN (A B U) SUBSET U = (A)", "SUBSET U", "no variable of PATTERN"),
    "skip to an unknown variable": ("AFTER MATCH SKIP TO C PATTERN (A)", "SKIP TO C", "valid: A"),
    "skip to nothing": ("AFTER MATCH SKIP PATTERN (A)", "got 'PATTERN'", "PAST LAST ROW"),
    "PREV without arguments": ("MEASURES prev() AS p PATTERN (A)", "PREV with 0 arguments", "PREV(A.len, 1)"),
    "NEXT of many rows": ("MEASURES next(price, 101) AS p PATTERN (A)", "the offset 101 of NEXT", "from 0 to 100"),
    "PREV of a negative offset": ("MEASURES prev(price, -1) AS p PATTERN (A)", "the offset -1 of PREV", "or NEXT"),
    "FIRST of a negative offset": ("MEASURES first(price, -1) AS p PATTERN (A)", "the offset -1 of FIRST", "0 to 100"),
    "an offset that is a text": ("MEASURES last(price, '1') AS p PATTERN (A)", "the offset 1 of LAST", "an integer"),
    "an aggregate within PREV": ("MEASURES prev(count(*)) AS p PATTERN (A)", "count within prev", "around columns"),
    "a set of values of two rows": ("PATTERN (A B) DEFINE B AS A.price + B.price IN (1, 2)", "IN over earlier", "OR"),
    "PREV within LAST": ("MEASURES last(prev(price), 1) AS p PATTERN (A)", "prev within last", "around columns"),
    "PREV of NEXT": ("MEASURES prev(next(price)) AS p PATTERN (A)", "next within prev", "around columns"),
    "an offset that is no constant": ("MEASURES last(price, price) AS p PATTERN (A)", "no constant", "an integer"),
    "CLASSIFIER of an unknown variable": ("MEASURES classifier(X) AS c PATTERN (A)", "CLASSIFIER(X)", "valid: A"),
    "CLASSIFIER of a column": ("MEASURES classifier(A.price) AS c PATTERN (A)", "of an expression", "CLASSIFIER(U)"),
    "an order of classifiers": ("PATTERN (A) DEFINE A AS classifier() > 'A'", "> between texts", "="),
    "MATCH_NUMBER in DEFINE": ("PATTERN (A) DEFINE A AS MATCH_NUMBER() = 1", "MATCH_NUMBER in DEFINE", "MEASURES"),
    "sum of texts": ("MEASURES sum(A.host) AS s PATTERN (A)", "sum of text", "a number"),
    "sum of two": ("MEASURES sum(A.price, 2) AS s PATTERN (A)", "2 arguments", "one argument"),
    "columns of two variables": ("MEASURES sum(A.price - B.price) AS s PATTERN (A B)", "several variables", "one"),
    "nested aggregates": ("MEASURES sum(count(A.price)) AS s PATTERN (A)", "within sum", "one of them"),
    "stddev": ("MEASURES stddev(A.price) AS s PATTERN (A)", "stddev", ""),
    "FILTER": ("MEASURES count(*) FILTER (WHERE price > 1) AS s PATTERN (A)", "FILTER", "a variable"),
    "WITHIN rows": ("PATTERN (A) WITHIN 3 rows", "a number of rows", "a length of time"),
    "WITHIN 0": ("PATTERN (A) WITHIN 0 seconds", "0 seconds", "more than 0"),
    "an order of texts": ("PATTERN (A B) DEFINE B AS B.host > A.host", "> between texts", "="),
    "a function of two rows": ("PATTERN (A B) DEFINE B AS sqrt(B.price - A.price) > 1", "sqrt", "of one row"),
    "no pattern": ("MEASURES price AS p", "got ')'", "PATTERN"),
    "clauses in another order": ("PATTERN (A) MEASURES price AS p", "got 'MEASURES'", "in the order"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_clause_is_refused_with_its_place_and_a_remedy(name: str) -> None:
    clauses, problem, remedy = WRONG[name]
    with pytest.raises(QueryError) as error:
        matches(f"PARTITION BY host ORDER BY ts {clauses}")
    assert problem in str(error.value)
    assert remedy in str(error.value)
    assert "^" in str(error.value).splitlines()[2]


@pytest.mark.parametrize(
    ("clauses", "text"),
    [
        ("PARTITION BY hots ORDER BY ts PATTERN (A)", "'hots'"),
        ("PARTITION BY host ORDER BY price PATTERN (A)", "ORDER BY price"),
        ("PARTITION BY host PATTERN (A)", "ORDER BY ts"),
        ("PARTITION BY host ORDER BY ts DESC PATTERN (A)", "rising order"),
    ],
)
def test_wrong_partitions_and_orders_are_refused(clauses: str, text: str) -> None:
    with pytest.raises(QueryError, match=re.escape(text)):
        matches(clauses)


# --- with other clauses ---


def test_a_condition_on_the_partition_selects_rows_and_other_conditions_select_matches() -> None:
    measures = _in_full("{H} {N} {V}")
    assert matches(measures, after=" WHERE host = 'a' AND n > 3") == [("a", 1, 7, 5)]


def test_matches_are_the_input_of_windows_and_joins() -> None:
    clauses = _in_full("{H} {N} {V}")
    inner = f"ticks MATCH_RECOGNIZE ({clauses})"
    windows = wiretide.query(
        f"SELECT sum(n) AS n FROM {inner} AS m [RANGE 10 seconds, SLIDE 10 seconds, WA match_end]", TICKS, schema=SCHEMA
    )
    assert windows["n"].to_pylist() == [8, 3]


def test_rows_of_a_query_are_matched() -> None:
    sql = (
        "SELECT * FROM (SELECT ts, host, price * 2 AS twice FROM ticks WHERE price > 5) MATCH_RECOGNIZE "
        "(PARTITION BY host ORDER BY ts MEASURES max(twice) AS m PATTERN (A B) DEFINE B AS twice > A.twice)"
    )
    assert wiretide.query(sql, TICKS, schema=SCHEMA)["m"].to_pylist() == [18, 26]


def test_a_pattern_that_needs_the_end_of_a_partition_waits_for_it_except_with_changes() -> None:
    clauses = "packets MATCH_RECOGNIZE (PARTITION BY srcIP ORDER BY ts MEASURES next(len) AS n PATTERN (%s))"
    sql = f"SELECT srcIP, n FROM {clauses}"
    assert compile_query(sql % "A $").waiting_reason == (
        "has a row pattern with $ (the end of a partition) without EMIT CHANGES"
    )
    assert compile_query(sql % "A $" + " EMIT CHANGES").waiting_reason is None
    assert compile_query(sql % "^ A").waiting_reason is None


def test_explain_prints_anchors_unions_and_the_rows_that_are_kept_for_others() -> None:
    sql = (
        "SELECT * FROM packets MATCH_RECOGNIZE (PARTITION BY srcIP ORDER BY ts MEASURES prev(U.len, 2) AS p, "
        "next(len) AS n, classifier(U) AS c PATTERN (^ (A B*? $)?) SUBSET U = (A) DEFINE A AS len > 90)"
    )
    lines = [" ".join(line.split()) for line in explain(compile_query(sql)).splitlines()]
    for expected in (
        "order ts; rows wait until the watermark is later, and for the next row of the partition",
        "arc start ► A: is the first row AND len > 90",
        "arc A ► B: every row",
        "field last(U.prev(len, 2)): prev(len, 2) in A",
        "field classifier(U): 'A' in A",
        "final start",
        "final start only if is the first row",
        "final A, B after the last row of the partition",
        "state rows that wait, the runs of the automaton, the last 2 rows of each partition",
    ):
        assert expected in lines, "\n".join(lines)
