"""Sequence numbers of the export header: what was lost on the way, by each version's own rule.

NetFlow v5 and v7 number the flow records, IPFIX all data records (options too), v9 the datagrams. A number ahead of
the expected one is a gap: as many units are lost. One a little behind belongs to a datagram that came late, or came
twice when it is among the last few; late ones make good what was counted as lost. Everything else, and anything after
the exporter was started anew, is a reset: nothing can be said about what was lost in between.
"""

from __future__ import annotations

from capture.flows.kernels.sessions import (
    BOOT,
    DUPLICATES,
    EXPECTED,
    GAPS,
    LATE,
    LOST,
    RECENT,
    RECENT_AT,
    RECENT_NUMBERS,
    RESETS,
    STARTED,
)
from capture.native import outlined

LATE_DATAGRAMS = 1024
"""Datagrams that one may be behind the newest and still be late; the numbers of records may be 32 times as far."""

NEW_START = 5_000
"""Milliseconds that the start of an exporter moves on when it was really started anew; clocks are set by less."""

WRAP = 1 << 32

IN_ORDER, BEHIND = 0, 1


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
            sessions[row + RESETS] += 1
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
        else:
            sessions[row + RESETS] += 1
    sessions[row + RECENT + sessions[row + RECENT_AT]] = number + 1
    sessions[row + RECENT_AT] = (sessions[row + RECENT_AT] + 1) % RECENT_NUMBERS
    return order
