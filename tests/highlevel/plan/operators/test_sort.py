"""Sort has the order of its reference implementation in every order of arrival, and stores few rows under a limit.

These tests detect a wrong order of NULL, NaN and addresses, ties that depend on the arrival, results that are held back
although a watermark covers them, and memory that grows with the input under a limit.
"""

from random import Random

import pyarrow as pa
import pytest

from highlevel.operators.meld import UNION
from highlevel.plan.answer_nodes import Sort, SortKey
from highlevel.plan.operators.sort import MIN_PRUNED_ROWS, SortOperator, sorted_positions
from highlevel.plan.operators.stored_rows import MAX_BATCHES
from lowlevel.punctuation import END, Punctuation
from tests.conftest import Rounds
from tests.references.graph_streams import feed, interleaved, stream
from tests.references.plan_references import REFERENCES, ROWS, by_both, by_ts, in_order, made_rows, schema_of


def batch_of(rows: list[tuple]) -> pa.RecordBatch:
    schema = schema_of(ROWS)
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


def rows_in(items: list) -> list[tuple]:
    return [tuple(row.values()) for item in items if isinstance(item, pa.RecordBatch) for row in item.to_pylist()]


def test_rows_have_the_order_of_the_reference_in_every_order_of_arrival(rounds: Rounds) -> None:
    for seed in rounds(60):
        random = Random(f"sort {seed}")
        node = REFERENCES[Sort].node(random)
        assert isinstance(node, Sort)
        rows = made_rows(random, nulls=len(node.input.time_columns) == 1)
        width = len(node.input.time_columns)
        events = interleaved(random, [stream(random, rows, by_both if width == 2 else by_ts, width)])
        operator = SortOperator(node)
        found = [item for event in events for item in feed(operator, event, schema_of(ROWS))]
        expected = rows if node.passes_through else in_order(node, rows)
        assert rows_in(found) == (sorted_like(found, expected) if node.passes_through else expected), seed


def sorted_like(found: list, rows: list[tuple]) -> list[tuple]:
    """Return the rows in the order found: without keys any order is right."""
    shown = rows_in(found)
    assert sorted(map(str, shown)) == sorted(map(str, rows))
    return shown


def test_rows_below_a_watermark_are_returned_if_the_time_is_the_first_key() -> None:
    operator = SortOperator(Sort(ROWS, (SortKey("ts"), SortKey("n", descending=True))))
    assert list(operator.process_rows(0, batch_of([(5, 0, "a", 1), (1, 0, "b", 1), (1, 0, "a", 2)]))) == []
    first = list(operator.punctuate(0, Punctuation("", 5)))
    assert rows_in(first) == [(1, 0, "a", 2), (1, 0, "b", 1)]
    assert first[-1] == Punctuation("", 5)
    assert list(operator.process_rows(0, batch_of([(4, 0, "late", 0)]))) == []
    assert (operator.late, operator.rows_held) == (1, 1)
    assert rows_in(list(operator.punctuate(0, Punctuation("", END)))) == [(5, 0, "a", 1)]


def test_a_limit_over_all_rows_counts_rows_that_were_returned_earlier() -> None:
    operator = SortOperator(Sort(ROWS, (SortKey("ts"),), (), 3, 1))
    list(operator.process_rows(0, batch_of([(2, 0, "a", 1), (1, 0, "b", 1)])))
    assert rows_in(list(operator.punctuate(0, Punctuation("", 3)))) == [(2, 0, "a", 1)]
    list(operator.process_rows(0, batch_of([(time, 0, "a", 1) for time in range(9, 3, -1)])))
    assert [row[0] for row in rows_in(list(operator.punctuate(0, Punctuation("", END))))] == [4, 5]


@pytest.mark.parametrize("per", [(), ("ts",)])
def test_under_a_limit_few_rows_are_stored(per: tuple[str, ...]) -> None:
    operator = SortOperator(Sort(ROWS, (SortKey("n", descending=True),), per, 10))
    for number in range(40):
        list(operator.process_rows(0, batch_of([(1, 0, None, 1_000 * number + row) for row in range(1_000)])))
        assert operator.rows_held <= MIN_PRUNED_ROWS + 1_000
    found = rows_in(list(operator.punctuate(0, Punctuation("", END))))
    assert [row[3] for row in found] == list(range(39_999, 39_989, -1))


def test_without_keys_the_end_follows_the_last_row_of_the_limit() -> None:
    operator = SortOperator(Sort(ROWS, (), (), 2, 1))
    rows = [(time, 0, "a", 1) for time in (5, 3, 9, 1)]
    found = [*operator.process_rows(0, batch_of(rows[:2])), *operator.process_rows(0, batch_of(rows[2:]))]
    assert rows_in(found) == [(3, 0, "a", 1), (9, 0, "a", 1)]
    assert found[-1] == Punctuation(UNION, END)
    assert [*operator.process_rows(0, batch_of(rows)), *operator.punctuate(0, Punctuation("", END))] == []


def test_hidden_columns_are_keys_only() -> None:
    operator = SortOperator(Sort(ROWS, (SortKey("n"),), hidden=("n", "other")))
    list(operator.process_rows(0, batch_of([(1, 0, "a", 2), (2, 0, "b", 1)])))
    (found, _) = operator.punctuate(0, Punctuation("", END))
    assert found.to_pydict() == {"ts": [2, 1], "g": ["b", "a"]}


def test_nan_is_greater_than_numbers_and_ipv4_precedes_ipv6() -> None:
    nan = float("nan")
    table = pa.table(
        {
            "x": pa.array([nan, 1.0, None, float("inf"), -0.5]),
            "ip": pa.array([b"\x00" * 16, b"\xff" * 4, b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x00", None], pa.binary()),
            "yes": pa.array([True, None, False, True, False]),
        }
    )

    def order(key: SortKey) -> list[int]:
        return sorted_positions(table, [key, *(SortKey(n) for n in table.column_names if n != key.column)]).tolist()

    assert order(SortKey("x")) == [4, 1, 3, 0, 2]
    assert order(SortKey("x", descending=True)) == [0, 3, 1, 4, 2]
    assert order(SortKey("x", nulls_first=True)) == [2, 4, 1, 3, 0]
    assert order(SortKey("ip")) == [3, 2, 1, 0, 4]
    assert order(SortKey("yes", descending=True)) == [3, 0, 4, 2, 1]


def test_many_small_batches_are_few_chunks() -> None:
    """A table of all batches would be copied for each batch: 20,000 batches of a row took 16 s."""
    operator = SortOperator(Sort(ROWS, (SortKey("n"),)))
    for number in range(2 * MAX_BATCHES + 5):
        assert list(operator.process_rows(0, batch_of([(number, 0, "a", -number)]))) == []
    assert operator.rows_held == 2 * MAX_BATCHES + 5
    rows = operator.snapshot()["rows"]
    assert rows.column(0).num_chunks <= 4
    assert rows.column("ts").to_pylist() == [*range(2 * MAX_BATCHES + 5)]
    assert operator.bytes == rows.nbytes


def test_in_the_order_of_time_the_end_follows_the_last_row_of_the_limit() -> None:
    operator = SortOperator(Sort(ROWS, (SortKey("ts"),), (), 2, 1))
    rows = [(time, 0, "a", 1) for time in (5, 3, 9, 1)]
    assert list(operator.process_rows(0, batch_of(rows))) == []
    found = list(operator.punctuate(0, Punctuation("", 4)))
    assert rows_in(found) == [(3, 0, "a", 1)]
    assert found[-1] == Punctuation("", 4)
    found = list(operator.punctuate(0, Punctuation("", 6)))
    assert rows_in(found) == [(5, 0, "a", 1)]
    assert found[-1] == Punctuation(UNION, END)
    assert (operator.rows_held, operator.late) == (0, 0)
    assert [*operator.process_rows(0, batch_of(rows)), *operator.punctuate(0, Punctuation("", END))] == []
    assert (operator.rows_held, operator.late) == (0, 0)
