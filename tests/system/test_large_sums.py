"""Sums and means of integers near 2**63 on all engines, with tables so small that groups are evicted.

Plain Python computes the expected values, with integers of any size. The tests detect a sum that wraps in a table
entry, in a merge of partials, or in windows that add and subtract panes, and a sum beyond 64 bits that is not NULL.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import wiretide
from highlevel.inline.engine import InlineRun, Input
from highlevel.metrics import SUMS_OVERFLOWED
from lowlevel.subaggregates import INT_MAX, INT_MIN
from queries.gsql import compile_query
from tests.conformance.traffic import NS, Row, generate_links

LARGE = "(9223372036854775807 - len)"
SIGNED = f"(CASE WHEN ttl > 63 THEN {LARGE} ELSE -{LARGE} - 1 END)"
MEDIUM = "(len * 10000000000000000)"
VALUES: dict[str, Callable[[Row], int]] = {
    LARGE: lambda row: INT_MAX - row["len"],
    SIGNED: lambda row: INT_MAX - row["len"] if row["ttl"] > 63 else row["len"] + INT_MIN,
    MEDIUM: lambda row: row["len"] * 10**16,
}
INNER = "SELECT srcPort, len, count(*) AS n FROM packets [RANGE 10 s] GROUP BY srcPort, len"
WINDOWS = {"": None, "[RANGE 10 s, SLIDE 10 s, WA ts]": (10, 10), "[RANGE 20 s, SLIDE 2 s, WA ts]": (20, 2)}

Sums = dict[tuple, tuple[int | None, float]]
"""The sum and the mean of each window and group."""


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Input], list[Row]]:
    paths, rows = generate_links(tmp_path_factory.mktemp("links"), packets=120)
    return [Input(path.stem, path) for path in paths], rows


def expected_sums(rows: list[Row], value: Callable[[Row], int], window: tuple[int, int] | None) -> Sums:
    values: dict[tuple, list[int]] = defaultdict(list)
    for row in rows:
        if window is None:
            values[row["srcPort"],].append(value(row))
            continue
        length, slide = (seconds * NS for seconds in window)
        for number in range(row["ts"] // slide, (row["ts"] + length) // slide):
            values[(number + 1) * slide, row["srcPort"]].append(value(row))
    return {
        key: (sum(group) if INT_MIN <= sum(group) <= INT_MAX else None, float(Fraction(sum(group), len(group))))
        for key, group in values.items()
    }


def sums_of(table: pa.Table) -> Sums:
    keys = [name for name in ("window_end", "srcPort") if name in table.schema.names]
    return {tuple(row[name] for name in keys): (row["total"], row["mean"]) for row in table.to_pylist()}


def assert_equal(found: Sums, expected: Sums, what: str) -> None:
    assert found.keys() == expected.keys(), what
    for key, (total, mean) in expected.items():
        assert found[key][0] == total, (what, key)
        # Halves of values with different signs cancel, so the error depends on the largest value.
        assert found[key][1] == pytest.approx(mean, rel=1e-12, abs=1e5), (what, key)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("value", VALUES)
def test_all_engines_have_exact_sums_or_null(
    value: str, window: str, links: tuple[list[Input], list[Row]], tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    from tests.harness.spark_tasks import batch_answer, stream_answers

    inputs, rows = links
    plan = compile_query(
        f"SELECT srcPort, sum({value}) AS total, avg({value}) AS mean FROM packets {window} GROUP BY srcPort", "q"
    )
    expected = expected_sums(rows, VALUES[value], WINDOWS[window])
    run = InlineRun([plan], inputs, slots=8, threads=1)
    assert_equal(sums_of(pa.Table.from_batches([batch for _, batch in run.results()])), expected, "inline")
    overflows = sum(total is None for total, _ in expected.values())
    assert run.samples().total(SUMS_OVERFLOWED, query="q") == overflows
    assert_equal(sums_of(batch_answer(plan, inputs, 3, Random(1))), expected, "batch")
    assert_equal(sums_of(stream_answers([plan], inputs, 2, tmp_path / "state", Random(1))["q"]), expected, "stream")
    assert overflows or value == SIGNED
    assert overflows < len(expected) or value == LARGE or not window


@pytest.mark.parametrize("sql", ["FROM packets WHERE {} > 0", "FROM (SELECT len, ttl FROM packets)"])
def test_the_user_is_warned_of_sums_that_do_not_fit(sql: str, links: tuple[list[Input], list[Row]]) -> None:
    inputs, rows = links
    with pytest.warns(RuntimeWarning, match="1 sum of integers is beyond 64 bits, and NULL in the answer") as warned:
        table = wiretide.query(
            f"SELECT sum({LARGE}) AS s, count(*) AS n {sql.format(LARGE)}", *(i.path for i in inputs)
        )
    assert table.to_pylist() == [{"s": None, "n": len(rows)}]
    assert len(warned) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT len, sum({}) AS total FROM packets [LIFETIME 10 s] GROUP BY len",
        "SELECT len, sum({}) AS total FROM packets [LIFETIME 10 s] GROUP BY len EMIT CHANGES",
        "SELECT ts, len, sum({}) OVER (PARTITION BY len ORDER BY ts ROWS 9 PRECEDING) AS total FROM packets",
        f"SELECT n, sum({{}}) AS total FROM ({INNER}) [RANGE 20 s] GROUP BY n EMIT CHANGES",
        f"SELECT n, sum({{}}) AS total, max(len) AS longest FROM ({INNER}) [RANGE 20 s] GROUP BY n EMIT CHANGES",
    ],
    ids=["lifetimes", "changes of lifetimes", "window functions", "changes of sums", "changes of other results"],
)
def test_sums_of_lifetimes_window_functions_and_changes_are_counted(
    sql: str, links: tuple[list[Input], list[Row]]
) -> None:
    """A corrected sum is counted again, so there may be more counted sums than rows."""
    run = InlineRun([compile_query(sql.format(LARGE), "q")], links[0], threads=1)
    rows = pa.Table.from_batches([batch for _, batch in run.results()])
    has_changes = "weight" in rows.schema.names
    nulls = sum(row["total"] is None for row in rows.to_pylist() if not has_changes or row["weight"] > 0)
    counted = run.samples().total(SUMS_OVERFLOWED, query="q")
    assert nulls > 0
    assert counted >= nulls if has_changes else counted == nulls


def test_integers_of_tables_are_added_without_wrapping() -> None:
    random = Random(7)
    numbers = [random.choice([INT_MAX, INT_MIN, -1, 0, random.randint(INT_MIN, INT_MAX)]) for _ in range(999)]
    groups = [random.randrange(200) for _ in numbers]
    table = pa.table({"g": groups, "x": numbers})
    totals = {g: sum(x for x, other in zip(numbers, groups, strict=True) if other == g) for g in groups}
    with pytest.warns(RuntimeWarning, match="beyond 64 bits"):
        found = wiretide.query("SELECT g, sum(x) AS s FROM t GROUP BY g", table)
    expected = {g: total if INT_MIN <= total <= INT_MAX else None for g, total in totals.items()}
    assert dict(zip(*(found.column(name).to_pylist() for name in ("g", "s")), strict=True)) == expected
    assert None in expected.values()
    assert any(total is not None for total in expected.values())
