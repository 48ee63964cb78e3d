"""What a table whose old entries leave bit by bit (`lowlevel.flushing`) knows of itself: words that its kernels share.

| word | is |
| --- | --- |
| CURRENT | the current pane, EMPTY before the first |
| PACKETS | packets since it was opened |
| TARGET | packets of it by which PACED's hand is over all slots |
| HAND | the slot that the hand looks at next |
| CREDIT | packets that SLOW has not yet paid for with an entry |
| OLD, RESIDENT | entries of panes before the current one, and of all |
| COLLISIONS | packets that found their home slot taken |
| EVICTED, SWEPT | entries that left for another group, and by the hand |
| FORCED | entries that left by the bound, or for the sake of order |
| FLUSHED | entries that left because their pane was complete |
| DIRECT | packets that left directly |
| BURST | the most that left for AHEAD packets, or for a pane that a promise opened |
"""

from __future__ import annotations

IOP_SLOW, IOP_TWO_SLOT, SLOW, LAZY, PACED = range(5)
"""How the kernels know the policies: two in order, then those out of order; up to SLOW the hand counts packets."""

CURRENT, PACKETS, TARGET, HAND, CREDIT, OLD, RESIDENT = range(7)
COLLISIONS, EVICTED, SWEPT, FORCED, FLUSHED, DIRECT, BURST = range(7, 14)

WORDS = 14
