"""MATCH_RECOGNIZE on both Spark engines: the matches are those of the inline engine.

Finds: a partition whose rows are matched in two tasks, a run that a micro-batch loses, and rows of a task in the wrong
order. The task functions run without a JVM.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from highlevel.inline.engine import InlineRun, Input
from queries.gsql import compile_query
from tests.harness.recorded_runs import disordered_capture

QUERIES = {
    "partitions": "PARTITION BY srcIP ORDER BY ts MEASURES count(*) AS n, sum(B.len) AS s, avg(len) AS m "
    "PATTERN (A B+ C) WITHIN 9 seconds DEFINE B AS len < 100, C AS len > A.len",
    "earlier rows": "PARTITION BY srcIP, destIP ORDER BY ts MEASURES MATCH_NUMBER() AS number, last(len, 1) AS before "
    "AFTER MATCH SKIP TO LAST B PATTERN (A B+) DEFINE B AS len <> prev(len)",
    "all rows": "PARTITION BY srcIP ORDER BY ts MEASURES classifier() AS c, count(*) AS n, FINAL sum(B.len) AS s "
    "ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A B*) WITHIN 9 seconds DEFINE A AS len > 90, B AS len < A.len",
    "other rows of the partition": "PARTITION BY srcIP ORDER BY ts MEASURES prev(len, 2) AS p, next(len, 2) AS n, "
    "classifier(U) AS c, sum(U.len) AS s AFTER MATCH SKIP TO NEXT ROW PATTERN (PERMUTE(A, B) C) SUBSET U = (A, C) "
    "DEFINE A AS len > next(len), B AS len <= prev(len, 3) OR len > 90",
    "ends of the partition": "PARTITION BY srcIP ORDER BY ts MEASURES classifier() AS c, count(*) AS n "
    "ALL ROWS PER MATCH PATTERN (^ A B* | C{1,3} $) DEFINE B AS len > prev(len)",
    "one partition": "ORDER BY ts MEASURES A.srcIP AS one, B.srcIP AS other PATTERN (A B) DEFINE B AS srcIP = A.destIP",
}


def rows_of(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


@pytest.mark.parametrize("parts", [1, 3])
def test_matches_are_those_of_the_inline_engine(parts: int, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from tests.harness.spark_tasks import batch_answers, stream_answers

    random = Random(f"row patterns {parts}")
    inputs = [Input("a", disordered_capture(tmp_path / "a.pcap", random, packets=200, late=0))]
    plans = [compile_query(f"SELECT * FROM packets MATCH_RECOGNIZE ({sql})", name) for name, sql in QUERIES.items()]
    expected = {plan.name: [plan.schema.empty_table()] for plan in plans}
    for number, batch in InlineRun(plans, inputs).results():
        expected[plans[number].name].append(pa.Table.from_batches([batch]))
    streamed = stream_answers(plans, inputs, parts, tmp_path / "state", random)
    answers = batch_answers(plans, inputs, parts, random)
    for plan in plans:
        rows = rows_of(pa.concat_tables(expected[plan.name]))
        assert rows.total() > 5, plan.name
        assert rows_of(streamed[plan.name]) == rows, plan.name
        assert rows_of(answers[plan.name]) == rows, plan.name
