"""The stages after the window operator of a query. They process each final window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from highlevel.aggregation import Aggregation
from highlevel.operators.operator import Operator
from highlevel.results.finish import Finish


def make_stages(aggregation: Aggregation) -> tuple[list[Operator], Finish]:
    """Create the stages of an aggregation in their order. Return them and the last stage."""
    stages: list[Operator] = []
    # Most queries need none of these stages, so each is imported only if the query needs it.
    if aggregation.details:
        from highlevel.results.summarise import Summarise

        stages.append(Summarise(aggregation))
    if aggregation.user_columns:
        from highlevel.results.add_user_columns import AddUserColumns

        stages.append(AddUserColumns(aggregation))
    if aggregation.selections:
        from highlevel.results.select_groups import SelectGroups

        stages.append(SelectGroups(aggregation))
    finish = Finish(aggregation)
    return [*stages, finish], finish


def run_stages(stages: Sequence[Operator], batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Process rows of final windows with stages that need no punctuations."""
    if not stages:
        yield batch
        return
    for item in stages[0].process_rows(0, batch):
        if isinstance(item, pa.RecordBatch):
            yield from run_stages(stages[1:], item)
