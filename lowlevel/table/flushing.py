"""Flush policies: when entries of old panes leave a table (Li 2008, §8.2), at once or gradually.

A pane is *old* when a later pane has been opened. Results are the same with every policy. The policies differ in the
order of partials, in the time that entries stay in the table, and in the largest burst. A *burst* is the number of
entries that leave together, while packets wait in a ring:

| policy | old entries leave | largest burst |
| --- | --- | --- |
| AT_ONCE | when the watermark passes the end of their pane | all entries of a pane |
| IOP_SLOW | one per packet; *all* before two groups of the new pane collide, or the next pane opens | all entries |
| IOP_TWO_SLOT | as with IOP_SLOW, but a packet tests two slots (deployed Gigascope) | all entries, less often |
| LAZY | when another group needs their slot | all entries of a pane whose groups did not occur again |
| SLOW | as with LAZY, and in addition one for every `every` packets | the entries that remain at the bound |
| PACED | when the hand visits them; it visits all slots in half the packets of the last pane | few entries |

With the ordered policies (IOP) partials are in order if packets are in order. The other gradual policies have a bound:
an entry of pane w leaves at the latest when a packet or a watermark opens pane w + `disorder` + 1.
"""

from __future__ import annotations

from enum import StrEnum

from capture.lazy_dataclasses import dataclass

MAX_DISORDER = 1 << 10
"""Maximum number of old panes in a table. Each pane has a counter, and all counters are read when a pane opens."""

MAX_PACKETS_PER_ENTRY = 1 << 30
"""Maximum number of packets per flushed entry. With a larger number, no entry would leave before the bound."""


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
        """True if partials are in the order of their panes, provided that packets are in order."""
        return self in (Policy.IOP_SLOW, Policy.IOP_TWO_SLOT)


@dataclass(frozen=True, slots=True)
class Flushing:
    """A flush policy and its parameters.

    * `disorder`: the maximum number of old panes in the table (M). AT_ONCE does not use it.
    * `every`: the number of packets per flushed entry (i). Only SLOW uses it.

    >>> Flushing("paced", disorder=2)
    Flushing(policy=<Policy.PACED: 'paced'>, disorder=2, every=1)
    """

    policy: Policy = Policy.AT_ONCE
    disorder: int = 1
    every: int = 1

    def __post_init__(self) -> None:
        """Check the bounds, and convert the name of a policy."""
        try:
            object.__setattr__(self, "policy", Policy(self.policy))
        except ValueError:
            raise ValueError(f"got the flush policy {self.policy!r}, expected any of {', '.join(Policy)}") from None
        if not 0 <= self.disorder <= MAX_DISORDER:
            raise ValueError(f"got a disorder of {self.disorder} panes, expected 0 to {MAX_DISORDER:,}")
        if self.policy.ordered and self.disorder != 1:
            raise ValueError(
                f"got a disorder of {self.disorder} panes for {self.policy}, expected 1: this policy flushes the old "
                "pane before the next pane opens"
            )
        if not 1 <= self.every <= MAX_PACKETS_PER_ENTRY:
            raise ValueError(f"got one entry for every {self.every} packets, expected 1 to {MAX_PACKETS_PER_ENTRY:,}")


AT_ONCE = Flushing()
"""The default policy."""
