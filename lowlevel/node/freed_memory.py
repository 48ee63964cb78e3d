"""A setting of the C library: freed memory stays with the process.

The columns of a batch of partials are megabytes that are soon freed. glibc returns such pages to the system and
requests them again. The first access to a new page takes as long as several packets, or many on a virtual machine.
"""

from __future__ import annotations

import ctypes
import functools

from capture.units import MEBIBYTE

KEPT = 64 * MEBIBYTE
"""Free bytes at the end of a heap that are not returned to the system. Each thread may have a heap."""

ON_THE_HEAP = 32 * MEBIBYTE
"""Size in bytes from which an allocation is mapped separately: the largest value that glibc accepts."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""


@functools.cache
def keep_freed_memory() -> bool:
    """Keep freed memory, up to KEPT bytes on each heap; return whether the C library (glibc) supports it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, ON_THE_HEAP) and mallopt(M_TRIM_THRESHOLD, KEPT))
