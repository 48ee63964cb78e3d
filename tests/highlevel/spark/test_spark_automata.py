"""AUTOMATON on both Spark engines: the results are those of the inline engine.

Finds: a partition whose rows are matched in two tasks, a run or a deadline that a micro-batch loses, and an order of
rows with equal times that depends on their tasks. The task functions run without a JVM.
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
    "partitions": """PARTITION BY srcIP ORDER BY ts REGISTER n INT DEFAULT 0, last IP START s FINAL e
        ARC s TO m SET n = len, last = destIP ARC m TO m WHEN len < 100 SET n = n + len
        ARC m TO e WHEN destIP <> last WITHIN 9 seconds""",
    "deadlines": """PARTITION BY srcIP, destIP ORDER BY ts REGISTER seen TIME START s FINAL e
        ARC s TO m SET seen = ts ARC m TO e AT seen + INTERVAL '2 seconds' WITHIN 5 seconds""",
    "arcs of a file": """PARTITION BY srcIP ORDER BY ts REGISTER n INT DEFAULT 0 START s FINAL e
        ARC s TO m SET n = len ARCS FROM '{0}' WITHIN 9 seconds""",
    "one partition": "ORDER BY ts REGISTER n INT START s FINAL e ARC s TO m SET n = len ARC m TO e WHEN len = n",
}


def rows_of(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


@pytest.mark.parametrize("parts", [1, 3])
def test_results_of_automata_are_those_of_the_inline_engine(parts: int, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from tests.harness.spark_tasks import batch_answers, stream_answers

    random = Random(f"automata {parts}")
    inputs = [Input("a", disordered_capture(tmp_path / "a.pcap", random, packets=200, late=0))]
    rules = tmp_path / "rules.arcs"
    rules.write_text("ARC m TO m WHEN len < 100 SET n = n + len; ARC m TO e WHEN len > n TO '2033-05-18T03:33:50Z'")
    rows = "(SELECT ts, srcIP, destIP, len FROM packets)"
    plans = [
        compile_query(f"SELECT * FROM {rows} AUTOMATON ({sql.format(rules)})", name) for name, sql in QUERIES.items()
    ]
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
