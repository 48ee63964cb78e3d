"""How busy others keep the machine while a step of several processes runs.

A step on all cores (a JVM with its Python workers) cannot have its own core. It may wait without being disturbed. So
what counts is what others took: the busy time of all cores less the processor time of this process and everything below
it. Only Linux reports both. On other systems no step counts as disturbed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Crowded:
    """Wall time of a step, s, and the processor time that others spent meanwhile, s over all `cores`."""

    seconds: float
    others: float
    cores: int

    @property
    def share(self) -> float:
        """Part of all cores that was not taken by others."""
        return 1 - self.others / (self.seconds * self.cores)


def crowded(work: Callable[[], object]) -> Crowded:
    """Time a step that runs in this process, the processes below it, or both."""
    busy, own, begin = machine_time(), family_time(), time.perf_counter()
    work()
    seconds = time.perf_counter() - begin
    others = (machine_time() - busy) - (family_time() - own)
    return Crowded(seconds, max(0.0, others), os.cpu_count() or 1)


def machine_time() -> float:
    """Processor time, s, that all cores spent on anything but waiting."""
    try:
        first = (PROC / "stat").read_text().split("\n", 1)[0]
    except OSError:
        return 0.0
    user, nice, system, _idle, _iowait, irq, soft_irq, *_ = map(int, first.split()[1:])  # proc(5): guest is in user
    return (user + nice + system + irq + soft_irq) / os.sysconf("SC_CLK_TCK")


def family_time() -> float:
    """Processor time, s, of this process and all below it, those that have ended and were waited for included."""
    spent: dict[int, int] = {}
    parents: dict[int, int] = {}
    for entry in PROC.glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:  # it ended since the folder was read
            continue
        number = int(entry.parent.name)
        parents[number] = int(fields[1])
        spent[number] = sum(map(int, fields[11:15]))  # utime, stime, and both of its ended children
    family = {os.getpid()}
    while grown := {child for child, parent in parents.items() if parent in family} - family:
        family |= grown
    return sum(spent.get(number, 0) for number in family) / os.sysconf("SC_CLK_TCK")
