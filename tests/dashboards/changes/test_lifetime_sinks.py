"""The sinks of results of lifetimes: gauges need windows that groups share; files and corrections do not.

The tests detect a gauge that shows the newest group only as if it were all groups, final rows that are written twice,
and a result without an end that is never closed.
"""

from pathlib import Path

import pyarrow as pa

from dashboards.changes.results_so_far import ResultsSoFar
from dashboards.prometheus.exporter import make_series
from highlevel.plan.plan import Plan
from highlevel.spark.run_folder.result_files import read_results
from lowlevel.punctuation import END
from queries.gsql import compile_query

CLAUSES = "GROUP BY exporter WITH CONSISTENCY (REMEMBER 5 seconds) EMIT CHANGES"


def plan_of(window: str, name: str = "q") -> Plan:
    return compile_query(f"SELECT exporter, count(*) AS n FROM flows [LIFETIME {window}] {CLAUSES}", name)


def changes(plan: Plan, *rows: tuple) -> pa.Table:
    return pa.table(dict(zip(plan.schema.names, zip(*rows, strict=True), strict=True)), plan.schema)


def test_gauges_show_windows_that_groups_share() -> None:
    exact, shared = plan_of("start_ts TO end_ts"), plan_of("start_ts TO end_ts, SLIDE 1 minute", "minutes")
    assert (exact.has_series, exact.has_window_key) == (False, False)
    assert (shared.has_series, shared.has_window_key) == (True, True)
    assert [series.plan.name for series in make_series([exact, shared], ())] == ["minutes"]


def test_snapshots_are_corrected_and_each_final_row_is_written_once(tmp_path: Path) -> None:
    plan = plan_of("start_ts TO end_ts")
    results = ResultsSoFar(plan, tmp_path, "certain")
    a, b = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
    first = changes(plan, (10, 30, a, 1, 1, False), (10, None, b, 1, 1, False))
    update = results.add(0, first, 5)
    assert (update.changed, update.closed.num_rows, update.returned) == ({}, 0, 2)
    corrected = changes(plan, (10, 30, a, 1, -1, False), (10, 20, a, 1, 1, True), (20, 30, a, 2, 1, False))
    update = results.add(1, corrected, 25)
    assert update.closed.to_pylist() == [{"window_start": 10, "window_end": 20, "exporter": a, "n": 1}]
    assert (update.returned, update.withdrawn) == (2, 1)
    assert results.provisional_rows().num_rows == 2
    update = results.add(2, results.empty, END)
    assert sorted(update.closed["n"].to_pylist()) == [1, 2]
    assert results.provisional_rows().num_rows == 0
    written = read_results(tmp_path, plan_named_certain(plan))
    assert sorted(zip(written["n"].to_pylist(), written["window_end"].is_null().to_pylist(), strict=True)) == [
        (1, False),
        (1, True),
        (2, False),
    ]


def plan_named_certain(plan: Plan) -> Plan:
    final = plan.with_final_rows()
    return Plan("certain", final.sql, final.root, final.layer)
