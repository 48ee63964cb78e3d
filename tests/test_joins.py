"""OA-Join against its definition, on random streams.

What these can catch: pairs that are lost, made twice or wrong at an end of the band; rows purged too early or kept too
long; promises that a later row breaks; rows without a partner that leave too early, late or not at all; keys that are
equal only as bits, or differ only as bits; state that a restart loses.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from random import Random

import pyarrow as pa
import pytest

from highlevel.graph.joint import GraphItem
from highlevel.joins.oa_join import OAJoin
from highlevel.joins.spec import Boundary, Port, Progress
from lowlevel.punctuation import BEGINNING, END
from tests.join_streams import Run, covers, feed, name_of, passes, random_run, random_window
from tests.joins_oracle import Joined, Row, pairs_of
from tests.operator_contract import through_ipc

FORMS = [*Boundary, None]
RUNS = 1000


def progress_of(random: Random, run: Run) -> Progress:
    return Progress.LEFT if run.spec.kind.of_left_alone else random.choice(list(Progress))


def checked_results(items: list[GraphItem], run: Run) -> list[tuple[int | None, int | None]]:
    """Numbers of the rows of results, each of whose values is looked at."""
    rows = ({row.number: row for row in run.rows(0)}, {row.number: row for row in run.rows(1)})
    found = []
    for item in items:
        if not isinstance(item, pa.RecordBatch):
            continue
        assert item.num_rows > 0
        for row in item.to_pylist():
            numbers = row.get("l_n"), row.get("r_n")
            times = []
            for prefix, number, side in zip(("l_", "r_"), numbers, rows, strict=True):
                if f"{prefix}n" in row:
                    check_values(row, prefix, None if number is None else side[number], len(run.types))
                times += [] if number is None else [side[number].ts]
            assert row.get("max_ts", max(times)) == max(times)
            assert row.get("min_ts", min(times)) == min(times)
            found.append(numbers)
    return found


def check_values(row: dict[str, object], prefix: str, source: Row | None, keys: int) -> None:
    names = ["ts", *(f"k{place}" for place in range(keys)), "n", "v", "name", "again"]
    expected = [None] * len(names)
    if source is not None:
        expected = [source.ts, *source.keys, source.number, source.value, name_of(source), source.number]
    assert repr([row[prefix + name] for name in names]) == repr(expected)


def check(random: Random, run: Run) -> None:
    """Run a join, with a restart somewhere, and hold all it does against the definition."""
    spec, progress = run.spec, progress_of(random, run)
    operator = OAJoin(spec, progress)
    restart = random.randrange(4 * len(run.events))
    pairs = pairs_of(run.rows(0), run.rows(1), spec.window, lambda one, other: passes(spec, one, other))
    oracle = Joined(spec.window, spec.kind, pairs)
    promised: list[GraphItem] = []
    results: list[tuple[int | None, int | None]] = []
    for place, event in enumerate(run.events):
        if place == restart:
            state = through_ipc(operator.snapshot())
            operator = OAJoin(spec, progress)
            operator.restore(state)
        items = feed(operator, run.types, event)
        port, each = event
        if isinstance(each, int):
            oracle.bounds[port] = inf if each == END else each
        else:
            oracle.arrived[port].extend(each)
        for item in items:
            if isinstance(item, pa.RecordBatch):
                assert item.schema == operator.schema
                assert not any(covers(said, progress, row) for said in promised for row in item.to_pylist())
            else:
                assert item not in promised
                promised.append(item)
        results += checked_results(items, run)
        if isinstance(each, list) and place < len(run.events) - 1:
            continue
        assert Counter(results) == Counter(oracle.results())
        assert tuple(operator.sides[port].state.held for port in Port) == oracle.held()
    if oracle.bounds == [inf, inf]:
        assert operator.rows_held == 0
        assert all(operator.snapshot()[name].num_rows == 0 for name in ("left", "right"))
        last = promised[-1]
        assert END in getattr(last, "lows", [getattr(last, "low", BEGINNING)])


@pytest.mark.parametrize("form", FORMS)
def test_a_join_gives_what_its_definition_says(form: Boundary | None) -> None:
    random = Random(f"definition {form}")
    for _ in range(RUNS):
        check(random, random_run(random, random_window(random, form)))
