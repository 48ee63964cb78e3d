"""Tables of sessions for kernels: the rows of sessions, and the hash tables for sessions and their templates.

A transport session (RFC 7011 §2) is the address and port of an exporter with one observation domain (source ID in v9,
engine in v5) and one version. A session is stored in a row of SESSION_WORDS words. The hash table `slots` finds this
row.
"""

from __future__ import annotations

import numpy as np

from capture.native import helper, kernel

(
    VERSION, ADDRESS_VERSION, HIGH, LOW, PORT, DOMAIN,
    LAST_USE, IS_EXPECTED_KNOWN, EXPECTED_NUMBER, BOOT_TIME,
    DEFAULT_NUM, DEFAULT_DEN, UNKNOWN_KEY_NUM, UNKNOWN_KEY_DEN, FORCED_NUM, KEY_KINDS, KEYS, KEYS_END, INIT_TIME,
    DATAGRAMS, RECORDS, OPTION_RECORDS, LOST, GAPS, LATE, DUPLICATES, RECOVERED, RESETS, GUESSED_TIMES, UNREADABLE,
    RECENT_INDEX, RECENT,
) = range(32)  # fmt: skip
"""Indices of the words in the row of a session.

LAST_USE: number of the last datagram of the session, 0 if the row is unused. IS_EXPECTED_KNOWN: 1 if EXPECTED_NUMBER is
known. EXPECTED_NUMBER: the next sequence number without a gap. BOOT_TIME: start of the exporter, ms, from the header.
INIT_TIME: start of the exporter, ms, from an option record (systemInitTimeMilliseconds), or MISSING_TIME.

DEFAULT: sampling rate of a record without a key. UNKNOWN_KEY: rate of a record whose key is not announced. FORCED: rate
that overrides all others. KEY_KINDS: bit mask of the kinds of announced keys. `[KEYS, KEYS_END)`: range of the keys of
the session. See `capture.flows.sampling`. NUM and DEN: numerator and denominator.

DATAGRAMS to UNREADABLE: counters. RECENT: last sequence numbers. RECENT_INDEX: index of the next number to replace in
them. FIRST_GAP: open gaps. NEWEST_EXPORT: largest time of an export, ns. COMPLETE_SINCE: time of the first export whose
successors are known by their numbers, ns.
"""

RECENT_NUMBERS = 16
"""Number of stored last sequence numbers, which show duplicates."""
FIRST_GAP = RECENT + RECENT_NUMBERS
MAX_OPEN_GAPS = 32
GAP_WORDS = 3
"""Number of stored gaps, and words of a gap: first missing number, number of missing units, NEWEST_EXPORT before the
gap."""
NEWEST_EXPORT = FIRST_GAP + GAP_WORDS * MAX_OPEN_GAPS
COMPLETE_SINCE = NEWEST_EXPORT + 1
SESSION_WORDS = COMPLETE_SINCE + 1
"""Number of words of a row."""

IDENTITY_WORDS = 6
"""Number of words at the beginning of a row that identify the session."""


@helper
def session_slot(version, address_version, high, low, port, domain, mask):  # type: ignore[no-untyped-def]
    """Return the first slot of the search for a session."""
    mixed = np.uint64(high) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(low)
    mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xFF51AFD7ED558CCD) ^ np.uint64(domain)
    mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xFF51AFD7ED558CCD)
    mixed = mixed ^ np.uint64(port) << np.uint64(16) ^ np.uint64(version) << np.uint64(8) ^ np.uint64(address_version)
    mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xFF51AFD7ED558CCD)
    return np.int64((mixed >> np.uint64(33)) & np.uint64(mask))


@helper
def lookup_session(sessions, slots, mask, version, address_version, high, low, port, domain):  # type: ignore[no-untyped-def]
    """Return the index of a session, or -1.

    `slots`: mask + 1 words, at most half of them used. A used word contains 1 + the index of a session, an empty word
    0.
    """
    slot = session_slot(version, address_version, high, low, port, domain, mask)
    while slots[slot]:
        row = (slots[slot] - 1) * SESSION_WORDS
        if (
            sessions[row + LOW] == low
            and sessions[row + HIGH] == high
            and sessions[row + PORT] == port
            and sessions[row + DOMAIN] == domain
            and sessions[row + VERSION] == version
            and sessions[row + ADDRESS_VERSION] == address_version
        ):
            return np.int64(slots[slot] - 1)
        slot = (slot + 1) & mask
    return np.int64(-1)


@helper
def session_home(sessions, number, mask):  # type: ignore[no-untyped-def]
    """Return the first slot of the search for session `number`."""
    row = number * SESSION_WORDS
    return session_slot(
        sessions[row + VERSION], sessions[row + ADDRESS_VERSION], sessions[row + HIGH], sessions[row + LOW],
        sessions[row + PORT], sessions[row + DOMAIN], mask,
    )  # fmt: skip


@kernel("i64(i64*, i64, i64*, i64)")
def insert_session(sessions, number, slots, mask):  # type: ignore[no-untyped-def]
    """Insert session `number` into `slots` (mask + 1, at most half used). Return the number of probed slots."""
    slot = session_home(sessions, number, mask)
    steps = 1
    while slots[slot]:
        slot = (slot + 1) & mask
        steps += 1
    slots[slot] = number + 1
    return steps


@kernel("i64(i64*, i64, i64*, i64)")
def delete_session(sessions, number, slots, mask):  # type: ignore[no-untyped-def]
    """Delete session `number` from `slots`, before its row is cleared. Return the number of probed slots, -1 if absent.

    Later sessions of the same cluster of used slots move forward, so that no search ends at the gap.
    """
    gap = session_home(sessions, number, mask)
    steps = 1
    while slots[gap] != number + 1:
        if not slots[gap]:
            return -1
        gap = (gap + 1) & mask
        steps += 1
    slot = (gap + 1) & mask
    while slots[slot]:
        steps += 1
        home = session_home(sessions, slots[slot] - 1, mask)
        if ((slot - home) & mask) >= ((slot - gap) & mask):
            slots[gap] = slots[slot]
            gap = slot
        slot = (slot + 1) & mask
    slots[gap] = 0
    return steps


TEMPLATE_WORDS = 2
"""Words of a slot in the template table: the key (0 if empty), and the layout or -1."""


@helper
def template_slot(session, template, mask):  # type: ignore[no-untyped-def]
    """Return the first slot of the search for a template."""
    mixed = np.uint64((session + 1) << 16 | template) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed >> np.uint64(40)) & np.uint64(mask))


@helper
def lookup_template(table, mask, session, template):  # type: ignore[no-untyped-def]
    """Return the layout of a session's template, or -1 if unknown."""
    key = (session + 1) << 16 | template
    slot = template_slot(session, template, mask)
    while table[slot * TEMPLATE_WORDS]:
        if table[slot * TEMPLATE_WORDS] == key:
            return np.int64(table[slot * TEMPLATE_WORDS + 1])
        slot = (slot + 1) & mask
    return np.int64(-1)


@kernel("i64(i64*, i64, i64*, i64*, i64)")
def set_layouts(table, mask, keys, layouts, count):  # type: ignore[no-untyped-def]
    """Set the layouts of `count` keys ((session + 1) << 16 | template). Return how many keys were new."""
    new = 0
    for index in range(count):
        key = keys[index]
        slot = template_slot((key >> 16) - 1, key & 0xFFFF, mask)
        while table[slot * TEMPLATE_WORDS] and table[slot * TEMPLATE_WORDS] != key:
            slot = (slot + 1) & mask
        if not table[slot * TEMPLATE_WORDS]:
            new += 1
        table[slot * TEMPLATE_WORDS] = key
        table[slot * TEMPLATE_WORDS + 1] = layouts[index]
    return new
