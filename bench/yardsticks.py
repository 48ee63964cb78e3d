"""Processes with which a whole `wiretide` process is compared, in the same turn of a bench.

`COPY` is the smallest work of a Python process with numpy and Arrow on the bytes of a capture: start, import both, and
copy every byte once. `COMPILE` compiles fixed plain kernels with numba. Its time depends on the compiler and the
machine, and does not depend on Wiretide.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.process import Run, run_timed

COPY = """
import mmap, sys
import numpy, pyarrow, pyarrow.compute
with open(sys.argv[1], "rb") as file:
    data = numpy.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), numpy.uint8)
target = numpy.empty(1 << 20, numpy.uint8)
for start in range(0, len(data), len(target)):
    piece = data[start : start + len(target)]
    target[: len(piece)] = piece
"""

KERNELS = 20
COMPILE = f"""
import numba
SOURCE = '''
def fold(values, rows, slots, room):
    found = NUMBER * values[0]
    for row in range(rows):
        place = (values[row] * 6364136223846793005 >> 7) & (room - 1)
        while slots[2 * place] != values[row] and slots[2 * place + 1] != 0:
            place = (place + 1) & (room - 1)
        if slots[2 * place + 1] == 0:
            slots[2 * place] = values[row]
            found += 1
        slots[2 * place + 1] += 1
    return found
'''
integer, pointer = numba.types.int64, numba.types.CPointer(numba.types.int64)
for number in range({KERNELS}):
    names = {{}}
    exec(SOURCE.replace("NUMBER", str(number)), names)
    numba.cfunc(integer(pointer, integer, pointer, integer))(names["fold"])
"""


def copy(path: Path) -> Run:
    """Copy a capture in a process on one core."""
    return run_timed([sys.executable, "-c", COPY, path], one_core=True)


def compile_kernels() -> Run:
    """Compile KERNELS kernels in a process on all cores."""
    return run_timed([sys.executable, "-c", COMPILE])
