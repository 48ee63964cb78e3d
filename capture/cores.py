"""The cores of this machine that a process may use."""

from __future__ import annotations

import os


def count_cores() -> int:
    """Return the number of cores that this process may use, at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
