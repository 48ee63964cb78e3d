"""The join operator of a plan: `OAJoin`, extended to inputs with joint watermarks."""

from __future__ import annotations

from collections.abc import Iterator

from highlevel.joins.oa_join import OAJoin
from highlevel.plan.nodes import Join, bound_count
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, bounds_of, single_bound
from lowlevel.punctuation import BEGINNING, END, Punctuation


class JoinOperator(OAJoin):
    """An OAJoin whose inputs may have joint watermarks (several bounds).

    Of a joint watermark, the bound for the join's time is used only if all other bounds are END.
    """

    def __init__(self, node: Join) -> None:
        """Join the inputs of `node`, left and right."""
        super().__init__(node.spec, node.watermark_form)
        sides = [(node.left, node.spec.left), (node.right, node.spec.right)]
        self._widths = [bound_count(source) for source, _ in sides]
        self._times = [
            node.time_columns.index(side.time) if side.time in node.time_columns else None for node, side in sides
        ]

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Process a watermark of a side."""
        bounds, time = bounds_of(punctuation, self._widths[port]), self._times[port]
        low = END if set(bounds) == {END} else BEGINNING if time is None else single_bound(bounds, time)
        if low != BEGINNING:
            yield from super().punctuate(port, Punctuation(punctuation.link, low))
