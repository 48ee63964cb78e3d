"""Summarise: compute holistic aggregates. A group has one input row per value, and one output row.

    window  srcIP  destPort  count            window  srcIP  count  d0 = count_distinct(destPort)
    1       A      80        5                1       A      7      2
    1       A      443       2         ──►    1       B      1      1
    1       B      80        1

Sub-aggregates are merged by their usual rules. If the holistic aggregates have different arguments, there is one input
row for each combination of their values, and each aggregate uses its own argument. `count_distinct(a, b)` counts
combinations.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from highlevel.aggregation import Aggregation, DetailFunction
from highlevel.groups.merging import list_merge_rules
from highlevel.groups.table import GroupTable
from highlevel.operators.operator import StatelessOperator
from highlevel.operators.window_operator import WINDOW_END, WINDOW_INSTANCE, WINDOW_START
from highlevel.results.holistic import ValueCounts, compute_aggregate, number_combinations, values_by_time
from highlevel.results.sketched_windows import merge_sketches
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import Item, Punctuation


class Summarise(StatelessOperator):
    """Computes the holistic aggregates of final windows. It has no state, because a window arrives in one batch."""

    def __init__(self, aggregation: Aggregation) -> None:
        """Compute the holistic aggregates of `aggregation` (its `details`)."""
        self.holistic_aggregates = aggregation.details
        self.sketches = aggregation.foldings
        self.group_columns = [WINDOW_START, WINDOW_END, *aggregation.group_by]
        self.merge_rules = list_merge_rules(aggregation.low.subaggregates)

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Reduce the rows of each window and group to one."""
        if batch.num_rows == 0:
            return
        instance = [WINDOW_INSTANCE] if WINDOW_INSTANCE in batch.schema.names else []
        table = GroupTable(batch.schema, [*self.group_columns, *instance], self.merge_rules)
        ids = table.merge(batch)
        rows = table.to_arrow()
        foldings = {folding.column: folding for folding in self.sketches}
        sorted_values: dict[tuple[tuple[str, ...], str], ValueCounts] = {}
        for detail in self.holistic_aggregates:
            if detail.key in foldings:
                sketches = batch.column(detail.key)
                merged = merge_sketches(foldings[detail.key], detail.parameter, ids, rows.num_rows, sketches)
                rows = rows.append_column(detail.name, pa.array(merged, ARROW_TYPES[detail.type]))
                continue
            if detail.time:
                counts, times = (batch.column(name).to_numpy() for name in (detail.count, detail.time))
                last = detail.function is DetailFunction.LAST
                values = values_by_time(ids, rows.num_rows, batch.column(detail.key), counts, times, last)
                rows = rows.append_column(detail.name, values)
                continue
            values_key = detail.keys, detail.count
            if values_key not in sorted_values:
                counts = batch.column(detail.count).to_numpy()
                columns = [batch.column(key) for key in detail.keys]
                values = columns[0] if len(columns) == 1 else number_combinations(columns)
                sorted_values[values_key] = ValueCounts(ids, rows.num_rows, values, counts)
            results = compute_aggregate(detail.function, detail.parameter, sorted_values[values_key], detail.kind)
            rows = rows.append_column(detail.name, results)
        yield rows

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Return the same watermark."""
        yield punctuation
