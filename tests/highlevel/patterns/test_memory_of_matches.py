"""The memory and the snapshots of MATCH_RECOGNIZE after many runs have ended.

Finds: runs that have ended, but stay in memory and in each snapshot; runs that are lost when memory is returned; and a
match that waits for rows that cannot change it.
"""

from __future__ import annotations

import pyarrow as pa

from highlevel.patterns.automaton import Arc, Automaton
from highlevel.plan.operators.matches import MatchesOperator
from highlevel.plan.pattern_nodes import MATCH_START, Matches
from lowlevel.expressions.tree import Binary, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import Punctuation
from tests.references.plan_references import NUMBER, ROWS

SCHEMA = pa.schema([(column.name, ARROW_TYPES[column.type]) for column in ROWS.columns])


def is_number(value: int) -> Binary:
    return Binary(Op.EQ, NUMBER, Literal(value, Type.INT))


def rows(time: int, groups: list[str], number: int) -> pa.RecordBatch:
    values = {"ts": time, "other": time, "n": number}
    return pa.RecordBatch.from_pylist([values | {"g": group} for group in groups], SCHEMA)


def test_a_match_that_no_row_extends_is_returned_with_its_last_row() -> None:
    """Without WITHIN the run would stay until the next row of the partition, which may never arrive."""
    arcs = (Arc("start", "begun", is_number(1)), Arc("begun", "done", is_number(2)))
    operator = MatchesOperator(Matches(ROWS, Automaton("start", ("done",), arcs), ("g",)))
    for time, number in ((0, 1), (5, 2)):
        list(operator.process_rows(0, rows(time, ["x"], number)))
    batch, punctuation = operator.punctuate(0, Punctuation("q", 6))
    assert isinstance(batch, pa.RecordBatch)
    assert batch.num_rows == 1
    assert punctuation == Punctuation("q", 6)
    assert operator.rows_held == 0


def test_runs_that_have_ended_use_no_memory_and_are_in_no_snapshot() -> None:
    """20,000 partitions begin a run at 0. Those of `early` and `late` end with a match, before and after the others."""
    arcs = (Arc("start", "begun", is_number(1)), Arc("begun", "done", is_number(2)))
    operator = MatchesOperator(Matches(ROWS, Automaton("start", ("done",), arcs, (), 1_000), ("g",)))
    found = []

    def add(time: int, groups: list[str], number: int) -> None:
        list(operator.process_rows(0, rows(time, groups, number)))
        for item in operator.punctuate(0, Punctuation("q", time + 1)):
            if isinstance(item, pa.RecordBatch):
                found.extend((row["g"], row[MATCH_START]) for row in item.to_pylist())

    add(0, ["early"], 1)
    add(1, [f"host{number}" for number in range(20_000)], 1)
    most = operator.bytes
    add(500, ["late"], 1)
    add(600, ["early"], 2)
    add(1_200, ["other"], 1)
    tables = operator.snapshot()
    assert tables["runs: nodes"].num_rows == operator.rows_held == 2
    assert operator.bytes < most / 3
    restored = MatchesOperator(operator.node)
    restored.restore(tables)
    operator = restored
    add(1_300, ["late"], 2)
    assert [(group, getattr(start, "value", start)) for group, start in found] == [("early", 0), ("late", 500)]
