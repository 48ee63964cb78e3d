"""In-order join: both inputs are ordered, and old rows are removed.

Its windows are over a *clock*, the column that defines the order of the rows. The clock is one of two columns:

* The time. Then each input must be sorted first (`SortedJoin`).
* The arrival. Then this is the join of systems that keep "the last RANGE of rows" of each input. It is correct only if
  both inputs are in one global order. If one input is late, the join pairs rows that are minutes apart, and misses
  correct pairs (Li 2008, §5.2.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from highlevel.baselines.chains import Chains
from highlevel.groups.key_words import Words
from highlevel.groups.keys import Keys
from highlevel.joins.join_input import JoinInput
from highlevel.joins.spec import JoinKind, JoinSpec
from highlevel.joins.window import Port
from highlevel.operators.batch_columns import BatchColumns
from highlevel.operators.meld import UNION
from lowlevel.expressions.predicate import Condition
from lowlevel.expressions.tree import columns_of
from lowlevel.expressions.types import Type
from lowlevel.punctuation import BEGINNING, Item, Punctuation

UNUSED_KEYS = 4096
"""Unused keys are removed when there are more than (number of rows + this number) / 2 of them."""


class IopJoin:
    """Join two ordered inputs, and emit pairs.

    Ports are 0 (left) and 1 (right). `clocks`: the names of the clock columns of both inputs, by default the time
    columns.

    Rows whose clock decreases are dropped and counted in `late`. Rows with a NULL key match no row. Emitted watermarks
    are bounds of the left clock. These watermarks follow from the punctuations and the order of the inputs.
    """

    def __init__(self, spec: JoinSpec, clocks: tuple[str, str] | None = None) -> None:
        """Join by `spec`, which must return pairs only."""
        if spec.kind is not JoinKind.INNER:
            raise ValueError(f"got a {spec.kind} join, expected INNER: an in-order join emits pairs only")
        self.spec = spec
        self.clocks = clocks or (spec.left.time, spec.right.time)
        sides = (spec.left, spec.right)
        self.columns = [[name for name, _ in side.columns] for side in sides]
        self.stored = [
            list(dict.fromkeys([clock, *names])) for clock, names in zip(self.clocks, self.columns, strict=True)
        ]
        self.inputs = [JoinInput(spec, port) for port in Port]
        self.keys = Keys(self.inputs[0].kinds)
        self.sides = [Chains(clock) for clock in self.clocks]
        self.bounds = [BEGINNING, BEGINNING]
        self.emitted_watermark = BEGINNING
        self.received = self.late = self.results = 0
        self._residual = None if spec.residual is None else Condition(spec.residual)
        residual = columns_of(spec.residual) if spec.residual is not None else []
        self._macs = {column.name for column in residual if column.type is Type.MAC}

    @property
    def rows_held(self) -> int:
        """Number of stored rows of both sides."""
        return sum(side.rows for side in self.sides)

    @property
    def bytes(self) -> int:
        """Bytes of the rows and their index."""
        return sum(side.bytes for side in self.sides) + (self.keys.bytes if self.spec.keys else 0)

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Join rows with the stored rows of the other side, and store them."""
        self.received += batch.num_rows
        clocks = batch.column(self.clocks[port]).to_numpy()
        ordered = clocks >= np.maximum.accumulate(np.maximum(clocks, self.bounds[port]))
        if not ordered.all():
            self.late += int(np.count_nonzero(~ordered))
            batch, clocks = batch.filter(pa.array(ordered)), clocks[ordered]
        if batch.num_rows == 0:
            return
        bounds = int(clocks[-1])
        arrived, _ = self.inputs[port].read(batch)  # without the rows that have a NULL key
        batch, clocks = arrived.batch.select(self.stored[port]), arrived.batch.column(self.clocks[port]).to_numpy()
        key_ids = self._number_keys(arrived.keys, batch.num_rows)
        yield from self._emit_pairs(Port(port), batch, key_ids, *self.spec.window.meets(Port(port), clocks))
        wanted = int(np.searchsorted(clocks, self.spec.window.expiry_time(Port(port), self.bounds[1 - port])))
        count = max(1, self.keys.count)
        self.sides[port].add(batch.slice(wanted), clocks[wanted:], key_ids[wanted:], count)
        yield from self._advance(Port(port), bounds)

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Remove the rows that later rows of this input cannot match."""
        yield from self._advance(Port(port), punctuation.watermark)

    def _advance(self, port: Port, bound: int) -> Iterator[Item]:
        self.bounds[port] = max(self.bounds[port], bound)
        other = Port(1 - port)
        self.sides[other].expire(self.spec.window.expiry_time(other, self.bounds[port]))
        low = min(self.bounds[Port.LEFT], self.spec.window.expiry_time(Port.LEFT, self.bounds[Port.RIGHT]))
        if low > self.emitted_watermark:
            self.emitted_watermark = low
            yield Punctuation(UNION, low)

    def _number_keys(self, keys: Sequence[pa.Array], rows: int) -> Words:
        """Return the numbers of keys. Before that, remove unused keys if there are many (UNUSED_KEYS)."""
        if not keys:
            return np.zeros(rows, np.int64)
        if 2 * self.keys.count > 3 * self.rows_held + UNUSED_KEYS:
            new_ids = np.zeros(self.keys.count, np.int64)
            for side in self.sides:
                new_ids[side.stored_key_ids()] = 1
            used = np.flatnonzero(new_ids)
            new_ids[used] = np.arange(len(used))
            self.keys = self.keys.copy_of(used)
            for side in self.sides:
                side.renumber_keys(new_ids, len(used))
        return self.keys.find_or_insert(keys, rows)

    def _emit_pairs(
        self, port: Port, batch: pa.RecordBatch, key_ids: Words, lows: Words, highs: Words
    ) -> Iterator[Item]:
        other = Port(1 - port)
        if self.sides[other].rows == 0:
            return
        self.sides[other].reserve_keys(max(1, self.keys.count))
        rows, positions = self.sides[other].probe(key_ids, lows, highs)
        if len(rows) == 0:
            return
        arrived = batch.select(self.columns[port]).take(pa.array(rows)).columns
        stored = self.sides[other].take(positions, self.columns[other])
        pairs = pa.RecordBatch.from_arrays(
            [*arrived, *stored] if port is Port.LEFT else [*stored, *arrived], self.names
        )
        if self._residual is not None:
            pairs = pairs.filter(pa.array(self._residual.true_rows(BatchColumns(pairs, self._macs), pairs.num_rows)))
        self.results += pairs.num_rows
        if pairs.num_rows:
            yield pairs

    @property
    def names(self) -> list[str]:
        """Names of the columns of pairs."""
        return list(self.spec.pairs.names)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the clocks and watermarks, and the rows of both sides with their keys."""
        tables = {"progress": pa.table({"bounds": [*self.bounds, self.emitted_watermark]})}
        for name, side in zip(("left", "right"), self.sides, strict=True):
            if side.rows:
                rows = pa.Table.from_batches(side.buffer.runs())
                for place, key in enumerate(self.keys.columns(side.stored_key_ids())):
                    rows = rows.append_column(f".key{place}", key)
                tables[name] = rows
        return tables

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        *self.bounds, self.emitted_watermark = tables["progress"]["bounds"].to_pylist()
        for port, name in enumerate(("left", "right")):
            for batch in tables[name].to_batches() if name in tables else []:
                keys = [batch.column(f".key{place}") for place in range(len(self.spec.keys))]
                key_ids = self._number_keys(keys, batch.num_rows)
                clocks = batch.column(self.clocks[port]).to_numpy()
                self.sides[port].add(batch.select(self.stored[port]), clocks, key_ids, max(1, self.keys.count))
