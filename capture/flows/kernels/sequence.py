"""Sequence numbers of the export header: what was lost on the way, by each version's own rule.

NetFlow v5 and v7 number the flow records, IPFIX all data records (options too), v9 the datagrams. A number ahead of
the expected one is a gap: as many units are lost. One a little behind belongs to a datagram that came late, or came
twice when it is among the last few. The last few gaps are remembered, and of a datagram from behind those units are
recovered that lie in one, which is then that much smaller. So a unit is recovered once at most, and never one that was
not lost before, whatever numbers an exporter writes. Everything else, and anything after the exporter was started
anew, is a reset: nothing can be said about what was lost in between, and nothing before it is recovered any more.
"""

from __future__ import annotations

import numpy as np

from capture.flows.kernels.sessions import (
    BOOT,
    DUPLICATES,
    EXPECTED,
    GAPS,
    LATE,
    LOST,
    OPEN,
    OPEN_AT,
    OPEN_GAPS,
    RECENT,
    RECENT_AT,
    RECENT_NUMBERS,
    RESETS,
    STARTED,
)
from capture.native import helper, outlined

LATE_DATAGRAMS = 1024
"""Datagrams that one may be behind the newest and still be late; the numbers of records may be 32 times as far."""

NEW_START = 5_000
"""Milliseconds that the start of an exporter moves on when it was really started anew; clocks are set by less."""

WRAP = 1 << 32

IN_ORDER, BEHIND = 0, 1


@helper
def open_gap(sessions, row, number, units):  # type: ignore[no-untyped-def]
    """Remember a gap of `units` from `number` on, in the place of the oldest."""
    gap = row + OPEN + 2 * sessions[row + OPEN_AT]
    sessions[gap] = number
    sessions[gap + 1] = units
    sessions[row + OPEN_AT] = (sessions[row + OPEN_AT] + 1) % OPEN_GAPS


@outlined
def fill_gaps(sessions, row, number, units):  # type: ignore[no-untyped-def]
    """Take the `units` from `number` on out of the gaps that are open; return how many of them were in one."""
    filled = np.int64(0)
    for index in range(OPEN_GAPS):
        gap = row + OPEN + 2 * index
        size = sessions[gap + 1]
        first = (number - sessions[gap]) & (WRAP - 1)
        if first >= WRAP // 2:  # the units begin before the gap
            first -= WRAP
        end = min(first + units, size)
        first = max(first, 0)
        if first < end:
            filled += end - first
            if first == 0:
                sessions[gap] = (sessions[gap] + end) & (WRAP - 1)
                sessions[gap + 1] = size - end
            else:
                sessions[gap + 1] = first
                if end < size:
                    open_gap(sessions, row, (sessions[gap] + end) & (WRAP - 1), size - end)
    return filled


@outlined
def reset_sequence(sessions, row):  # type: ignore[no-untyped-def]
    """Count a new beginning; what was missing before stays lost."""
    sessions[row + RESETS] += 1
    for index in range(OPEN_GAPS):
        sessions[row + OPEN + 2 * index + 1] = 0


@outlined
def follow_sequence(sessions, row, version, number, uptime, export):  # type: ignore[no-untyped-def]
    """Take in a header's sequence number; return BEHIND for a late datagram, after which the same is expected.

    `row` is where the session begins, `uptime` that of the header in ms and `export` its time in ns; IPFIX has no
    uptime.
    """
    boot = export // 1_000_000 - uptime
    moved = boot - sessions[row + BOOT]
    restarted = version != 10 and NEW_START < moved < WRAP - NEW_START  # an uptime that wraps moves it by WRAP
    sessions[row + BOOT] = boot
    order = IN_ORDER
    if sessions[row + STARTED]:
        expected = sessions[row + EXPECTED]
        ahead = (number - expected) & (WRAP - 1)
        allowed = LATE_DATAGRAMS if version == 9 else LATE_DATAGRAMS * 32
        if ahead == 0:
            pass
        elif restarted:
            reset_sequence(sessions, row)
        elif ahead >= WRAP - allowed:
            order = BEHIND
            twice = 0
            for index in range(RECENT_NUMBERS):
                if sessions[row + RECENT + index] == number + 1:
                    twice = 1
            sessions[row + (DUPLICATES if twice else LATE)] += 1
        elif ahead < WRAP // 2 and (number > expected or ahead <= allowed):
            sessions[row + GAPS] += 1
            sessions[row + LOST] += ahead
            open_gap(sessions, row, expected, ahead)
        else:
            reset_sequence(sessions, row)
    sessions[row + RECENT + sessions[row + RECENT_AT]] = number + 1
    sessions[row + RECENT_AT] = (sessions[row + RECENT_AT] + 1) % RECENT_NUMBERS
    return order
