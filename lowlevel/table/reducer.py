"""What the low level has for each plan on a link: tables that reduce its rows, or, where all are needed, the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lowlevel.expressions.arrow import arrow_column
from lowlevel.expressions.columns import Vector
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.predicate import Condition
from lowlevel.expressions.types import Type
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import BEGINNING, END
from lowlevel.rows.readers import Rows
from lowlevel.table.flushing import Flushing
from lowlevel.table.inputs import argument_values
from lowlevel.table.query_tables import QueryTables
from lowlevel.table.spread import Spreader
from lowlevel.table.table import Tally

# The rows of one query on one link that no table reduces: each leaves as a partial of its own.
#
# Windows that depend on single rows (their number, the exact time of each) need them all. A row is then a partial of a
# pane of 1 ns whose sub-aggregates have taken in that row alone, so that everything behind the low level takes it for
# what it takes other partials for. Rows leave at once and in the order in which they came.


class QueryRows:
    """Does for a plan that is not reduced what `QueryTables` does for others. Not thread safe; it holds no row."""

    def __init__(self, link: str, plan: LowLevelPlan) -> None:
        """Hand out rows of `link`; ValueError where the plan is one of tables, or cuts rows into pieces."""
        if plan.reduced or plan.spread or plan.pane != 1 or plan.origin != 0:
            raise ValueError(f"expected a plan of single rows, whole and in panes of 1 ns, got {plan}")
        self.link = link
        self.plan = plan
        self.where = None if plan.where is None else Condition(plan.where)
        self.spreader: Spreader | None = None  # rows are whole
        self.low = BEGINNING
        self.accepted = 0
        self.filtered = 0

    @property
    def bytes(self) -> int:
        """No memory is kept."""
        return 0

    @property
    def tally(self) -> Tally:
        """Rows that left as partials of their own."""
        return Tally(direct=self.accepted)

    def add(self, rows: Rows, newest: int = END) -> Sequence[pa.RecordBatch]:
        """Take in some rows; those that WHERE keeps leave."""
        if rows.count == 0:
            return ()
        chosen = None if self.where is None else self.where.true_rows(rows.columns, rows.count)
        accepted = rows.count if chosen is None else int(np.count_nonzero(chosen))
        self.accepted += accepted
        self.filtered += rows.count - accepted
        if not accepted:
            return ()
        batch = self._partials(rows)
        return (batch if accepted == rows.count else batch.filter(pa.array(chosen)),)

    def _partials(self, rows: Rows) -> pa.RecordBatch:
        times = rows.columns["ts"]
        assert isinstance(times, Vector)
        columns = [pa.repeat(pa.scalar(self.link), rows.count), pa.array(times.data.copy())]
        columns += [
            arrow_column(evaluate(key.expression, rows.columns), rows.count, key.expression.type)
            for key in self.plan.keys
        ]
        for sub in self.plan.subaggregates:
            values: npt.NDArray[np.int64] = np.empty(rows.count, np.int64)
            argument_values(sub, rows.columns, values)
            columns.append(pa.array(values.view(np.float64) if sub.type is Type.FLOAT else values))
        return pa.RecordBatch.from_arrays(columns, schema=self.plan.schema)

    def complete(self, low: int, idle: bool = False) -> Iterator[pa.RecordBatch]:
        """Take in the promise that no later row is below `low`: nothing is held that it could be about."""
        self.low = max(self.low, low)
        return iter(())

    def empty(self) -> Iterator[pa.RecordBatch]:
        """Let everything leave: nothing is held."""
        return iter(())


class QueryReducer(Protocol):
    """Takes the rows of one plan on one link, and lets partials leave. Not thread safe.

    `low` is the promise that holds behind what has left; `accepted` and `filtered` count the rows that WHERE kept and
    dropped.
    """

    plan: LowLevelPlan
    where: Condition | None
    spreader: Spreader | None
    low: int
    accepted: int
    filtered: int

    @property
    def bytes(self) -> int:
        """Memory held."""
        ...

    @property
    def tally(self) -> Tally:
        """How partials have left."""
        ...

    def add(self, rows: Rows, newest: int = END) -> Iterable[pa.RecordBatch]:
        """Take in some rows, of a link whose newest believed time is `newest`."""
        ...

    def complete(self, low: int, idle: bool = False) -> Iterator[pa.RecordBatch]:
        """Take in the promise that no later row is below `low`."""
        ...

    def empty(self) -> Iterator[pa.RecordBatch]:
        """Let everything leave, without a promise."""
        ...


def make_reducer(link: str, plan: LowLevelPlan, slots: int, capacity: int, flushing: Flushing) -> QueryReducer:
    """Make what a plan needs: tables of `slots` slots for batches of up to `capacity` rows, or nothing of the kind."""
    return QueryTables(link, plan, slots, capacity, flushing) if plan.reduced else QueryRows(link, plan)
