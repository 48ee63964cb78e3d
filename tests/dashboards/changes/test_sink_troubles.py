"""Troubles of sinks that other systems have had with corrections, each also across a restart.

Half a correction is seen; rows stay after they were withdrawn; a key is updated many times at one instant; a row is
withdrawn that does not exist after a restart; state of a sink grows; "it did not happen" is reported too early; an
irrevocable action is caused by a result that is withdrawn; a counter counts what is withdrawn.
"""

import json
from collections import Counter
from io import BytesIO
from math import nan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capture.errors import InputError
from capture.units import SECOND
from dashboards.changes.compaction import compact
from dashboards.changes.metrics import PROVISIONAL_BYTES
from dashboards.output.change_forms import ChangeWriter
from dashboards.output.formats import ChangeForm
from dashboards.output.openmetrics import OpenMetricsError, write_openmetrics
from dashboards.plots.answer_charts import AnswerRows, PlotError
from highlevel.results.stored_columns import with_columns
from highlevel.results.stored_files import list_files
from highlevel.results.user_types import readable
from highlevel.spark.run_folder import result_files
from highlevel.spark.run_folder.totals import TotalsFiles
from highlevel.speculation.current_results import CurrentResults
from queries.gsql import compile_query
from queries.pipeline.file import parse_pipeline
from queries.pipeline.sections import PipelineError
from tests.harness.change_runs import JOINED, LENGTH, PIPELINE, Change, ChangeRun, rows_of
from tests.harness.command_line import run as command
from tests.references.exporter_rows import samples

A, B = "10.0.0.1", "10.0.0.2"
RULE = """
[alerts.busy]
query = "talkers"
where = "n > 100"
summary = "{srcIP} sent {n}"
"""
RECEIVERS = """
[receivers.log]
kind = "file"
path = "alerts.jsonl"
[receivers.pager]
kind = "file"
path = "pager.jsonl"
final = true
"""


def moved(window: int, before: int, after: int) -> list[Change]:
    """A correction of the value of A."""
    return [(window, A, before, -1), (window, A, after, 1)]


def delivered(run: ChangeRun, name: str = "alerts") -> list[tuple[str, str, str, str]]:
    """End the process, and return the messages of a receiver: status, state, reason and summary."""
    run.monitor.close()
    path = run.folder / f"{name}.jsonl"
    messages = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    ids = Counter(message["message"] for message in messages)
    assert ids.most_common(1)[0][1] == 1 if ids else True
    return [(message["status"], message["state"], message["reason"], message["summary"]) for message in messages]


@pytest.mark.parametrize("crash", ["", "shown"])
def test_a_value_that_rises_for_an_hour_is_one_row_everywhere(tmp_path: Path, crash: str) -> None:
    run = ChangeRun(tmp_path, RULE)
    run.batch([(1, A, 101, 1)], newest=10)
    stored = set()
    for value in range(102, 140):
        run.batch(moved(1, value - 1, value), newest=10, crash=crash if value % 16 == 0 else "")
        stored.add(run.monitor.exporter.current_samples[PROVISIONAL_BYTES.name, ("talkers",)])
    assert samples(run.monitor.exporter, "wiretide_query_talkers_n") == ['{src_ip="10.0.0.1"} 139.0']
    assert samples(run.monitor.exporter, "wiretide_query_groups") == ['{query="talkers"} 1.0']
    assert run.monitor.history is not None
    (window,) = run.monitor.history.stored.in_order("talkers")
    assert window.rows["n"].to_pylist() == [139]
    assert run.monitor.alerts is not None
    (alert,) = run.monitor.alerts.firing_messages()
    assert (alert["summary"], alert["state"]) == ("10.0.0.1 sent 139", "provisional")
    (table,) = compact(tmp_path / "state")
    assert (table.rows, table.provisional, table.changes) == (1, 1, 77)
    assert len(stored) == 1, "the state of the sinks does not grow"
    run.batch([], final_window=1, newest=30)
    assert run.monitor.exporter.current_samples[PROVISIONAL_BYTES.name, ("talkers",)] == 0
    run.close()


@pytest.mark.parametrize("crash", ["", "results", "totals", "shown"])
def test_a_thousand_updates_of_one_key_at_one_instant_are_one(tmp_path: Path, crash: str) -> None:
    run = ChangeRun(tmp_path, RULE + RECEIVERS)
    run.batch([(1, A, 0, 1)], newest=10)
    run.batch([change for value in range(1000) for change in moved(1, value, value + 1)], newest=10, crash=crash)
    assert samples(run.monitor.exporter, "wiretide_query_talkers_n") == ['{src_ip="10.0.0.1"} 1000.0']
    (table,) = compact(tmp_path / "state")
    assert (table.rows, table.changes) == (1, 2001)
    assert delivered(run) == [("firing", "provisional", "true", "10.0.0.1 sent 1000")]


WITHOUT_KEY = PIPELINE.replace("SELECT srcIP, count(*)", "SELECT count(*)")
WITHOUT_TIME = PIPELINE.replace(
    "SELECT srcIP, count(*) AS n FROM Main [RANGE 10 seconds] GROUP BY srcIP",
    "SELECT srcIP, n FROM (SELECT srcIP, count(*) AS n FROM Main [RANGE 10 seconds] GROUP BY srcIP)",
)


@pytest.mark.parametrize("crash", ["", "results", "totals", "shown"])
def test_sinks_with_another_key_are_refused_before_and_after_a_restart(tmp_path: Path, crash: str) -> None:
    """The refusal changes nothing: the run continues with its rows."""
    with pytest.raises(PipelineError, match="got EMIT CHANGES of results without a time"):
        parse_pipeline(WITHOUT_TIME, tmp_path).plans()
    run = ChangeRun(tmp_path)
    run.batch([(1, A, 1, 1)], newest=10)
    run.batch(moved(1, 1, 2), newest=11, crash=crash)
    with pytest.raises(PipelineError, match="got EMIT CHANGES of results without a time"):
        parse_pipeline(WITHOUT_TIME, tmp_path).plans()
    (plan,) = parse_pipeline(WITHOUT_KEY, tmp_path).plans()
    with pytest.raises(InputError, match="the key of the query is window_end, srcIP, but the rows have only window_en"):
        ChangeWriter(plan, ChangeForm.DEBEZIUM)
    options = ("--changes", "debezium", "--format", "json")
    sql = "SELECT window_end, n, weight, final FROM talkers"
    status, _, errors = command("query", tmp_path / "state", sql, *options, cwd=tmp_path)
    assert status != 0
    assert "the key of the query is window_end, srcIP, but the rows have only window_end" in " ".join(errors.split())
    run.batch(moved(1, 2, 3), newest=12, final_window=1)
    assert run.final_rows() == Counter([(1, A, 3)])
    run.close()


@pytest.mark.parametrize("crash", ["", "results", "totals", "shown"])
def test_an_alert_that_cannot_withdraw_rows_is_refused_also_when_a_run_continues(tmp_path: Path, crash: str) -> None:
    rule = '[alerts.pairs]\nquery = "talkers"\nwhere = "n > 100"\n'
    run = ChangeRun(tmp_path, text=JOINED)
    run.batch([(1, A, 150, 1)], newest=10)
    run.batch(moved(1, 150, 160), newest=11, crash=crash)
    run.close()
    run._text = JOINED + rule
    with pytest.raises(PipelineError, match="which has no windows of a fixed length of time"):
        run.start()
    run._text = JOINED
    run.start()
    run.batch(moved(1, 160, 170), newest=12)
    (table,) = compact(tmp_path / "state")
    assert (table.rows, table.changes) == (1, 5)
    run.close()


@pytest.mark.parametrize("crash", ["", "results", "totals", "shown"])
def test_a_run_folder_is_read_as_envelopes_of_whole_updates(tmp_path: Path, crash: str) -> None:
    """Half an update: each micro-batch is one batch, also if a file contains several of them."""
    run = ChangeRun(tmp_path)
    run.batch([(1, A, 1, 1), (1, B, 7, 1)], newest=10)
    run.batch(moved(1, 1, 2), newest=10, crash=crash)
    run.batch([*moved(1, 2, 3), (1, B, 7, -1)], newest=10)
    run.close()
    options = ("--changes", "debezium", "--format", "json")
    status, text, errors = command("query", tmp_path / "state", "SELECT * FROM talkers", *options, cwd=tmp_path)
    assert status == 0, errors
    events = [json.loads(line) for line in text.splitlines()]
    shown = [
        (event["op"], *((row or {}).get(name) for row in (event["before"], event["after"]) for name in ("srcIP", "n")))
        for event in events
    ]
    assert shown == [
        *(("c", None, None, A, 1), ("c", None, None, B, 7), ("u", A, 1, A, 2)),
        *(("u", A, 2, A, 3), ("d", B, 7, None, None)),
    ]


def test_rows_that_were_withdrawn_have_no_series_and_no_window(tmp_path: Path) -> None:
    run = ChangeRun(tmp_path)
    run.batch([(1, A, 5, 1), (1, B, 6, 1)], newest=10)
    run.batch([(1, A, 5, -1)], newest=10)
    assert samples(run.monitor.exporter, "wiretide_query_talkers_n") == ['{src_ip="10.0.0.2"} 6.0']
    run.batch([(1, B, 6, -1)], newest=10, crash="shown")
    assert samples(run.monitor.exporter, "wiretide_query_talkers_n") == []
    assert samples(run.monitor.exporter, "wiretide_query_groups") == ['{query="talkers"} 0.0']
    assert run.monitor.history is not None
    assert list(run.monitor.history.stored.in_order("talkers")) == []
    assert run.lines[-1].endswith("talkers (provisional): no row any more")
    run.close()


def test_a_missing_file_of_changes_is_an_error_and_no_wrong_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_files, "MAX_BATCHES", 1)
    run = ChangeRun(tmp_path)
    run.batch([(1, A, 5, 1)])
    run.batch(moved(1, 5, 6))
    run.close()
    list_files(run.output / "talkers")[0].unlink()
    with pytest.raises(
        InputError, match=r"query talkers: got .*'n': 5.* withdraws a row that no earlier change returned"
    ):
        list(compact(tmp_path / "state"))
    assert list((tmp_path / "state" / "compact").iterdir()) == []


def test_windows_of_which_changes_were_deleted_as_configured_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_files, "MAX_BATCHES", 1)
    run = ChangeRun(tmp_path)
    run.batch([(1, A, 5, 1), (1, B, 6, 1)])
    run.batch([*moved(1, 5, 7), (2, A, 8, 1)])
    table = run.table([(9, A, 9, 1)], 0)
    stored = with_columns(readable(table, run.plan.times), run.plan.root.columns)
    result_files.write_results(run.output, 2, {"talkers": stored}, 70 * SECOND)
    run.totals.watermarks["talkers"] = 9 * LENGTH * SECOND
    TotalsFiles(tmp_path / "state" / "totals").save(2, run.totals)
    run.close()
    (written,) = compact(tmp_path / "state")
    assert rows_of([pq.read_table(written.path)]) == Counter([(2, A, 8), (9, A, 9)])


def test_a_row_with_nan_null_or_negative_zero_is_found_when_it_is_withdrawn() -> None:
    schema = pa.schema([("window_end", pa.int64()), ("x", pa.float64()), ("t", pa.string())])
    current = CurrentResults("q", schema)
    rows = pa.table({"window_end": [5, 5, 5], "x": [nan, -0.0, None], "t": [None, "a", ""]}, schema)
    current.add(rows.append_column("weight", pa.array([1, 1, 2])))
    assert current.rows(5).num_rows == 4
    same = pa.table({"window_end": [5, 5, 5], "x": [-nan, 0.0, None], "t": [None, "a", ""]}, schema)
    assert current.add(same.append_column("weight", pa.array([-1, -1, -2]))) == [5]
    assert current.rows(5).num_rows == 0
    with pytest.raises(InputError, match="withdraws a row that no earlier change returned"):
        current.add(same.append_column("weight", pa.array([-1, 0, 0])))


@pytest.mark.parametrize("crash", ["", "results", "totals", "shown"])
def test_an_alert_on_a_provisional_result_is_updated_withdrawn_and_confirmed(tmp_path: Path, crash: str) -> None:
    run = ChangeRun(tmp_path, RULE + RECEIVERS)
    run.batch([(1, A, 150, 1)], newest=10, crash=crash)
    run.batch(moved(1, 150, 160), newest=12, crash=crash)
    run.batch(moved(1, 160, 90), newest=14, crash=crash)
    run.batch(moved(1, 90, 170), newest=16, crash=crash)
    assert f"{'1970-01-01T00:00:10Z'}  alert firing (warning, provisional): 10.0.0.1 sent 170" in run.lines
    run.batch([(2, A, 10, 1)], newest=20, crash=crash)
    run.batch([], final_window=1, newest=30, crash=crash)
    run.batch([], final_window=2, newest=40, crash=crash)
    sent = [
        ("firing", "provisional", "true", "10.0.0.1 sent 150"),
        ("firing", "provisional", "true", "10.0.0.1 sent 160"),
        ("ended", "provisional", "withdrawn", "10.0.0.1 sent 160"),
        ("firing", "provisional", "true", "10.0.0.1 sent 170"),
        ("ended", "provisional", "false", "10.0.0.1 sent 170"),
        ("firing", "final", "true", "10.0.0.1 sent 170"),
    ]
    certain = [("firing", "final", "true", "10.0.0.1 sent 170"), ("ended", "final", "false", "10.0.0.1 sent 170")]
    assert delivered(run) == [*sent, certain[1]]
    assert delivered(run, "pager") == certain, "an irrevocable action waits until the result is final"


def test_a_corrected_end_lets_the_alert_fire_again(tmp_path: Path) -> None:
    run = ChangeRun(tmp_path, RULE + RECEIVERS)
    run.batch([(1, A, 150, 1), (2, B, 1, 1)], newest=20)
    run.batch([(2, A, 160, 1)], newest=21, crash="shown")
    assert [message["status"] for message in run.monitor.alerts.firing_messages()] == ["firing"]  # type: ignore[union-attr]
    assert [status for status, *_ in delivered(run)] == ["firing", "ended", "firing"]


def test_a_window_that_has_not_ended_begins_alerts_and_ends_none(tmp_path: Path) -> None:
    run = ChangeRun(tmp_path, RULE + RECEIVERS)
    run.batch([(1, A, 150, 1), (2, B, 101, 1)], newest=15)
    assert delivered(run) == [
        ("firing", "provisional", "true", "10.0.0.1 sent 150"),
        ("firing", "provisional", "true", "10.0.0.2 sent 101"),
    ]


@pytest.mark.parametrize("crash", ["", "results", "totals", "shown"])
def test_it_did_not_happen_is_reported_when_it_is_certain(tmp_path: Path, crash: str) -> None:
    rule = '[alerts.silent]\nquery = "talkers"\nwhere = "n > 100"\nabsent = "20s"\nlabels = []\nsummary = "silent"\n'
    run = ChangeRun(tmp_path, rule + RECEIVERS)
    run.batch([(1, A, 150, 1)], final_window=1, newest=10, crash=crash)
    run.batch([(4, B, 1, 1)], final_window=1, newest=45, crash=crash)  # windows 2 and 3 have no rows so far
    assert run.monitor.alerts is not None
    assert run.monitor.alerts.firing_messages() == []
    run.batch([(2, A, 150, 1)], final_window=3, newest=46, crash=crash)  # a late answer
    assert run.monitor.alerts is not None
    assert run.monitor.alerts.firing_messages() == []
    run.batch([], final_window=4, newest=60, crash=crash)
    assert delivered(run) == [("firing", "final", "absent", "silent")]


def test_counters_and_histograms_count_final_windows_once(tmp_path: Path) -> None:
    run = ChangeRun(tmp_path, text=PIPELINE.replace("port = 0", "port = 0\ncounters = true"))
    name = "wiretide_query_talkers_n_added_total"
    run.batch([(1, A, 5, 1)], newest=10)
    run.batch(moved(1, 5, 7), newest=12)
    assert samples(run.monitor.exporter, name) == []
    run.batch([], final_window=1, newest=30)
    run.batch([], final_window=1, newest=31)
    assert samples(run.monitor.exporter, name) == ['{src_ip="10.0.0.1"} 7.0']
    run.close()


def test_the_page_marks_windows_that_are_not_final(tmp_path: Path) -> None:
    run = ChangeRun(tmp_path)
    run.batch([(1, A, 5, 1), (2, A, 6, 1)], final_window=1, newest=20)
    history = run.monitor.history
    assert history is not None
    assert [history.is_final("talkers", k * LENGTH * SECOND) for k in (1, 2)] == [True, False]
    assert run.lines[-2:] == [
        "1970-01-01T00:00:10Z  talkers: 1 row, srcIP 10.0.0.1, n 5",
        "1970-01-01T00:00:20Z  talkers (provisional): 1 row, srcIP 10.0.0.1, n 6",
    ]
    run.batch(moved(2, 6, 8), newest=20)
    newest = history.stored.newest_of("talkers")
    assert newest is not None
    assert (newest.id, newest.rows["n"].to_pylist()) == (3, [8]), "a new ID tells the browser"
    run.close()


def test_the_final_plan_of_a_query_with_changes_is_that_of_the_query_without_them() -> None:
    sql = "SELECT srcIP, count(*) AS n [RANGE 10 seconds] FROM packets GROUP BY srcIP"
    changing: Any = compile_query(f"{sql} WITH CONSISTENCY (WAIT 1 s, REMEMBER 1 hour) EMIT CHANGES")
    plain: Any = compile_query(sql)
    assert changing.with_final_rows().schema == plain.schema
    assert changing.with_final_rows().leaves[0].low.columns == plain.leaves[0].low.columns
    assert plain.with_final_rows() == plain


def test_tables_of_some_queries_go_to_another_folder(tmp_path: Path) -> None:
    run = ChangeRun(tmp_path)
    with pytest.raises(InputError, match="got a run without changes, expected a run that has returned changes"):
        list(compact(tmp_path / "state"))
    run.batch([(1, A, 5, 1), (2, A, 6, 1)], final_window=1)
    run.close()
    with pytest.raises(InputError, match="got the query 'other', expected a query with changes: talkers"):
        list(compact(tmp_path / "state", ["other"]))
    (table,) = compact(tmp_path / "state", ["talkers"], tmp_path / "tables", only_final=True)
    assert table.path == tmp_path / "tables" / "talkers.parquet"
    assert pq.read_table(table.path).to_pylist()[0]["final"] is True
    assert (table.rows, table.provisional) == (1, 0)


def test_a_sink_that_cannot_withdraw_rows_refuses_changes(tmp_path: Path) -> None:
    sql = "SELECT srcIP, count(*) AS n [RANGE 10 seconds] FROM packets GROUP BY srcIP EMIT CHANGES"
    with pytest.raises(
        OpenMetricsError, match="has EMIT CHANGES: expected final results, because samples cannot be corrected"
    ):
        write_openmetrics(compile_query(sql), [], BytesIO())
    with pytest.raises(PlotError, match="got a query with EMIT CHANGES, expected final results"):
        AnswerRows(compile_query(sql))
    rule = '[alerts.pairs]\nquery = "talkers"\nwhere = "n > 100"\n'
    with pytest.raises(PipelineError, match="which has no windows of a fixed length of time"):
        ChangeRun(tmp_path, rule, JOINED)
