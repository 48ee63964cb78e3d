"""ChangingJoin: a join over changes.

    changes of a side ──► content of the side ──┐   rows with the keys of the changes, before and after
    content of the other side ──────────────────┴─► Join of them, before and after ──► changes of the results

Only results with the keys of the changed rows can change. A join only copies values. So the results that it computes
for the rows before the change are exactly the rows that were returned. The weight of a pair is the product of the
weights of its rows, because the join receives each row as often as its weight states. This holds for all kinds of
joins. For example, a row without a match is withdrawn when its match arrives, and is returned again when the match is
withdrawn.

A row is deleted if no later change can affect its results, or the results of a row that it matches. Let L and R be the
bounds of final results by left and by right rows (`highlevel.joins.watermarks`). A left row below
`expiry_time(left, R)` matches only right rows below R. So a left row that is also below L is deleted. The same holds
for right rows. A remaining row may match deleted rows only if its own results are final; these are then equal before
and after each change.

With WAIT, a result is stored until the newest row is WAIT later than the result. The time of the newest row is the
watermark plus REMEMBER, even if no input of the join contains this row. Changes that cancel each other until then are
not returned. This is the operator Align of CEDR (Goldstein et al., §3.5), applied after the join. So a row whose match
arrives in time is never returned as a row without a match. Two inputs over the same packets publish a window one after
the other. With `aligned`, the join waits for the second input, so the rows of the first input are not returned as rows
without a match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.joins.spec import JoinKind, Port, Tumbling
from highlevel.joins.watermarks import output_bounds
from highlevel.operators.batch_columns import BatchColumns
from highlevel.operators.meld import UNION
from highlevel.plan.change_nodes import ChangingJoin, RowsOfChanges, implies_watermark
from highlevel.plan.nodes import Join, macs_of
from highlevel.plan.operators.group_numbers import number_groups
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, NodeOperator, bounds_of, times_of
from highlevel.plan.partitioning import comparable
from highlevel.speculation.changes import Weights, make_changes, net_changes, split_changes
from highlevel.speculation.consistency import WEIGHT
from highlevel.speculation.waiting_rows import WaitingRows
from highlevel.speculation.weighted_rows import WeightedRows
from lowlevel.expressions.arrow import arrow_column
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.tree import Expression
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END, Punctuation

LEFT, RIGHT, WAITING, STATE = "left", "right", "waiting", "state"
"""Tables of a snapshot: the content of both sides, the changes that wait, and the times."""

KEY_PREFIX = ".key"
"""Prefix of the names of columns with keys. No column of a query has such a name."""

Mask = npt.NDArray[np.bool_]


class JoinContent:
    """The rows of one side of a join, with columns for the keys."""

    def __init__(self, node: ChangingJoin, port: Port) -> None:
        """Store no rows yet."""
        changes = node.inputs[port]
        body = RowsOfChanges(changes)
        self.port = port
        self.time = node.spec.side(port).time
        self.implies_watermark = implies_watermark(changes)
        self._macs = macs_of(body)
        self._window = node.spec.window
        pairs = [(pair[port], pair[1 - port]) for pair in node.spec.keys]
        self._keys: list[Expression] = [comparable(key, other) for key, other in pairs]
        fields = [pa.field(column.name, ARROW_TYPES[column.type]) for column in body.columns]
        self.schema = pa.schema(fields)
        keys = [pa.field(f"{KEY_PREFIX} {number}", ARROW_TYPES[key.type]) for number, key in enumerate(self._keys)]
        if self._has_time_key:
            keys.append(pa.field(f"{KEY_PREFIX} time", pa.int64()))
        self.keys = tuple(field.name for field in keys)
        self.rows = WeightedRows(pa.schema([*fields, *keys]))

    @property
    def _has_time_key(self) -> bool:
        """True if rows match only if a function of their times has equal values."""
        window = self._window
        return isinstance(window, Tumbling) or window.low == window.high == 0

    def with_keys(self, rows: pa.Table) -> pa.Table:
        """Return rows with the columns of their keys."""
        (batch,) = rows.combine_chunks().to_batches()
        columns = BatchColumns(batch, self._macs)
        keys = [arrow_column(evaluate(key, columns), batch.num_rows, key.type) for key in self._keys]
        if self._has_time_key:
            times = times_of(batch.column(self.time))
            if isinstance(window := self._window, Tumbling):
                shift = window.shift if self.port is Port.LEFT else 0
                times = (times - window.origin) // window.length + shift
            keys.append(array_of(times))
        for name, key in zip(self.keys, keys, strict=True):
            rows = rows.append_column(name, key)
        return rows

    def mask_of_keys(self, keys: pa.Table) -> Mask:
        """Return a mask of the stored rows that have one of the `keys`."""
        rows, _ = self.rows.content
        if not self.keys:
            return np.ones(rows.num_rows, np.bool_)
        numbers = number_groups(pa.concat_tables([rows.select(self.keys), keys]), self.keys)
        return np.isin(numbers[: rows.num_rows], numbers[rows.num_rows :])

    def times(self) -> npt.NDArray[np.int64]:
        """Return the times of the content."""
        return times_of(self.rows.content[0].column(self.time).combine_chunks())


class ChangingJoinOperator:
    """Joins the content of both sides. It has the counters of a join."""

    def __init__(self, node: ChangingJoin, make: Callable[[Join], NodeOperator]) -> None:
        """Join with operators that `make` returns for a Join."""
        left, right = (RowsOfChanges(changes) for changes in node.inputs)
        self._join = Join(left, right, node.spec, node.watermark_form)
        self._make = make
        self._spec, self._form = node.spec, node.watermark_form
        self._wait, self._remember = node.consistency.wait, node.consistency.remember
        self._aligned = node.aligned
        self._sides = [JoinContent(node, port) for port in Port]
        (self._result_time,) = node.time_columns
        self._schema = pa.schema([(column.name, ARROW_TYPES[column.type]) for column in self._join.columns])
        self._waiting = WaitingRows(self._schema.append(pa.field(WEIGHT, pa.int64())), self._result_time)
        self._input_watermarks = [BEGINNING, BEGINNING]
        self._newest = [BEGINNING, BEGINNING]
        self._watermark = BEGINNING
        self.received = 0
        self.stored = 0
        self.pairs = 0
        self.results = 0
        """Changes returned."""
        self.late = 0

    @property
    def rows_held(self) -> int:
        """Number of stored rows of both sides."""
        return sum(side.rows.num_rows for side in self._sides)

    @property
    def bytes(self) -> int:
        """Bytes of the stored rows and changes."""
        return self._waiting.nbytes + sum(side.rows.bytes for side in self._sides)

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Add changes of a side. Return the changes of the results."""
        self.received += batch.num_rows
        rows, weights, final = split_changes(batch)
        side = self._sides[port]
        times = times_of(batch.column(side.time))
        in_time = times >= self._input_watermarks[port]
        self.late += int(np.count_nonzero(~in_time))
        if in_time.any():
            changes, changed_weights = self._revise(side, rows.filter(pa.array(in_time)), weights[in_time])
            self._waiting.add(changes.append_column(WEIGHT, array_of(changed_weights)))
        self._newest[port] = max(self._newest[port], int(times[times < END].max(initial=BEGINNING)))
        final_times = times[in_time & final & (times < END)]
        if len(final_times) and side.implies_watermark:
            yield from self._advance(port, int(final_times.max()) + 1)
        elif not final.all():  # otherwise the watermark follows
            yield from self._release()

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Return the changes of results that become final, and then the watermark."""
        (low,) = bounds_of(punctuation, 1)
        yield from self._advance(port, low)

    def _revise(self, side: JoinContent, rows: pa.Table, weights: Weights) -> tuple[pa.Table, Weights]:
        """Add changes to a side. Return the changes of the results and their weights."""
        rows = side.with_keys(rows)
        self.stored += rows.num_rows
        partner = self._sides[1 - side.port]
        keys = rows.select(side.keys).rename_columns(list(side.keys))
        matching = partner.rows.repeated(partner.mask_of_keys(keys)).select(partner.schema.names)
        if self._spec.kind in (JoinKind.INNER, JoinKind.SEMI) and not matching.num_rows:
            side.rows.add(rows, weights)
            return self._schema.empty_table(), np.zeros(0, np.int64)
        before = side.rows.repeated(side.mask_of_keys(keys)).select(side.schema.names)
        side.rows.add(rows, weights)
        after = side.rows.repeated(side.mask_of_keys(keys)).select(side.schema.names)
        old, new = (self._results(side.port, own, matching) for own in (before, after))
        return net_changes(old, new)

    def _results(self, port: Port, own: pa.Table, matching: pa.Table) -> pa.Table:
        """Return the results of joining `own`, rows of side `port`, with `matching`, rows of the other side."""
        operator = self._make(self._join)
        items: list[GraphItem] = []
        for number, rows in ((port, own), (1 - port, matching)):
            for batch in rows.combine_chunks().to_batches():
                items += operator.process_rows(number, batch)
        for number in Port:
            items += operator.punctuate(number, Punctuation(UNION, END))
        self.pairs += getattr(operator, "pairs", 0)
        batches = [
            pa.RecordBatch.from_arrays(item.columns, schema=self._schema)
            for item in items
            if isinstance(item, pa.RecordBatch)
        ]
        return pa.Table.from_batches(batches, self._schema).combine_chunks()

    def _advance(self, port: int, low: int) -> Iterator[GraphItem]:
        """Process a watermark of a side. Return the changes that are due, and the watermark if it has grown."""
        grown = low > self._input_watermarks[port]
        if grown:
            self._input_watermarks[port] = low
            if self._remember is not None and BEGINNING < low < END:
                self._newest[port] = max(self._newest[port], low + self._remember)
            self._delete()
        watermark = output_bounds(self._spec, self._form, (self._input_watermarks[0], self._input_watermarks[1]))[0]
        has_progress = watermark > self._watermark
        self._watermark = watermark
        yield from self._release()
        if has_progress:
            yield Punctuation(UNION, watermark)

    def _delete(self) -> None:
        """Delete the rows that no later change can affect."""
        window, (left, right) = self._spec.window, self._input_watermarks
        bounds = (min(left, window.expiry_time(Port.LEFT, right)), min(right, window.expiry_time(Port.RIGHT, left)))
        for side in self._sides:
            bound = min(bounds[side.port], window.expiry_time(side.port, bounds[1 - side.port]))
            deleted = side.times() < bound if bound != END else np.ones(len(side.times()), np.bool_)
            if deleted.any():
                side.rows.remove(deleted)

    @property
    def _clock(self) -> int:
        """The newest time of a row.

        With `aligned`: the newest time that both sides have reached or one side has passed.
        """
        first, last = sorted(self._newest)
        return max(first, last - 1) if self._aligned and last > BEGINNING else last

    def _release(self) -> Iterator[pa.RecordBatch]:
        """Return the changes that are final, or have waited for WAIT."""
        before = self._watermark
        if self._wait is not None and self._clock > BEGINNING and before != END:
            before = max(before, self._clock - self._wait + 1)
        due = self._waiting.take_before(before)
        if not due.num_rows:
            return
        content = WeightedRows(self._schema)
        content.add(due.drop_columns([WEIGHT]), due.column(WEIGHT).to_numpy())
        rows, weights = content.content
        order = array_of(np.argsort(weights > 0, kind="stable"))
        rows, weights = pc.take(rows, order), weights[order.to_numpy()]
        self.results += rows.num_rows
        times = times_of(rows.column(self._result_time).combine_chunks())
        yield from make_changes(rows, weights, times < self._watermark)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the content of both sides, the changes that wait, and the times."""
        left, right = (side.rows.snapshot() for side in self._sides)
        times = {"left": [self._input_watermarks[0]], "right": [self._input_watermarks[1]]}
        newest = {"newest left": [self._newest[0]], "newest right": [self._newest[1]]}
        state = pa.table({**times, **newest, "watermark": [self._watermark]})
        return {LEFT: left, RIGHT: right, WAITING: self._waiting.snapshot(), STATE: state}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        (state,) = tables[STATE].to_pylist()
        self._input_watermarks = [state["left"], state["right"]]
        self._newest, self._watermark = [state["newest left"], state["newest right"]], state["watermark"]
        for side, name in zip(self._sides, (LEFT, RIGHT), strict=True):
            side.rows.restore(tables[name])
        self._waiting.restore(tables[WAITING])
