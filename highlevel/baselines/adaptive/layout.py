"""Memory layout of AdaptWID, and the words of the state that its kernels share.

    group     VOLUME unexpired tuples, HEAD: EAGER, or the first of its tuples in the buffer (NONE without one)
    tuple     GROUP, FIRST, END (window ids, half-open), NEXT of the group's tuples, values…
    partial   GROUP, WID, LAST (tuples added here whose last window this is), accumulators…

Each is a row of int64 words in an array.
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
