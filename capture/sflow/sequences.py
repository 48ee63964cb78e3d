"""Sequence numbers of sFlow agents, followed inside the kernel that reads their datagrams.

A sub-agent numbers its datagrams, and a data source its flow samples; both count up by one, modulo 2**32. A table of
fixed size remembers the last number of each, and which of the REORDER numbers up to it are missing. A number ahead of
the next one leaves a gap. One less than REORDER behind was counted as missing and came late (reordered), or it was not
missing: it came twice, or is from before the first one that was seen (repeated). One further behind, or any after the
agent's uptime fell by more than RESTART, is a new beginning. What never came is what is missing less what was
reordered, which is never more.
"""

from __future__ import annotations

import numpy as np

from capture.native import helper, outlined
from capture.sflow.fields import (
    DATAGRAMS_MISSING,
    DATAGRAMS_REORDERED,
    DATAGRAMS_REPEATED,
    RESTARTS,
    SAMPLES_MISSING,
    SAMPLES_REORDERED,
    SAMPLES_REPEATED,
    UNTRACKED,
)

SLOTS = 1 << 13
"""Agents and sources that are followed at once; a power of two."""

PROBES = 32
"""Slots that are looked at before a sequence is given up as untracked."""

REORDER = 1024
"""Numbers that a datagram or sample may be behind and still be one that came late; a power of two."""

WORD = 32
SEEN = 7
SLOT = SEEN + REORDER // WORD
"""Words of a slot: four of the key, whether it is taken, the last number, the uptime then; from SEEN on a bit for each
of the last REORDER numbers, 0 where it is missing. WORD bits are in a word."""

RESTART = 60_000
"""Milliseconds that an uptime may fall and still be that of a datagram that came late."""


@outlined
def see(table, at, number, missing):  # type: ignore[no-untyped-def]
    """Note a number, and that the `missing` ones before it are; return whether it was missing itself."""
    for each in range(number - min(missing, REORDER - 1), number):
        table[at + SEEN + ((each & (REORDER - 1)) // WORD)] &= ~(np.int64(1) << (each & (WORD - 1)))
    word = at + SEEN + (number & (REORDER - 1)) // WORD
    bit = np.int64(1) << (number & (WORD - 1))
    unseen = (table[word] & bit) == 0
    table[word] |= bit
    return unseen


@outlined
def miss_nothing(table, at):  # type: ignore[no-untyped-def]
    """Begin anew: nothing before is missing."""
    for word in range(at + SEEN, at + SLOT):
        table[word] = (1 << WORD) - 1


@helper
def follow(table, high, low, agent, source, number, uptime, counts):  # type: ignore[no-untyped-def]
    """Take in one sequence number; `counts` grows by what it tells.

    `agent` is the sub-agent shifted left by 4, with the address's version in the bits below, and bit 0 set for the
    numbers of a source.
    """
    mixed = np.uint64(high) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(low)
    mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xFF51AFD7ED558CCD) ^ np.uint64(agent)
    mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xFF51AFD7ED558CCD) ^ np.uint64(source)
    mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xFF51AFD7ED558CCD)
    slot = np.int64((mixed >> np.uint64(40)) & np.uint64(SLOTS - 1))
    at = slot * SLOT
    probes = 0
    while table[at + 4] and (
        table[at] != high or table[at + 1] != low or table[at + 2] != agent or table[at + 3] != source
    ):
        probes += 1
        if probes == PROBES:
            counts[UNTRACKED] += 1
            return
        slot = (slot + 1) & (SLOTS - 1)
        at = slot * SLOT
    if not table[at + 4]:
        table[at] = high
        table[at + 1] = low
        table[at + 2] = agent
        table[at + 3] = source
        table[at + 4] = 1
        miss_nothing(table, at)
    else:
        ahead = (number - table[at + 5] - 1) & 0xFFFFFFFF  # numbers between the last one and this one
        behind = 0xFFFFFFFF - ahead
        fallen = (table[at + 6] - uptime) & 0xFFFFFFFF  # an uptime wraps after 49 days; that is no fall
        if RESTART < fallen <= 0x80000000 or (behind >= REORDER and ahead >= 0x7FFFFFFF):
            counts[RESTARTS] += 1
            miss_nothing(table, at)
        elif behind < REORDER:
            if see(table, at, number, np.int64(0)):
                counts[SAMPLES_REORDERED if agent & 1 else DATAGRAMS_REORDERED] += 1
            else:
                counts[SAMPLES_REPEATED if agent & 1 else DATAGRAMS_REPEATED] += 1
            return
        else:
            counts[SAMPLES_MISSING if agent & 1 else DATAGRAMS_MISSING] += ahead
            see(table, at, number, ahead)
    table[at + 5] = number
    table[at + 6] = uptime
