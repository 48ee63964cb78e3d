"""Kill -9 and Ctrl-C at every kind of moment, then a restart: windows and counters are right, no process remains.

The driver kills itself at a named line of the code, or the test kills it when it reports a finished micro-batch. The
second kill hits any later line. The final contents of the folder are compared, file by file, with a run without
failures.
"""

import os
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from highlevel.spark.run_folder.totals import Totals, TotalsFiles
from tests.harness.crashed_runs import start, wait_for_all_of
from tests.harness.links import write_links
from tests.harness.spark_crash_driver import CHANGES, FINAL, MOMENTS, OPTIONS, PLANS, inputs_in

pytestmark = pytest.mark.spark


def rows(folder: Path) -> dict[str, pa.Table]:
    """Every result file by its name; the rows of a file have no order."""
    files = {path.relative_to(folder).as_posix(): pq.read_table(path) for path in folder.rglob("output/**/*.parquet")}
    return {name: table.sort_by([(each, "ascending") for each in table.column_names]) for name, table in files.items()}


def rows_of(table: pa.Table) -> list[tuple]:
    return [tuple(row.values()) for row in table.to_pylist()]


def sums(files: dict[str, pa.Table], query: str) -> Counter[tuple]:
    """Return the results that the changes of a query add up to."""
    result: Counter[tuple] = Counter()
    for name, table in files.items():
        if name.startswith(f"output/{query}/"):
            for *row, weight, _ in rows_of(table):
                result[tuple(row)] += weight
    return Counter({row: times for row, times in result.items() if times})


def totals(folder: Path) -> Totals:
    """Return the last totals of a run without the checksum of its offsets, which contain the time of day."""
    files = TotalsFiles(folder / "totals")
    return replace(files.load(files.last_batch_id()), offsets="")


@pytest.fixture(scope="module")
def undisturbed(spark, tmp_path_factory) -> tuple[Path, Path]:
    """A folder of inputs, and the folder of a run over them that nothing happens to."""
    from highlevel.spark.stream import StreamRun

    inputs = tmp_path_factory.mktemp("inputs")
    write_links(inputs, 42)
    folder = tmp_path_factory.mktemp("undisturbed")
    run = StreamRun(spark, PLANS, inputs_in(inputs), folder, **OPTIONS)
    run.start()
    run.wait()
    run.stop()
    return inputs, folder


def test_a_replay_that_is_killed_leaves_what_an_undisturbed_one_does(undisturbed, tmp_path: Path, soak: bool) -> None:
    inputs, expected = undisturbed
    last = TotalsFiles(expected / "totals").last_batch_id()
    random = Random(11)
    # Each kill costs the start of a JVM. Without --soak, the test of spools alone kills at other moments.
    moments = [*MOMENTS, "anywhere", "interrupted"] if soak else ["half of the files"]
    random.shuffle(moments)
    batches = sorted(random.sample(range(last), len(moments)))
    sessions = []
    for moment, batch in zip(moments, batches, strict=True):
        with start(tmp_path, inputs, moment, batch) as driver:
            sessions.append(driver.pid)
            for line in driver.stdout:
                if line == f"batch {batch}\n" and moment == "anywhere":
                    driver.kill()
                if line == f"batch {batch}\n" and moment == "interrupted":
                    os.killpg(driver.pid, signal.SIGINT)  # what a terminal does on Ctrl-C
        assert driver.returncode == (130 if moment == "interrupted" else -signal.SIGKILL), (moment, batch)
    with start(tmp_path, inputs, "never", -1) as driver:
        said = driver.stdout.read().splitlines()
    assert driver.returncode == 0
    assert said[-1] == f"batch {last}"
    found = rows(tmp_path)
    assert found == rows(expected)
    assert totals(tmp_path) == totals(expected)
    final = Counter(
        row for name, table in found.items() if name.startswith(f"output/{FINAL.name}/") for row in rows_of(table)
    )
    for query in CHANGES:
        assert sums(found, query) == final, query
    for session in [*sessions, driver.pid]:
        wait_for_all_of(session)
