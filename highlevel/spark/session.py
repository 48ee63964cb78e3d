"""The Spark session: settings that were measured to help, quiet, on loopback.

What moved the latency of a micro-batch: Unix domain sockets to the Python workers, worker reuse, a short polling
delay, and for streams of tiny micro-batches a JIT that stops at its first tier. Batch queries run for seconds in the
same code and lose with that: `docs/spark.md` has the figures.
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
}
ON_THIS_MACHINE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
FIRST_TIER = "-XX:TieredStopAtLevel=1"


def session(
    master: str = "local[*]",
    partitions: int = 2,
    stream: bool = False,
    name: str = "wiretide",
    log: Path = Path(os.devnull),
) -> SparkSession:
    """Start a session, or return the one of this process. End it with `close`.

    `partitions` is the number of partitions of a shuffle. `stream` picks the JIT for micro-batches. What the JVM has to
    say goes to the file `log`: its warnings and traces are no message to a user. Raises JavaMissingError.
    """
    require_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName(name)
    settings = SETTINGS | {"spark.sql.shuffle.partitions": str(partitions)}
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= ON_THIS_MACHINE
    if stream:
        settings["spark.driver.extraJavaOptions"] = FIRST_TIER
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
