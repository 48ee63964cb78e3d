"""A micro-batch that an earlier attempt has finished is read from its files. Without Spark.

The tests detect a repetition that computes other rows than those that alerts and sinks have received, for example
because a topic has lost messages. They detect files of other queries that are used.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from highlevel.inline.engine import Input
from highlevel.results.row_limit import REST_ROWS, RowLimit
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.source import open_captures
from highlevel.spark.micro_batch import BatchProcessor
from highlevel.spark.run_folder.checkpoint import offsets_checksum
from highlevel.spark.run_folder.folder_start import prepare_folder
from highlevel.spark.run_folder.identity import describe_run, write_identity
from highlevel.spark.run_folder.result_files import write_results
from highlevel.spark.run_folder.staged_results import stored_form
from highlevel.spark.run_folder.totals import Totals, TotalsFiles
from queries.gsql import compile_query
from tests.harness.links import write_links

SQL = "SELECT srcIP, count(*) AS n FROM M [RANGE 1 minute] GROUP BY srcIP"
PLANS = [compile_query(SQL, "q"), compile_query(SQL, "silent")]
MINUTE = 60 * 10**9


class NoJob:
    """The rows of a micro-batch whose job must not run."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was called")


def make_rows(minute: int, count: int) -> pa.Table:
    columns = {
        "window_start": [minute * MINUTE] * count,
        "window_end": [(minute + 1) * MINUTE] * count,
        "srcIP": [bytes([10, 0, 0, host]) for host in range(count)],
        "n": [*range(count)],
    }
    return pa.table(columns, schema=PLANS[0].schema)


def write_batches(folder: Path) -> None:
    """Write the files of micro-batches 3 and 4."""
    (folder / "checkpoint" / "offsets").mkdir(parents=True)
    for batch in (3, 4):
        (folder / "checkpoint" / "offsets" / str(batch)).write_text("v1\n{}\n{}")
        write_results(folder / "output", batch, {"q": stored_form(PLANS[0], make_rows(batch, 2 * batch), None)})
        totals = Totals(query_ids={"q": 0, "silent": 1}, watermarks={"q": batch * MINUTE})
        totals.offsets = offsets_checksum(folder / "checkpoint", batch)
        TotalsFiles(folder / "totals").save(batch, totals)


def process(folder: Path, batch: int, *, is_repeated: bool, **limits: RowLimit) -> Any:
    assignment = InputAssignment.of(PLANS, [Input("M", Path("m.pcap"), "M")])
    processor = BatchProcessor(folder, assignment, row_limits=limits, keep_results=None, measure=False, say=print)
    return processor.process(NoJob(), batch, is_repeated=is_repeated)


def test_a_finished_micro_batch_is_read_from_its_files(tmp_path: Path) -> None:
    write_batches(tmp_path)
    results = process(tmp_path, 4, is_repeated=True)
    assert results.tables == {"q": make_rows(4, 8), "silent": PLANS[1].schema.empty_table()}
    (file,) = (tmp_path / "output" / "q").rglob("*.parquet")
    assert (results.files, results.rests) == ({"q": [file], "silent": []}, {})
    assert results.totals.watermarks["q"] == 4 * MINUTE


def test_its_rows_are_limited(tmp_path: Path) -> None:
    write_batches(tmp_path)
    results = process(tmp_path, 4, is_repeated=True, q=RowLimit(ranks=("n",), rows=3, window_rows=3))
    assert sorted(results.tables["q"]["n"].to_pylist()) == [5, 6, 7]
    assert results.rests["q"].select(["window_end", REST_ROWS]).to_pylist() == [
        {"window_end": 5 * MINUTE, REST_ROWS: 5}
    ]


@pytest.mark.parametrize("batch, is_repeated", [(4, False), (5, True)])
def test_other_micro_batches_run_a_job(batch: int, is_repeated: bool, tmp_path: Path) -> None:
    write_batches(tmp_path)
    with pytest.raises(AssertionError, match="repartitionById was called"):
        process(tmp_path, batch, is_repeated=is_repeated)


@pytest.mark.parametrize("sql, is_kept", [(SQL, True), (SQL.replace("count(*)", "sum(len)"), False)])
def test_other_queries_do_not_use_the_files(sql: str, is_kept: bool, tmp_path: Path) -> None:
    inputs = [Input("M", write_links(tmp_path, 1)[0].path, "M")]

    def prepare(sql: str) -> None:
        assignment = InputAssignment.of([compile_query(sql, "q")], inputs)
        identity = describe_run(assignment, 2, 100, False, open_captures(inputs))
        if not (folder / "run.json").exists():
            write_identity(folder, identity)
        prepare_folder(folder, assignment, identity, print)

    folder = tmp_path / "run"
    folder.mkdir()
    prepare(SQL)
    checkpoint = folder / "checkpoint"
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id": "x"}')
    (checkpoint / "commits" / "0").write_text("v1\n{}")
    for batch in (0, 1):
        (checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps({f'0 {inputs[0].path}': batch})}")
        totals = Totals(query_ids={"q": 0}, offsets=offsets_checksum(checkpoint, batch))
        TotalsFiles(folder / "totals").save(batch, totals)
    prepare(sql)
    assert TotalsFiles(folder / "totals").has(1) == is_kept
    assert TotalsFiles(folder / "totals").has(0)
