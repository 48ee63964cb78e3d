"""Units: times are in nanoseconds, sizes in bytes."""

SECOND = 10**9
"""Nanoseconds of a second."""

MEBIBYTE = 1 << 20
"""Bytes of a mebibyte."""
