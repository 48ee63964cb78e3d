"""What the C library does with memory that has been freed.

The columns of a batch of partials are megabytes that live for a moment. glibc gives such pages back to the system and
asks for them again, and the first touch of each takes as long as a few packets take a table, many where the system is
itself a guest. Here they stay with the process.
"""

from __future__ import annotations

import ctypes
import functools

from capture.units import MEBIBYTE

KEPT = 64 * MEBIBYTE
"""Free bytes at the end of a heap above which they are given back. A thread may have one of its own."""

ON_THE_HEAP = 32 * MEBIBYTE
"""Bytes of one piece from which it is mapped by itself, and unmapped when it is freed: the largest that glibc takes."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""


@functools.cache
def keep_freed_memory() -> bool:
    """Let this process keep freed memory, up to KEPT on each heap; return whether its C library can: glibc alone."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, ON_THE_HEAP) and mallopt(M_TRIM_THRESHOLD, KEPT))
