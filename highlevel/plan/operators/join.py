"""Join: OA-Join over nodes of a graph."""

from __future__ import annotations

from collections.abc import Iterator

from highlevel.joins.oa_join import OAJoin
from highlevel.plan.nodes import Join, width_of
from highlevel.plan.operators.operator import GraphItem, Mark, low_of_one, lows_of
from lowlevel.punctuation import BEGINNING, END, Punctuation


class JoinOperator(OAJoin):
    """Takes of a promise what it says of the time that is joined by: of a box nothing, until a bound is END."""

    def __init__(self, node: Join) -> None:
        """Join the inputs of `node`, left and right."""
        super().__init__(node.spec, node.form)
        sides = [(node.left, node.spec.left), (node.right, node.spec.right)]
        self._widths = [width_of(each) for each, _ in sides]
        self._places = [each.progress.index(side.time) if side.time in each.progress else None for each, side in sides]

    def punctuate(self, port: int, mark: Mark) -> Iterator[GraphItem]:
        """Take a promise of a side."""
        lows, place = lows_of(mark, self._widths[port]), self._places[port]
        low = END if set(lows) == {END} else BEGINNING if place is None else low_of_one(lows, place)
        if low != BEGINNING:
            yield from super().punctuate(port, Punctuation(mark.link, low))
