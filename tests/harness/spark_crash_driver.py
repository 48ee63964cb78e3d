"""A driver to be killed: `python -m tests.harness.spark_crash_driver FOLDER INPUTS MOMENT BATCH`.

Run the stream engine over the links in INPUTS and kill the process with signal 9 at MOMENT of micro-batch BATCH.
`tests.harness.links` has written INPUTS; a spool is a folder with the name of its link. Says `batch N` when everything
of a micro-batch but Spark's commit is done.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from highlevel.inline.engine import Input
from highlevel.results.row_limit import RowLimit
from highlevel.spark import micro_batch
from highlevel.spark.run_folder.staged_results import ResultWriter, StagedFile
from highlevel.spark.run_folder.state import PartitionState
from highlevel.spark.session.session import close_session, start_session
from highlevel.spark.stream import StreamRun
from highlevel.spark.tasks.host import LevelTask
from queries.gsql import compile_query
from tests.references.window_queries import QUERIES

MOMENTS = ("planned", "half of the state", "results", "half of the files", "uncommitted")
FINAL = QUERIES[0]
CHANGES = {
    "at_once": "EMIT CHANGES",
    "patient": "WITH CONSISTENCY (WAIT 1 minute) EMIT CHANGES",
    "certain": "WITH STRONG CONSISTENCY EMIT CHANGES",
}
"""Consistencies of the query FINAL, by the name of the query with changes."""

PLANS = [
    *(compile_query(query.gsql, query.name) for query in QUERIES),
    *(compile_query(f"{FINAL.gsql} {clauses}", name) for name, clauses in CHANGES.items()),
]
LIMITS = {plan.name: RowLimit(rows=2) for plan in PLANS}
"""Tasks write the results of partitions with more rows; the driver writes the others."""

OPTIONS: dict[str, Any] = {
    "partitions": 2,
    "block_records": 100,
    "max_blocks": 2,
    "slots": 256,
    "row_limits": LIMITS,
}


def inputs_in(folder: Path) -> list[Input]:
    """Return the links that `write_links` has written, and the links of spools."""
    names = {path.stem: path for path in sorted(folder.glob("*.pcap"))}
    captures = [Input("main2" if name == "main2b" else name, path) for name, path in names.items()]
    return captures + [Input(path.name, path, spool=True) for path in sorted(folder.iterdir()) if path.is_dir()]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DyingTask(LevelTask):
    """Kills the driver when the state of one partition is written and that of others may not be."""

    driver = os.getpid()
    at = -1

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        save, driver, dies = PartitionState.save, self.driver, self.batch_id == self.at

        def save_and_kill(state: PartitionState, *arguments: Any) -> None:
            save(state, *arguments)
            if dies and state.folder.name == "0":
                os.kill(driver, signal.SIGKILL)

        PartitionState.save = save_and_kill
        try:
            yield from super().__call__(batches)
        finally:
            PartitionState.save = save


def after(function: Callable[..., None], batch: int) -> Callable[..., None]:
    """Return a function that calls `function` and then dies in micro-batch `batch`.

    The second argument is the batch id.
    """

    def and_die(*arguments: Any) -> Any:
        result = function(*arguments)
        if arguments[1] == batch:
            die()
        return result

    return and_die


def die_between_files(commit: Callable[..., None], batch: int) -> Callable[..., None]:
    """Return a function that renames the first staged file of micro-batch `batch`, and then dies."""

    def commit_one(writer: ResultWriter, files: dict[str, list[StagedFile]], *arguments: Any) -> None:
        if writer.batch_id != batch:
            commit(writer, files, *arguments)
            return
        query = next((query for query in files if files[query]), "")
        commit(writer, {query: files[query][:1]} if query else {}, *arguments)
        die()

    return commit_one


def main(folder: Path, inputs: Path, moment: str, batch: int) -> None:
    DyingTask.at = batch if moment == "half of the state" else -1
    micro_batch.LevelTask = DyingTask
    if moment == "results":
        micro_batch.write_results = after(micro_batch.write_results, batch)
    if moment == "half of the files":
        micro_batch.commit_files = die_between_files(micro_batch.commit_files, batch)
    if moment == "planned":
        process = micro_batch.BatchProcessor.process
        micro_batch.BatchProcessor.process = lambda processor, rows, number, **options: (
            die() if number == batch else process(processor, rows, number, **options)
        )

    def on_batch(number: int, results: dict[str, pa.Table], samples: Any) -> None:
        print("batch", number, flush=True)
        if moment == "uncommitted" and number == batch:
            die()

    spark = start_session("local[2]")
    run = StreamRun(spark, PLANS, inputs_in(inputs), folder, on_batch=on_batch, **OPTIONS)
    try:
        run.start()
        run.wait()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        run.stop()
        close_session(spark)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
