"""The partial matches of an operator, compared with the runs of the definition that end with the last row.

Finds: a run that is not listed, a run that is listed after its end, and a wrong count or oldest time.
"""

from __future__ import annotations

from random import Random

import pyarrow as pa

from capture.metrics import Samples
from highlevel.metrics import OLDEST_PARTIAL_MATCH, PARTIAL_MATCHES
from highlevel.patterns.automaton import Arc, Automaton
from highlevel.plan.operators.counters import PartialMatchCounts
from highlevel.plan.operators.matches import VARIABLE, MatchesOperator
from highlevel.plan.pattern_nodes import MATCH_END, MATCH_START, Matches
from highlevel.spark.tasks.counters import add_counts
from lowlevel.expressions.tree import Binary, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import END, Punctuation
from tests.conftest import Rounds
from tests.references.automata import Row, runs_by_row
from tests.references.plan_references import NUMBER, ROWS

SCHEMA = pa.schema([(column.name, ARROW_TYPES[column.type]) for column in ROWS.columns])


def draw_automaton(draw: Random) -> Automaton:
    """Return an automaton without a register that never accepts."""
    states = ["start", *(f"q{number}" for number in range(draw.randint(1, 3)))]
    arcs = [
        Arc(
            "start" if number == 0 else draw.choice(states),
            draw.choice(states[1:]),
            Binary(draw.choice([Op.LT, Op.GE, Op.EQ]), NUMBER, Literal(draw.randint(0, 3), Type.INT)),
        )
        for number in range(draw.randint(2, 5))
    ]
    never = [Arc(state, "end", Literal(False, Type.BOOL)) for state in states]
    return Automaton("start", ("end",), (*arcs, *never), (), draw.choice([None, 4, 20]))


def test_they_are_the_runs_that_end_with_the_last_row_of_their_partition(rounds: Rounds) -> None:
    listed = 0
    for seed in rounds(150):
        draw = Random(f"partial matches {seed}")
        operator = MatchesOperator(Matches(ROWS, draw_automaton(draw), ("g",)))
        operator.keeps_unfinished = True
        rows: dict[str, list[Row]] = {"a": [], "b": []}
        for time in range(draw.randint(1, 12)):
            group, number = draw.choice("ab"), draw.randint(0, 3)
            rows[group].append(Row(time, 0, END, {"n": number}))
            values = {"ts": time, "other": None, "g": group, "n": number}
            list(operator.process_rows(0, pa.RecordBatch.from_pylist([values], SCHEMA)))
        last = max(row.start for own in rows.values() for row in own)
        low = last + 1 if draw.random() < 0.5 else last
        list(operator.punctuate(0, Punctuation("q", low)))
        expected = []
        for group, own in rows.items():
            if own:
                row, runs = runs_by_row(operator.node.automaton, own)[-1]
                expected += [(group, start, row.start, state) for (start, _, state, _), stop in runs if stop > low]
        counts = PartialMatchCounts(len(expected), min((start for _, start, _, _ in expected), default=END))
        if low > last:
            assert operator.partial_matches == counts, seed
        list(operator.punctuate(0, Punctuation("q", END)))
        assert operator.unfinished is not None
        columns = operator.unfinished.select(["g", MATCH_START, MATCH_END, VARIABLE]).to_pydict().values()
        found = list(zip(*columns, strict=True))
        assert sorted(found) == sorted(expected), seed
        assert [row[1] for row in found] == sorted(row[1] for row in found), seed
        assert operator.partial_matches == PartialMatchCounts(0, END), seed
        listed += len(found)
    assert listed > 10


def test_the_oldest_of_all_partitions_of_spark_is_the_oldest() -> None:
    """0 is a partition without partial matches."""

    def counts(number: int, oldest: float) -> dict:
        samples = [[PARTIAL_MATCHES.name, ["q"], number], [OLDEST_PARTIAL_MATCH.name, ["q"], oldest]]
        return {"samples": samples, "windows": [], "fragment": 0}

    samples = Samples()
    add_counts(samples, "q", [counts(0, 0), counts(2, 70), counts(3, 50), counts(0, 0)])
    assert samples == {(PARTIAL_MATCHES.name, ("q",)): 5, (OLDEST_PARTIAL_MATCH.name, ("q",)): 50}
    add_counts(samples, "q", [counts(0, 0), counts(0, 0)])
    assert samples == {(PARTIAL_MATCHES.name, ("q",)): 0, (OLDEST_PARTIAL_MATCH.name, ("q",)): 0}
