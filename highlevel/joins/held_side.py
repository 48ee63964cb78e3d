"""One side of a join: how its batches are read, its stored rows, and its columns in the results."""

from __future__ import annotations

import pyarrow as pa

from highlevel.groups.key_words import Words
from highlevel.joins.cells import Cells
from highlevel.joins.join_input import JoinInput
from highlevel.joins.side_state import SideState
from highlevel.joins.spec import JoinSpec, Port
from lowlevel.expressions.tree import columns_of

Columns = dict[str, pa.Array]
"""Columns of results, by their names."""


class HeldSide:
    """One side. A column is stored once, even if it is the time, a key and a result column."""

    def __init__(self, spec: JoinSpec, port: Port, keys: Cells) -> None:
        """Create an empty side. Columns of the right input that a SEMI or ANTI join does not need are left out."""
        self.input = JoinInput(spec, port)
        self.time = spec.side(port).time
        self.outputs = list(spec.side(port).columns)
        if spec.kind.is_left_only and port is Port.RIGHT:
            needed = {column.name for column in columns_of(spec.residual)} if spec.residual else set()
            self.outputs = [(name, output) for name, output in self.outputs if output in needed]
        names = dict.fromkeys(name for name, _ in self.outputs)
        self.keys = {name: place for name in names if (place := self.input.is_key(name)) is not None}
        self.others = [name for name in names if name != self.time and name not in self.keys]
        kinds = [spec.side(port).schema.field(name).type for name in self.others]
        self.state = SideState(spec.window, keys, kinds, spec.kind.is_left_only and port is Port.LEFT)

    def of_batch(self, batch: pa.RecordBatch, rows: Words | None, only: set[str] | None = None) -> Columns:
        """Return result columns of the given rows of a batch."""
        places = None if rows is None else pa.array(rows)
        return {
            output: batch.column(name) if places is None else batch.column(name).take(places)
            for name, output in self.outputs
            if only is None or output in only
        }

    def of_held(self, rows: Words, only: set[str] | None = None) -> tuple[Words, Columns]:
        """Return the times and result columns of stored rows."""
        outputs = [(name, output) for name, output in self.outputs if only is None or output in only]
        names = {name for name, _ in outputs}
        keys = [name for name in self.keys if name in names and name != self.time]
        others = [name for name in self.others if name in names]
        times, found_keys, found_others = self.state.read(
            rows, [self.keys[name] for name in keys], [self.others.index(name) for name in others]
        )
        found = dict(zip([*keys, *others], [*found_keys, *found_others], strict=True))
        if self.time in names:
            found[self.time] = pa.array(times)
        return times, {output: found[name] for name, output in outputs}
