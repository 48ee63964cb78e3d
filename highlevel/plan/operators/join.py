"""Join: OA-Join over nodes."""

from __future__ import annotations

from collections.abc import Iterator

from highlevel.joins.oa_join import OAJoin
from highlevel.plan.nodes import Join, width_of
from highlevel.plan.operators.operator import GraphItem, Mark, low_of_one, lows_of
from lowlevel.punctuation import BEGINNING, END, Punctuation


class JoinOperator(OAJoin):
    """Uses the watermark of the joined time.

    A joint watermark gives a watermark of one time only if its other bound is END.
    """

    def __init__(self, node: Join) -> None:
        """Join the inputs of `node`, left and right."""
        super().__init__(node.spec, node.form)
        sides = [(node.left, node.spec.left), (node.right, node.spec.right)]
        self._widths = [width_of(source) for source, _ in sides]
        self._times = [node.progress.index(side.time) if side.time in node.progress else None for node, side in sides]

    def punctuate(self, port: int, mark: Mark) -> Iterator[GraphItem]:
        """Process a watermark of a side."""
        lows, time = lows_of(mark, self._widths[port]), self._times[port]
        low = END if set(lows) == {END} else BEGINNING if time is None else low_of_one(lows, time)
        if low != BEGINNING:
            yield from super().punctuate(port, Punctuation(mark.link, low))
