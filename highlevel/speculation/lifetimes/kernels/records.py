"""Records with a fixed number of words in one growing memory, and the list of free records, for kernels.

    memory    record 0 | record 1 | record 2 | …       `width` words each
    state     FREE_RECORD, USED_RECORDS, LIVE_RECORDS, from word `records` on: a state array may contain several lists

The word `link` of a free record is the number of the next free record. Free records are used first, so the memory needs
room for one more record than the records in use. The caller provides this room.
"""

from __future__ import annotations

from capture.native import Integers, helper, kernel

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


@kernel("i64(i64*, i64, i64, i64, i64*)")
def mark_free_records(memory: Integers, record, width, link, is_free: Integers):  # type: ignore[no-untyped-def]
    """Write 1 to `is_free` for each free record, beginning with the first one, `record`. Return their number."""
    count = 0
    while record != NONE:
        is_free[record] = 1
        count += 1
        record = memory[record * width + link]
    return count
