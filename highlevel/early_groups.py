"""Groups that are final before others: up to which window, by group-wise punctuation (Li 2008, §6.1.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from highlevel.groups.keys import Keys
from highlevel.groups.merging import Accumulated, Rule
from highlevel.groups.table import GroupTable

LOW = "low"
"""No later row of the group has a smaller window id."""


class EarlyGroups:
    """The greatest promise of each group that has one beyond that of all."""

    def __init__(self, groups: Sequence[str]) -> None:
        """Know no promise about `groups`, names of columns."""
        self.groups = list(groups)
        self.table: GroupTable | None = None

    @property
    def bytes(self) -> int:
        """Memory of the promises."""
        return 0 if self.table is None else self.table.bytes

    def add(self, groups: pa.RecordBatch, low: int) -> None:
        """Note a promise about some groups, rows of the group columns."""
        columns = [groups.column(name) for name in self.groups]
        self._take(pa.RecordBatch.from_arrays([*columns, pa.repeat(low, groups.num_rows)], [*self.groups, LOW]))

    def _take(self, promises: pa.RecordBatch) -> None:
        if self.table is None:
            self.table = GroupTable(promises.schema, self.groups, [Accumulated((LOW,), Rule.MAX)])
        self.table.merge(promises)

    def closed(self, batch: pa.RecordBatch, closed: int) -> int | npt.NDArray[np.int64]:
        """Return below which window id each row is late, where `closed` is that of all groups."""
        if self.table is None:
            return closed
        ids = self.table.keys.find([batch.column(name) for name in self.groups], batch.num_rows)
        return np.where(ids >= 0, np.maximum(self.table.layer.accumulators[0].words[0][ids], closed), closed)

    def purge(self, closed: int) -> None:
        """Forget what the promise about all groups says as well."""
        if self.table is not None:
            promises = self.table.to_arrow()
            beyond = promises.filter(pa.array(promises.column(LOW).to_numpy() > closed))
            if beyond.num_rows < promises.num_rows:
                self.table = None
                if beyond.num_rows:
                    self._take(beyond)

    def snapshot(self) -> pa.Table | None:
        """Return the promises, or None where there are none."""
        return None if self.table is None else pa.Table.from_batches([self.table.to_arrow()])

    def restore(self, promises: pa.Table) -> None:
        """Take over the promises of a snapshot."""
        for batch in promises.to_batches():
            self._take(batch)


def among(rows: pa.RecordBatch, chosen: pa.RecordBatch, groups: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which of some rows are of the groups in `chosen`."""
    keys = Keys([rows.schema.field(name).type for name in groups])
    keys.of([chosen.column(name) for name in groups], chosen.num_rows)
    return keys.find([rows.column(name) for name in groups], rows.num_rows) >= 0
