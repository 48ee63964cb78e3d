"""Make garbage collections in Spark's Python workers fast. A worker runs one task after another.

After each task, Spark's worker runs a garbage collection over all objects of the process. Most of them belong to
imported modules, which are never garbage. Such a collection took 40 ms of processor time, more than most tasks. So
these objects are excluded from later collections.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

_excluded_modules = 0
"""The number of imported modules when objects were last excluded."""


def run_task(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the output of a task. At its end exclude the objects of new modules from garbage collections.

    Outside a Spark worker, the function only yields the output.
    """
    global _excluded_modules
    yield from rows
    if TaskContext.get() is not None and len(sys.modules) != _excluded_modules:
        _excluded_modules = len(sys.modules)
        gc.collect()  # garbage that is excluded would never be freed
        gc.freeze()
