"""The Spark session: settings that were measured to help, quiet, on loopback.

The work is in the Python workers, and the JVM carries packed rows between them: what helps is what keeps the JVM from
competing with them for the cores. Its optimising compiler alone took a third of a second of each query, for code that
runs for milliseconds. `docs/spark.md` has the figures.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from highlevel.spark.java import require_java

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.shuffle.compress": "false",  # what is shuffled is compressed already
}
ON_THIS_MACHINE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
LEAN_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""No optimising compiler, and a garbage collector without threads of its own."""


def session(
    master: str = "local[*]",
    partitions: int = 2,
    own_sql: bool = False,
    name: str = "wiretide",
    log: Path = Path(os.devnull),
) -> SparkSession:
    """Start a session, or return the one of this process. End it with `close`.

    `partitions` is the number of partitions of a shuffle. `own_sql` is for questions in Spark's own SQL, over packets
    as a DataFrame: they do run in the JVM, and are two to three times faster with its optimising compiler. What the
    JVM has to say goes to the file `log`: its warnings and traces are no message to a user. Raises JavaMissingError.
    """
    require_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName(name)
    settings = SETTINGS | {"spark.sql.shuffle.partitions": str(partitions)}
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= ON_THIS_MACHINE
    if not own_sql:
        settings |= dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), LEAN_JVM)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with standard_error_to(log):
        return builder.getOrCreate()


@contextmanager
def standard_error_to(path: Path) -> Iterator[None]:
    """Append what this process and the children it starts write to standard error to a file, meanwhile."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def close(spark: SparkSession) -> None:
    """Stop the session and wait for its JVM, which takes the Python workers with it."""
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when its standard input does
    gateway.proc.wait()
