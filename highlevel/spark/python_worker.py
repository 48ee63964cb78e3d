"""The Python workers of Spark, which run one task after another.

After each task a worker searches all its objects for unreachable cycles. The objects of imported modules are most of
them, and never unreachable: the search took 40 ms of processor time, more than most tasks. So a worker excludes them
from later searches.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

_excluded_modules = 0
"""Number of imported modules when objects were excluded last."""


def run_task(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the output of a task. At its end exclude the objects of new modules from garbage collections.

    Has no other effect outside of a Python worker.
    """
    global _excluded_modules
    yield from rows
    if TaskContext.get() is not None and len(sys.modules) != _excluded_modules:
        _excluded_modules = len(sys.modules)
        gc.collect()  # otherwise unreachable cycles would stay for ever
        gc.freeze()
