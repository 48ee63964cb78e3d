"""Tables that are fed from finer ones: what leaves the finer table is booked instead of the packets.

    finer      GROUP BY srcIP, destIP, srcPort, destPort, protocol   panes of 10 s   takes in every packet
    coarser    GROUP BY srcIP, destIP                                panes of 60 s   every entry that leaves the finer
    coarsest   GROUP BY destIP                                       panes of 60 s   every entry that leaves the coarser

Gigascope's authors feed queries from *phantoms* in the same way (Zhang, Koudas, Ooi, Srivastava 2005). A table can be
fed from another one of the same rows (kind, predicate, sampling) whose keys contain its own, in any order, whose panes
its own are made of, and that keeps its sub-aggregates; they merge as between the levels, counts by addition. Where rows
are spread over panes, pieces are counted, so panes must be the same.

A table that packets feed **keeps a sub-aggregate for another's sake** (`widened`) as long as it has MOST_KEPT of them
at the most: every packet pays for a longer entry, but less than for finding its entry in one more table.

Tables whose entries leave bit by bit are not fed: an entry that leaves the finer one at the bound would stay in the
coarser one for as long again.

Among several the one with the fewest keys feeds, as fewest entries leave it. Two plans that could feed each other keep
the same groups: the first feeds. So no table ever feeds itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lowlevel.expressions import Expression
from lowlevel.plan import LowLevelPlan
from lowlevel.subaggregates import Kind, SubAggregate

ALONE = frozenset({Kind.COUNT, Kind.SUM, Kind.MIN, Kind.MAX})
"""Sub-aggregates whose word is all that is needed to merge them."""

MOST_KEPT = 4
"""Sub-aggregates up to which a table keeps some for another's sake."""

Word = tuple[Kind, Expression | None]
"""What a sub-aggregate keeps, whatever it is called."""


def word_of(sub: SubAggregate) -> Word:
    """Return what a sub-aggregate keeps."""
    return sub.kind, sub.argument


def can_feed(finer: LowLevelPlan, coarser: LowLevelPlan) -> bool:
    """Whether every entry of `coarser` is made of whole entries of `finer`, and of nothing else."""
    return has_groups_of(finer, coarser) and lacking(finer, coarser) == []


def has_groups_of(finer: LowLevelPlan, coarser: LowLevelPlan) -> bool:
    """Whether every group of `coarser` in a pane is made of whole groups of `finer`."""
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
    return {key.expression for key in coarser.keys} <= {key.expression for key in finer.keys}


def lacking(finer: LowLevelPlan, coarser: LowLevelPlan) -> list[Word] | None:
    """Return what `coarser` keeps and `finer` does not; None where words alone cannot be merged."""
    kept = {word_of(sub) for sub in finer.subaggregates}
    wanted = dict.fromkeys(word_of(sub) for sub in coarser.subaggregates)
    return None if any(kind not in ALONE for kind, _ in wanted) else [word for word in wanted if word not in kept]


def widened(plans: Sequence[LowLevelPlan]) -> list[LowLevelPlan]:
    """Return the plans, some with what others lack there to be fed: those with the fewest keys are seen to first."""
    wide = list(plans)
    feeder_of = feeders(wide)
    for place in sorted(range(len(wide)), key=lambda place: len(wide[place].keys)):
        if feeder_of[place] is not None:
            continue
        finer = [
            other
            for other, plan in enumerate(wide)
            if other != place and feeder_of[other] is None and _may_keep(plan, wide[place])
        ]
        if finer:
            chosen = min(finer, key=lambda other: _preference(other, wide))
            wide[chosen] = _keeping(wide[chosen], wide[place])
            feeder_of = feeders(wide)
    return wide


def _may_keep(finer: LowLevelPlan, coarser: LowLevelPlan) -> bool:
    """Whether `finer` can feed `coarser` with what it lacks, and the longer entries are worth it."""
    more = lacking(finer, coarser)
    return more is not None and len(finer.subaggregates) + len(more) <= MOST_KEPT and has_groups_of(finer, coarser)


def _keeping(finer: LowLevelPlan, coarser: LowLevelPlan) -> LowLevelPlan:
    """Return `finer` with what it lacks for `coarser`."""
    first = len(finer.subaggregates)
    more = [SubAggregate(f"other{number}", *word) for number, word in enumerate(lacking(finer, coarser) or (), first)]
    return replace(finer, subaggregates=(*finer.subaggregates, *more))


def _preference(place: int, plans: Sequence[LowLevelPlan]) -> tuple[int, int, int]:
    """Rank the plan at `place` among those that can feed another: of few keys and long panes, few entries leave."""
    return len(plans[place].keys), -plans[place].pane, place


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
    return min(finer, key=lambda other: _preference(other, plans), default=None)


def depth(place: int, feeder_of: Sequence[int | None]) -> int:
    """Return how many tables stand between the packets and a plan's own."""
    feeder = feeder_of[place]
    return 0 if feeder is None else 1 + depth(feeder, feeder_of)
