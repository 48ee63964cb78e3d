"""ChangingResults of a node whose results depend on several windows.

These are FILL, CLOSING WHEN, MATCH_RECOGNIZE, and OVER that compares windows.

    final rows ────────► the body ──────────────► final results ──┬──► new results
    other rows ────────► a copy of the body ────► other results ──┘       changes to the results returned before

The body receives only final rows, so it never withdraws a result. After each change, a copy of the body receives all
other rows too, and then the end of the input. This copy returns the results that are not final. So each change needs
the computation of all rows that are not final. REMEMBER limits their number.

If all functions of OVER have a common column in PARTITION BY, a change affects only rows with the same value of
this column. Then only the partitions with changes, and partitions with rows that became final, are computed again. For
this purpose, the body also returns the columns of the partition. The same is done for the partitions of
MATCH_RECOGNIZE, including partitions whose matches became final.

If the functions of OVER have no common partition, but all frames are bounded, only some rows are computed again: those
whose frames can contain a changed row (`bounded_frames`).

The rows of a group of FILL depend on the rows of the group, and on the last window of all groups. So only the changed
groups, and one group with the last window, are computed again, as long as the last window remains and no window becomes
final. FILL limits the groups and the rows of a gap. If a limit can be reached, all groups are computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from highlevel.aggregation import Output
from highlevel.groups.ids import NO_GROUP
from highlevel.groups.keys import Keys
from highlevel.operators.meld import UNION
from highlevel.operators.state import restore_to, snapshot_of
from highlevel.plan.answer_nodes import Fill, Over
from highlevel.plan.change_nodes import ChangingResults, implies_watermark
from highlevel.plan.nodes import Node
from highlevel.plan.operators.bounded_frames import bounded_frames
from highlevel.plan.operators.changing_results import compute, result_table
from highlevel.plan.operators.fill import END_WITH_ROWS, MAX_GAP_ROWS, MAX_GROUPS
from highlevel.plan.operators.group_numbers import number_groups
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, NodeOperator, bounds_of, times_of
from highlevel.plan.pattern_nodes import Matches
from highlevel.speculation.changes import make_changes, net_changes, split_changes
from highlevel.speculation.weighted_rows import Mask, WeightedRows
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END, Punctuation

ROWS, RESULTS, CHANGED, STATE = "rows", "results", "changed", "state"
"""Tables of a snapshot: the rows that are not final, the results that are not final, the partitions of rows that have
changed since the results were computed, and the watermarks."""

PARTITION_PREFIX = ".partition "
"""Prefix of the names of the columns with the partition of a result. No column of a query has such a name."""

BODY_PREFIX = "body "
"""Prefix of the names of the tables with the state of the body."""


def common_partition(body: Node) -> tuple[str, ...]:
    """Return the common PARTITION BY columns of the functions of OVER.

    For MATCH_RECOGNIZE they are its PARTITION BY columns, for FILL the columns of the groups. Other nodes have none.
    """
    if isinstance(body, Fill | Matches):
        return body.keys
    if not isinstance(body, Over):
        return ()
    first, *others = (function.partition for function in body.functions)
    return tuple(name for name in first if all(name in partition for partition in others))


class ChangingHistoryOperator:
    """Stores the rows and results that are not final, and the body."""

    def __init__(self, node: ChangingResults, make: Callable[[Node], NodeOperator]) -> None:
        """Compute the results with operators that `make` returns for the body."""
        (changes,) = node.inputs
        body, self._partition = node.body, common_partition(node.body)
        kinds = {column.name: column for column in body.inputs[0].columns}
        self._has_matches = isinstance(body, Matches)
        self._fill = body if isinstance(body, Fill) and body.keys else None
        self._frames = None if self._partition else bounded_frames(body)
        self._last_end: int | None = None  # the last window of FILL at the last computation
        self._result_partition = [
            PARTITION_PREFIX + name if isinstance(body, Over) else name for name in self._partition
        ]
        if isinstance(body, Fill):
            body = replace(body, hidden=())
        elif isinstance(body, Over):
            outputs = (Output(PARTITION_PREFIX + name, kinds[name]) for name in self._partition)
            body = replace(body, outputs=(*body.outputs, *outputs))
        self._make = partial(make, body)
        self._body = self._make()
        self._visible = [column.name for column in node.body.columns]
        self._partition_types = [ARROW_TYPES[kinds[name].type] for name in self._partition]
        self._time, self._result_time = changes.time_columns[0], node.time_columns[0]
        self._changed_columns = self._partition if self._frames is None else (self._time,)
        self._step = node.step
        self._implies_watermark = implies_watermark(changes)
        columns = [(column.name, ARROW_TYPES[column.type]) for column in node.body.inputs[0].columns]
        self._schema = pa.schema([(column.name, ARROW_TYPES[column.type]) for column in body.columns])
        self._rows = WeightedRows(pa.schema(columns))
        self._changed: list[pa.Table] = []
        self._results: pa.Table = self._schema.empty_table()
        self._input_watermark = self._watermark = BEGINNING
        self.received = 0
        self.results = 0
        """Changes returned."""
        self.late = 0

    @property
    def overflowed_sums(self) -> int:
        """Sums in final results that are NULL, because they exceed 64 bits."""
        return int(getattr(self._body, "overflowed_sums", 0))

    @property
    def skip_errors(self) -> int:
        """Final matches of the body without a row to which AFTER MATCH SKIP TO can go."""
        return int(getattr(self._body, "skip_errors", 0))

    @property
    def rows_held(self) -> int:
        """Number of stored rows."""
        return self._rows.num_rows

    @property
    def bytes(self) -> int:
        """Bytes of the stored rows and results, and of the body."""
        return self._rows.bytes + self._results.nbytes + self._body.bytes

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Add changes. Return the changes of the results."""
        self.received += batch.num_rows
        rows, weights, final = split_changes(batch)
        times = times_of(batch.column(self._time))
        in_time = (times >= self._input_watermark) & (times < END)
        self.late += int(np.count_nonzero(~in_time))
        changed = rows.filter(pa.array(in_time))
        self._rows.add(changed, weights[in_time])
        self._changed.append(changed.select(self._changed_columns))
        low = int(times[in_time & final].max(initial=BEGINNING))
        if low != BEGINNING and self._implies_watermark:
            yield from self._advance(UNION, low + self._step)
        elif not final.all():  # otherwise the watermark follows
            yield from self._revise(self._schema.empty_table())

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Return the changes of results that become final, and then the watermark."""
        (low,) = bounds_of(punctuation, 1)
        if low > self._input_watermark:
            yield from self._advance(punctuation.link, low)

    def _advance(self, link: str, low: int) -> Iterator[GraphItem]:
        """Move the rows below a watermark to the body."""
        self._input_watermark = low
        times = times_of(self._rows.content[0].column(self._time).combine_chunks())
        final = times < low
        moved = self._rows.repeated(final)
        if self._frames is None:
            self._changed.append(moved.select(self._partition))
        items = [item for batch in moved.to_batches() for item in self._body.process_rows(0, batch)]
        self._rows.remove(final)
        items += self._body.punctuate(0, Punctuation(link, low))
        progress = [item for item in items if isinstance(item, Punctuation)]
        self._watermark = max([self._watermark, *(item.watermark for item in progress)])
        yield from self._revise(result_table(items, self._schema))
        yield from progress

    def _revise(self, final: pa.Table) -> Iterator[pa.RecordBatch]:
        """Return the changes to the last results.

        `final`: the results that the body has returned since the last call.
        """
        changed, self._changed = self._changed, []
        is_old, results = (
            self._compute_partitions(final, changed) if self._frames is None else self._compute_span(changed)
        )
        old, kept = self._results.filter(pa.array(is_old)), self._results.filter(pa.array(~is_old))
        new = pa.concat_tables([final, results])
        rows, weights = net_changes(old.select(self._visible), new.select(self._visible))
        self._results = pa.concat_tables([kept, results]).combine_chunks()
        self.results += rows.num_rows
        is_final = times_of(rows.column(self._result_time).combine_chunks()) < self._watermark
        yield from make_changes(rows, weights, is_final)

    def _compute_partitions(self, final: pa.Table, changed: list[pa.Table]) -> tuple[Mask, pa.Table]:
        """Compute the results of changed partitions.

        Return a mask of the results that they replace, and the new results.
        """
        if self._has_matches:
            changed.append(final.select(self._partition))
        if self._fill is not None and not self._has_independent_groups(self._fill, final, changed):
            is_changed = PartitionSelection((), ())
        else:
            is_changed = PartitionSelection(changed, self._partition_types)
        results = self._schema.empty_table()
        if self._input_watermark != END:
            copy = self._make()
            tables = self._body.snapshot()
            if not self._has_matches:
                tables = {name: is_changed.rows_of(table, self._partition) for name, table in tables.items()}
            copy.restore(tables)
            if self._has_matches and self._partition:
                body = cast(PartitionedOperator, copy)
                body.forget_partitions(~is_changed.mask_of(body.partitions, self._partition))
            chosen = is_changed.mask_of(self._rows.content[0], self._partition)
            results = compute(copy, [self._rows.repeated(chosen)], self._schema)
        return is_changed.mask_of(self._results, self._result_partition), results

    def _compute_span(self, changed: list[pa.Table]) -> tuple[Mask, pa.Table]:
        """Compute the results whose frames have changed.

        Return a mask of the results that they replace, and the new results.

        The results of the body replace the results of rows that have become final.
        """
        assert self._frames is not None
        result_times = times_of(self._results.column(self._result_time).combine_chunks())
        is_old = result_times < self._input_watermark
        changed_times = np.concatenate([_times(table, self._time) for table in changed] or [result_times[:0]])
        if not len(changed_times) or self._input_watermark == END:
            return is_old, self._schema.empty_table()
        stored, weights = self._rows.content
        times = _times(stored, self._time)
        span = self._frames.find_span(times[weights > 0], int(changed_times.min()), int(changed_times.max()))
        is_old |= (result_times >= span.first) & (result_times <= span.last)
        copy = self._make()
        copy.restore(self._body.snapshot())
        rows = self._rows.repeated((times >= span.read_from) & (times <= span.last))
        results = compute(copy, [rows], self._schema)
        return is_old, results.filter(pa.array(_times(results, self._result_time) >= span.first))

    def _has_independent_groups(self, fill: Fill, final: pa.Table, changed: list[pa.Table]) -> bool:
        """Return True if only the groups in `changed` can have other results.

        Add a group with the last window to `changed`.
        """
        rows = self._rows.content[0]
        ends = times_of(rows.column(self._time).combine_chunks())
        before, self._last_end = self._last_end, int(ends.max()) if len(ends) else None
        if self._last_end is None or self._last_end != before or final.num_rows or self._input_watermark == END:
            return False
        changed.append(rows.slice(int(ends.argmax()), 1).select(self._partition))
        groups = int(number_groups(self._results, fill.keys).max(initial=-1)) + 1
        (end_with_rows,) = self._body.snapshot()[STATE][END_WITH_ROWS].to_pylist()
        first = int(ends.min()) if end_with_rows is None else min(int(ends.min()), end_with_rows)
        windows = (self._last_end - first) // fill.window.slide + 1
        return groups < MAX_GROUPS and (groups + 1) * windows <= MAX_GAP_ROWS

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the rows and results that are not final, the watermarks, and the state of the body."""
        body = {f"{BODY_PREFIX}{name}": table for name, table in snapshot_of([self._body]).items()}
        last_end = pa.array([self._last_end], pa.int64())
        state = pa.table({"low": [self._input_watermark], "watermark": [self._watermark], "last end": last_end})
        tables = {STATE: state, ROWS: self._rows.snapshot(), RESULTS: self._results, **body}
        has_changed = self._changed_columns and self._changed
        return tables | ({CHANGED: pa.concat_tables(self._changed)} if has_changed else {})

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        (state,) = tables[STATE].to_pylist()
        self._input_watermark, self._watermark = state["low"], state["watermark"]
        self._last_end = state["last end"]
        self._rows.restore(tables[ROWS])
        self._results = tables[RESULTS].cast(self._schema)
        self._changed = [tables[CHANGED]] if CHANGED in tables else []
        body = {name.removeprefix(BODY_PREFIX): table for name, table in tables.items() if name.startswith(BODY_PREFIX)}
        restore_to([self._body], body)


class PartitionedOperator(Protocol):
    """An operator that stores runs by partition."""

    @property
    def partitions(self) -> pa.Table:
        """The columns of the known partitions."""
        ...

    def forget_partitions(self, is_forgotten: npt.NDArray[np.bool_]) -> None:
        """Remove the runs of the partitions in the mask `is_forgotten`."""
        ...


class PartitionSelection:
    """Selects the rows of some partitions; all rows if there are no partition columns."""

    def __init__(self, changed: Sequence[pa.Table], types: Sequence[pa.DataType]) -> None:
        """Choose the partitions of the rows in `changed`.

        `changed`: tables with the columns of the partition, whose types are `types`.
        """
        self._keys = Keys(types) if types else None
        if self._keys is not None:
            for table in changed:
                self._keys.find_or_insert(_columns(table, table.column_names), table.num_rows)

    def mask_of(self, rows: pa.Table, names: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows that are in the partitions. `names`: their partition columns."""
        if self._keys is None:
            return np.ones(rows.num_rows, np.bool_)
        found: npt.NDArray[np.bool_] = self._keys.find(_columns(rows, names), rows.num_rows) != NO_GROUP
        return found

    def rows_of(self, table: pa.Table, names: Sequence[str]) -> pa.Table:
        """Return the rows of a snapshot table that are in the partitions.

        A table without partition columns is not changed.
        """
        if self._keys is None or not set(names) <= set(table.column_names):
            return table
        return table.filter(pa.array(self.mask_of(table, names)))


def _times(table: pa.Table, column: str) -> npt.NDArray[np.int64]:
    return times_of(table.column(column).combine_chunks())


def _columns(table: pa.Table, names: Sequence[str]) -> list[pa.Array]:
    return [table.column(name).combine_chunks() for name in names]
