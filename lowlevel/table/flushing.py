"""When entries of old panes leave a table (Li 2008, §8.2): at once, or bit by bit beside the packets.

A pane is *old* when a later one has been opened. Whatever the policy, partials sum to the same; what differs is the
order in which they leave, how long they stay, and how many leave together, while packets wait in a ring:

| policy | an old entry leaves when | most that leave together |
| --- | --- | --- |
| AT_ONCE | the promise passes the end of its pane | all of a pane |
| IOP_SLOW | one for each packet; *all* before two groups of the new pane may collide, and before the next pane | all |
| IOP_TWO_SLOT | the same, with a second slot before it is a collision (deployed Gigascope) | all, less often |
| LAZY | another group needs its slot | all of a pane that no group followed |
| SLOW | the same, and one for every `every` packets | what `every` left for the bound |
| PACED | a hand passes it, which is over the table after half as many packets as the last pane had | few |

The in-order policies (IOP) give up their freedom for an output that is ordered on ordered input. The others bound the
stay: an entry of pane w leaves at the latest when pane w + `disorder` + 1 is opened, by a packet or by a promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MOST_DISORDER = 1 << 10
"""Panes that a table keeps at most behind the current one: each has a counter that is looked at when a pane opens."""

MOST_EVERY = 1 << 30
"""Packets for one entry, at most: beyond it nothing would leave before the bound."""


class Policy(StrEnum):
    """How entries of old panes leave a table."""

    AT_ONCE = "at_once"
    IOP_SLOW = "iop_slow"
    IOP_TWO_SLOT = "iop_two_slot"
    LAZY = "lazy"
    SLOW = "slow"
    PACED = "paced"

    @property
    def ordered(self) -> bool:
        """Whether partials leave in the order of their panes, where packets come in theirs."""
        return self in (Policy.IOP_SLOW, Policy.IOP_TWO_SLOT)


@dataclass(frozen=True, slots=True)
class Flushing:
    """A policy and its bounds: `disorder` in panes behind the current one (M), `every` in packets for an entry (i).

    AT_ONCE heeds neither, and `every` is SLOW's alone.

    >>> Flushing("paced", disorder=2)
    Flushing(policy=<Policy.PACED: 'paced'>, disorder=2, every=1)
    """

    policy: Policy = Policy.AT_ONCE
    disorder: int = 1
    every: int = 1

    def __post_init__(self) -> None:
        """Refuse what no table can keep to; a policy may be given by its name."""
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
"""What flushes a table that nobody said how to flush."""
