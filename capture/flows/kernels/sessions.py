"""What a kernel knows of a session: who exports, what is expected next, how it samples, and what was counted.

A transport session (RFC 7011 §2) is an exporter's address and port, with one observation domain (source id in v9,
engine in v5) in it, in one version. A session is a row of WIDTH words; a table of slots finds it.
"""

from __future__ import annotations

import numpy as np

from capture.native import helper, kernel

(
    VERSION, ADDRESS_VERSION, HIGH, LOW, PORT, DOMAIN,
    USED, STARTED, EXPECTED, BOOT, DEFAULT_NUM, DEFAULT_DEN, ELSE_NUM, ELSE_DEN, FORCED_NUM, KEY_KINDS,
    KEYS, KEYS_END, INIT,
    DATAGRAMS, RECORDS, OPTION_RECORDS, LOST, GAPS, LATE, DUPLICATES, RECOVERED, RESETS, GUESSED, UNREADABLE,
    RECENT_AT, RECENT,
) = range(32)  # fmt: skip
"""Words of a session's row. USED: the number of the datagram that used it last, 0 for no session. STARTED: whether
EXPECTED is known. BOOT: when the exporter was started, ms. DEFAULT, ELSE, FORCED, KEY and KEYS: its sampling, as in
capture.flows.sampling. INIT: systemInitTimeMilliseconds, or MISSING. From DATAGRAMS on: counters. RECENT: the last
sequence numbers, RECENT_AT says where the next one goes. Behind them OPEN: gaps that nothing has filled yet, each its
first number and how many there are; OPEN_AT says where the next one goes."""

RECENT_NUMBERS = 16
OPEN_AT = RECENT + RECENT_NUMBERS
OPEN = OPEN_AT + 1
OPEN_GAPS = 8
WIDTH = OPEN + 2 * OPEN_GAPS

KEY_WIDTH = 6
"""The first words of a row, which say whose it is."""


@helper
def session_slot(version, address_version, high, low, port, domain, mask):  # type: ignore[no-untyped-def]
    """Where the search for a session begins."""
    mixed = np.uint64(high) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(low)
    mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xFF51AFD7ED558CCD) ^ np.uint64(domain)
    mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xFF51AFD7ED558CCD)
    mixed = mixed ^ np.uint64(port) << np.uint64(16) ^ np.uint64(version) << np.uint64(8) ^ np.uint64(address_version)
    mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xFF51AFD7ED558CCD)
    return np.int64((mixed >> np.uint64(33)) & np.uint64(mask))


@helper
def lookup_session(sessions, slots, mask, version, address_version, high, low, port, domain):  # type: ignore[no-untyped-def]
    """Find a session's number, or -1. `slots` (mask + 1) hold numbers + 1, 0 where nothing is; at most half do."""
    slot = session_slot(version, address_version, high, low, port, domain, mask)
    while slots[slot]:
        row = (slots[slot] - 1) * WIDTH
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
    """Return the slot at which the search for session `number` begins."""
    row = number * WIDTH
    return session_slot(
        sessions[row + VERSION], sessions[row + ADDRESS_VERSION], sessions[row + HIGH], sessions[row + LOW],
        sessions[row + PORT], sessions[row + DOMAIN], mask,
    )  # fmt: skip


@kernel("i64(i64*, i64, i64*, i64)")
def insert_session(sessions, number, slots, mask):  # type: ignore[no-untyped-def]
    """Insert session `number` of `sessions` into `slots` (mask + 1, at most half in use); return the steps taken."""
    slot = session_home(sessions, number, mask)
    steps = 1
    while slots[slot]:
        slot = (slot + 1) & mask
        steps += 1
    slots[slot] = number + 1
    return steps


@kernel("i64(i64*, i64, i64*, i64)")
def delete_session(sessions, number, slots, mask):  # type: ignore[no-untyped-def]
    """Delete session `number` from `slots`, before its row is cleared; return the steps taken, -1 if it is not there.

    Later sessions of the same run of used slots move up, so that no search ends at the new gap.
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
"""Words of a slot of the table of templates: the key, 0 where nothing is, and the layout's number or -1."""


@helper
def template_slot(session, template, mask):  # type: ignore[no-untyped-def]
    """Where the search for a template begins."""
    mixed = np.uint64((session + 1) << 16 | template) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed >> np.uint64(40)) & np.uint64(mask))


@helper
def lookup_template(table, mask, session, template):  # type: ignore[no-untyped-def]
    """Layout of a session's template, or -1 where there is none."""
    key = (session + 1) << 16 | template
    slot = template_slot(session, template, mask)
    while table[slot * TEMPLATE_WORDS]:
        if table[slot * TEMPLATE_WORDS] == key:
            return np.int64(table[slot * TEMPLATE_WORDS + 1])
        slot = (slot + 1) & mask
    return np.int64(-1)


@kernel("i64(i64*, i64, i64*, i64*, i64)")
def place_templates(table, mask, keys, layouts, count):  # type: ignore[no-untyped-def]
    """Set the layouts of `count` keys ((session + 1) << 16 | template) in the table; return how many were new in it."""
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
