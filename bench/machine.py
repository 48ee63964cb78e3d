"""Description of the machine on which the figures are measured."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("llvmlite", "numba", "numpy", "pyarrow", "pyspark")


def machine() -> str:
    """Describe processor, memory, system, load and versions in a few lines. The load shows the work of others."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    system = f"{platform.system()} {platform.release()}"
    return (
        f"machine: {_processor()}, {cores} cores, {memory:.0f} GiB of memory, {system}\n"
        f"versions: Python {platform.python_version()}, {versions}\n"
        f"load of the last 1, 5 and 15 minutes: {load}"
    )


def _processor() -> str:
    """Name of the processor where the system tells it, with family and model: some hypervisors cut the name."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        pairs = [line.partition(":") for line in information.read_text().splitlines()]
        fields = {name.strip(): value.strip() for name, _, value in pairs}
        if "model name" in fields:
            family = f" (family {fields['cpu family']}, model {fields['model']})" if "cpu family" in fields else ""
            return f"{fields['model name']}{family}"
    return platform.processor() or platform.machine()
