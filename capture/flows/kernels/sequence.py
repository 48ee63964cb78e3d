"""Sequence numbers of export headers show the units lost in transit, by the rule of each version.

The unit is a flow record (NetFlow v5 and v7), a data record or option record (IPFIX), or a datagram (v9). If a number
is larger than expected, there is a gap, and the units in the gap are lost. If a number is slightly smaller than
expected, its datagram is late, or a duplicate if the number is among the last few numbers. The last few gaps are
stored. A late datagram recovers its units that lie in a gap, and the gap shrinks. So a unit is recovered at most once,
and only if it was counted as lost, even if the exporter sends arbitrary numbers. Any other number is a reset, and so
is the first number after a restart of the exporter. Units lost before a reset stay lost. Units lost during a reset are
unknown.
"""

from __future__ import annotations

import numpy as np

from capture.flows.kernels.sessions import (
    BOOT,
    DUPLICATES,
    EXPECTED,
    EXPORTED,
    GAP_WORDS,
    GAPS,
    LATE,
    LOST,
    OPEN,
    OPEN_GAPS,
    RECENT,
    RECENT_AT,
    RECENT_NUMBERS,
    RESETS,
    SINCE,
    STARTED,
)
from capture.native import outlined

LATE_DATAGRAMS = 1024
"""Maximum distance of a late datagram from the newest, in datagrams. A datagram is assumed to have 32 records."""

MIN_RESTART_MS = 5_000
"""Minimum shift of an exporter's start time that means a restart. Corrections of its clock shift the time less."""

WRAP = 1 << 32

IN_ORDER, BEHIND = 0, 1


@outlined
def open_gap(sessions, row, number, units, exported):  # type: ignore[no-untyped-def]
    """Store a gap of `units` units that begins at `number`, in an empty place or in that of the oldest gap.

    `exported`: the largest time (ns) of the exports before the gap.
    """
    place = row + OPEN
    for index in range(OPEN_GAPS):
        gap = row + OPEN + GAP_WORDS * index
        if sessions[gap + 1] == 0:
            place = gap
            break
        if sessions[gap + 2] < sessions[place + 2]:
            place = gap
    sessions[place] = number
    sessions[place + 1] = units
    sessions[place + 2] = exported


@outlined
def fill_gaps(sessions, row, number, units):  # type: ignore[no-untyped-def]
    """Remove the numbers `[number, number + units)` from the open gaps. Return how many of them were in a gap."""
    filled = np.int64(0)
    for index in range(OPEN_GAPS):
        gap = row + OPEN + GAP_WORDS * index
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
                    open_gap(sessions, row, (sessions[gap] + end) & (WRAP - 1), size - end, sessions[gap + 2])
    return filled


@outlined
def reset_sequence(sessions, row, export_time):  # type: ignore[no-untyped-def]
    """Count a reset and close all gaps, so that the units lost before stay lost."""
    sessions[row + RESETS] += 1
    sessions[row + EXPORTED] = sessions[row + SINCE] = export_time
    for index in range(OPEN_GAPS):
        sessions[row + OPEN + GAP_WORDS * index + 1] = 0


@outlined
def follow_sequence(sessions, row, version, number, uptime, export_time):  # type: ignore[no-untyped-def]
    """Process a header's sequence number. Return BEHIND for a late datagram, which keeps the expected number.

    `row`: offset of the session. `uptime` (ms) and `export_time` (ns): times of the header; IPFIX has no uptime.
    """
    exported = sessions[row + EXPORTED]
    sessions[row + EXPORTED] = max(exported, export_time)
    boot = export_time // 1_000_000 - uptime
    moved = boot - sessions[row + BOOT]
    restarted = version != 10 and MIN_RESTART_MS < moved < WRAP - MIN_RESTART_MS  # an uptime wrap moves it by WRAP
    sessions[row + BOOT] = boot
    order = IN_ORDER
    if sessions[row + STARTED]:
        expected = sessions[row + EXPECTED]
        ahead = (number - expected) & (WRAP - 1)
        allowed = LATE_DATAGRAMS if version == 9 else LATE_DATAGRAMS * 32
        if ahead == 0:
            pass
        elif restarted:
            reset_sequence(sessions, row, export_time)
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
            open_gap(sessions, row, expected, ahead, exported)
        else:
            reset_sequence(sessions, row, export_time)
    else:
        sessions[row + SINCE] = export_time
    sessions[row + RECENT + sessions[row + RECENT_AT]] = number + 1
    sessions[row + RECENT_AT] = (sessions[row + RECENT_AT] + 1) % RECENT_NUMBERS
    return order
