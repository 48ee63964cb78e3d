"""AddUserColumns: what users' aggregates make of the merged sub-aggregates of final windows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from highlevel.plan import QueryPlan
from lowlevel.punctuation import Item, Punctuation


class AddUserColumns:
    """Adds a column for each use. Stateless."""

    def __init__(self, plan: QueryPlan) -> None:
        """Add the columns of `plan`."""
        self.columns = plan.user_columns

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Compute the columns over all groups of the batch at once."""
        for column in self.columns:
            batch = batch.append_column(column.name, column.of(batch))
        yield batch

    def punctuate(self, port: int, mark: Punctuation) -> Iterator[Item]:
        """Pass on."""
        yield mark

    def snapshot(self) -> dict[str, pa.Table]:
        """Nothing to keep."""
        return {}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Nothing to take over."""
