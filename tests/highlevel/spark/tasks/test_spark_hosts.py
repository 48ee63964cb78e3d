"""Windows of every kind as Spark's tasks make them, without a JVM: a thousand random streams of each, by definition.

`LevelTask` is the very function of the tasks. The host receives the packed output of source tasks, partitioned, in
random micro-batches. Its state is stored in files between micro-batches. A micro-batch may be repeated after a part of
it was done. Many queries share a run, so that files cost little. The tests detect a group in two partitions, watermarks
that overtake rows, and state that a restart loses or doubles. They detect a table that is wrongly seen as unchanged,
and rows of arrival order that a shuffle mixed. The batch engine is given the same rows at once.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from highlevel.metrics import LATE_PARTIALS, RESULT_ROWS, WINDOWS_CLOSED, WINDOWS_OPEN
from highlevel.operators import row_number_windows
from highlevel.plan.pipeline import make_operator
from highlevel.sliding import window_rows as strategy
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.reading import COUNTERS
from highlevel.spark.run_folder.totals import Totals
from highlevel.spark.tasks.counters import count_windows
from highlevel.spark.tasks.host import LevelTask
from highlevel.spark.tasks.operator_part import compute_parts
from highlevel.spark.tasks.packing import unpack
from lowlevel.punctuation import END, Punctuation
from tests.conftest import Rounds
from tests.harness.hosted_batches import INPUTS, hosted, source_batches, told_rows
from tests.references.window_streams import FAMILIES, Asked, of_panes

STREAMS, RUNS = 1000, 20


def run(random: Random, queries: list[Asked], folder: Path) -> tuple[list[Counter[tuple]], Totals]:
    """All micro-batches of all queries; the rows of each, and the counters."""
    parts = random.choice([1, 1, 2, 2, 3])
    feeds = InputAssignment.of([query.plan_of(str(place)) for place, query in enumerate(queries)], INPUTS, parts)
    found: list[Counter[tuple]] = [Counter() for _ in queries]
    totals = Totals()
    for batch_id, batches in enumerate(source_batches(random, feeds, queries)):
        host = LevelTask(feeds, folder, batch_id)
        if random.random() < 0.2:  # done, and lost before Spark heard of it
            hosted(host, batches, random.sample(range(parts), random.randint(1, parts)))
        random.shuffle(batches)
        answers = hosted(host, batches, [COUNTERS, *range(parts)])
        told: dict[bool, list[bytes]] = {True: [], False: []}
        for part, query, payload in zip(*(answers[name].to_pylist() for name in answers.column_names), strict=True):
            if query == COUNTERS:
                told[part == COUNTERS].append(payload)
            else:
                found[query] += told_rows(unpack(payload))
        totals.add(feeds, told[True], told[False])
    return found, totals


@cache
def queries_of(family, number: int) -> list[Asked]:
    random = Random(f"{family.__name__} {number}")
    return [family(random) for _ in range(STREAMS // RUNS)]


@pytest.fixture(autouse=True)
def _streams_are_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long windows of few rows have the operator of those of many."""
    monkeypatch.setattr(row_number_windows, "MIN_LONG_RANGE", 12)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda each: each.__name__)
def test_hosts_say_what_the_definition_says(
    family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: Rounds
) -> None:
    rows = 0
    for number in rounds(RUNS):
        random = Random(f"hosts of {family.__name__} {number}")
        if family is of_panes:  # only of totals, or sometimes merged again
            monkeypatch.setattr(strategy, "TOTALS_COST", random.choice([-(10**9), -(10**9), 1000]))
        queries = queries_of(family, number)
        found, totals = run(random, queries, tmp_path / str(number))
        for place, (query, got) in enumerate(zip(queries, found, strict=True)):
            assert got == query.rows, (number, place, query.aggregation.window)
            expected = {RESULT_ROWS: got.total(), WINDOWS_CLOSED: query.windows, WINDOWS_OPEN: 0, LATE_PARTIALS: 0}
            told = {metric: totals.samples[metric.name, (str(place),)] for metric in expected}
            assert told == expected, (number, place, query.aggregation.window)
        rows += sum(query.rows.total() for query in queries)
    assert rows > 5 * STREAMS * len(rounds(RUNS)) / RUNS


@pytest.mark.parametrize("family", FAMILIES, ids=lambda each: each.__name__)
def test_a_finite_input_has_the_windows_of_the_definition(family, rounds: Rounds) -> None:
    random = Random(f"{family.__name__} at once")
    for query in (query for number in rounds(RUNS) for query in queries_of(family, number)):
        aggregation, arrivals = query.aggregation, query.arrivals
        if not aggregation.low.in_arrival_order:
            random.shuffle(arrivals)
        (batch,) = query.partials(arrivals, random.random() < 0.5)
        parts = compute_parts(batch, aggregation.partitioned_by, random.randint(1, 3))
        found, received, closed = Counter(), 0, []
        for part in set(parts.tolist()):
            mine = batch.filter(pa.array(parts == part))
            operator = make_operator(query.plan_of("q").root, 1, is_finite=True)
            items = [*operator.process_rows(0, mine), *operator.punctuate(0, Punctuation("*", END))]
            found += sum((told_rows(item) for item in items if isinstance(item, pa.RecordBatch)), Counter())
            received += operator.received
            closed.append(operator.take_closed_windows())
        assert found == query.rows, aggregation.window
        assert received == batch.num_rows
        assert count_windows(closed) == query.windows, aggregation.window
