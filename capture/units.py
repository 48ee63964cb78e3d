"""Units: times are in nanoseconds, sizes in bytes."""

from __future__ import annotations

import re

from capture.errors import SettingError

SECOND = 10**9
"""Nanoseconds of a second."""

MEBIBYTE = 1 << 20
"""Bytes of a mebibyte."""

SIZE_UNITS = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "KI": 2**10,
    "MI": 2**20,
    "GI": 2**30,
    "TI": 2**40,
}
"""Bytes of the units of sizes, in upper case."""


def parse_size(text: str) -> int:
    """Parse a number of bytes. K, M, G and T are powers of 1000; Ki, Mi, Gi and Ti are powers of 1024.

    >>> parse_size("100M"), parse_size("1.5GiB"), parse_size("4096")
    (100000000, 1610612736, 4096)
    """
    matched = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?)\s*([KMGT]?I?)B?", text.strip().upper(), re.ASCII)
    if not matched or matched[2] not in SIZE_UNITS:
        raise SettingError(f"{text}: got no size, expected bytes such as 500M, 10G or 64MiB")
    return round(float(matched[1]) * SIZE_UNITS[matched[2]])
