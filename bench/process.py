"""A run of a command: its time and its memory.

Memory is `RssAnon` of `/proc/PID/status`, the memory without mapped files, because the pages of a capture belong to the
system's cache. The kernel does not store its maximum, so a thread reads it every few milliseconds. Without `/proc` it
is None.
"""

from __future__ import annotations

import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.one_core import children_bound

SAMPLE_EVERY = 0.004
"""Seconds between two samples of the memory. A sample costs 0.05 ms, on another core than a bound command uses."""


@dataclass(frozen=True)
class Run:
    """Wall time from start to end and CPU time, in seconds; maximum anonymous memory in bytes."""

    seconds: float
    processor: float
    memory: int | None
    errors: str

    @property
    def share(self) -> float:
        """The share of its core that the process used. It is less than 1 if other processes used the core too."""
        return self.processor / self.seconds


def run_timed(
    command: Sequence[str | Path],
    one_core: bool = False,
    environment: Mapping[str, str] | None = None,
    output: IO[bytes] | None = None,
) -> Run:
    """Run a command to its end. Write its standard output into `output`, or drop it.

    Raises RuntimeError with its standard error if its exit status is not 0.
    """
    with tempfile.TemporaryFile() as errors:
        begin, spent = time.perf_counter(), _child_seconds()
        with children_bound(one_core):
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output or subprocess.DEVNULL, stderr=errors, env=environment
            )
        peak = _Peak(child.pid)
        status = child.wait()
        seconds, processor = time.perf_counter() - begin, _child_seconds() - spent
        memory = peak.stop()
        errors.seek(0)
        message = errors.read().decode(errors="replace")
    if status:
        raise RuntimeError(
            f"{' '.join(map(str, command))}: exit status {status}, expected 0: {message.strip()[-2000:]}"
        )
    return Run(seconds, processor, memory, message)


def _child_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def read_anonymous_memory(process: int) -> int | None:
    """Return the anonymous memory of a process in bytes; None if it has ended, or if the system has no /proc."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), None)


class _Peak(threading.Thread):
    """Samples the anonymous memory of a process until `stop`."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.process = process
        self.peak: int | None = None
        self.ended = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.ended.wait(SAMPLE_EVERY):
            memory = read_anonymous_memory(self.process)
            if memory is None:
                return
            self.peak = max(self.peak or 0, memory)

    def stop(self) -> int | None:
        """End the samples. Return the maximum in bytes."""
        self.ended.set()
        self.join()
        return self.peak
