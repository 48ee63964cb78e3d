"""Two stacks: a sliding window over panes for aggregates that cannot be undone.

    front: 5+6+7  6+7  7 | back: 8+9        window 9 of five panes = (5+6+7) + (8+9)
                  6+7  7 | back: 8+9+10     window 10              = (6+7) + (8+9+10)

A new pane is merged into the back. When the first pane of the back leaves the window, the front is empty. Then the back
becomes the new front: its panes are merged from the last to the first, and the result of each step is stored. The steps
are layers (`highlevel.groups.layer`) over the IDs of one set of keys, so a window is the merge of two layers without a
look-up.

All steps of a window with n panes would need n times the memory of its groups. So only the steps at √n positions are
stored. The steps between two positions are computed when the first of them is needed. This needs three merges per pane
and 2·√n layers.

A buffer that arrives later, and ends before the front does, is merged into the steps that contain it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import isqrt
from operator import itemgetter

import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.groups.keys import Keys
from highlevel.groups.layer import Layer
from highlevel.groups.merging import MergeRule
from highlevel.groups.running_totals import Key
from highlevel.groups.table import batch_of, merged_schema
from lowlevel.subaggregates import INT_MAX

MergeBuffer = tuple[int, pa.RecordBatch]
"""The ID of the first window after the merge buffer has left, and the partials of the buffer."""


@dataclass(slots=True)
class Block:
    """Buffers of the front without stored steps: their largest end, the buffers, the merge of all later buffers."""

    end: int
    buffers: list[MergeBuffer]
    later: Layer


class TwoStacks:
    """Merged groups of the added buffers. Buffers arrive in any order and leave in the order of their ends."""

    def __init__(self, schema: pa.Schema, groups: Sequence[str], merge_rules: Sequence[MergeRule]) -> None:
        """Create empty stacks. `schema` is the schema of the merge buffers."""
        self.schema = merged_schema(schema, groups, merge_rules)
        self.groups = list(groups)
        self.merge_rules = list(merge_rules)
        self.front: list[tuple[int, Layer]] = []  # (end, merge of buffers with this or a later end), greatest end first
        self.blocks: list[Block] = []  # greatest ends first
        self.back_buffers: list[MergeBuffer]
        self._clear()

    def _clear(self) -> None:
        """Remove all groups."""
        self.keys = Keys([self.schema.field(name).type for name in self.groups])
        self.back = Layer(self.schema, self.merge_rules, counts_rows=True)
        self.back_buffers = []
        self.back_end = INT_MAX  # the first window that lacks a buffer of the back

    @property
    def bytes(self) -> int:
        """Bytes of all layers and of the groups, without the merge buffers."""
        layers = [self.back, *(layer for _, layer in self.front), *(block.later for block in self.blocks)]
        return self.keys.bytes + sum(layer.bytes for layer in layers)

    def add(self, key: Key, batch: pa.RecordBatch) -> None:
        """Add a merge buffer."""
        end = key[1]
        front_end = self.blocks[0].end if self.blocks else self.front[0][0] if self.front else None
        if front_end is None or end > front_end:
            self.back_buffers.append((end, batch))
            self.back_end = min(self.back_end, end)
            self._merge([self.back], batch)
        else:
            self._merge(self._steps_with(end, batch), batch)

    def _steps_with(self, end: int, batch: pa.RecordBatch) -> list[Layer]:
        """Return the layers of the front that contain a buffer. Before that, create its step or add it to its block."""
        steps = [layer for other, layer in self.front if other <= end]
        if self.front and end < self.front[0][0]:
            position = len(self.front) - len(steps)
            if not steps or self.front[position][0] != end:
                layers = self.front[position - 1][1].copy()
                self.front.insert(position, (end, layers))
                steps.append(layers)
            return steps
        for block in reversed(self.blocks):
            if end <= block.end and (not self.front or end > self.front[0][0]):
                block.buffers.append((end, batch))
                break
            if end > block.end:
                steps.append(block.later)
        return steps

    def remove_before(self, wid: int) -> bool:
        """Remove the buffers that end by window `wid`. Return True if there were any."""
        before = len(self.front)
        while self.front and self.front[-1][0] <= wid:
            self.front.pop()
        gone = len(self.front) < before
        while not self.front and self.blocks:
            self._make_steps(self.blocks.pop(), wid)
        if not self.front and self.back_end <= wid:
            self._move_back_to_front(wid)
            return True
        return gone

    def rows(self) -> pa.RecordBatch:
        """Return the groups that have rows."""
        layer = self.back
        if self.front:
            layer = layer.copy()
            layer.merge_layer(self.front[-1][1])
        count = self.keys.count
        ids = layer.groups_with_rows(count)
        return batch_of(self.schema, [*self.keys.columns(ids), *layer.columns(ids, count)])

    def _move_back_to_front(self, wid: int) -> None:
        """Make a new front from the buffers of the back that window `wid` or later windows contain.

        Other groups are removed.
        """
        buffers = sorted(((end, batch) for end, batch in self.back_buffers if end > wid), key=itemgetter(0))
        self._clear()
        ends = sorted({end for end, _ in buffers})
        size = max(1, isqrt(len(ends)))
        later = self.back.copy()
        for first in reversed(range(0, len(ends), size)):
            chunk = ends[first : first + size]
            chunk_piles = [(end, batch) for end, batch in buffers if chunk[0] <= end <= chunk[-1]]
            self.blocks.append(Block(chunk[-1], chunk_piles, later.copy()))
            for _, batch in chunk_piles if first else ():
                self._merge([later], batch)
        if self.blocks:
            self._make_steps(self.blocks.pop(), wid)

    def _make_steps(self, block: Block, wid: int) -> None:
        """Make the steps of the next block, from the greatest end to the smallest end after window `wid`."""
        layer = block.later
        buffers = sorted((buffer for buffer in block.buffers if buffer[0] > wid), key=itemgetter(0), reverse=True)
        for end, same in groupby(buffers, key=itemgetter(0)):
            for _, batch in same:
                self._merge([layer], batch)
            self.front.append((end, layer.copy()))

    def _merge(self, layers: list[Layer], batch: pa.RecordBatch) -> None:
        ids = self.keys.find_or_insert([batch.column(name) for name in self.groups], batch.num_rows)
        for layer in layers:
            layer.merge(ids, batch, self.keys.capacity)
