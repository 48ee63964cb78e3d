"""Errors of runs on Spark, and the conversion of Spark's error reports to clear errors.

An exception in a task reaches the driver through two processes, as the text of a Python traceback inside a Java stack
trace. Only the last line of the traceback contains the reason; the rest does not help the user.
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JError
from pyspark.errors.exceptions.captured import CapturedException

from capture.errors import InputError, WiretideError
from capture.private_files import UnsafeFolderError
from highlevel.aggregation import AggregateError
from lowlevel.expressions.user_functions import FunctionError
from lowlevel.spool.folder import SpoolError

PYTHON_EXCEPTION = re.compile(r"^\s*((?:\w+\.)*\w*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
"""The line of a Python traceback that names the exception."""

SPARK_PACKAGES = ("org.", "java.", "scala.", "py4j.", "pyspark.")
"""Packages of exceptions that only wrap another exception."""


WRAPPING_EXCEPTIONS = (
    *SPARK_PACKAGES,
    "PySparkRuntimeError",
    "EOFError",
    "ConnectionResetError",
    "BrokenPipeError",
    "SparkException",
)
"""Names, or beginnings of names, of exceptions that only wrap another one, or only report that the JVM ended."""

TASK_FAILURE = re.compile(r"Lost task \S+ in stage \S+ \(TID \d+\) \((\S+) executor \S+\): ")
"""Matches the host of a failed task in a report."""

MISSING_MODULE = re.compile(r"No module named '?([\w.]+)")
"""Matches the name of a module in the message of a ModuleNotFoundError."""

START_WITHOUT_MODULE = re.compile(
    r"(?:^\S*python[\d.]*: |\(ModuleNotFoundError: )No module named '?([\w.]+)", re.MULTILINE
)
"""Matches the name of a module without which Python could not start."""

START_REASON = re.compile(
    r"^(?:Caused by: |Exception in thread \S+ )?(?:Error: |(?:\w+\.)+\w*(?:Error|Exception): )(.+)$", re.MULTILINE
)
"""Line of a JVM log that contains the reason of its failure."""


PY4J_CALL = "An error occurred while calling "
"""Beginning of a report that py4j makes from a Java exception. The next line begins with a colon and the exception."""

HARMLESS_LOG_LINE = re.compile(
    r"\bWARN(?:ING)?\b|\bINFO\b|^Using Spark's default log4j|^Setting (?:default|Spark) log level|^To adjust logging"
)
"""Lines in the log of a JVM that cannot contain the reason why it ended."""


class RunError(WiretideError):
    """A run on Spark failed, and the inputs are not the reason. The message is the root cause in one line."""


class FolderError(WiretideError):
    """The folder of a run belongs to another run or is incomplete. The user chooses another folder, or deletes it."""


USER_ERRORS: dict[str, type[Exception]] = {
    f"{kind.__module__}.{kind.__qualname__}": kind
    for kind in (InputError, FolderError, SpoolError, UnsafeFolderError, FunctionError, AggregateError)
}
"""Exceptions with a message for users, by their name in a traceback."""


def names_user_error(report: str) -> bool:
    """Return True if a report contains a Python exception caused by the inputs, the folder, or a user's function.

    A missing module is such a cause too, also if it prevents the start of a Python process.
    """
    return bool(_raised_in(report)) or find_missing_module(report) is not None


def find_missing_module(report: str) -> str | None:
    r"""Return the module whose absence is the reason of a failure; None for other reasons.

    >>> find_missing_module("INFO No module named x\nModuleNotFoundError: No module named 'geo'\n")
    'geo'
    """
    raised = _raised_in(report)
    if raised:
        name, text = raised[-1]
        is_reason = name == ModuleNotFoundError.__name__ and not any(name in USER_ERRORS for name, _ in raised)
        missing = MISSING_MODULE.match(text) if is_reason else None
    else:
        missing = START_WITHOUT_MODULE.search(report)
    return None if missing is None else missing[1]


def _raised_in(report: str) -> list[tuple[str, str]]:
    """Return name and message of each Python exception in a report that does not only wrap another one."""
    return [found for found in PYTHON_EXCEPTION.findall(report) if not found[0].startswith(WRAPPING_EXCEPTIONS)]


def make_report(failure: BaseException) -> str:
    """Return the text of a failure with its Java stack trace, even if the JVM has ended.

    The method `str` of Spark's exceptions calls the JVM, so it fails if the JVM has ended.
    """
    if isinstance(failure, CapturedException):
        cause = "" if failure._cause is None else make_report(failure._cause)
        return f"{failure._desc}\n{failure._stackTrace}\n{cause}"
    try:
        return str(failure)
    except (Py4JError, OSError):
        return ""


def find_root_cause(report: str) -> Exception:
    r"""Return the exception for the report of a failed job: that of the task if it is for users, else RunError.

    >>> find_root_cause("Job aborted\nTraceback …\ncapture.errors.InputError: a.pcap: cut\n\\tat org.apache.spark.x(y)")
    InputError('a.pcap: cut')
    """
    missing = find_missing_module(report)
    if missing is not None:
        hosts = TASK_FAILURE.findall(report)
        place = f" on host {hosts[-1]}" if hosts else ""
        remedy = (
            "install it in the environment of Wiretide"
            if " executor driver): " in report
            else "install it on all machines, or send it with spark.submit.pyFiles or spark.archives"
        )
        return RunError(f"the Python processes of Spark{place} have no module {missing}: {remedy}")
    raised = [(name, text) for name, text in PYTHON_EXCEPTION.findall(report) if not name.startswith(SPARK_PACKAGES)]
    for name, text in raised:
        if name in USER_ERRORS:
            return USER_ERRORS[name](text)
    if raised:
        name, text = raised[-1]
        return RunError(f"the job on Spark failed: {name.rpartition('.')[2]}: {text}")
    lines = [line for line in report.splitlines() if line.strip()]
    if lines and lines[0].startswith(PY4J_CALL):
        return RunError(f"the job on Spark failed: {find_start_failure(report, b'')}")
    first = lines[0] if lines else "no reason given"
    return RunError(f"the job on Spark failed: {first.strip()}")


def find_start_failure(report: str, log: bytes, end: str | None = None) -> str:
    r"""Return in one line why Spark did not start: from the exception, or from the last line in the log of the JVM.

    >>> find_start_failure("[JAVA_GATEWAY_EXITED] Java gateway exited.", b"WARN x\nError: Master must be local\n")
    'Master must be local'
    >>> find_start_failure("It\n: org.apache.spark.SparkException: Could not parse URL\n\tat …", b"")
    'Could not parse URL'
    """
    for text in (report, log.decode(errors="replace")):
        reasons = START_REASON.findall(text.replace("\n: ", "\n"))
        if reasons:
            return str(reasons[-1]).strip()
    if end is not None and end.startswith("signal"):
        return f"its JVM ended ({end})"
    lines = [line.strip() for line in log.decode(errors="replace").splitlines() if line.strip()]
    lines = [line for line in lines if not HARMLESS_LOG_LINE.search(line)]
    if not lines and "JAVA_GATEWAY_EXITED" in report:
        return "its JVM ended before it was ready"
    lines = lines or [line.strip() for line in report.splitlines() if line.strip()][:1]
    return lines[-1] if lines else "no reason given"
