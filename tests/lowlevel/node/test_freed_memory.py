"""Memory that a process keeps when it is freed, seen by the pages that the system has to hand out anew."""

import ctypes
import subprocess
import sys

import pytest

from lowlevel.node.freed_memory import MAX_FREE_BYTES

MALLOPT = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library has no mallopt")

pytestmark = pytest.mark.slow("processes that hold hundreds of megabytes")

TOUCHED = """
import resource, sys
import numpy as np
from lowlevel.node.freed_memory import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
def touch():
    np.empty(3 << 17, np.int64)[:] = 1  # 3 MiB, less than what numpy asks huge pages for
touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    touch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

PAGES = 3 * 256
"""That are touched each time, of 4 KiB."""


@MALLOPT
def test_freed_memory_is_used_again() -> None:
    command = [sys.executable, "-c", TOUCHED, "kept"]
    faults = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert faults < PAGES


RESIDENT = """
import os
import numpy as np
from lowlevel.node.freed_memory import MAX_FREE_BYTES, keep_freed_memory
assert keep_freed_memory()
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
before = resident()
pieces = [np.ones(1 << 20) for _ in range(50)]  # 400 MiB
held = resident() - before
del pieces
print(held, resident() - before)
"""


@MALLOPT
def test_no_more_is_kept_than_was_said() -> None:
    done = subprocess.run([sys.executable, "-c", RESIDENT], check=True, capture_output=True, text=True)
    held, left = map(int, done.stdout.split())
    assert held > 390 << 20
    assert left <= MAX_FREE_BYTES + (16 << 20)
