"""A reducer converts the rows of one plan on one link into partials, with tables or without aggregation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from lowlevel.expressions.arrow import arrow_column
from lowlevel.expressions.columns import COPY_DIVISOR, ChosenRows, Columns, Vector
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.predicate import Condition
from lowlevel.expressions.types import Type
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import BEGINNING, END
from lowlevel.rows.readers import Rows
from lowlevel.table.budget import TableBudget
from lowlevel.table.flushing import Flushing
from lowlevel.table.inputs import write_argument
from lowlevel.table.query_tables import QueryTables
from lowlevel.table.spread import Spreader
from lowlevel.table.table import Tally

# Some windows depend on the number or the exact times of rows, so they need all rows. Then each row is a partial in a
# pane of 1 ns. The high level handles such partials like all others. They are written immediately and in order.


class QueryRows:
    """The reducer of a plan that needs all rows: each row becomes a partial. No rows are stored. Not thread safe."""

    def __init__(self, link: str, plan: LowLevelPlan) -> None:
        """Raises ValueError for a plan with tables or with SPREAD."""
        if plan.reduced or plan.spread or plan.pane != 1 or plan.origin != 0:
            raise ValueError(f"expected a plan of single rows, without SPREAD and in panes of 1 ns, got {plan}")
        self.link = link
        self.plan = plan
        self.where = None if plan.where is None else Condition(plan.where)
        self.calls_user_functions = plan.calls_user_functions
        self.spreader: Spreader | None = None  # rows are not spread over panes
        self.watermark = BEGINNING
        self.accepted = 0
        self.filtered = 0

    @property
    def bytes(self) -> int:
        """Memory in bytes: 0."""
        return 0

    @property
    def tally(self) -> Tally:
        """Return the counters: rows written as partials."""
        return Tally(direct=self.accepted)

    def add(self, rows: Rows, newest: int = END) -> Sequence[pa.RecordBatch]:
        """Return the rows that pass WHERE, as one batch of partials."""
        if rows.count == 0:
            return ()
        chosen = None if self.where is None else self.where.true_rows(rows.columns, rows.count)
        accepted = rows.count if chosen is None else int(np.count_nonzero(chosen))
        self.accepted += accepted
        self.filtered += rows.count - accepted
        if not accepted:
            return ()
        if chosen is None or accepted == rows.count:
            return (self._partials(rows.columns, rows.count),)
        if self.calls_user_functions or accepted * COPY_DIVISOR <= rows.count:
            return (self._partials(ChosenRows(rows.columns, np.flatnonzero(chosen)), accepted),)
        return (pc.filter(self._partials(rows.columns, rows.count), array_of(chosen)),)

    def _partials(self, rows: Columns, count: int) -> pa.RecordBatch:
        times = rows["ts"]
        assert isinstance(times, Vector)
        columns = [pa.repeat(pa.scalar(self.link), count), array_of(times.data.copy())]
        columns += [arrow_column(evaluate(key.expression, rows), count, key.expression.type) for key in self.plan.keys]
        for sub in self.plan.subaggregates:
            values: npt.NDArray[np.int64] = np.empty(count, np.int64)
            write_argument(sub, rows, values)
            columns.append(array_of(values.view(np.float64) if sub.type is Type.FLOAT else values))
        return pa.RecordBatch.from_arrays(columns, schema=self.plan.schema)

    def advance_watermark(self, watermark: int, is_idle: bool = False) -> Iterator[pa.RecordBatch]:
        """Accept a watermark. Yield no partials."""
        self.watermark = max(self.watermark, watermark)
        return iter(())

    def flush_all(self) -> Iterator[pa.RecordBatch]:
        """Yield no partials, because no rows are stored."""
        return iter(())


class QueryReducer(Protocol):
    """Interface of reducers, which convert the rows of one plan on one link into partials. Not thread safe.

    `watermark` is the watermark of the partials. `accepted` counts the rows that pass WHERE, `filtered` the other rows.
    """

    plan: LowLevelPlan
    where: Condition | None
    spreader: Spreader | None
    watermark: int
    accepted: int
    filtered: int

    @property
    def bytes(self) -> int:
        """Memory in bytes."""
        ...

    @property
    def tally(self) -> Tally:
        """Return the counters."""
        ...

    def add(self, rows: Rows, newest: int = END) -> Iterable[pa.RecordBatch]:
        """Add rows. Return the partials that are ready. `newest`: the newest accepted time of the link in ns."""
        ...

    def advance_watermark(self, watermark: int, is_idle: bool = False) -> Iterator[pa.RecordBatch]:
        """Accept a watermark. Yield the partials of closed panes. `is_idle`: the link is idle."""
        ...

    def flush_all(self) -> Iterator[pa.RecordBatch]:
        """Flush all entries, without a watermark."""
        ...


def make_reducer(
    link: str, plan: LowLevelPlan, slots: int, capacity: int, flushing: Flushing, budget: TableBudget | None = None
) -> QueryReducer:
    """Return the reducer of a plan. Its tables have `slots` slots. A batch has up to `capacity` rows.

    With a `budget` tables begin with fewer slots, and grow.
    """
    return QueryTables(link, plan, slots, capacity, flushing, budget) if plan.reduced else QueryRows(link, plan)
