"""Conditions on a group that all groups of its window have a part in, against plain Python.

Only these tests detect a share that is a float but must be exact, and equal groups at the last rank that are separated.
They detect windows of one batch that are mixed up, and groups of a Spark query that are split over partitions.
"""

import math
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from highlevel.aggregation import Selection, SelectionKind
from highlevel.results.select_groups import select
from lowlevel.expressions.columns import Vector
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from queries.gsql import compile_query
from queries.text.errors import QueryError
from tests.conftest import Rounds
from tests.harness import in_ns
from tests.harness.links import write_links

NS = 10**9
VALUE = Column("v", Type.INT)


def twin(kind: SelectionKind, parameter: str, values: list[Any], windows: list[int]) -> list[bool]:
    of_window = defaultdict(list)
    for value, window in zip(values, windows, strict=True):
        if value is not None and not math.isnan(value):
            of_window[window].append(value)
    found = []
    for value, window in zip(values, windows, strict=True):
        others = of_window[window]
        if value is None or math.isnan(value):
            found.append(False)
        elif kind is SelectionKind.TOP:
            found.append(sum(other > value for other in others) < int(parameter))
        else:
            found.append(Fraction(value) >= Fraction(parameter) * sum(map(Fraction, others)))
    return found


def test_groups_are_selected_among_those_of_their_window(rounds: Rounds) -> None:
    for seed in rounds(1000):
        random = Random(seed)
        rows = random.choice([1, 3, 30])
        floats = random.random() < 0.3
        numbers = [0.5, 0.25, 4.0, math.nan] if floats else [0, 1, 7, 93, 2**40, -3]
        values = [None if random.random() < 0.1 else random.choice(numbers) for _ in range(rows)]
        windows = [random.randrange(3) for _ in range(rows)]
        kind = random.choice(list(SelectionKind))
        parameter = (
            str(random.randrange(1, 6)) if kind is SelectionKind.TOP else random.choice(["0.07", "0.25", "0", "1"])
        )
        data = np.array([0 if value is None else value for value in values], np.float64 if floats else np.int64)
        vector = Vector(data, np.array([value is not None for value in values]))
        got = select(Selection("w0", kind, VALUE, parameter), vector, np.array(windows))
        if not (floats and parameter == "0.07"):  # a share of floats is a float
            assert got.tolist() == twin(kind, parameter, values, windows), seed


def test_seven_percent_of_a_hundred_are_seven() -> None:
    assert 0.07 * 100 > 7
    got = select(Selection("w0", SelectionKind.HEAVY, VALUE, "0.07"), Vector(np.array([7, 6, 87])), np.zeros(3, int))
    assert got.tolist() == [True, False, True]


def test_a_value_that_is_the_same_for_all_groups_selects_all_of_them() -> None:
    got = select(Selection("w0", SelectionKind.TOP, VALUE, "1"), Vector(np.array(5)), np.zeros(3, int))
    assert got.tolist() == [True] * 3


@pytest.mark.parametrize("seed", range(3))
def test_heavy_sources_and_top_talkers_of_each_window(seed: int, tmp_path: Path) -> None:
    paths = [Path(each.path) for each in write_links(tmp_path, seed)]
    names = ["ts", "srcIP", "len"]
    rows = [row for path in paths for batch in in_ns.packets(path, names) for row in batch.to_pylist()]
    got = in_ns.query(
        "SELECT srcIP, count(*) AS n FROM packets [RANGE 10 min, SLIDE 5 min] GROUP BY srcIP HAVING heavy(0.13)", *paths
    )
    most = in_ns.query(
        "SELECT srcIP, sum(len) AS bytes FROM packets [RANGE 10 min, SLIDE 5 min] GROUP BY srcIP "
        "HAVING top(2, bytes) AND count(*) > 1",
        *paths,
    )
    want, want_most = Counter(), Counter()
    for end in {(row["ts"] // (300 * NS) + ahead) * 300 * NS for row in rows for ahead in (1, 2)}:
        inside = [row for row in rows if end - 600 * NS <= row["ts"] < end]
        counts = Counter(row["srcIP"] for row in inside)
        total = Counter()
        for row in inside:
            total[row["srcIP"]] += row["len"]
        for source, count in counts.items():
            if count * 100 >= 13 * len(inside):
                want[end, source, count] += 1
            if sum(other > total[source] for other in total.values()) < 2 and count > 1:
                want_most[end, source, total[source]] += 1
    assert Counter((row["window_end"], row["srcIP"], row["n"]) for row in got.to_pylist()) == want
    assert Counter((row["window_end"], row["srcIP"], row["bytes"]) for row in most.to_pylist()) == want_most


def test_groups_that_are_compared_stay_in_one_partition() -> None:
    plan = compile_query("SELECT srcIP, count(*) FROM M [RANGE 1 minute] GROUP BY srcIP HAVING heavy(0.05)")
    assert plan.aggregation.partitioned_by == ()
    assert compile_query(
        "SELECT srcIP, count(*) FROM M [RANGE 1 minute] GROUP BY srcIP"
    ).aggregation.partitioned_by == ("k0",)


def test_equal_conditions_are_computed_once_and_details_can_be_compared() -> None:
    plan = compile_query(
        "SELECT srcIP, count(*) AS n FROM M GROUP BY srcIP "
        "HAVING heavy(0.05) AND NOT heavy(0.05, n) OR top(3, count_distinct(destPort) * 2)"
    )
    assert [(each.name, each.kind) for each in plan.aggregation.selections] == [("w0", "heavy"), ("w1", "top")]


WINDOW = "SELECT srcIP, count(*) AS n FROM M [{}] GROUP BY srcIP HAVING {}"


@pytest.mark.parametrize(
    "sql, problem",
    [
        ("SELECT heavy(0.05) FROM M GROUP BY srcIP", "heavy of groups in SELECT; expected the condition in HAVING"),
        ("SELECT srcIP, top(3, len) FROM M GROUP BY srcIP", "top of groups in SELECT"),
        ("SELECT count(*) FROM M WHERE heavy(0.1)", "heavy of groups in WHERE"),
        (WINDOW.format("RANGE 1 s", "heavy(5)"), "a share outside 0 to 1; expected a number from 0 to 1"),
        (WINDOW.format("RANGE 1 s", "heavy(n)"), "a share outside 0 to 1"),
        (WINDOW.format("RANGE 1 s", "heavy(0.1, srcIP)"), "heavy by a value of type address"),
        (WINDOW.format("RANGE 1 s", "heavy(0.1, 1, 2)"), "heavy with 3 arguments"),
        (WINDOW.format("RANGE 1 s", "heavy(0.1, len)"), "column 'len' is neither grouped by nor inside an aggregate"),
        (WINDOW.format("RANGE 1 s", "top(3)"), "top with 1 argument; expected top(10, sum(len))"),
        (WINDOW.format("RANGE 1 s", "top(0, n)"), "an invalid number of groups"),
        (WINDOW.format("SESSION 1 s", "top(3, n)"), "top over windows that differ between groups"),
        (WINDOW.format("RANGE 3 rows, PA srcIP", "heavy(0.1)"), "heavy over windows that differ between groups"),
        (WINDOW.format("RANGE 1 s, LATE EMIT", "heavy(0.1)"), "heavy over rows that are late"),
    ],
)
def test_what_is_wrong_is_said_with_what_was_expected(sql: str, problem: str) -> None:
    with pytest.raises(QueryError) as caught:
        compile_query(sql)
    assert problem in str(caught.value)
