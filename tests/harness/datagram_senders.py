"""Senders of datagrams on loopback."""

from __future__ import annotations

from tests.harness.collected import sender


def has_ipv6() -> bool:
    """Whether ::1 can be had."""
    try:
        sender("::1").close()
    except OSError:
        return False
    return True
