"""Wait for the executors of a cluster before the first task. If none starts, the error message states what to check.

A session on a cluster starts before its executors do. Without this wait, a job would wait, and Spark would log "Initial
job has not accepted any resources" many times. The executors must also run before a job is planned, because the number
of tasks depends on their cores. A local Spark (`local[N]`) has no separate executors, so there is no wait.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from pyspark import SparkContext

from capture.cores import count_cores
from highlevel.spark.errors import RunError

SAY_SECONDS = 10.0
"""Seconds without an executor after which a warning is printed."""

MAX_SECONDS = 300.0
"""Seconds without an executor after which the run ends. Pulling a container image can take minutes."""

MORE_SECONDS = 15.0
"""Maximum seconds to wait for the other executors after the first one has started."""

QUIET_SECONDS = 1.0
"""If the requested number of executors is unknown, the wait ends after this many seconds without a new executor."""

POLL_SECONDS = 0.1

DEFAULT_CORES = 2
"""The assumed number of cores of a standalone cluster if `spark.cores.max` is not set."""

CONNECT_SECONDS = 5.0
"""Timeout in seconds for the connection to a master. Spark itself would try for a minute."""


def has_executors(master: str) -> bool:
    """Return True if Spark runs executors in other processes than its driver.

    >>> has_executors("local[2]"), has_executors("local-cluster[2,1,1024]"), has_executors("yarn")
    (False, True, True)
    """
    return master != "local" and not master.startswith("local[")


def is_on_this_machine(master: str) -> bool:
    """Return whether all processes of Spark see the files of this machine.

    >>> is_on_this_machine("local-cluster[2,1,1024]"), is_on_this_machine("spark://a:7077")
    (True, False)
    """
    return master.startswith("local")


def plan_cores(master: str, settings: Mapping[str, str]) -> int:
    """Return the number of cores, at least 1, that a session is expected to have, from its master and its settings.

    A session on a standalone cluster without `spark.cores.max` receives all cores of the cluster. Their number is
    unknown before the start: DEFAULT_CORES is assumed.

    >>> plan_cores("local[4,2]", {}), plan_cores("local-cluster[2,3,1024]", {}), plan_cores("spark://a:7077", {})
    (4, 6, 2)
    >>> plan_cores("yarn", {"spark.executor.instances": "5", "spark.executor.cores": "4"})
    20
    """
    local = re.match(r"local\[ *(\d+|\*)", master)
    cluster = re.match(r"local-cluster\[ *(\d+) *, *(\d+)", master)
    cores = DEFAULT_CORES
    if master == "local":
        cores = 1
    elif local:
        cores = count_cores() if local[1] == "*" else int(local[1])
    elif cluster:
        cores = int(cluster[1]) * int(cluster[2])
    elif master.startswith(("yarn", "k8s")):
        cores = _number(settings, "spark.executor.instances", 2) * _number(settings, "spark.executor.cores", 1)
    elif master.startswith("spark://"):
        cores = _number(settings, "spark.cores.max", DEFAULT_CORES)
    return max(1, cores)


def _number(settings: Mapping[str, str], key: str, default: int) -> int:
    """Return a numeric setting, or `default` if its text is not a number: Spark itself reports the error."""
    text = settings.get(key, "")
    return int(text) if text.isdecimal() else default


def check_master(master: str) -> None:
    """Raise RunError if no master of a standalone cluster accepts a connection. Other masters are not checked."""
    if not master.startswith("spark://"):
        return
    reasons = []
    for address in master.removeprefix("spark://").split(","):
        try:
            parts = urlsplit(f"spark://{address}")
            host, port = parts.hostname, parts.port
        except ValueError:
            return  # Spark says what is wrong
        if host is None or port is None:
            return
        try:
            socket.create_connection((host, port), CONNECT_SECONDS).close()
            return
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
    raise RunError(
        f"Spark did not start on {master}: the master does not answer ({'; '.join(reasons)}); "
        "start it, or check its host and port"
    )


def wait_for_executors(
    context: SparkContext,
    say: Callable[[str], None],
    say_seconds: float = SAY_SECONDS,
    max_seconds: float = MAX_SECONDS,
) -> int:
    """Wait until the executors of a session have started.

    Return their number; 0 for a session without separate executors.

    `say` receives a warning if no executor has started after `say_seconds`. Raises RunError if none has started after
    `max_seconds`, or if the cluster ends the application.
    """
    master = str(context.master)
    if not has_executors(master):
        return 0
    begin = newest = time.monotonic()
    wanted = _count_wanted(context)
    count, has_said = 0, False
    while True:
        now = time.monotonic()
        found = count_executors(context)
        if found != count:
            count, newest = found, now
        if count > 0:
            is_complete = count >= wanted if wanted else now - newest >= QUIET_SECONDS
            if is_complete or now - begin >= MORE_SECONDS:
                break
        else:
            if now - begin >= max_seconds:
                raise RunError(f"no executor started on {master} within {max_seconds:g} s; {describe_request(context)}")
            if now - begin >= say_seconds and not has_said:
                has_said = True
                say(
                    f"warning: no executor has started on {master} after {say_seconds:g} s; "
                    f"{describe_request(context)}; waiting up to {max_seconds:g} s"
                )
        time.sleep(POLL_SECONDS)
    if count < wanted:
        say(f"warning: {count} of {wanted} executors have started on {master}; continuing with them")
    return count


def describe_request(context: SparkContext) -> str:
    """Return a text that describes the requested executors, and what to check if none starts."""
    conf, master = context.getConf(), str(context.master)
    memory, cores = conf.get("spark.executor.memory", "1g"), conf.get("spark.executor.cores", None)
    size = f"{memory} of memory and {f'{cores} cores' if cores else 'the default number of cores'} each"
    driver = f"{conf.get('spark.driver.host', 'this host')}:{conf.get('spark.driver.port', '?')}"
    positions = {"yarn": "that its queue has so much", "k8s": "the events of its pods"}
    place = next(
        (text for prefix, text in positions.items() if master.startswith(prefix)),
        "that a worker has so much free",
    )
    return f"requested: executors with {size}; check {place}, and that executors can connect to the driver at {driver}"


def count_executors(context: SparkContext) -> int:
    """Return the number of executors. Raises RunError if the cluster ended the application."""
    java_context = context._jsc.sc()
    if java_context.isStopped():
        raise RunError(
            f"{context.master} ended the application while it waited for executors: their processes fail; "
            "the log of a worker has the reason"
        )
    return int(java_context.getExecutorIds().size())


def _count_wanted(context: SparkContext) -> int:
    """Return the requested number of executors, or 0 if the cluster decides."""
    conf, master = context.getConf(), str(context.master)
    if (conf.get("spark.dynamicAllocation.enabled", None) or "false").lower() == "true":
        return 0
    cluster = re.match(r"local-cluster\[ *(\d+)", master)
    if cluster:
        return int(cluster[1])
    if not master.startswith(("yarn", "k8s")):
        return 0
    return int(conf.get("spark.executor.instances", None) or 2)
