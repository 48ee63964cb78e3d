"""Check a cluster before the first task with data: does each executor have the packages, the inputs and the folder?

Without these checks, a wrong path would end the run after four attempts of a task, and the message would not name the
host. After the checks, hosts compile the kernels that they lack, once for each host, so that no task with data has to
compile. A local Spark (`local[N]`) is not checked, because its tasks run on this machine.
"""

from __future__ import annotations

import contextlib
import platform
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import InheritableThread, SparkContext, cloudpickle
from pyspark.errors import PySparkException

from capture.private_files import replace_file
from highlevel.plan.plan import Plan
from highlevel.spark.cluster import executor_checks
from highlevel.spark.cluster.executor_checks import TOKEN, check_executor, compile_on_host, find_version, look_at
from highlevel.spark.cluster.executors import has_executors
from highlevel.spark.errors import (
    TASK_FAILURE,
    FolderError,
    RunError,
    find_missing_module,
    find_root_cause,
    make_report,
)
from highlevel.spark.remote.file_entries import make_task_name
from highlevel.spark.remote.object_store import ObjectStore
from highlevel.spark.restarts import restart_reason

PACKAGES = ("wiretide", "numpy", "numba", "pyarrow")
"""Packages that the tasks import."""

MODULES = {"flows": ["lowlevel.rows.flows"], "samples": ["lowlevel.rows.samples"]}
"""Additional modules with kernels that the tasks need, by the kind of rows."""

SECONDS = 30.0
"""Timeout of the checks. If the cluster is too busy to finish them in time, the run starts without them."""

ARCHIVE_SECONDS = 600.0
"""Timeout for the executors to fetch and unpack their archives."""

COMPILE_SECONDS = 600.0
"""Timeout of the compilation of kernels on the executors. It takes one core about a minute."""

MAX_PROBLEMS = 3
"""Maximum number of problems in one error message."""


def check_executors(
    context: SparkContext,
    paths: Iterable[Path],
    kinds: Iterable[str],
    say: Callable[[str], None],
    folder: Path | None = None,
    plans: Iterable[Plan] = (),
    seconds: float = SECONDS,
    store: ObjectStore | None = None,
) -> None:
    """Run one task per core of the executors. Each checks its machine. Raise RunError that names hosts and paths.

    `paths` are the inputs, `kinds` the kinds of their rows, `folder` is the folder of the run, and `plans` its queries,
    which may need modules of the user. `say` receives warnings. `store`: the object store in which tasks write, in
    place of `folder`.
    """
    if not has_executors(str(context.master)):
        return
    token = f"{TOKEN}{uuid.uuid4()}"
    request = {
        "packages": PACKAGES,
        "modules": ["highlevel.spark.inputs.reading", *(name for kind in kinds for name in MODULES.get(kind, []))],
        "paths": [str(path) for path in dict.fromkeys(paths) if path.exists()],
        "folder": None if folder is None else str(folder),
        "token": token,
        "store": None if store is None else (store.uri, make_task_name(store.uri, 0, token)),
        "plans": cloudpickle.dumps(tuple(plans)),  # type: ignore[no-untyped-call]
    }
    if folder is not None:
        replace_file(folder / token, b"")
    if store is not None:
        store.create(request["store"][1], b"")
    try:
        _fetch_archives(context, say)
        documents = _run(context, check_executor, request, say, seconds)
    finally:
        if folder is not None:
            (folder / token).unlink(missing_ok=True)
        if store is not None:
            # If the store does not answer, the first micro-batch deletes the objects.
            with contextlib.suppress(FolderError):
                store.delete(store.list(request["store"][1].rpartition("-")[0]))  # also those of the executors
    problems, warnings = judge(documents, request)
    for line in warnings:
        say(f"warning: {line}")
    if problems:
        more = f"; and {len(problems) - MAX_PROBLEMS} more problems" if len(problems) > MAX_PROBLEMS else ""
        raise RunError(f"{'; '.join(problems[:MAX_PROBLEMS])}{more}")
    lacking = {document["host"]: document["kernels"] for document in documents if document["kernels"]}
    if lacking:
        _compile(context, request, lacking, say)


def _compile(
    context: SparkContext, request: dict[str, Any], lacking: dict[str, int], say: Callable[[str], None]
) -> None:
    """Compile kernels on the hosts that lack some. `lacking` contains the number of missing kernels by host."""
    hosts = ", ".join(f"{host} ({count})" for host, count in sorted(lacking.items()))
    say(f"compiling kernels once for each host, which takes a minute or two: {hosts}")
    documents = _run(context, compile_on_host, request, say, COMPILE_SECONDS)
    for document in {document["host"]: document for document in documents if document["kernels"]}.values():
        left, host = document["kernels"], document["host"]
        reason = left if isinstance(left, str) else f"{left} kernels were not stored"
        say(
            f"warning: host {host} cannot keep compiled kernels ({reason}), so each Python process there compiles; "
            "set spark.executorEnv.XDG_CACHE_HOME to a folder that only the user of the executors can write"
        )


def _run(
    context: SparkContext,
    check: Callable[[dict[str, Any], Iterable[int]], Iterator[dict[str, Any]]],
    request: dict[str, Any],
    say: Callable[[str], None],
    seconds: float,
) -> list[dict[str, Any]]:
    """Run one task per core and return the documents.

    Return none if a task did not end in time or a Spark process failed.
    """
    cloudpickle.register_pickle_by_value(executor_checks)  # type: ignore[no-untyped-call]
    count = max(1, context.defaultParallelism)
    return _run_job(
        context,
        lambda: context.parallelize(range(count), count).mapPartitions(partial(check, request)).collect(),
        say,
        seconds,
    )


def _fetch_archives(context: SparkContext, say: Callable[[str], None]) -> None:
    """Let the executors fetch the archives, because this takes longer than the checks. The job runs no Python code."""
    archives = context.getConf().get("spark.archives", None)
    if not archives:
        return
    count = max(1, context.defaultParallelism)

    def run() -> list[dict[str, Any]]:
        context._jsc.parallelize(list(range(count)), count).count()
        return []

    _run_job(context, run, say, ARCHIVE_SECONDS)


def _run_job(
    context: SparkContext, job: Callable[[], list[dict[str, Any]]], say: Callable[[str], None], seconds: float
) -> list[dict[str, Any]]:
    """Return the result of a job; an empty list if it did not end in time, or if a Spark process failed."""
    group = f"{TOKEN}{uuid.uuid4()}"
    documents: list[dict[str, Any]] = []
    failures: list[Exception] = []

    def run() -> None:
        try:
            context.setJobGroup(group, "checks of the executors")
            documents.extend(job())
        except Exception as error:  # raised again in the thread of the caller
            failures.append(error)

    thread = InheritableThread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        with contextlib.suppress(Py4JError):
            context.cancelJobGroup(group)
        say(f"warning: the executors have not answered the checks of the start within {seconds:g} s; continuing")
        return []
    for failure in failures:
        if not isinstance(failure, Py4JJavaError | PySparkException):
            raise failure
        report = make_report(failure)
        if restart_reason(report) is None:
            raise _explain(report)
        say("warning: a process of Spark failed during the checks of the start; continuing without them")
    return documents


def _explain(report: str) -> Exception:
    """Return the error if the checks could not run. Its message names the host, if a task failed."""
    lost = TASK_FAILURE.findall(report)
    cause = find_root_cause(report)
    if not lost or find_missing_module(report) is not None:
        return cause
    host = lost[-1]
    wrong_python = re.search(r'Cannot run program "([^"]+)"|\[PYTHON_VERSION_MISMATCH\]', report)
    if wrong_python is None:
        return RunError(f"host {host} cannot run tasks: {cause}")
    reason = f"there is no Python {wrong_python[1]}" if wrong_python[1] else "it has another version of Python"
    return RunError(
        f"host {host} cannot run tasks: {reason}; expected Python {platform.python_version()} with the packages of "
        "Wiretide; its path is spark.pyspark.python or PYSPARK_PYTHON"
    )


def judge(documents: Sequence[dict[str, Any]], request: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return (problems that prevent the run, warnings). Each is a text with the name of the host."""
    here = {name: find_version(name) for name in request["packages"]}
    local_sizes = {path: look_at(path) for path in request["paths"]}
    problems: list[str] = []
    warnings: list[str] = []
    for document in documents:
        host = document["host"]
        for name, version in document["packages"].items():
            expected = here[name]
            if version is None and expected is not None:
                problems.append(f"host {host} has no package {name}, expected {name} {expected}")
            elif version != expected:
                text = f"host {host} has {name} {version}, this machine has {expected}"
                is_incompatible = (
                    name == "wiretide" or str(version).partition(".")[0] != str(expected).partition(".")[0]
                )
                (problems if is_incompatible else warnings).append(text)
        kernels = document["kernels"]
        if isinstance(kernels, str):
            problems.append(f"host {host} cannot import Wiretide: {kernels}")
        elif document["plans"] is not None:
            remedy = "install the module on all machines, or send it with spark.submit.pyFiles or spark.archives"
            problems.append(f"host {host} cannot load the queries: {document['plans']}; {remedy}")
        for path, found in document["paths"].items():
            problem = describe_path(path, found, local_sizes[path])
            if problem:
                problems.append(f"host {host} {problem}")
        if document["folder"] is not None:
            problems.append(
                f"host {host} cannot use the folder of the run, {request['folder']}: {document['folder']}; "
                "all machines must share it"
            )
        if document["store"] is not None:
            problems.append(
                f"host {host} cannot use {request['store'][0]}: {document['store']}; the executors need boto3, and the "
                "credentials and the endpoint of the store in their environment"
            )
    return list(dict.fromkeys(problems)), list(dict.fromkeys(warnings))  # tasks of one host report the same problem


def describe_path(path: str, found: int | str, here: int | str) -> str | None:
    """Return the problem with an input on a host, or None.

    `found` describes the input on the host, `here` on this machine: its size, or the reason why it cannot be read.
    """
    if isinstance(found, str):
        driver = f"neither can this machine ({here})" if isinstance(here, str) else "this machine can"
        return f"cannot read {path}: {found}; {driver}; all machines need it under the same path"
    if isinstance(here, int) and found < here:
        return f"sees {found:,} bytes in {path}, this machine sees {here:,}; all machines need the same file"
    return None
