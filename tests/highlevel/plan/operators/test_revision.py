"""The limit of the rows that DISTINCT ON, MERGE and CHANGES BY store, and sums of MERGE beyond 64 bits.

The tests detect a copy or a second row of a flow that no counter explains, rows of one time that are never forgotten,
and a sum that wraps when records are merged in several steps.
"""

from collections import Counter
from random import Random

import pytest

from highlevel.plan.operators.revision import RevisionOperator
from highlevel.plan.revision_nodes import FirstCopies, FlowMerge, NetRows
from highlevel.speculation.change_logs import NetRule
from highlevel.speculation.copies import CopyRule
from highlevel.speculation.flow_records import FlowRule
from highlevel.speculation.keyed_rows import Rule
from lowlevel.expressions.tree import Binary, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.punctuation import END, Punctuation
from lowlevel.subaggregates import INT_MAX, INT_MIN
from tests.conftest import Rounds
from tests.references.graph_streams import item
from tests.references.plan_references import NUMBER, ROWS, schema_of
from tests.references.revision_references import ROLES, first_copies, flows

NEVER = Binary(Op.EQ, NUMBER, Literal(4, Type.INT))
"""The condition that a record ends its flow. The tests use no record with the number 4."""

WITHIN = 50
COPIES, FLOWS, LOG = (
    FirstCopies(ROWS, ("g",), WITHIN),
    FlowMerge(ROWS, ("g",), ROLES, WITHIN, None, "other", NEVER),
    NetRows(ROWS, "n"),
)
RULES: dict[str, tuple[FirstCopies | FlowMerge | NetRows, Rule]] = {
    "copies": (COPIES, CopyRule(COPIES)),
    "flows": (FLOWS, FlowRule(FLOWS)),
    "log": (LOG, NetRule(LOG)),
}


def feed(operator: RevisionOperator, batches: list[list[tuple]], lows: list[int]) -> list[dict]:
    """Process each batch and then a watermark, and at last the end. Return the results."""
    found: list = list(operator.punctuate(0, Punctuation("link", 0)))
    for batch, low in zip(batches, lows, strict=True):
        found += operator.process_rows(0, item(batch, schema_of(ROWS)))
        found += operator.punctuate(0, Punctuation("link", low))
    found += operator.punctuate(0, Punctuation("link", END))
    return [row for each in found if not isinstance(each, Punctuation) for row in each.to_pylist()]


def repeated_keys(random: Random) -> list[list[tuple]]:
    """Batches of rows in the order of time. Most rows are near an earlier row of their key."""
    times = sorted(random.randrange(400) for _ in range(300))
    rows = [(ts, ts, f"key {random.randrange(40)}", random.randrange(4)) for ts in times]
    return [rows[first : first + 5] for first in range(0, len(rows), 5)]


def test_rows_that_are_returned_twice_beyond_the_limit_are_counted(rounds: Rounds) -> None:
    for seed in rounds(10):
        batches = repeated_keys(Random(f"limited copies {seed}"))
        exact = first_copies(COPIES, [[row for batch in batches for row in batch]])
        for max_rows in (20, 10_000):
            operator = RevisionOperator(COPIES, CopyRule(COPIES), max_rows)
            found = Counter(tuple(row.values()) for row in feed(operator, batches, [0] * len(batches)))
            assert not exact - found, seed
            additional = found.total() - exact.total()
            assert 0 <= additional <= operator.forgotten, seed
            assert (additional > 0) == (max_rows == 20), seed
            assert (operator.forgotten > 0) == (max_rows == 20), seed
            assert operator.received == found.total() + operator.absorbed + operator.late, seed


def test_flows_that_are_split_beyond_the_limit_are_counted(rounds: Rounds) -> None:
    for seed in rounds(10):
        batches = repeated_keys(Random(f"limited flows {seed}"))
        exact = flows(FLOWS, [[row for batch in batches for row in batch]])
        for max_rows in (20, 10_000):
            operator = RevisionOperator(FLOWS, FlowRule(FLOWS), max_rows)
            found = feed(operator, batches, [0] * len(batches))
            additional = len(found) - exact.total()
            assert 0 <= additional <= operator.forgotten, seed
            assert (additional > 0) == (max_rows == 20), seed
            assert (operator.forgotten > 0) == (max_rows == 20), seed
            assert operator.received == sum(row["records"] for row in found) + operator.late, seed


def test_copies_need_one_row_of_each_key_below_the_watermark() -> None:
    operator = RevisionOperator(COPIES, CopyRule(COPIES), 100)
    batches = [[(ts, ts, "a", 1), (ts, ts, "b", 1)] for ts in range(WITHIN)]
    list(operator.punctuate(0, Punctuation("link", 0)))
    for batch in batches:
        list(operator.process_rows(0, item(batch, schema_of(ROWS))))
        list(operator.punctuate(0, Punctuation("link", batch[0][0] + 1)))
        assert operator.rows_held == 2
    assert (operator.results, operator.absorbed, operator.forgotten) == (2, 2 * WITHIN - 2, 0)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("times", [1, 2, 100])
def test_the_number_of_stored_rows_is_limited(rule: str, times: int) -> None:
    """Also if more rows than the limit have one time: then later rows of this time are late."""
    operator = RevisionOperator(*RULES[rule], max_rows=20)
    list(operator.punctuate(0, Punctuation("link", 0)))
    for number in range(100):
        ts = number * times // 100
        list(operator.process_rows(0, item([(ts, ts, f"{number} {row}", 1) for row in range(5)], schema_of(ROWS))))
        assert operator.rows_held <= 20
    assert (operator.late > 0) == (times < 100)
    list(operator.process_rows(0, item([(-1, -1, "a", 1)], schema_of(ROWS))))
    list(operator.punctuate(0, Punctuation("link", END)))
    assert operator.results + operator.late == 501


def test_sums_of_merged_records_are_exact_or_null(rounds: Rounds) -> None:
    for seed in rounds(20):
        random = Random(f"large sums {seed}")
        values = [INT_MAX, INT_MIN, 2**62, -(2**62), 2**32 - 1, 2**33, 5, -1, 0]
        rows = [(ts, ts, random.choice("abcdef"), random.choice([*values, None])) for ts in range(40)]
        operator = RevisionOperator(FLOWS, FlowRule(FLOWS))
        found = feed(operator, [[row] for row in rows], [random.randrange(ts + 1) for ts in range(40)])
        expected, overflows = {}, 0
        for key in {row[2] for row in rows}:
            known = [n for *_, g, n in rows if g == key and n is not None]
            fits = INT_MIN <= sum(known) <= INT_MAX
            overflows += not fits
            expected[key] = sum(known) if known and fits else None
        assert {row["g"]: row["n"] for row in found} == expected, seed
        assert len(found) == len(expected), seed
        assert operator.overflowed_sums == overflows, seed
