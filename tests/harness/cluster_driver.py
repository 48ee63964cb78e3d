"""A driver on a cluster, to be killed: `python -m tests.harness.cluster_driver FOLDER INPUTS MASTER PYTHON [OUTSIDE]`.

Run the stream engine over the links in INPUTS, which `tests.harness.links` has written, with the PYTHON of the
executors. Print `batch N` when everything of a micro-batch but Spark's commit is done. With OUTSIDE, a capture that
only this machine can read, ask a query over it first, and print `refused SECONDS REASON`. FOLDER may be a URI of an
object store. Then the executors have the credentials of this process, a lock of another machine is soon free, and the
environment variable COPY_HOME is the folder for the copy.
"""

import os
import sys
import time
from pathlib import Path

from highlevel.inline.engine import Input
from highlevel.spark.batch import BatchRun
from highlevel.spark.errors import RunError
from highlevel.spark.remote import run_lock
from highlevel.spark.remote.object_store import ObjectStore
from highlevel.spark.remote.run_copy import RunCopy
from highlevel.spark.session.session import close_session, start_session
from highlevel.spark.stream import StreamRun
from queries.gsql import compile_query
from tests.harness.spark_crash_driver import OPTIONS, inputs_in
from tests.references.window_queries import QUERIES

PLANS = [compile_query(query.gsql, query.name) for query in QUERIES[:3]]

COPY_HOME = "COPY_HOME"


def print_refusal(spark, outside: Path) -> None:
    run = BatchRun(spark, [PLANS[0]], [Input("outside", outside)])
    start = time.monotonic()
    try:
        run.run()
    except RunError as error:
        print("refused", round(time.monotonic() - start), error, flush=True)


def open_copy(uri: str) -> RunCopy:
    run_lock.LOCK_SECONDS = 1.0
    copy = RunCopy(ObjectStore(uri), Path(os.environ[COPY_HOME]), print)
    copy.open()
    return copy


def main(folder: str, inputs: Path, master: str, python: str, outside: Path | None = None) -> None:
    settings = {"spark.pyspark.python": python, "spark.executor.memory": "512m"}
    copy = None
    if folder.startswith("s3a:"):
        copy = open_copy(folder)
        settings |= {f"spark.executorEnv.{name}": os.environ[name] for name in os.environ if name.startswith("AWS_")}
    spark = start_session(master, chosen=settings)
    if outside is not None:
        print_refusal(spark, outside)
    run = StreamRun(
        spark,
        PLANS,
        inputs_in(inputs),
        Path(folder) if copy is None else copy.folder,
        on_batch=lambda batch, *_: print("batch", batch, flush=True),
        copy=copy,
        **OPTIONS,
    )
    try:
        run.start()
        run.wait()
    finally:
        run.stop()
        close_session(spark)
        if copy is not None:
            copy.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:5], *map(Path, sys.argv[5:]))
