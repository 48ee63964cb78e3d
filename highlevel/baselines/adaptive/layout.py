"""Memory layout of AdaptWID, and the words of the state that its kernels share.

    group     VOLUME: number of unexpired tuples; HEAD: EAGER, or the first of its tuples in the buffer, or NONE
    tuple     GROUP; FIRST, END: range of window IDs, half-open; NEXT: the group's next tuple; values…
    partial   GROUP; WID: window ID; LAST: number of its tuples whose last window is WID; accumulators…

A group, a tuple and a partial are each a row of int64 words in an array.
"""

from __future__ import annotations

VOLUME, HEAD, GROUP_WORDS = 0, 1, 2
GROUP, FIRST, END, NEXT, VALUES = 0, 1, 2, 3, 4
WID, LAST, ACCUMULATORS = 1, 2, 3
NONE, EAGER = -1, -2

TUPLES, FREE, HELD, PARTIALS, TO_EAGER, UPDATES, WANTED_TUPLES, WANTED_PARTIALS, STATE_WORDS = range(9)
"""Words of the state.

- TUPLES, FREE, HELD: rows of the buffer, its first free row, rows with a tuple.
- PARTIALS, TO_EAGER: number of partials, number of switches to eager.
- UPDATES: number of additions to a partial.
- WANTED_TUPLES, WANTED_PARTIALS: tuples and partials without room.
"""
