"""In-order operators that replace the operators of the engine: sources, unions, windows and joins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from highlevel.baselines.buffering import BufferingAggregate
from highlevel.baselines.iop_join import IopJoin
from highlevel.baselines.merge import OrderedMerge
from highlevel.baselines.opib_join import OpibJoin
from highlevel.baselines.opob_join import OpobJoin
from highlevel.baselines.slack import Lateness, SlackAggregate
from highlevel.baselines.sort import SlackSort
from highlevel.compare.question import times_of_pairs
from highlevel.joins.spec import MAX_TS, MIN_TS, Port, WatermarkForm
from highlevel.operators.meld import UNION
from highlevel.operators.operator import Operator
from highlevel.operators.state import StateOwner, restore_to, snapshot_of
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.nodes import PANE, Join, Windowed
from highlevel.plan.operators.operator import AnyPunctuation
from highlevel.plan.operators.row_partials import RowPartials
from highlevel.results.stages import make_stages
from highlevel.windows.kind import SlidingWindow
from lowlevel.punctuation import BEGINNING, END, GraphItem, Item, JointPunctuation, Punctuation


class CompositeOperator:
    """An operator that consists of other operators, which store its state."""

    def __init__(self, parts: Sequence[StateOwner]) -> None:
        """`parts` store the rows."""
        self.parts = parts

    @property
    def bytes(self) -> int:
        """Bytes of the parts."""
        return sum(getattr(part, "bytes", 0) for part in self.parts)

    def snapshot(self) -> dict[str, pa.Table]:
        """State of the parts."""
        return snapshot_of(self.parts)

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of the parts."""
        restore_to(self.parts, tables)


class OrderedLeaf(CompositeOperator):
    """Sorts the rows of each link up to its watermark, and merges all links in order."""

    def __init__(self, ports: int) -> None:
        """Sort `ports` links."""
        self.sorts = [SlackSort(None, PANE) for _ in range(ports)]
        self.merge = OrderedMerge(ports, PANE)
        super().__init__([*self.sorts, self.merge])

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Sort rows, and merge the rows that the sorts emit."""
        yield from self._merge_items(port, self.sorts[port].process_rows(0, batch))

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Emit the rows that the watermark allows, from the sort and then from the merge."""
        assert isinstance(punctuation, Punctuation)
        yield from self._merge_items(port, self.sorts[port].punctuate(0, punctuation))

    def _merge_items(self, port: int, items: Iterable[Item]) -> Iterator[GraphItem]:
        if len(self.sorts) == 1:
            yield from items
            return
        for item in items:
            yield from (
                self.merge.punctuate(port, item)
                if isinstance(item, Punctuation)
                else self.merge.process_rows(port, item)
            )


class OrderedUnion(OrderedMerge):
    """Merge of ordered nodes."""

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[Item]:
        """Process a watermark of a node, which must have one time column."""
        assert isinstance(punctuation, Punctuation)
        yield from super().punctuate(port, punctuation)


class InOrderWindows(CompositeOperator):
    """Windows by an in-order operator. The stages before and after it are the same as in the engine."""

    def __init__(self, node: Windowed, slack: tuple[int, Lateness] | None = None) -> None:
        """Store rows in order.

        With `slack`, process rows in arrival order, and close windows by the largest time so far.
        """
        aggregation = node.aggregation
        assert isinstance(aggregation.window, SlidingWindow), "the question allows only sliding windows"
        self.window = aggregation.window
        self.partials = None if node.merges_partials else RowPartials(node.input, aggregation.low, node.time)
        subs = aggregation.low.subaggregates
        self.windows: BufferingAggregate | SlackAggregate = (
            BufferingAggregate(aggregation.merge_columns, subs, aggregation.window, PANE)
            if slack is None
            else SlackAggregate(aggregation.merge_columns, subs, aggregation.window, *slack, PANE)
        )
        stages, _ = make_stages(aggregation)
        self.stages: list[Operator] = stages
        super().__init__([self.windows, *stages])

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Process rows. Windows may close."""
        for partials in [batch] if self.partials is None else self.partials.compute(batch):
            for item in self.windows.process_rows(0, partials):
                yield from self._finish(item)

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Close windows."""
        assert isinstance(punctuation, Punctuation)
        for item in self.windows.punctuate(0, punctuation):
            yield from self._finish(item)

    def _finish(self, item: Item) -> Iterator[Item]:
        if isinstance(item, Punctuation):
            return
        ends = self.window.end(0) + item.column("wid").to_numpy() * self.window.slide
        columns = [pa.array(ends - self.window.range), pa.array(ends), *item.columns[1:]]
        yield from self._run_stages(
            0, pa.RecordBatch.from_arrays(columns, [WINDOW_START, WINDOW_END, *item.schema.names[1:]])
        )

    def _run_stages(self, stage: int, item: Item) -> Iterator[Item]:
        if stage == len(self.stages) or isinstance(item, Punctuation):
            yield item
            return
        for following in self.stages[stage].process_rows(0, item):
            yield from self._run_stages(stage + 1, following)


class InOrderJoin(CompositeOperator):
    """A join whose pairs are in the order of left times. It has the columns and the watermarks of its node."""

    def __init__(self, node: Join, join: IopJoin | OpibJoin | OpobJoin) -> None:
        """Replace the join of `node` by `join`."""
        self.node, self.join = node, join
        self.times: Sequence[str] = times_of_pairs(node.spec)
        super().__init__([join])

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Process rows of a side."""
        yield from map(self._convert, self.join.process_rows(port, batch))

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Process a watermark of a side."""
        assert isinstance(punctuation, Punctuation)
        yield from map(self._convert, self.join.punctuate(port, punctuation))

    def _convert(self, item: GraphItem) -> GraphItem:
        form = self.node.watermark_form
        if not isinstance(item, pa.RecordBatch):
            assert isinstance(item, Punctuation)
            return self._convert_watermark(form, item.watermark)
        if form not in (WatermarkForm.MAX, WatermarkForm.MIN):
            return item
        left, right = (item.column(name).to_numpy() for name in self.times)
        times = np.maximum(left, right) if form is WatermarkForm.MAX else np.minimum(left, right)
        return item.append_column(MAX_TS if form is WatermarkForm.MAX else MIN_TS, pa.array(times))

    def _convert_watermark(self, form: WatermarkForm, left_watermark: int) -> GraphItem:
        """Convert the watermark of the left time, which defines the order, to the watermarks of the node."""
        if form is WatermarkForm.JOINT:
            return JointPunctuation(UNION, (left_watermark, END))
        if form in (WatermarkForm.LEFT, WatermarkForm.MAX) or left_watermark in (BEGINNING, END):
            return Punctuation(UNION, left_watermark)
        right = int(self.node.spec.window.meets(Port.LEFT, np.array([left_watermark]))[0][0])
        return Punctuation(UNION, right if form is WatermarkForm.RIGHT else min(left_watermark, right))


def in_order_join(node: Join) -> InOrderJoin:
    """Return the join of ordered inputs."""
    return InOrderJoin(node, IopJoin(node.spec))


def opib_join(node: Join) -> InOrderJoin:
    """Return the join with a delay before it."""
    return InOrderJoin(node, OpibJoin(node.spec))


def opob_join(node: Join) -> InOrderJoin:
    """Return the join with a sort after it."""
    return InOrderJoin(node, OpobJoin(node.spec))
