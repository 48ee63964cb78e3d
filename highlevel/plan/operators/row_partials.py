"""RowPartials: the rows of a node as partials of a low-level plan, so that windows merge them like partials of links.

    row                    pane                           keys                sub-aggregates
    ts, srcIP, len    ──►  floor((ts - origin) / pane)    the expressions     the value of each for this row

Each row becomes one partial for any length of the pane. So the conversion has no state and delays no watermark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.aggregation import LINK
from highlevel.operators.batch_columns import BatchColumns
from highlevel.operators.meld import UNION
from highlevel.plan.nodes import Node, macs_of
from lowlevel.expressions.arrow import arrow_column
from lowlevel.expressions.columns import AnyVector, Columns
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.predicate import Condition
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.plan import LowLevelPlan
from lowlevel.table.inputs import write_argument

TIME = "ts"
"""The column that orders rows for FIRST and LAST."""


class RowPartials:
    """Computes the partial of each row with the plan `low`. The time column `time` contains the rows' times in ns.

    FIRST and LAST use the column `ts`, or `time` if the rows have no `ts`.
    """

    def __init__(self, node: Node, low: LowLevelPlan, time: str, *, has_panes: bool = True) -> None:
        """Make partials of the rows of `node`; without `has_panes` all rows are in pane 0, also rows without a time."""
        self.has_panes = has_panes
        self.low = low
        self.time = time
        self.where = None if low.where is None else Condition(low.where)
        self.macs = macs_of(node)
        names = {column.name for column in node.columns}
        self.has_link = LINK in names
        self.time_column = TIME if TIME in names else time
        self.received = 0
        self.filtered = 0
        self.outside = 0

    def compute(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch as partials. Rows without a time are dropped and counted in `outside`."""
        self.received += batch.num_rows
        if self.where is not None:
            kept = self.where.true_rows(self._columns(batch), batch.num_rows)
            self.filtered += int(np.count_nonzero(~kept))
            batch = pc.filter(batch, array_of(kept))
        nulls = batch.column(self.time).null_count if self.has_panes else 0
        if nulls:
            self.outside += nulls
            batch = pc.filter(batch, pc.is_valid(batch.column(self.time)))
        if batch.num_rows:
            yield self._partials(batch)

    def _partials(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = self._columns(batch)
        links = batch.column(LINK) if self.has_link else pa.repeat(pa.scalar(UNION), batch.num_rows)
        arrays = [links, array_of(self._panes(batch))]
        for key in self.low.keys:
            if isinstance(key.expression, Column) and key.expression.name in batch.schema.names:
                arrays.append(batch.column(key.expression.name))
            else:
                vector = evaluate(key.expression, columns)
                arrays.append(arrow_column(vector, batch.num_rows, key.expression.type))
        for sub in self.low.subaggregates:
            values: npt.NDArray[np.int64] = np.empty(batch.num_rows, np.int64)
            write_argument(sub, columns, values)
            arrays.append(array_of(values.view(np.float64) if sub.type is Type.FLOAT else values))
        return pa.RecordBatch.from_arrays(arrays, schema=self.low.schema)

    def _panes(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        if not self.has_panes:
            return np.zeros(batch.num_rows, np.int64)
        times: npt.NDArray[np.int64] = batch.column(self.time).to_numpy()
        return (times - self.low.origin) // self.low.pane

    def _columns(self, batch: pa.RecordBatch) -> Columns:
        return ColumnsWithTime(BatchColumns(batch, self.macs), self.time_column)


class ColumnsWithTime(Mapping[str, AnyVector]):
    """Columns, one of which is also available as `ts`."""

    def __init__(self, columns: Columns, time: str) -> None:
        """Make `time` available as `ts`."""
        self._columns = columns
        self._time = time

    def __getitem__(self, name: str) -> AnyVector:
        return self._columns[self._time if name == TIME else name]

    def __iter__(self) -> Iterator[str]:
        return iter({TIME: None} | dict.fromkeys(self._columns))

    def __len__(self) -> int:
        return len(set(self._columns) | {TIME})
