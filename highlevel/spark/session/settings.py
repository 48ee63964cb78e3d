"""The Spark settings of a session: those of Wiretide, of the user's spark-defaults.conf, and of the user's options.

A later source overrides an earlier one:

1. DEFAULTS: the values that were best in measurements.
2. The user's spark-defaults.conf.
3. REQUIRED and LOOPBACK: settings that Wiretide needs; `docs/guide/spark.md` explains the reasons.
4. `[spark.conf]` of a pipeline file and `--conf`.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from highlevel.spark.errors import RunError

DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
"""Key of the Java options of the driver."""

DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.shuffle.compress": "false",  # shuffled data are already compressed
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.ui.retainedJobs": "100",  # stored for the page of Spark, even if it is disabled
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "100",
    "spark.driver.memory": "2g",
    "spark.driver.maxResultSize": "1g",  # a larger answer raises an error before it fills the heap
    DRIVER_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Settings that the user's spark-defaults.conf overrides. The Java options switch off the optimising compiler, and
select a garbage collector without separate threads.
"""

REQUIRED = {
    "spark.ui.showConsoleProgress": "false",  # the progress bar would appear between the rows of an answer
    "spark.sql.adaptive.enabled": "false",  # each partition of the state needs exactly one task
}
"""Settings that override spark-defaults.conf."""

LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Settings for a local Spark: other machines cannot connect to the driver."""

PATH_SETTINGS = ("spark.archives", "spark.files", "spark.jars", "spark.submit.pyFiles")
"""Settings that are lists of paths or URLs."""

ENTRY = re.compile(r"((?:\\.|[^\\\s=:])+)(?:\s*[=:]\s*|\s+|$)(.*)")
"""A key and its value in a file of Java properties."""

REGISTERING_CLASSES = (
    *(f"internal.config.{name}$" for name in ("package", "Python", "UI", "Deploy", "Worker")),
    "sql.internal.SQLConf$",
)
"""Objects of Spark that declare the keys of settings when they are loaded."""

SIMILARITY = 0.92
"""If an unknown key is at least this similar to a known key, it is an error, because it is probably misspelt. Other
unknown keys may belong to libraries.
"""

UNREGISTERED = (
    "spark.yarn.",
    "spark.kubernetes.",
    "spark.hadoop.",
    "spark.executorEnv.",
    "spark.metrics.",
    "spark.local.",
)
"""Prefixes of keys that Spark does not declare, or declares only with another master."""


def read_spark_defaults(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings in the user's spark-defaults.conf, if it exists. Raises RunError if it cannot be read.

    Its folder is SPARK_CONF_DIR; if this is not set, `conf` in SPARK_HOME or in the package pyspark.
    """
    home = environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    path = Path(environ.get("SPARK_CONF_DIR") or Path(home) / "conf") / "spark-defaults.conf"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path}: cannot be read: {error}") from error
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    r"""Return the Spark settings in a text in the format of Java properties.

    >>> parse_properties("# ours\nspark.ui.enabled  true\nspark.a=1 \\\n  2\nother: 3\n")
    {'spark.ui.enabled': 'true', 'spark.a': '1 2'}
    """
    settings = {}
    for line in re.sub(r"\\\r?\n\s*", "", text).splitlines():
        entry = None if line.lstrip().startswith(("#", "!")) else ENTRY.match(line.strip())
        if entry is not None and entry[1].startswith("spark."):
            settings[entry[1]] = re.sub(r"\\(.)", r"\1", entry[2]).strip()
    return settings


def choose_python(master: str, chosen: Mapping[str, str]) -> str:
    """Return the Python for the workers: that of this process for a local Spark, the user's choice for a cluster."""
    if "spark.pyspark.python" in chosen:
        return chosen["spark.pyspark.python"]
    if master.startswith("local"):
        return sys.executable
    return read_spark_defaults().get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable


def is_relative(python: str) -> bool:
    """Return True if a path of Python is relative to the working folder of an executor, as for an archive.

    >>> is_relative("./wiretide/bin/python"), is_relative("/usr/bin/python3"), is_relative("python3")
    (True, False, False)
    """
    return "/" in python and not python.startswith("/")


def make_absolute(chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the user's settings with absolute paths, because the JVM has another working folder."""

    def convert(path: str) -> str:
        return path if not path or ":" in path else str(Path(path).absolute())

    return {
        key: ",".join(convert(path) for path in value.split(",")) if key in PATH_SETTINGS else value
        for key, value in chosen.items()
    }


def combine_settings(master: str, partitions: int, scratch: Path | None, chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for a new session with `master`, without settings that Spark reads itself.

    `scratch` is the folder for temporary files of the JVM, if a JVM is started. `chosen` are the user's settings.
    """
    user_settings = read_spark_defaults()
    settings = {key: value for key, value in DEFAULTS.items() if key not in user_settings}
    settings |= REQUIRED | {"spark.sql.shuffle.partitions": str(partitions)}
    is_local = master.startswith("local")
    if is_local:
        settings |= LOOPBACK
        if scratch is not None and "spark.local.dir" not in user_settings and "SPARK_LOCAL_DIRS" not in os.environ:
            settings["spark.local.dir"] = str(scratch)
    settings |= chosen
    if scratch is not None:
        options = settings.get(DRIVER_OPTIONS, user_settings.get(DRIVER_OPTIONS, ""))
        if "-Djava.io.tmpdir=" not in options:
            folder = shlex.quote(f"-Djava.io.tmpdir={scratch}")
            settings[DRIVER_OPTIONS] = f"{options} {folder}".strip()
    return settings


def check_known(jvm: Any, chosen: Mapping[str, str]) -> None:
    """Raise RunError for a value that Spark refuses, and for an unknown key that is similar to a known one.

    `jvm` is a running JVM. Other unknown keys are accepted, because they may belong to libraries.
    """
    if not chosen:
        return
    for name in REGISTERING_CLASSES:
        with contextlib.suppress(Py4JError):
            getattr(jvm, "java.lang.Class").forName(f"org.apache.spark.{name}")
    entries = getattr(jvm, "org.apache.spark.internal.config.ConfigEntry")
    for key, value in chosen.items():
        try:
            entry = entries.findEntry(key)
            if entry is not None:
                entry.valueConverter().apply(value)
                continue
        except (Py4JJavaError, PySparkException) as failure:
            reason = failure.java_exception.getMessage() if isinstance(failure, Py4JJavaError) else str(failure)
            reason = re.sub(r"^\[[\w.]+\] | SQLSTATE: \w+$", "", str(reason).splitlines()[0])
            raise RunError(f"{key}={value}: {reason}") from None
        except Py4JError:  # this version of Spark has other classes
            continue
        candidates = [known for known in known_keys(jvm) if known.count(".") == key.count(".")]
        similar = difflib.get_close_matches(key, candidates, 1, SIMILARITY)
        if similar and not key.startswith(UNREGISTERED):
            raise RunError(f"{key}: Spark has no such setting; expected {similar[0]}?")


def known_keys(jvm: Any) -> list[str]:
    """Return all keys of settings that this Spark declares before a session starts."""
    entries = getattr(jvm, "org.apache.spark.internal.config.ConfigEntry$")
    keys = getattr(entries, "MODULE$").knownConfigs().keySet()
    return [str(key) for key in keys]
