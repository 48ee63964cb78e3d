"""The totals of a stream on Spark: counters and watermarks of all micro-batches."""

from __future__ import annotations

from pathlib import Path

from highlevel.inline.engine import Input
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.run_folder.totals import Totals
from lowlevel.punctuation import BEGINNING
from queries.gsql import compile_query


def test_a_micro_batch_without_rows_gives_each_query_a_watermark() -> None:
    # The first micro-batch of a spool that has no rows yet has no tasks.
    plan = compile_query("SELECT count(*) FROM packets [RANGE 1 s]", "total")
    assignment = InputAssignment.of([plan], [Input("wire", Path("spool"), "wire")])
    totals = Totals()
    totals.add(assignment, [], [])
    assert totals.watermarks == {"total": BEGINNING}
