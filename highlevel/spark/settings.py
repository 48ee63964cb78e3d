"""The settings of a session, from Wiretide, from the user's spark-defaults.conf, and from the user's options.

A later source overrides an earlier one:

1. DEFAULTS: values that were best in measurements.
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
"""The key of the options for the JVM of the driver."""

DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.shuffle.compress": "false",  # shuffled data are already compressed
    "spark.driver.memory": "2g",
    "spark.driver.maxResultSize": "1g",  # a larger answer raises an error and does not fill the heap
    DRIVER_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Settings that the user's spark-defaults.conf overrides. The options of Java leave out the optimising compiler, and
select a garbage collector that has no threads."""

REQUIRED = {
    "spark.ui.showConsoleProgress": "false",  # it would write between the rows of an answer
    "spark.sql.adaptive.enabled": "false",  # each part of the state is exactly one task
}
"""Settings that spark-defaults.conf does not override."""

LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Settings of all masters on this machine: no other machine can connect to the driver."""

PATH_SETTINGS = ("spark.archives", "spark.files", "spark.jars", "spark.submit.pyFiles")
"""Settings that are lists of paths or URLs."""

ENTRY = re.compile(r"((?:\\.|[^\\\s=:])+)(?:\s*[=:]\s*|\s+|$)(.*)")
"""A key of a file of properties, and its value."""

REGISTERING_CLASSES = (
    *(f"internal.config.{name}$" for name in ("package", "Python", "UI", "Deploy", "Worker")),
    "sql.internal.SQLConf$",
)
"""Objects of Spark that register its keys when they are loaded."""

SIMILARITY = 0.92
"""An unknown key that is at least this similar to a known key is an error, because it is probably misspelt. Other
unknown keys may be those of libraries."""

UNREGISTERED = (
    "spark.yarn.",
    "spark.kubernetes.",
    "spark.hadoop.",
    "spark.executorEnv.",
    "spark.metrics.",
    "spark.local.",
)
"""Prefixes of keys that Spark does not register, or registers only with another master."""


def read_spark_defaults(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings in the user's spark-defaults.conf; empty without this file. Raises RunError if unreadable.

    The folder is SPARK_CONF_DIR, otherwise `conf` in SPARK_HOME or in the package pyspark.
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
    r"""Return the keys of Spark and their values in a text in the format of Java's properties.

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
    """Return the Python of the workers: on this machine the Python of this process, on a cluster the user's choice."""
    if "spark.pyspark.python" in chosen:
        return chosen["spark.pyspark.python"]
    if master.startswith("local"):
        return sys.executable
    return read_spark_defaults().get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable


def is_relative(python: str) -> bool:
    """Return True if a path of Python is relative to the working folder of an executor, as in an archive.

    >>> is_relative("./wiretide/bin/python"), is_relative("/usr/bin/python3"), is_relative("python3")
    (True, False, False)
    """
    return "/" in python and not python.startswith("/")


def make_absolute(chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the user with absolute paths, because the JVM starts in another folder."""

    def convert(path: str) -> str:
        return path if not path or ":" in path else str(Path(path).absolute())

    return {
        key: ",".join(convert(path) for path in value.split(",")) if key in PATH_SETTINGS else value
        for key, value in chosen.items()
    }


def combine_settings(master: str, partitions: int, scratch: Path | None, chosen: Mapping[str, str]) -> dict[str, str]:
    """Return all settings of a session that starts with `master`, without those that Spark itself reads.

    `scratch` is the folder of temporary files if a JVM is started. `chosen` are the settings that the user gave.
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
    """Raise RunError for a setting with a value that Spark refuses, and for a key that differs little from a known one.

    `jvm` is a JVM that has started. An unknown key that is not similar to a known key belongs to a library.
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
        except Py4JError:  # a Spark with other classes
            continue
        candidates = [known for known in known_keys(jvm) if known.count(".") == key.count(".")]
        similar = difflib.get_close_matches(key, candidates, 1, SIMILARITY)
        if similar and not key.startswith(UNREGISTERED):
            raise RunError(f"{key}: Spark has no such setting; expected {similar[0]}?")


def known_keys(jvm: Any) -> list[str]:
    """Return all keys that this Spark knows before a session starts."""
    entries = getattr(jvm, "org.apache.spark.internal.config.ConfigEntry$")
    keys = getattr(entries, "MODULE$").knownConfigs().keySet()
    return [str(key) for key in keys]
