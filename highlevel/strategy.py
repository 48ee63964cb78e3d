"""How Aggregate gets from one window to the next, by what it costs.

Unit of cost: merging one row. A window of P piles with R rows costs `R + P * PILE_COST` when its piles are merged anew.
Keeping totals costs `TOTALS_COST` a window, and each pile a merge when it comes and one or two more until it has gone,
so `3 * R / P`. Tumbling windows, and small ones of few panes, are merged anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from highlevel.groups.merging import INVERTIBLE, Rule
from lowlevel.subaggregates import MERGE, SubAggregate
from lowlevel.types import Type

PILE_COST = 200
"""What each pile of a window costs beside its rows: a batch is looked at by Python, in some µs."""

TOTALS_COST = 8_000
"""What a window of totals costs beside rows: some calls of kernels, and a batch of results of its own."""


class Strategy(StrEnum):
    """How a window is made of the piles of partials that it holds."""

    MERGE = "each window is merged from its panes"
    RUNNING_TOTALS = "running totals: panes that come in are added, panes that go out subtracted"
    TWO_STACKS = "two stacks of panes: of those going out, what is left is merged ahead"


def incremental(subaggregates: Sequence[SubAggregate]) -> Strategy:
    """Return the strategy for windows of many panes: what cannot be undone exactly is kept on stacks."""
    undone = all(Rule(MERGE[sub.kind]) in INVERTIBLE and sub.type is Type.INT for sub in subaggregates)
    return Strategy.RUNNING_TOTALS if undone else Strategy.TWO_STACKS


def strategy_of(subaggregates: Sequence[SubAggregate], piles: int, rows: int) -> Strategy:
    """Return the cheapest strategy for windows of so many piles and rows.

    >>> from lowlevel.subaggregates import Kind
    >>> count, least = SubAggregate("packets", Kind.COUNT), SubAggregate("least", Kind.MIN)
    >>> [strategy_of([count], piles, 100_000).name for piles in (1, 60)]
    ['MERGE', 'RUNNING_TOTALS']
    >>> strategy_of([count, least], 60, 100_000).name
    'TWO_STACKS'
    """
    if rows + piles * PILE_COST <= TOTALS_COST + 3 * rows // max(1, piles):
        return Strategy.MERGE
    return incremental(subaggregates)
