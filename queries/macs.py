"""MAC address literals: `'00:11:22:aa:bb:cc'`, `'00-11-22-AA-BB-CC'` and Cisco's `'0011.22aa.bbcc'`."""

from __future__ import annotations

import re

_FORMS = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}|(?:[0-9a-f]{2}-){5}[0-9a-f]{2}|(?:[0-9a-f]{4}\.){2}[0-9a-f]{4}")

EXAMPLE = "a MAC address like '00:11:22:aa:bb:cc', '00-11-22-AA-BB-CC' or '0011.22aa.bbcc'"


def parse_mac(text: str) -> int | None:
    """Read a MAC address as a number of 48 bits; None where the text is none.

    >>> hex(parse_mac("0011.22aa.bbcc")), parse_mac("0:11:22:aa:bb:cc")
    ('0x1122aabbcc', None)
    """
    lower = text.lower()
    return int(re.sub(r"[:.-]", "", lower), 16) if _FORMS.fullmatch(lower) else None


def mac_text(number: int) -> str:
    """Text of a MAC address as results spell it."""
    return number.to_bytes(6, "big").hex(":")
