"""Start and end Spark sessions: with settings that were best in measurements, and without output on the console.

The Python workers do the work, and the JVM only transports packed rows, so the JVM should use few cores. Its optimising
compiler is not used: it would take a third of a second per query, for code that runs for milliseconds.
`docs/internals/spark.md` contains the figures.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from capture.interrupts import uninterrupted
from capture.open import open_finite
from highlevel.spark.cluster.executors import check_master, has_executors, wait_for_executors
from highlevel.spark.errors import RunError, find_start_failure, make_report
from highlevel.spark.session.class_archive import archive_options
from highlevel.spark.session.java import require_java
from highlevel.spark.session.scratch import ScratchFolder
from highlevel.spark.session.settings import (
    DRIVER_OPTIONS,
    check_known,
    choose_python,
    combine_settings,
    is_relative,
    make_absolute,
)

NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
_use_counts: dict[SparkContext, int] = {}
"""For each session that this module started: how often it is in use. Other sessions are never stopped."""

_jvm_folders: dict[SparkContext, ScratchFolder] = {}
"""For each context whose JVM this module started: the folder of the JVM's temporary files. The JVM ends with it."""

LONGEST_SOCKET_FOLDER = 107 - len("/.01234567-89ab-cdef-0123-456789abcdef.sock")
"""Maximum length in bytes of the folder of a Unix socket, because its path has at most 107 bytes. For a longer folder
TCP is used.
"""

JVM_END_SECONDS = 5.0
"""Maximum seconds to wait for the end of a JVM after its connections were closed."""


def print_warning(line: str) -> None:
    """Print a line for the user on standard error."""
    print(f"wiretide: {line}", file=sys.stderr, flush=True)


def start_session(
    master: str = "local[*]",
    partitions: int = 2,
    name: str = "wiretide",
    log: Path = Path(os.devnull),
    chosen: Mapping[str, str] = NO_SETTINGS,
    say: Callable[[str], None] = print_warning,
) -> SparkSession:
    """Start a session, or use the existing session of this process. End it with `close_session`, once for each call.

    `partitions` is the number of partitions of a shuffle. The log of the JVM is written to the file `log`, because it
    is not meant for users. `chosen` are the settings that the user has given; they override all others. An existing
    session keeps its settings. `say` receives a line if the executors of a cluster do not start soon.

    Raises JavaMissingError, and RunError with the reason if Spark does not start: for example an unknown master, a
    cluster that does not answer or has no executors, or a wrong setting.
    """
    active_context = SparkContext._active_spark_context
    if active_context is not None:
        if active_context in _use_counts:
            _use_counts[active_context] += 1
        else:
            use_this_python(active_context)
        return SparkSession.builder.getOrCreate()
    java_home = require_java()
    check_master(master)
    python = os.environ["PYSPARK_PYTHON"] = choose_python(master, chosen)
    builder = SparkSession.builder.master(master).appName(name)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    starts_jvm = SparkContext._gateway is None
    scratch: ScratchFolder | None = None
    spark = None
    try:
        with uninterrupted():
            scratch = ScratchFolder.create()
        folder = None
        if is_relative(python):
            folder, chosen = scratch.path, make_absolute(chosen)
            write_launcher(scratch.path / python)
        # Another Python or SPARK_HOME may have another version of pyspark.
        is_own = python == sys.executable and "SPARK_HOME" not in os.environ
        uses_launcher = starts_jvm and is_own and not has_executors(master)
        settings = combine_settings(master, partitions, scratch.path if starts_jvm else None, chosen)
        if starts_jvm:
            settings[DRIVER_OPTIONS] += archive_options(java_home, settings[DRIVER_OPTIONS])
        if starts_jvm and len(os.fsencode(scratch.path)) > LONGEST_SOCKET_FOLDER:
            settings["spark.python.unix.domain.socket.enabled"] = "false"
        for key, value in settings.items():
            builder = builder.config(key, value)
        jvm_settings = SparkConf().setMaster(master).setAppName(name).setAll(list(settings.items()))
        log_file = log if log != Path(os.devnull) else scratch.path / "log"
        log_size = log_file.stat().st_size if log_file.exists() else 0
        try:
            with redirect_standard_error(log_file):
                # If this were interrupted, the JVM would not find the folder into which it writes its port, and would
                # never end.
                with uninterrupted():
                    start_jvm(jvm_settings, folder)
                launcher = write_launcher(scratch.path / "python", spark_python_path()) if uses_launcher else None
                if launcher is not None and not can_execute(launcher):
                    launcher = None
                check_known(SparkContext._jvm, chosen)
                spark = builder.getOrCreate()
        except (Py4JError, PySparkException, OSError) as failure:
            jvm_answered = isinstance(failure, Py4JJavaError | PySparkException)
            jvm_end = read_jvm_end(0.0 if jvm_answered else JVM_END_SECONDS) if starts_jvm else None
            reason = find_start_failure(make_report(failure), log_file.read_bytes()[log_size:], jvm_end)
            raise RunError(f"Spark did not start on {master}: {reason}") from None
        finally:
            if spark is None:
                with uninterrupted():
                    unfinished_context = SparkContext._active_spark_context  # if the cluster failed during the start
                    if unfinished_context is not None:
                        with contextlib.suppress(Py4JError, OSError):
                            unfinished_context.stop()
                    if starts_jvm:
                        _end_jvm()
        context = spark.sparkContext
        if launcher is not None:
            context.pythonExec = str(launcher)
        _use_counts[context] = 1
        if starts_jvm:
            _jvm_folders[context] = scratch
            _suppress_end_messages(context)
        else:
            scratch.remove()
    except BaseException:
        if scratch is not None and scratch not in _jvm_folders.values():  # otherwise _end_all() removes it
            with uninterrupted():
                scratch.remove()
        raise
    try:
        with convert_jvm_failures():
            wait_for_executors(context, say)
    except BaseException:
        close_session(spark)
        raise
    return spark


def use_this_python(context: SparkContext) -> None:
    """Let the workers on this machine run the Python of this process, if the user has not selected one."""
    selected = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if selected is None and str(context.master).startswith("local"):
        context.pythonExec = sys.executable


def start_jvm(conf: SparkConf, folder: Path | None) -> None:
    """Start the JVM of this process with the working folder `folder`; None: that of this process.

    Do nothing if a JVM runs.
    """
    if SparkContext._gateway is None and folder is not None:
        SparkContext._ensure_initialized(gateway=launch_gateway(conf, {"cwd": folder}))  # type: ignore[no-untyped-call]
    else:
        SparkContext._ensure_initialized(conf=conf)


def spark_python_path() -> str:
    """Return the beginning of the PYTHONPATH of all Python processes that the JVM starts on this machine."""
    jvm: Any = SparkContext._jvm
    return str(jvm.org.apache.spark.api.python.PythonUtils.sparkPythonPath())


def write_launcher(path: Path, excluded: str = "") -> Path:
    """Write a script that starts the Python executable of this process. Return its path.

    The script removes `excluded` from the beginning of PYTHONPATH. Spark begins PYTHONPATH with its own copy of
    pyspark, a zip file without byte code. Each Python process compiles its modules again, which takes half a second.
    The script lets Python import the same version of pyspark from the environment of this process.

    Executors find the Python of an archive by a path relative to their working folder, such as `./wiretide/bin/python`.
    Spark uses the same path for processes that it starts on the driver's machine, which need the Python of the driver.
    This script is at that path there. A symbolic link would not work, because Python would not find its virtual
    environment.
    """
    lines = ["#!/bin/sh"]
    if excluded:
        lines += [f"PYTHONPATH=${{PYTHONPATH#{shlex.quote(excluded)}}}", "export PYTHONPATH=${PYTHONPATH#:}"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, f'exec {shlex.quote(sys.executable)} "$@"', ""]), "utf-8")
    path.chmod(0o700)
    return path


def can_execute(program: Path) -> bool:
    """Return whether this process may execute a program. It may not on a file system that is mounted with noexec."""
    return os.access(program, os.X_OK)


@contextmanager
def redirect_standard_error(path: Path) -> Iterator[None]:
    """While the context is active, append the standard error of this process and of new child processes to a file."""
    sys.stderr.flush()
    original_stderr = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(original_stderr, 2)
        os.close(original_stderr)


def close_session(spark: SparkSession) -> None:
    """End one use of a session. The last call stops the session, and waits until its JVM and Python workers have ended.

    A session that this module did not start is not changed. It is not an error if the JVM has already ended. Ctrl-C
    takes effect afterwards.
    """
    context = spark.sparkContext  # do not read its application ID, because that calls the JVM
    with uninterrupted():
        if context not in _use_counts:
            return
        _use_counts[context] -= 1
        if _use_counts[context] == 0:
            del _use_counts[context]
            try:
                spark.stop()
            except (Py4JError, OSError):
                if read_jvm_end(JVM_END_SECONDS) is None:
                    raise
                _clear_session(spark)
            finally:
                _end_own_jvm(context)


@contextmanager
def open_finite_session(
    on: str, paths: Sequence[Path], chosen: Mapping[str, str] = NO_SETTINGS
) -> Iterator[SparkSession]:
    """Start a session for finite inputs on `on` (`local`, `local[N]` or the URL of a master).

    End it when the context ends.

    `chosen` are the Spark settings that the user has given. Before a JVM is started, raises InputError for an input
    that Spark cannot read.
    """
    require_java()
    for path in paths:
        open_finite(path, "Spark")
    spark = start_session("local[*]" if on == "local" else on, chosen=chosen)
    try:
        yield spark
    finally:
        close_session(spark)


def _end_own_jvm(context: SparkContext) -> None:
    """End the JVM that was started for a context, and remove its folder. Do nothing for other contexts."""
    if context in _jvm_folders:
        _end_jvm()
        _jvm_folders.pop(context).remove()


@atexit.register
def _end_all() -> None:
    """End the JVMs of sessions that were not closed, for example after an interrupted start."""
    for context in list(_jvm_folders):
        _end_own_jvm(context)


def _suppress_end_messages(context: SparkContext) -> None:
    """Suppress the messages that the threads and connections of a context write when the JVM ends.

    `convert_jvm_failures` reports the end of the JVM.
    """
    server: Any = context._accumulatorServer
    if server is not None:
        server.handle_error = lambda *_: None
    logging.getLogger().addFilter(_is_not_broken_connection)


def _is_not_broken_connection(record: logging.LogRecord) -> bool:
    """Return False for log records about broken connections, which py4j writes to the root logger."""
    failure = record.exc_info[1] if record.exc_info else None
    expected = Py4JError | OSError | EOFError | KeyboardInterrupt  # py4j logs Ctrl-C while it waits for the JVM
    return not isinstance(failure, expected) or "py4j" not in record.pathname


def read_jvm_end(max_seconds: float = 0.0) -> str | None:
    """Return how the JVM of this process ended, such as "signal 9".

    Return None if it runs, or if another process started it.

    `max_seconds` is the maximum time to wait for the end.
    """
    process: Any = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        status = process.wait(max_seconds)
    except subprocess.TimeoutExpired:
        return None
    return f"signal {-status}" if status < 0 else f"status {status}"


@contextmanager
def convert_jvm_failures() -> Iterator[None]:
    """Convert every exception that the end of the JVM has caused to a RunError with one line."""
    try:
        yield
    except (Py4JError, PySparkException, OSError, EOFError) as failure:
        jvm_answered = isinstance(failure, Py4JJavaError | PySparkException)
        jvm_end = read_jvm_end(0.0 if jvm_answered else JVM_END_SECONDS)
        if jvm_end is None:
            raise
        raise make_jvm_error(jvm_end) from None


def make_jvm_error(jvm_end: str) -> RunError:
    """Return the error for a JVM that ended during a run."""
    return RunError(f"the JVM of Spark ended ({jvm_end}); start again, a run continues after its last micro-batch")


def _clear_session(spark: SparkSession) -> None:
    """Remove what pyspark stores about a session whose JVM has ended, so that a new session can start."""
    server = spark.sparkContext._accumulatorServer
    if server is not None:
        server.shutdown()
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


def _end_jvm() -> None:
    """End the JVM of this process, so that the next session starts a new JVM."""
    gateway: Any = SparkContext._gateway
    if gateway is None or getattr(gateway, "proc", None) is None:
        return  # there is no JVM, or the JVM is the parent process (spark-submit)
    gateway.shutdown()
    with contextlib.suppress(OSError):
        gateway.proc.stdin.close()  # the JVM ends when its standard input is closed
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None
