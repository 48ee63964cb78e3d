"""Amounts as people read them."""

from __future__ import annotations


def spelled_bytes(amount: float) -> str:
    """Spell an amount of bytes.

    >>> spelled_bytes(999), spelled_bytes(64 << 20), spelled_bytes(1500)
    ('999 bytes', '64.0 MiB', '1.5 KiB')
    """
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if amount >= 1 << power:
            return f"{amount / (1 << power):.1f} {unit}"
    return f"{amount:,.0f} bytes"
