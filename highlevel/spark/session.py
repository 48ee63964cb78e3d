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
from tempfile import TemporaryDirectory
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from highlevel.spark.errors import RunError, start_failure
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
    "spark.driver.memory": "2g",
    "spark.driver.maxResultSize": "1g",  # of packed rows: an answer that is larger is an error, not a full heap
}
ON_THIS_MACHINE = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
LEAN_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""No optimising compiler, and a garbage collector without threads of its own."""


_uses: dict[str, int] = {}
"""How often each session that was started here is in use, by application id; others are not ours to stop."""

_own_jvm: set[str] = set()
"""Those of them whose JVM was started for them, and ends with them."""


def session(
    master: str = "local[*]", partitions: int = 2, name: str = "wiretide", log: Path = Path(os.devnull)
) -> SparkSession:
    """Start a session, or use the one of this process as it is. End it with `close`, once for each call.

    `partitions` is the number of partitions of a shuffle. What the JVM has to say goes to the file `log`: its warnings
    and traces are no message to a user. Raises JavaMissingError, and RunError with the reason where Spark does not
    start (a master that does not exist, a cluster that does not answer).
    """
    running = SparkContext._active_spark_context
    if running is not None:
        if running.applicationId in _uses:
            _uses[running.applicationId] += 1
        return SparkSession.builder.getOrCreate()
    require_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName(name)
    settings = SETTINGS | {"spark.sql.shuffle.partitions": str(partitions)}
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= ON_THIS_MACHINE
    settings |= dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), LEAN_JVM)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with TemporaryDirectory(prefix="wiretide-spark-") as scratch:
        said = log if log != Path(os.devnull) else Path(scratch) / "log"  # removed now, it goes with the JVM
        before = said.stat().st_size if said.exists() else 0
        own_jvm = SparkContext._gateway is None
        spark = None
        try:
            with standard_error_to(said):
                spark = builder.getOrCreate()
        except (Py4JError, PySparkException, OSError) as failure:
            reason = start_failure(_report(failure), said.read_bytes()[before:])
            raise RunError(f"Spark did not start on {master}: {reason}") from None
        finally:
            if spark is None:
                half_made = SparkContext._active_spark_context  # where the cluster went away in the middle
                if half_made is not None:
                    half_made.stop()
                if own_jvm:
                    _end_jvm()
    application = spark.sparkContext.applicationId
    _uses[application] = 1
    if own_jvm:
        _own_jvm.add(application)
    return spark


def _report(failure: Exception) -> str:
    """The text of a failure: it is fetched from the JVM, unless that is dead, as it is when a cluster turns it away."""
    try:
        return str(failure)
    except (Py4JError, OSError):
        return ""


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
    """Give a session back. The last to do so stops it and waits for its JVM, which takes the Python workers with it.

    A session that somebody else started is left as it was.
    """
    application = spark.sparkContext.applicationId
    if application not in _uses:
        return
    _uses[application] -= 1
    if _uses[application] == 0:
        del _uses[application]
        spark.stop()
        if application in _own_jvm:
            _own_jvm.remove(application)
            _end_jvm()


def _end_jvm() -> None:
    """End the JVM of this process, so that the next session gets one of its own."""
    gateway: Any = SparkContext._gateway
    if gateway is None or getattr(gateway, "proc", None) is None:
        return  # none there; or this process was started by spark-submit, and the JVM is the parent
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when its standard input does
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None
