"""Figures of a query on Spark: phases of a report, backlog of captures and spools, and those of a real run."""

from pathlib import Path

import pytest

from highlevel.inline.engine import Input
from highlevel.metrics import SPARK_BACKLOG, SPARK_BATCH_SECONDS, SPARK_BATCHES, SPARK_EXECUTORS
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.query_figures import PHASES, QueryFigures
from queries.gsql import compile_query
from tests.harness.links import write_links

PLAN = compile_query("SELECT count(*) AS n FROM packets [RANGE 1 minute]", "q")


def test_phases_are_sums_of_the_parts_of_spark() -> None:
    figures = QueryFigures()
    figures.read_progress({"durationMs": {"latestOffset": 3}})
    assert SPARK_BATCH_SECONDS.name not in {name for name, _ in figures.samples}, "no data was read"
    durations = {"latestOffset": 30, "getBatch": 2, "queryPlanning": 11, "walCommit": 70, "addBatch": 900}
    figures.read_progress({"durationMs": {**durations, "commitOffsets": 80, "triggerExecution": 1100}})
    seconds = {phase: figures.samples[SPARK_BATCH_SECONDS.name, (phase,)] for phase in PHASES}
    expected = {"offsets": 0.032, "plan": 0.011, "log": 0.07, "work": 0.9, "commit": 0.08, "total": 1.1}
    assert seconds == pytest.approx(expected)


def test_the_backlog_is_what_no_finished_batch_has_read(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    for number in (4, 5, 6, 8):
        (spool / f"{number:012d}.segment").touch()
    inputs = [
        *(Input("a", tmp_path / "a.pcap"), Input("a", tmp_path / "b.pcap")),
        *(Input("s", spool, spool=True), Input("none", tmp_path / "none", spool=True)),
    ]
    figures = QueryFigures()
    figures.read_backlog(InputAssignment.of([PLAN], inputs), {0: (3, 10), 1: (5, 5), 2: (6, 7)})
    backlog = {labels: value for (name, labels), value in figures.samples.items() if name == SPARK_BACKLOG.name}
    assert backlog == {("a", "blocks"): 7, ("s", "segments"): 2, ("none", "segments"): 0}


@pytest.mark.spark
def test_a_run_has_figures(spark, tmp_path: Path) -> None:
    from highlevel.spark.stream import StreamRun

    links = tmp_path / "links"
    links.mkdir()
    batches: list[int] = []
    run = StreamRun(
        spark,
        [PLAN],
        write_links(links, 4)[:2],
        tmp_path / "run",
        block_records=200,
        max_blocks=4,
        on_batch=lambda batch, *_: batches.append(batch),
    )
    run.start()
    assert run.wait()
    figures = run.figures
    run.stop()
    assert figures[SPARK_BATCHES.name, ()] == len(batches) > 1
    assert figures[SPARK_BACKLOG.name, ("main1", "blocks")] == 0
    parts = [figures[SPARK_BATCH_SECONDS.name, (phase,)] for phase in PHASES if phase != "total"]
    assert 0 < max(parts) <= sum(parts) <= figures[SPARK_BATCH_SECONDS.name, ("total",)]
    assert SPARK_EXECUTORS.name not in {name for name, _ in figures}, "Spark on this machine has no executors"
