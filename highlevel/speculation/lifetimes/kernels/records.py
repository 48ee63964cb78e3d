"""Records of a fixed number of words in one growing memory, and the list of the free ones, for kernels.

    memory    record 0 | record 1 | record 2 | …       `width` words each
    state     FREE_RECORD, USED_RECORDS, LIVE_RECORDS, from the word `records` on: one state may have several lists

A free record has the number of the next free record in its word `link`. The memory needs room for one more record than
are live, because freed records are used first: the caller ensures this.
"""

from __future__ import annotations

from capture.native import helper

FREE_RECORD, USED_RECORDS, LIVE_RECORDS, LIST_WORDS = range(4)
"""Words of a list: its first free record, the records that have been used at least once, and those in use."""

NONE = -1
"""No record."""


@helper
def take_record(memory, state, records, width, link):  # type: ignore[no-untyped-def]
    """Return a free record. Its words have any values."""
    record = state[records + FREE_RECORD]
    if record == NONE:
        record = state[records + USED_RECORDS]
        state[records + USED_RECORDS] += 1
    else:
        state[records + FREE_RECORD] = memory[record * width + link]
    state[records + LIVE_RECORDS] += 1
    return record


@helper
def free_record(memory, state, records, width, link, record):  # type: ignore[no-untyped-def]
    """Make a record available."""
    memory[record * width + link] = state[records + FREE_RECORD]
    state[records + FREE_RECORD] = record
    state[records + LIVE_RECORDS] -= 1
