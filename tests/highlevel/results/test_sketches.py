"""Sketches against exact results: within their documented errors for many values, and equal for few.

Only these tests detect a pane's sketch that is merged twice or never, and equal sketches of two panes that are used as
one. They detect counts that are not carried into a sketch, and sketches that do not survive a restart.
"""

import math
import sys
from collections import Counter
from pathlib import Path
from random import Random
from subprocess import run as run_process
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from highlevel.aggregation import DetailFunction, Folding
from highlevel.plan.pipeline import Pipeline
from highlevel.results.sketched_windows import FoldedPane, merge_sketches
from highlevel.results.sketches import SKETCH_TYPES, Quantiles, sketch_input
from lowlevel.punctuation import END, Punctuation
from queries.gsql import compile_query
from queries.text.errors import QueryError
from tests.conftest import Rounds
from tests.harness import in_ns
from tests.references import small_captures
from tests.references.operator_contract import Contract, all_rows, batched, check, check_restart, interleaved
from tests.references.windows_oracle import Arrival, Spec, numbers_by_window, random_inputs

DISTINCT, QUANTILE, TOP = SKETCH_TYPES
ERRORS = {DISTINCT: 0.016, QUANTILE: 0.017, TOP: 0.0035}
"""Errors as stated in `docs/guide/sql.md`: a standard error, a rank error with 99 % confidence, a bound of a count."""


def merged(function: DetailFunction, parts: list[tuple[pa.Array, np.ndarray]]) -> pa.Array:
    """The sketches of some parts, each behind its number, as they leave a pane."""
    sketches = []
    for values, counts in parts:
        sketch = SKETCH_TYPES[function]()
        sketch.add(sketch_input(Folding(function, "k", "h", "s"), values), counts)
        sketches.append(bytes(8) + sketch.to_bytes())
    return pa.array(sketches, pa.binary())


def result(function: DetailFunction, parameter: float, parts: list[tuple[pa.Array, np.ndarray]]) -> Any:
    folding = Folding(function, "k", "h", "s")
    ids = np.zeros(len(parts), np.int64)
    (found,) = merge_sketches(folding, parameter, ids, 1, merged(function, parts))
    return found


def parts_of(seed: int, distinct: int) -> tuple[np.ndarray, np.ndarray, list[tuple[pa.Array, np.ndarray]]]:
    """Skewed values in ten overlapping parts: the values, how often each stands, and the parts."""
    random = np.random.default_rng(seed)
    values = random.permutation(10 * distinct)[:distinct]
    total = np.zeros(distinct, np.int64)
    parts = []
    for _ in range(10):
        places = random.choice(distinct, distinct // 3, replace=False)
        counts = 1 + (random.pareto(0.8, len(places))).clip(0, 20_000).astype(np.int64)
        np.add.at(total, places, counts)
        parts.append((pa.array(values[places]), counts))
    return values[total > 0], total[total > 0], parts


@pytest.mark.parametrize("seed", range(5))
def test_sketches_of_many_values_keep_their_errors(seed: int) -> None:
    values, counts, parts = parts_of(seed, 30_000)
    rows = int(counts.sum())
    about = result(DISTINCT, 0, parts)
    assert about != len(values)  # or nothing is tested here
    assert abs(about - len(values)) <= 5 * ERRORS[DISTINCT] * len(values)
    order = np.argsort(values)
    upto = np.cumsum(counts[order])
    for share in (0.01, 0.25, 0.5, 0.9, 0.99):
        found = result(QUANTILE, share, parts)
        place = np.searchsorted(values[order], found)
        assert values[order][place] == found  # one of the values
        low, high = (upto[place] - counts[order][place]) / rows, upto[place] / rows
        assert low - 2 * ERRORS[QUANTILE] <= share <= high + 2 * ERRORS[QUANTILE]
    named = dict(zip(map(str, values.tolist()), counts.tolist(), strict=True))
    found = [each.split("=") for each in result(TOP, 1000, parts).split(" ")]
    for value, estimate in found:
        assert named[value] <= int(estimate) <= named[value] + ERRORS[TOP] * rows
    assert {value for value, count in named.items() if count > ERRORS[TOP] * rows} <= {value for value, _ in found}


def test_a_sketch_takes_bounded_memory_however_many_values_there_are() -> None:
    for function, bound in ((DISTINCT, 2200), (QUANTILE, 6000), (TOP, 30_000)):
        sizes = []
        for distinct in (50_000, 200_000):
            sketch = SKETCH_TYPES[function]()
            numbers = pa.array(np.random.default_rng(1).permutation(distinct))
            sketch.add(sketch_input(Folding(function, "k", "h", "s"), numbers), np.ones(distinct, np.int64))
            sizes.append(len(sketch.to_bytes()))
        assert max(sizes) <= bound, (function, sizes)


def test_counts_are_carried_into_quantiles_whatever_their_size() -> None:
    sketch = Quantiles()
    sketch.add(np.array([1.0, 2.0, 3.0, np.nan]), np.array([1, 400_000, 100_000, 70_000]))
    assert sketch.sketch.n == 500_001
    assert [sketch.result(share) for share in (0.5, 0.7, 0.9, 1.0)] == [2.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", "b", None, "a"]),
        pa.array([b"\x0a\x00\x00\x01", bytes(16), None, b"\x0a\x00\x00\x01"]),
        pa.array([0.5, math.inf, None, 0.5]),
        pa.array([True, False, None, True]),
        pa.array([2**62, -5, None, 2**62]),
    ],
    ids=lambda column: str(column.type),
)
def test_values_of_every_type_are_told_apart_and_nulls_left_out(column: pa.Array) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([1] * 4), column, pa.array([1, 1, 5, 3])], ["g", "k", "s"])
    pane = FoldedPane(rows.schema, ["g"], [], [Folding(each, "k", str(each), "s") for each in (DISTINCT, TOP)])
    pane.add(rows)
    folded = pane.to_arrow(7)
    for function, want in ((DISTINCT, 2), (TOP, [4, 1])):
        data = folded.column(str(function))
        assert data[0].as_py()[:8] == (7).to_bytes(8, "little")
        (got,) = merge_sketches(Folding(function, "k", "h", "s"), 9, np.zeros(1, np.int64), 1, data)
        assert got == want if function is DISTINCT else [int(each.split("=")[-1]) for each in got.split(" ")] == want


SQL = (
    "SELECT destPort, count(*) AS n, approx_count_distinct(len) AS d, approx_quantile(len, 0.5) AS m, "
    "approx_top(srcPort, 2) AS t, max(len) AS most FROM a UNION b [RANGE 20 ns, SLIDE 10 ns] GROUP BY destPort"
)


def test_few_values_are_told_exactly_in_any_order_and_after_a_restart(rounds: Rounds) -> None:
    query = compile_query(SQL)

    def partials(arrivals: list[Arrival]) -> pa.RecordBatch:
        low = query.leaves[0].low
        rows = []
        for each in arrivals:
            row = {"link": "link", "pane": each.ts // low.pane}
            row |= {key.name: (each.group, each.number, each.number % 3)[place] for place, key in enumerate(low.keys)}
            rows.append(row | {sub.name: each.number if sub.kind == "max" else 1 for sub in low.subaggregates})
        return pa.RecordBatch.from_pylist(rows, schema=low.schema)

    for seed in rounds(60):
        random = Random(seed)
        inputs = random_inputs(random)
        kept = Contract(
            make=lambda inputs=inputs: Pipeline(query, [[f"link{port}" for port in range(len(inputs))]]),
            ports=len(inputs),
            progress=lambda rows: min(rows["window_end"].to_pylist()),
            watermark=lambda bounds: (
                min(bounds)
                if min(bounds) == END
                else max(0, min(bounds) // 10) * 10 + 1
                if min(bounds) >= 10
                else -(2**63)
            ),
            held=lambda tables: sum(
                t.num_rows for name, t in tables.items() if name not in ("0.meld", "1.0.promised", "1.0.windows closed")
            ),
        )
        arrivals = [each for events in inputs for each in events if not isinstance(each, int)]
        events = batched(random, interleaved(random, inputs), partials)
        trace = check(kept, events)
        assert all_rows(trace) == Counter(by_definition(arrivals)), seed
        check_restart(kept, events, trace, random.randint(0, len(events)), ipc=True)


def by_definition(arrivals: list[Arrival]) -> list[tuple[Any, ...]]:
    found = []
    for (wid, group), numbers in numbers_by_window(arrivals, Spec(20, 10)).items():
        top = sorted(Counter(str(number % 3) for number in numbers).items(), key=lambda each: (-each[1], each[0]))[:2]
        middle = float(sorted(numbers)[math.ceil(len(numbers) / 2) - 1])
        shown = " ".join(f"{value}={count}" for value, count in top)
        found.append(
            (wid * 10 - 10, wid * 10 + 10, group, len(numbers), len(set(numbers)), middle, shown, max(numbers))
        )
    return found


def test_two_panes_with_the_same_values_are_two_sketches() -> None:
    query = compile_query(
        "SELECT approx_top(len, 1) AS t, approx_quantile(len, 1) AS q FROM a [RANGE 20 ns, SLIDE 10 ns]"
    )
    pipeline = Pipeline(query, [["a"]])
    for pane in (0, 1):
        row = {"link": "a", "pane": pane, "k0": 60} | {sub.name: 5 for sub in query.leaves[0].low.subaggregates}
        assert not list(pipeline.process_rows(0, pa.RecordBatch.from_pylist([row], schema=query.leaves[0].low.schema)))
    items = [item for item in pipeline.punctuate(0, Punctuation("a", END)) if isinstance(item, pa.RecordBatch)]
    assert [row["t"] for item in items for row in item.to_pylist()] == ["60=5", "60=10", "60=5"]


def test_what_is_late_is_in_the_windows_that_are_open_and_counted_for_the_others() -> None:
    query = compile_query("SELECT count(*) AS n, approx_count_distinct(len) AS d FROM a [RANGE 20 ns, SLIDE 10 ns]")
    pipeline = Pipeline(query, [["a"]])

    def rows(pane: int, length: int) -> pa.RecordBatch:
        row = {"link": "a", "pane": pane, "k0": length} | {sub.name: 1 for sub in query.leaves[0].low.subaggregates}
        return pa.RecordBatch.from_pylist([row], schema=query.leaves[0].low.schema)

    ((_, windows),) = pipeline.window_operators
    list(pipeline.process_rows(0, rows(0, 60)))
    assert windows.open_windows() == [(0, 2)]
    assert windows.bytes > 0
    (first, _) = pipeline.punctuate(0, Punctuation("a", 10))
    assert first.to_pylist() == [{"window_start": -10, "window_end": 10, "n": 1, "d": 1}]
    assert not list(pipeline.process_rows(0, rows(0, 61)))
    assert (windows.received, windows.late, windows.late_rows) == (2, 1, 1)
    (second, _) = pipeline.punctuate(0, Punctuation("a", 20))
    assert second.to_pylist() == [{"window_start": 0, "window_end": 20, "n": 2, "d": 2}]


@pytest.mark.parametrize("window", ["RANGE ALL, SLIDE 1 s", "RANGE 10 rows", "RANGE 5 s, SLIDE 1 row"])
def test_windows_without_panes_of_their_own_are_refused(window: str) -> None:
    with pytest.raises(QueryError, match="approx_top over windows of this kind; expected tumbling or sliding windows"):
        compile_query(f"SELECT approx_top(len, 3) FROM packets [{window}]")


def test_the_library_is_loaded_where_a_query_asks_for_sketches_alone() -> None:
    code = (
        "import sys; from queries.gsql import compile_query; from highlevel.plan.pipeline import Pipeline; "
        "Pipeline(compile_query('SELECT approx_count_distinct(len) FROM x'), [['a']]); "
        "sys.exit('datasketches' in sys.modules)"
    )
    assert run_process([sys.executable, "-c", code], check=False).returncode == 0


def test_sketches_of_a_pane_without_a_value_are_of_nothing(tmp_path: Path) -> None:
    frames = [(second, small_captures.icmp("10.0.0.1", "10.0.0.2")) for second in (1, 2)]
    path = small_captures.write(tmp_path / "M.pcap", frames)
    select = "count(*) AS n, approx_count_distinct(destPort) AS d, approx_quantile(destPort, 0.5) AS q"
    rows = in_ns.query(f"SELECT {select} FROM M [RANGE 1 s]", str(path)).to_pylist()
    assert [(row["n"], row["d"], row["q"]) for row in rows] == [(1, 0, None), (1, 0, None)]
