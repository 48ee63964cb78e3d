"""A process without a free file descriptor: this one, for a while, or another one."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NUMBERS = 3
"""Descriptors that stay open for the whole life of a process: standard input, output and error."""


@contextmanager
def without_descriptors() -> Iterator[None]:
    """Let this process open nothing until the end of the block.

    The system gives out no number at or above the limit. So a descriptor that another thread closes is of no use to it.
    """
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (NUMBERS, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def process_without_descriptors(pid: int) -> Iterator[None]:
    """Let another process open nothing until the end of the block, except in gaps between those that are open."""
    numbers = sorted(int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir())
    lowest_free = next(number for number in range(len(numbers) + 1) if number not in numbers)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest_free, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
