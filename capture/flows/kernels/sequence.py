"""Count the units that were lost in transit, by the sequence numbers of export headers.

A sequence number counts units. The unit depends on the version: a flow record (NetFlow v5 and v7), a data record or
option record (IPFIX), or a datagram (v9). If a number is larger than expected, there is a gap, and the units in the
gap are lost. If a number is slightly smaller than expected, its datagram is late, or a duplicate if the number is
among the last few numbers. The last few gaps are stored. A late datagram recovers its units that lie in a gap, and
the gap shrinks. So a unit is recovered at most once, and only if it was counted as lost, even if the exporter sends
arbitrary numbers. Any other number is a reset. The first number after a restart of the exporter is a reset too. Units
lost before a reset stay lost. Units lost during a reset are unknown.

The largest time of an export is the time until which exports have arrived. If an exporter sets its clock back, the next
number in order has an earlier time. Then this largest time is in the future and proves nothing, so it begins again.
"""

from __future__ import annotations

import numpy as np

from capture.flows.kernels.sessions import (
    BOOT_TIME,
    COMPLETE_SINCE,
    DUPLICATES,
    EXPECTED_NUMBER,
    FIRST_GAP,
    GAP_WORDS,
    GAPS,
    IS_EXPECTED_KNOWN,
    LATE,
    LOST,
    MAX_OPEN_GAPS,
    NEWEST_EXPORT,
    RECENT,
    RECENT_INDEX,
    RECENT_NUMBERS,
    RESETS,
)
from capture.native import outlined

LATE_DATAGRAMS = 1024
"""Maximum distance of a late datagram from the newest, in datagrams. A datagram is assumed to have 32 records."""

MIN_RESTART_MS = 5_000
"""Minimum shift of an exporter's start time that means a restart. Corrections of its clock shift the time less."""

MAX_CORRECTION = 5_000_000_000
"""Largest step back of export times, in ns, that has no effect. After a larger one the clock was set back."""

NUMBER_COUNT = 1 << 32

IN_ORDER, OUT_OF_ORDER = 0, 1


@outlined
def open_gap(sessions, row, number, units, exported):  # type: ignore[no-untyped-def]
    """Store a gap of `units` units that begins at `number`, in an unused slot or in the slot of the oldest gap.

    `exported`: the largest time (ns) of the exports before the gap.
    """
    slot = row + FIRST_GAP
    for index in range(MAX_OPEN_GAPS):
        gap = row + FIRST_GAP + GAP_WORDS * index
        if sessions[gap + 1] == 0:
            slot = gap
            break
        if sessions[gap + 2] < sessions[slot + 2]:
            slot = gap
    sessions[slot] = number
    sessions[slot + 1] = units
    sessions[slot + 2] = exported


@outlined
def fill_gaps(sessions, row, number, units):  # type: ignore[no-untyped-def]
    """Remove the numbers `[number, number + units)` from the open gaps. Return how many of them were in a gap."""
    filled = np.int64(0)
    for index in range(MAX_OPEN_GAPS):
        gap = row + FIRST_GAP + GAP_WORDS * index
        size = sessions[gap + 1]
        first = (number - sessions[gap]) & (NUMBER_COUNT - 1)
        if first >= NUMBER_COUNT // 2:  # the units begin before the gap
            first -= NUMBER_COUNT
        end = min(first + units, size)
        first = max(first, 0)
        if first < end:
            filled += end - first
            if first == 0:
                sessions[gap] = (sessions[gap] + end) & (NUMBER_COUNT - 1)
                sessions[gap + 1] = size - end
            else:
                sessions[gap + 1] = first
                if end < size:
                    open_gap(sessions, row, (sessions[gap] + end) & (NUMBER_COUNT - 1), size - end, sessions[gap + 2])
    return filled


@outlined
def reset_sequence(sessions, row, export_time):  # type: ignore[no-untyped-def]
    """Count a reset and close all gaps, so that the units lost before stay lost."""
    sessions[row + RESETS] += 1
    sessions[row + NEWEST_EXPORT] = sessions[row + COMPLETE_SINCE] = export_time
    for index in range(MAX_OPEN_GAPS):
        sessions[row + FIRST_GAP + GAP_WORDS * index + 1] = 0


@outlined
def begin_export_times(sessions, row, export_time):  # type: ignore[no-untyped-def]
    """Begin the export times again at `export_time`, after the clock of the exporter was set back. Gaps stay open."""
    sessions[row + NEWEST_EXPORT] = sessions[row + COMPLETE_SINCE] = export_time
    for index in range(MAX_OPEN_GAPS):
        gap = row + FIRST_GAP + GAP_WORDS * index
        sessions[gap + 2] = min(sessions[gap + 2], export_time)


@outlined
def follow_sequence(sessions, row, version, number, uptime, export_time):  # type: ignore[no-untyped-def]
    """Process a header's sequence number. Return OUT_OF_ORDER for a late datagram, which keeps the expected number.

    `row`: offset of the session. `uptime` (ms) and `export_time` (ns): times of the header; IPFIX has no uptime.
    """
    exported = sessions[row + NEWEST_EXPORT]
    boot = export_time // 1_000_000 - uptime
    moved = boot - sessions[row + BOOT_TIME]
    # An uptime wrap moves the start by NUMBER_COUNT.
    restarted = version != 10 and MIN_RESTART_MS < moved < NUMBER_COUNT - MIN_RESTART_MS
    sessions[row + BOOT_TIME] = boot
    order = IN_ORDER
    if sessions[row + IS_EXPECTED_KNOWN]:
        expected = sessions[row + EXPECTED_NUMBER]
        ahead = (number - expected) & (NUMBER_COUNT - 1)
        allowed = LATE_DATAGRAMS if version == 9 else LATE_DATAGRAMS * 32
        if ahead == 0:
            pass
        elif restarted:
            reset_sequence(sessions, row, export_time)
        elif ahead >= NUMBER_COUNT - allowed:
            order = OUT_OF_ORDER
            twice = 0
            for index in range(RECENT_NUMBERS):
                if sessions[row + RECENT + index] == number + 1:
                    twice = 1
            sessions[row + (DUPLICATES if twice else LATE)] += 1
        elif ahead < NUMBER_COUNT // 2 and (number > expected or ahead <= allowed):
            sessions[row + GAPS] += 1
            sessions[row + LOST] += ahead
            open_gap(sessions, row, expected, ahead, exported)
        else:
            reset_sequence(sessions, row, export_time)
    else:
        sessions[row + COMPLETE_SINCE] = export_time
    if order == IN_ORDER:
        if export_time < sessions[row + NEWEST_EXPORT] - MAX_CORRECTION:
            begin_export_times(sessions, row, export_time)
        else:
            sessions[row + NEWEST_EXPORT] = max(sessions[row + NEWEST_EXPORT], export_time)
    sessions[row + RECENT + sessions[row + RECENT_INDEX]] = number + 1
    sessions[row + RECENT_INDEX] = (sessions[row + RECENT_INDEX] + 1) % RECENT_NUMBERS
    return order
