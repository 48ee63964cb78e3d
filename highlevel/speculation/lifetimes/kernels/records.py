"""Records with a fixed number of words in one growing memory, and the list of free records, for kernels.

    memory    record 0 | record 1 | record 2 | …       `width` words each
    state     FREE_RECORD, USED_RECORDS, LIVE_RECORDS, from word `records` on: a state array may contain several lists

The word `link` of a free record is the number of the next free record. Free records are used first, so the memory needs
room for one more record than the records in use. The caller provides this room.
"""

from __future__ import annotations

from capture.native import helper

FREE_RECORD, USED_RECORDS, LIVE_RECORDS, LIST_WORDS = range(4)
"""Words of a list: its first free record, the number of records that were ever used, and the number of records in
use.
"""

NONE = -1
"""No record."""


@helper
def take_record(memory, state, records, width, link):  # type: ignore[no-untyped-def]
    """Return a free record. Its words are not initialised."""
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
    """Put a record into the free list."""
    memory[record * width + link] = state[records + FREE_RECORD]
    state[records + FREE_RECORD] = record
    state[records + LIVE_RECORDS] -= 1
