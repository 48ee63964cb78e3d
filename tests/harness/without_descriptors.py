"""A process without a free file descriptor: this one, for a while, or another one."""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _take_all(taken: list[int]) -> bool:
    """Open files until no descriptor is free; return whether one was."""
    before = len(taken)
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return len(taken) > before


@contextmanager
def without_descriptors() -> Iterator[None]:
    """Take every free descriptor of this process until the end of the block.

    Another thread may be listing a folder and close it only now: its descriptor is taken as well. The garbage collector
    is off meanwhile, because it would close files of earlier tests.
    """
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[0], highest + 2), before[1]))
    taken: list[int] = []
    gc.collect()
    gc.disable()
    try:
        while _take_all(taken):
            time.sleep(0.05)
        yield
    finally:
        for each in taken:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        gc.enable()


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
