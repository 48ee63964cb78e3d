"""Aggregates that users define: how the merged parts of a group become its result (`wiretide.aggregate`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture.errors import WiretideError
from highlevel.batch_columns import BatchColumns
from lowlevel.evaluate import evaluate
from lowlevel.expressions import Expression, Type
from lowlevel.vectors import Mask, Vector

Finish = Callable[..., Any]
"""Takes an array per part by the parts' names, and returns the results in an array of the same length."""


class AggregateError(WiretideError, ValueError):
    """A user's aggregate that is not one: fix its definition."""

    status = 2


@dataclass(frozen=True, slots=True)
class UserColumn:
    """One use of such an aggregate in a query. Its result is the column `name`, FLOAT.

    `shown` is the use as messages name it. `parts` are expressions over merged sub-aggregates, by the names that
    `finish` has for them.
    """

    name: str
    shown: str
    parts: tuple[tuple[str, Expression], ...]
    finish: Finish

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the results of the groups in `batch`.

        A group of which a part is NULL has NULL, and `finish` does not see it. A result that is NaN, or masked, is
        NULL. AggregateError where it returns no numbers or another number of them; what it raises passes.
        """
        rows = batch.num_rows
        columns = BatchColumns(batch)
        there: Mask = np.ones(rows, np.bool_)
        arrays: dict[str, npt.NDArray[Any]] = {}
        for part, expression in self.parts:
            vector = evaluate(expression, columns)
            assert isinstance(vector, Vector)
            arrays[part] = np.broadcast_to(vector.data, rows)
            if vector.valid is not None:
                there = there & vector.valid
        results = np.full(rows, np.nan)
        if there.any():
            given = {part: array[there] for part, array in arrays.items()}
            try:
                with np.errstate(all="ignore"):
                    told = self.finish(**given)
            except Exception as failure:
                failure.add_note(f"in the function that finishes {self.shown}")
                raise
            results[there] = self._checked(told, int(np.count_nonzero(there)))
        return pa.array(results, mask=np.isnan(results))

    def _checked(self, told: Any, groups: int) -> npt.NDArray[np.float64]:
        """Return what `finish` returned as floats."""
        found = np.ma.filled(np.ma.asarray(told, np.float64), np.nan) if np.ma.isMaskedArray(told) else np.asarray(told)
        if found.dtype.kind not in "biuf":
            raise AggregateError(f"{self.shown}: its function returned {type(told).__name__}, expected numbers")
        if found.shape != (groups,):
            got = "a single value" if found.ndim == 0 else f"an array of shape {found.shape}"
            raise AggregateError(
                f"{self.shown}: its function returned {got}, expected one value for each of {groups} groups"
            )
        return found.astype(np.float64)


RESULT = Type.FLOAT
"""The type of every result."""
