"""The option `where` of the data source `wiretide`: rows that fail are neither converted nor sent to Spark.

The condition is a WHERE clause over the columns of the kind, so it is evaluated by the low level. A classic pcap skips
blocks outside the times of the condition without decoding them.

The data source does not accept filters that Spark pushes down (`pushFilters`), because of an error in Spark 4.3: Spark
stores the reader that has accepted a filter, and uses it for every later job over the same DataFrame, even if that job
has another filter or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from capture.errors import WiretideError
from capture.files.blocks import Block
from capture.lazy_dataclasses import dataclass
from highlevel.plan.nodes import Apply, Leaf
from highlevel.plan.plan import Plan
from lowlevel.expressions.columns import ChosenRows, Columns
from lowlevel.expressions.predicate import Condition, conjuncts, interval_test
from lowlevel.expressions.tree import Expression
from lowlevel.rows.readers import Rows
from lowlevel.subaggregates import INT_MAX, INT_MIN


def compile_condition(text: str, kind: str, compile_query: Callable[[str], Plan]) -> Expression:
    """Return the condition of a WHERE clause over rows of one kind.

    Raises ValueError for an error in the text, and for a condition that needs more than one row, such as a sub-query.
    """
    try:
        plan = compile_query(f"SELECT ts FROM {kind} WHERE ({text}\n)")
    except WiretideError as error:
        raise ValueError(f"option where: {error}") from None
    match plan.root:
        case Apply(input=Leaf(low=low), outputs=(_,)) if (
            low.where is not None and not low.reduced and not low.depends_on_earlier_rows
        ):
            return low.where
    raise ValueError(f"option where: got {text!r}, expected a condition over the columns of one row")


@dataclass(frozen=True)
class FilteredBatch:
    """The rows of a batch that pass the condition. Implements `Rows`."""

    count: int
    earliest: int
    columns: Columns
    arrivals: None = None
    exports: None = None


class RowCondition:
    """The condition that the rows of one task must pass."""

    def __init__(self, expression: Expression | None) -> None:
        """Prepare a BOOL expression. None: all rows pass."""
        self._condition = None
        self.minimum, self.maximum = INT_MIN, INT_MAX
        if expression is not None:
            self._condition = Condition(expression)
            for test in filter(None, map(interval_test, conjuncts(expression))):
                if test.column == "ts" and not test.is_outside and test.bits == -1:
                    self.minimum, self.maximum = max(self.minimum, test.minimum), min(self.maximum, test.maximum)

    @property
    def limits_times(self) -> bool:
        """Return whether the condition excludes some times."""
        return (self.minimum, self.maximum) != (INT_MIN, INT_MAX)

    def excludes(self, block: Block) -> bool:
        """Return whether the times of a block show that none of its rows passes."""
        return block.max_ts < self.minimum or block.min_ts > self.maximum

    def select(self, rows: Rows) -> Iterator[Rows]:
        """Yield the rows that pass; nothing if there are none."""
        if rows.count == 0:
            return
        if self._condition is None:
            yield rows
            return
        chosen = np.flatnonzero(self._condition.true_rows(rows.columns, rows.count))
        if len(chosen) == rows.count:
            yield rows
        elif len(chosen):
            yield FilteredBatch(len(chosen), rows.earliest, ChosenRows(rows.columns, chosen))
