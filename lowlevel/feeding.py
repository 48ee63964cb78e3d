"""Tables that are fed from finer ones: what leaves the finer table is booked instead of the packets.

    finer      GROUP BY srcIP, destIP, srcPort, destPort, protocol   panes of 10 s   takes in every packet
    coarser    GROUP BY srcIP, destIP                                panes of 60 s   every entry that leaves the finer
    coarsest   GROUP BY destIP                                       panes of 60 s   every entry that leaves the coarser

Gigascope's authors feed queries from *phantoms* in the same way (Zhang, Koudas, Ooi, Srivastava 2005). A table can be
fed from another one of the same rows (kind, predicate, sampling) whose keys contain its own, in any order, whose panes
its own are made of, and that keeps its sub-aggregates; they merge as between the levels, counts by addition. Where rows
are spread over panes, pieces are counted, so panes must be the same.

**No table keeps a sub-aggregate for another's sake**: every packet would pay for the longer entries, which measured as
much as was saved. Nor are tables fed whose entries leave bit by bit: an entry that leaves the finer one at the bound
would stay in the coarser one for as long again.

Among several the one with the fewest keys feeds, as fewest entries leave it. Two plans that could feed each other keep
the same groups: the first feeds. So no table ever feeds itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from lowlevel.plan import LowLevelPlan
from lowlevel.subaggregates import Kind

ALONE = frozenset({Kind.COUNT, Kind.SUM, Kind.MIN, Kind.MAX})
"""Sub-aggregates whose word is all that is needed to merge them."""


def can_feed(finer: LowLevelPlan, coarser: LowLevelPlan) -> bool:
    """Whether every entry of `coarser` is made of whole entries of `finer`, and of nothing else."""
    if not (finer.reduced and coarser.reduced):
        return False
    if (finer.kind, finer.where, finer.sampling, finer.spread) != (
        coarser.kind, coarser.where, coarser.sampling, coarser.spread,
    ):  # fmt: skip
        return False
    if coarser.pane % finer.pane or (coarser.origin - finer.origin) % finer.pane:
        return False
    if finer.spread and (coarser.pane, coarser.origin) != (finer.pane, finer.origin):
        return False
    if not {key.expression for key in coarser.keys} <= {key.expression for key in finer.keys}:
        return False
    kept = {(sub.kind, sub.argument) for sub in finer.subaggregates if sub.kind in ALONE}
    return all((sub.kind, sub.argument) in kept for sub in coarser.subaggregates)


def feeders(plans: Sequence[LowLevelPlan]) -> list[int | None]:
    """Return of each plan the place of the one that can feed its table, None where only packets can."""
    return [_feeder(place, plans) for place in range(len(plans))]


def _feeder(place: int, plans: Sequence[LowLevelPlan]) -> int | None:
    plan = plans[place]
    finer = [
        other
        for other, candidate in enumerate(plans)
        if can_feed(candidate, plan) and (other < place or not can_feed(plan, candidate))
    ]
    return min(finer, key=lambda other: (len(plans[other].keys), -plans[other].pane, other), default=None)


def depth(place: int, feeder_of: Sequence[int | None]) -> int:
    """Return how many tables stand between the packets and a plan's own."""
    feeder = feeder_of[place]
    return 0 if feeder is None else 1 + depth(feeder, feeder_of)
