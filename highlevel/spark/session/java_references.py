"""Let the JVM forget the Java objects of finished micro-batches.

A Python object that represents a Java object stores its methods when they are called, and each method refers to the
object (py4j). So only Python's garbage collector frees it, and then tells the JVM. Python visits its oldest objects
again when their number has grown by a quarter, which takes thousands of micro-batches. Until then the JVM would keep
the plans of all these micro-batches, and Spark the files of their shuffles.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

COLLECTION_SECONDS = 10.0
"""Shortest time between two collections. A collection visits all Python objects, so it is not done for each batch."""


class JavaReferences:
    """Frees references to Java objects between micro-batches."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._last_collection = clock()

    def release(self) -> None:
        """Free the references of finished micro-batches, if the last collection is COLLECTION_SECONDS ago."""
        if self._clock() - self._last_collection >= COLLECTION_SECONDS:
            gc.collect()
            self._last_collection = self._clock()
