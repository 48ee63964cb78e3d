"""AUTOMATON on both Spark engines: the results are those of the inline engine.

Finds: a partition whose rows are matched in two tasks, a run or a deadline that a micro-batch loses, and an order of
rows with equal times that depends on their tasks. The task functions run without a JVM. With one, files of arcs change
between micro-batches, and a run stops and continues. Finds: a task with another version, and arcs that a restart loses.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.plan import Plan
from lowlevel.metrics import WATCHLIST_FAILED, WATCHLIST_RELOADS
from queries.gsql import compile_query
from tests.harness.live_pipes import START
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


ROWS = [compile_query("SELECT ts FROM packets", "rows")]

FOLLOWED = """SELECT {} match_start, match_end, n, rule
    FROM (SELECT ts, srcIP, destIP, len FROM packets) AUTOMATON (
    {} ORDER BY ts REGISTER n INT DEFAULT 0, rule INT START s FINAL e
    ARC s TO m SET n = len ARCS FROM '{}' WITHIN 9 seconds)"""

LARGER = "ARC m TO m WHEN len > n SET n = len; ARC m TO e WHEN len = 60 SET rule = 1;"
"""The arcs of all versions."""


def write(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def time(seconds: int) -> str:
    """Return a time after the start of the capture in SQL."""
    return f"'{datetime.fromtimestamp(START // 10**9 + seconds, UTC):%Y-%m-%dT%H:%M:%SZ}'"


def totals(tables: list[pa.Table]) -> Counter[tuple[object, ...]]:
    """Return the number of each result, the sum of its weights. Results that were withdrawn are left out."""
    counts: Counter[tuple[object, ...]] = Counter()
    for table in tables:
        for row in table.to_pylist():
            row.pop("final", None)
            weight = row.pop("weight", 1)
            counts[tuple(row.values())] += weight
    assert min(counts.values()) >= 0
    return +counts


def inline_totals(plan: Plan, inputs: list[Input]) -> Counter[tuple[object, ...]]:
    return totals([pa.Table.from_batches([batch]) for _, batch in InlineRun([plan], inputs).results()])


@pytest.mark.spark
def test_files_of_arcs_change_between_micro_batches_and_before_a_restart(spark, tmp_path: Path) -> None:
    """Three queries read a file each.

    `past` finds and withdraws results of rows in memory, in two tasks. The arcs of `next` begin and end at later rows.
    `newest` gets an arc without times; all its rows are in one task, so the arc begins after the rows of a micro-batch.
    """
    from highlevel.spark.stream import StreamRun
    from tests.harness.spark_results import read_results

    inputs = [Input("a", disordered_capture(tmp_path / "a.pcap", Random("arcs"), packets=300, late=0))]
    past, following, newest = (tmp_path / f"{name}.arcs" for name in ("past", "next", "newest"))
    second = f"ARC m TO e WHEN destIP = '10.0.0.2' SET rule = 2 FROM {time(4)}"
    third = f"ARC m TO e WHEN destIP = '10.0.0.3' AND n < 100 SET rule = 3 FROM {time(1)}"
    fourth = f"ARC m TO e WHEN len > 100 SET rule = 4 FROM {time(35)} TO {time(50)}"
    fifth = "ARC m TO e WHEN n = 500 SET rule = 5"
    for file in (past, following, newest):
        write(file, LARGER)
    versions = {
        0: [(past, LARGER + second)],
        1: [(past, f"{LARGER}\n{second};\nARC m"), (newest, LARGER + fifth)],
        2: [(following, LARGER + fourth)],
    }
    changes = " WITH CONSISTENCY (WAIT 0, REMEMBER FOREVER) EMIT CHANGES"
    sql = {
        "past": FOLLOWED.format("srcIP,", "PARTITION BY srcIP", past) + changes,
        "next": FOLLOWED.format("srcIP,", "PARTITION BY srcIP", following),
        "newest": FOLLOWED.format("", "", newest) + changes,
    }

    def plans() -> list[Plan]:
        return [compile_query(text, name) for name, text in sql.items()]

    said: list[str] = []

    class StopError(Exception):
        pass

    def change(batch: int, *_: object) -> None:
        if batch == 3:
            raise StopError
        for file, text in versions[batch]:
            write(file, text)

    options = {"block_records": 50, "max_blocks": 1, "say": said.append}
    run = StreamRun(spark, plans(), inputs, tmp_path / "run", on_batch=change, **options)
    run.start()
    with pytest.raises(StopError):
        run.wait()
    run.stop()
    assert [run.samples.total(metric) for metric in (WATCHLIST_RELOADS, WATCHLIST_FAILED)] == [3, 1]
    (problem,) = (line for line in said if "the arcs stay as they were" in line)
    assert problem.startswith(f"warning: {past}: line 3, column 6: ")

    write(past, LARGER + third)
    again = StreamRun(spark, plans(), inputs, run.folder, **options)
    again.start()
    assert again.wait()
    again.stop()
    times = pa.concat_tables([pa.Table.from_batches([batch]) for _, batch in InlineRun(ROWS, inputs).results()])
    last = sorted(times["ts"].to_pylist())[2 * options["block_records"] - 1]
    write(newest, f"{LARGER}{fifth} FROM '{np.datetime64(last + 1, 'ns')}Z'")
    found = [totals([read_results(run.folder, plan)]) for plan in plans()]
    assert found == [inline_totals(plan, inputs) for plan in plans()]
    assert 2 in read_results(run.folder, plans()[0])["rule"].to_pylist()
    rules = [{row[-1] for row in counts} for counts in found]
    assert rules == [{1, 3}, {1, 4}, {1, 5}]
