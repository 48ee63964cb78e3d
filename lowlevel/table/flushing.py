"""Flush policies: when entries of old panes leave a table (Li 2008, §8.2), at once or gradually.

A pane is *old* when a later one has been opened. The sum of the partials is the same with every policy. The policies
differ in the order of partials, in the time that entries stay, and in the number that leave together while packets
wait in a ring:

| policy | an old entry leaves when | most that leave together |
| --- | --- | --- |
| AT_ONCE | the watermark passes the end of its pane | all of a pane |
| IOP_SLOW | one per packet; *all* before two groups of the new pane can collide, and before the next pane | all |
| IOP_TWO_SLOT | the same, with a second slot before it is a collision (deployed Gigascope) | all, less often |
| LAZY | another group needs its slot | all of a pane whose groups did not occur again |
| SLOW | the same, and one for every `every` packets | entries that `every` left for the bound |
| PACED | the hand visits it; it visits all slots in half the packets of the last pane | few |

With the ordered policies (IOP) partials are in order if packets are. The others bound the time in the table: an entry
of pane w leaves at the latest when pane w + `disorder` + 1 is opened, by a packet or a watermark.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MOST_DISORDER = 1 << 10
"""Largest number of old panes in a table. Each has a counter, which is read when a pane opens."""

MOST_EVERY = 1 << 30
"""Largest number of packets per flushed entry: with more, no entry would leave before the bound."""


class Policy(StrEnum):
    """A flush policy."""

    AT_ONCE = "at_once"
    IOP_SLOW = "iop_slow"
    IOP_TWO_SLOT = "iop_two_slot"
    LAZY = "lazy"
    SLOW = "slow"
    PACED = "paced"

    @property
    def ordered(self) -> bool:
        """Whether partials are in the order of their panes if packets are in order."""
        return self in (Policy.IOP_SLOW, Policy.IOP_TWO_SLOT)


@dataclass(frozen=True, slots=True)
class Flushing:
    """A policy and its bounds: `disorder`, the number of old panes (M), and `every`, packets per entry (i).

    AT_ONCE uses neither; only SLOW uses `every`.

    >>> Flushing("paced", disorder=2)
    Flushing(policy=<Policy.PACED: 'paced'>, disorder=2, every=1)
    """

    policy: Policy = Policy.AT_ONCE
    disorder: int = 1
    every: int = 1

    def __post_init__(self) -> None:
        """Check the bounds; convert the name of a policy."""
        try:
            object.__setattr__(self, "policy", Policy(self.policy))
        except ValueError:
            raise ValueError(f"got the flush policy {self.policy!r}, expected any of {', '.join(Policy)}") from None
        if not 0 <= self.disorder <= MOST_DISORDER:
            raise ValueError(f"got a disorder of {self.disorder} panes, expected 0 to {MOST_DISORDER:,}")
        if self.policy.ordered and self.disorder != 1:
            raise ValueError(
                f"got a disorder of {self.disorder} panes for {self.policy}, expected 1: in order, the old pane is out "
                "before the next opens"
            )
        if not 1 <= self.every <= MOST_EVERY:
            raise ValueError(f"got one entry for every {self.every} packets, expected 1 to {MOST_EVERY:,}")


AT_ONCE = Flushing()
"""The default policy."""
