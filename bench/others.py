"""The CPU time that other processes use while a step of several processes runs.

A step on all cores (a JVM with its Python workers) cannot have its own core, and its own waiting is no disturbance. So
the time of others is measured: the busy time of all cores minus the CPU time of this process and its descendants. Only
Linux reports both. On other systems no step counts as disturbed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class SharedMachineTime:
    """Wall time of a step in seconds, and CPU seconds of other processes in this time, over all `cores`."""

    seconds: float
    others: float
    cores: int

    @property
    def share(self) -> float:
        """The share of all cores that other processes did not use."""
        return 1 - self.others / (self.seconds * self.cores)


def time_with_others(work: Callable[[], object]) -> SharedMachineTime:
    """Measure a step that runs in this process, in its descendants, or in both."""
    busy, own, begin = machine_time(), family_time(), time.perf_counter()
    work()
    seconds = time.perf_counter() - begin
    others = (machine_time() - busy) - (family_time() - own)
    return SharedMachineTime(seconds, max(0.0, others), os.cpu_count() or 1)


def machine_time() -> float:
    """Return the CPU seconds of all cores, without idle time."""
    try:
        first = (PROC / "stat").read_text().split("\n", 1)[0]
    except OSError:
        return 0.0
    user, nice, system, _idle, _iowait, irq, soft_irq, *_ = map(int, first.split()[1:])  # proc(5): guest is in user
    return (user + nice + system + irq + soft_irq) / os.sysconf("SC_CLK_TCK")


def family_time() -> float:
    """Return the CPU seconds of this process and its descendants, including ended descendants."""
    spent: dict[int, int] = {}
    parents: dict[int, int] = {}
    for entry in PROC.glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:  # the process ended after the folder was read
            continue
        number = int(entry.parent.name)
        parents[number] = int(fields[1])
        spent[number] = sum(map(int, fields[11:15]))  # utime, stime, and both of its ended children
    family = {os.getpid()}
    while grown := {child for child, parent in parents.items() if parent in family} - family:
        family |= grown
    return sum(spent.get(number, 0) for number in family) / os.sysconf("SC_CLK_TCK")
