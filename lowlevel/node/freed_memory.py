"""A setting of the C library: freed memory stays with the process.

The columns of a batch of partials are megabytes that are soon freed. glibc returns such pages to the system and
requests them again. The first access to a new page takes as long as several packets, or many on a virtual machine.
"""

from __future__ import annotations

import ctypes
import functools

from capture.units import MEBIBYTE

MAX_FREE_BYTES = 64 * MEBIBYTE
"""Free bytes at the end of a heap that are kept by the process. Each thread may have a heap."""

MMAP_THRESHOLD_BYTES = 32 * MEBIBYTE
"""Smallest allocation, in bytes, that has a memory map instead of a part of the heap. glibc accepts no larger value."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""


@functools.cache
def keep_freed_memory() -> bool:
    """Keep freed memory, up to MAX_FREE_BYTES bytes on each heap; return whether the C library (glibc) supports it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES) and mallopt(M_TRIM_THRESHOLD, MAX_FREE_BYTES))
