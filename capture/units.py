"""Units: times are in nanoseconds, sizes in bytes."""

SECOND = 10**9
MEBIBYTE = 1 << 20
