"""Where an entry may stand in a table without tags: in some neighbouring slots, from its group's home on."""

from __future__ import annotations

import numpy as np

from capture.column_matrix import LINE_WORDS
from capture.native import helper
from capture.prefetch import prefetch
from lowlevel.subaggregates import INT_MIN
from lowlevel.table_entries import AHEAD, mix

EMPTY = INT_MIN
"""The pane of a slot that holds nothing."""

NEAR = 2
"""Slots whose memory is asked for."""


@helper
def find_homes(  # type: ignore[no-untyped-def]
    slots, slot_count, width, key_words, words, word_at, times, chosen, choose, begin, end, pane_length, origin, homes,
):  # fmt: skip
    """Write rows, panes and home slots of the chosen rows in `[begin, end)` to `homes`; return how many there are.

    The memory of the slots is asked for. A group's home is the same in all panes.
    """
    mask = np.uint64(slot_count - 1)
    pane = np.int64(0)
    pane_start = np.int64(0)
    pane_end = np.int64(0)  # an empty interval: the first packet finds its pane by division
    found = 0
    # Small entries never straddle two lines and are mostly alone; the neighbours of large ones are looked at as often,
    # and lie in lines that nobody else has asked for.
    reach = 0 if width <= LINE_WORDS // 2 else NEAR * width
    for row in range(begin, end):
        if choose and not chosen[row]:
            continue
        time = times[row]
        if time < pane_start or time >= pane_end:
            pane = (time - origin) // pane_length
            pane_start = origin + pane * pane_length
            pane_end = pane_start + pane_length
        mixed = np.uint64(0)
        for word in range(key_words):
            mixed = mix(mixed, words[word_at[word] + row])
        slot = np.int64(mixed & mask)
        prefetch(slots, slot * width)
        for place in range(LINE_WORDS, reach, LINE_WORDS):
            prefetch(slots, slot * width + place)
        homes[found] = row
        homes[AHEAD + found] = pane
        homes[2 * AHEAD + found] = slot
        found += 1
    return found
