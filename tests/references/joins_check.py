"""A run of a join held against its definition, event by event."""

from __future__ import annotations

from collections import Counter
from math import inf
from random import Random

import pyarrow as pa

from highlevel.joins.oa_join import OAJoin
from highlevel.joins.spec import Port, WatermarkForm
from lowlevel.punctuation import END, GraphItem, JointPunctuation
from tests.references.join_streams import Run, covers, feed, name_of, passes
from tests.references.joins_oracle import Joined, Row, pairs_of
from tests.references.operator_contract import through_ipc


def progress_of(random: Random, run: Run) -> WatermarkForm:
    return WatermarkForm.LEFT if run.spec.kind.is_left_only else random.choice(list(WatermarkForm))


def checked_results(items: list[GraphItem], run: Run) -> list[tuple[int | None, int | None]]:
    """Numbers of the rows of results, each of whose values is looked at."""
    rows = ({row.number: row for row in run.rows(0)}, {row.number: row for row in run.rows(1)})
    found = []
    for row in (row for item in items if isinstance(item, pa.RecordBatch) for row in item.to_pylist()):
        numbers = row.get("l_n"), row.get("r_n")
        sources = [None if number is None else side[number] for number, side in zip(numbers, rows, strict=True)]
        for prefix, source in zip(("l_", "r_"), sources, strict=True):
            if f"{prefix}n" in row:
                check_values(row, prefix, source, run)
        times = [source.ts for source in sources if source is not None]
        assert row.get("max_ts", max(times)) == max(times)
        assert row.get("min_ts", min(times)) == min(times)
        found.append(numbers)
    return found


def check_values(row: dict[str, object], prefix: str, source: Row | None, run: Run) -> None:
    names = ["ts", "n"] if run.plain else ["ts", "n", *(f"k{place}" for place in range(len(run.types))), "v", "name"]
    values = [] if source is None else [source.ts, source.number, *source.keys, source.value, name_of(source)]
    if source is not None and run.plain:
        values = [source.ts, source.number]
    assert repr([row[prefix + name] for name in names]) == repr(values or [None] * len(names))
    assert run.plain or row[f"{prefix}again"] == row[f"{prefix}n"]


def check(random: Random, run: Run) -> None:
    """Run a join, with a restart somewhere, and hold all it does against the definition."""
    spec, progress = run.spec, progress_of(random, run)
    operator = OAJoin(spec, progress)
    restart = random.randrange((8 if run.plain else 2) * len(run.events))
    pairs = pairs_of(run.rows(0), run.rows(1), spec.window, lambda one, other: passes(spec, one, other))
    oracle = Joined(spec.window, spec.kind, pairs)
    promised: list[GraphItem] = []
    results: list[tuple[int | None, int | None]] = []
    for place, event in enumerate(run.events):
        if place == restart:
            state = through_ipc(operator.snapshot())
            operator = OAJoin(spec, progress)
            operator.restore(state)
        items = feed(operator, run, event)
        port, each = event
        if isinstance(each, int):
            oracle.bounds[port] = inf if each == END else each
        else:
            oracle.arrived[port].extend(each)
        for item in items:
            if isinstance(item, pa.RecordBatch):
                assert item.num_rows > 0
                assert item.schema == operator.schema
                assert not any(covers(watermark, progress, row) for watermark in promised for row in item.to_pylist())
            else:
                assert item not in promised
                promised.append(item)
        results += checked_results(items, run)
        if (run.plain or isinstance(each, list)) and place < len(run.events) - 1:
            continue
        assert Counter(results) == Counter(oracle.results())
        assert tuple(operator.sides[port].state.held for port in Port) == oracle.held()
    if oracle.bounds == [inf, inf]:
        assert operator.rows_held == 0
        assert all(operator.snapshot()[name].num_rows == 0 for name in ("left", "right"))
        last = promised[-1]
        assert END in (last.bounds if isinstance(last, JointPunctuation) else [last.watermark])


RUNS = 1000
