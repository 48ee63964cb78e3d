"""The results so far of a query with changes: the sum of the weights of its changes, window by window.

    changes ──► sum per window of the weights of equal rows ──► rows of windows that are not final
                                                            └─► rows of windows that became final, once

A sink that cannot store changes reads this sum. It contains only windows that are not final, so its size is bounded
like that of the windows themselves (REMEMBER). A correction is in one batch, so no reader sees half of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from capture.errors import InputError
from highlevel.operators.window_operator import WINDOW_END
from highlevel.plan.operators.group_numbers import number_groups
from highlevel.speculation.consistency import FINAL, WEIGHT
from lowlevel.punctuation import END


class CurrentResults:
    """The rows of the windows of one query that are not final. Not thread safe."""

    def __init__(self, query: str, schema: pa.Schema) -> None:
        """Begin without rows. `schema`: the columns of the result, without `weight` and `final`."""
        self.schema = schema
        self._query = query
        self._windows: dict[int, pa.Table] = {}

    @property
    def windows(self) -> Mapping[int, pa.Table]:
        """The rows of each window that is not final, by its end in ns. A window whose rows were withdrawn is empty."""
        return {end: self._rows(table) for end, table in self._windows.items()}

    @property
    def oldest(self) -> int | None:
        """The end of the first window with rows that is not final, ns; None without one."""
        return min((end for end, table in self._windows.items() if table.num_rows), default=None)

    @property
    def bytes(self) -> int:
        """Bytes of the rows."""
        return sum(table.nbytes for table in self._windows.values())

    def rows(self, end: int) -> pa.Table:
        """Return the rows of a window that is not final."""
        return self._rows(self._windows[end])

    def add(self, changes: pa.Table) -> list[int]:
        """Add changes. Return the ends of the windows whose rows are different now, in order.

        Raises InputError for a row that is withdrawn more often than it was returned.
        """
        changed = []
        names = [*self.schema.names, WEIGHT]
        changes = changes.select(names).cast(self.schema.append(pa.field(WEIGHT, pa.int64())))
        for end in sorted(pc.unique(changes[WINDOW_END]).to_pylist()):
            before = self._windows.get(end)
            of_window = changes.filter(pc.equal(changes[WINDOW_END], end))
            summed = self._sum(of_window)
            if not summed.num_rows:
                continue
            changed.append(end)
            summed = summed if before is None else self._sum(pa.concat_tables([before, summed]))
            if pc.any(pc.less(summed[WEIGHT], 0)).as_py():
                (row, *_) = summed.filter(pc.less(summed[WEIGHT], 0)).to_pylist()
                raise InputError(
                    f"changes of the query {self._query}: got {row}, which withdraws a row that was not returned; "
                    "expected all changes since the first one"
                )
            self._windows[end] = summed
        return changed

    def close(self, watermark: int) -> pa.Table:
        """Return and forget the rows of the windows that end by the watermark (ns), in the order of their ends."""
        closed = sorted(end for end in self._windows if watermark == END or end <= watermark)
        return pa.concat_tables([self.schema.empty_table(), *(self._rows(self._windows.pop(end)) for end in closed)])

    def _sum(self, rows: pa.Table) -> pa.Table:
        """Return the different rows whose weights do not add up to 0, with this sum."""
        numbers = number_groups(rows, tuple(self.schema.names))
        weights = np.zeros(numbers.max(initial=-1) + 1, np.int64)
        np.add.at(weights, numbers, rows[WEIGHT].to_numpy())
        firsts = np.sort(np.unique(numbers, return_index=True)[1])
        kept = firsts[weights[numbers[firsts]] != 0]
        table = rows.take(pa.array(kept)).combine_chunks()
        position = table.schema.get_field_index(WEIGHT)
        return table.set_column(position, table.schema.field(position), array_of(weights[numbers[kept]]))

    def _rows(self, table: pa.Table) -> pa.Table:
        """Return rows as often as their weights state."""
        weights = table[WEIGHT].to_numpy()
        rows = table.drop_columns([WEIGHT])
        return rows if (weights == 1).all() else rows.take(pa.array(np.repeat(np.arange(len(weights)), weights)))


def final_end(changes: pa.Table) -> int | None:
    """Return the end (ns) of the newest window that the changes call final; None if there is none.

    All windows with an earlier end are final too.
    """
    end: int | None = pc.max(changes.filter(changes[FINAL])[WINDOW_END]).as_py()
    return end
