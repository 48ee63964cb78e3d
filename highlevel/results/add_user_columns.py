"""Add the results of user-defined aggregates, computed from the merged sub-aggregates of final windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from highlevel.aggregation import AggregateError, Aggregation, UserColumn
from highlevel.operators.batch_columns import BatchColumns
from highlevel.operators.operator import StatelessOperator
from lowlevel.expressions.columns import Mask, Vector
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.user_functions import failure_text
from lowlevel.punctuation import Item, Punctuation


class AddUserColumns(StatelessOperator):
    """Adds a column for each use of a user-defined aggregate. It has no state."""

    def __init__(self, aggregation: Aggregation) -> None:
        """Add the columns of `aggregation`."""
        self.columns = aggregation.user_columns

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Compute the columns over all groups of the batch at once."""
        for column in self.columns:
            batch = batch.append_column(column.name, compute_results(column, batch))
        yield batch

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Return the same watermark."""
        yield punctuation


def compute_results(column: UserColumn, batch: pa.RecordBatch) -> pa.Array:
    """Return the results of the groups in `batch`.

    A group with a NULL part has the result NULL and is not passed to the function. A NaN or masked result becomes NULL.
    Raises AggregateError if the function raises an error or does not return one number per group.
    """
    rows = batch.num_rows
    columns = BatchColumns(batch)
    is_known: Mask = np.ones(rows, np.bool_)
    arrays: dict[str, npt.NDArray[Any]] = {}
    for part, expression in column.parts:
        vector = evaluate(expression, columns)
        assert isinstance(vector, Vector)
        arrays[part] = np.broadcast_to(vector.data, rows)
        if vector.valid is not None:
            is_known = is_known & vector.valid
    results = np.full(rows, np.nan)
    if is_known.any():
        given = {part: array[is_known] for part, array in arrays.items()}
        try:
            with np.errstate(all="ignore"):
                returned = column.finish(**given)
        except (Exception, SystemExit) as error:  # the user's code may raise any error
            what = failure_text(column.finish, error, [*given.values()])
            raise AggregateError(f"{column.name_in_messages}: its function raised {what}") from error
        results[is_known] = _convert_results(column.name_in_messages, returned, int(np.count_nonzero(is_known)))
    return pa.array(results, mask=np.isnan(results))


def _convert_results(name_in_messages: str, returned: Any, groups: int) -> npt.NDArray[np.float64]:
    """Convert the results of a function to floats."""
    results = (
        np.ma.filled(np.ma.asarray(returned, np.float64), np.nan)
        if np.ma.isMaskedArray(returned)
        else np.asarray(returned)
    )
    if results.dtype.kind not in "biuf":
        raise AggregateError(f"{name_in_messages}: its function returned {type(returned).__name__}, expected numbers")
    if results.shape != (groups,):
        got = "a single value" if results.ndim == 0 else f"an array of shape {results.shape}"
        raise AggregateError(
            f"{name_in_messages}: its function returned {got}, expected one value for each of {groups} groups"
        )
    return results.astype(np.float64)
