"""When a run is restarted after a failure that the inputs did not cause, and after which delay.

A Spark query fails if one of its Python workers, or the daemon that starts them, is killed, or if a busy machine does
not start a worker within Spark's limit of ten seconds. The checkpoint is exact, so the query is started again: after 1,
2, 4, 8, 16, 32 and 60 seconds, and once more after 60. Each finished micro-batch resets the delay, so a run of months
survives any number of restarts.
Every other failure ends the run.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from capture.metrics import Samples
from highlevel.metrics import SPARK_RESTARTS
from highlevel.spark.errors import RunError, find_root_cause, names_user_error

MAX_RESTARTS = 8
"""Maximum number of successive restarts without a finished micro-batch."""

FIRST_DELAY = 1.0
"""Seconds before the first restart. Each further delay is twice as long, up to LONGEST_DELAY."""

LONGEST_DELAY = 60.0
"""Maximum delay in seconds. All delays together are three minutes, so a run survives an overload of this length."""

WORKER_START, WORKER_END, EXECUTOR_LOST = "worker_start", "worker_end", "executor_lost"

REASONS = {
    WORKER_START: re.compile(
        r"Python worker failed to connect back|Timed out while waiting for the Python worker"
        r"|Python daemon failed to launch worker|Failed to open socket to Python daemon"
        r"|Python worker process terminated with|EOFException occurred while reading the port number from"
        r"|java\.io\.IOException: Stream closed"  # the daemon that starts workers was killed
        r"|java\.io\.IOException: Cannot run program .*error=(?:11|12),"  # no memory or processes at the moment
    ),
    WORKER_END: re.compile(
        r"Python worker exited unexpectedly|java\.io\.EOFException|Connection reset|Broken pipe"
        r"|ClosedChannelException|AsynchronousCloseException"
    ),
    EXECUTOR_LOST: re.compile(r"ExecutorLostFailure|Executor heartbeat timed out|Slave lost|Worker lost"),
}
"""For each value of the label `reason`: the pattern that finds this reason in the report of a failed job."""


def restart_reason(report: str) -> str | None:
    """Return the reason of a failure after which a restart may succeed, or None if the job would fail again.

    >>> restart_reason("org.apache.spark.SparkException: Python worker failed to connect back.")
    'worker_start'
    >>> restart_reason("highlevel.spark.errors.FolderError: state/0/3.json: damaged") is None
    True
    """
    if names_user_error(report):
        return None
    return next((reason for reason, pattern in REASONS.items() if pattern.search(report)), None)


class Restarts:
    """Counts the restarts of one run."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Create a counter of restarts, at zero. `say` receives a line about each restart."""
        self.say = say
        self.samples = Samples()
        for reason in REASONS:
            self.samples.add(SPARK_RESTARTS, 0, reason)
        self._successive_restarts = 0

    def reset_delay(self) -> None:
        """Begin again with the shortest delay, because a micro-batch was finished."""
        self._successive_restarts = 0

    def next_delay(self, report: str) -> float | None:
        """Return the seconds to wait before a restart, and count it. Return None if the failure must end the run."""
        reason = restart_reason(report)
        if reason is None or self._successive_restarts == MAX_RESTARTS:
            return None
        seconds = min(FIRST_DELAY * 2**self._successive_restarts, LONGEST_DELAY)
        self._successive_restarts += 1
        self.samples.add(SPARK_RESTARTS, 1, reason)
        text = {
            WORKER_START: "a Python worker did not start",
            WORKER_END: "a Python worker ended",
            EXECUTOR_LOST: "an executor was lost",
        }[reason]
        count = f"restart {self._successive_restarts} of {MAX_RESTARTS}"
        self.say(f"warning: {text}; Spark repeats the work in {seconds:.0f} s ({count})")
        return seconds

    def make_final_error(self, report: str) -> Exception:
        """Return the exception that ends the run.

        Its message contains the number of successive restarts without progress.
        """
        error, count = find_root_cause(report), self._successive_restarts
        if not count or not isinstance(error, RunError):
            return error
        return RunError(f"{error}; Spark had repeated the work {count} time{'s' if count > 1 else ''}")
