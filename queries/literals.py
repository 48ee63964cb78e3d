"""Number literals: decimal and hexadecimal integers of 64 bits, and decimals."""

from __future__ import annotations

from math import isfinite


def number_literal(text: str, negated: bool = False) -> int | float | None:
    """Value of a number as GSQL writes it, without its sign; None where it is out of range.

    `negated` says that a minus stands before it: only then is 2**63 in range.
    """
    largest = 2**63 - (not negated)
    if text[:2].lower() == "0x":
        value = int(text, 16)
        return value if value <= largest else None
    if text.isdecimal():
        digits = text.lstrip("0") or "0"
        return int(digits) if len(digits) < 20 and int(digits) <= largest else None
    number = float(text)
    return number if isfinite(number) else None
