"""SelectGroups: compares the groups of a window with each other.

    heavy(p)   value >= p * the sum of the values of the window's groups (exact for integers)
    top(k)     fewer than k groups of the window have a greater value; equal values at rank k are all selected

A group with the value NULL or NaN is ignored in sums and ranks, and is not selected.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture.arrow_compute import array_of
from highlevel.aggregation import Aggregation, Selection, SelectionKind
from highlevel.operators.batch_columns import BatchColumns
from highlevel.operators.operator import StatelessOperator
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from lowlevel.expressions.columns import Vector
from lowlevel.expressions.evaluate import evaluate
from lowlevel.punctuation import Item, Punctuation

Mask = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.int64]


class SelectGroups(StatelessOperator):
    """Adds the selections to the groups of final windows. It has no state, because a window arrives in one batch."""

    def __init__(self, aggregation: Aggregation) -> None:
        """Evaluate the selections of `aggregation`."""
        self.selections = aggregation.selections
        self._macs = aggregation.macs

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Add a column for each selection: True if the group is selected."""
        bounds = np.stack([batch.column(name).to_numpy() for name in (WINDOW_END, WINDOW_START)])
        windows = np.unique(bounds, axis=1, return_inverse=True)[1].reshape(-1)
        columns = BatchColumns(batch, self._macs)
        for selection in self.selections:
            chosen = select(selection, evaluate(selection.value, columns), windows)
            batch = batch.append_column(selection.name, array_of(chosen))
        yield batch

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Return the same watermark."""
        yield punctuation


def select(selection: Selection, value: Any, windows: Ids) -> Mask:
    """Return a mask of the selected groups. `windows` contains the window number of each group."""
    assert isinstance(value, Vector)
    rows = len(windows)
    values = np.broadcast_to(value.data, rows)
    is_known = np.ones(rows, np.bool_) if value.valid is None else np.broadcast_to(value.valid, rows)
    if values.dtype == np.float64:
        is_known = is_known & ~np.isnan(values)
    positions = np.flatnonzero(is_known)
    order = positions[np.lexsort((values[positions], windows[positions]))]
    chosen = np.zeros(rows, np.bool_)
    if len(order):
        compare = _select_heavy if selection.kind is SelectionKind.HEAVY else _select_top
        chosen[order] = compare(selection.parameter, values[order], windows[order])
    return chosen


def _select_heavy(share: str, values: npt.NDArray[Any], windows: Ids) -> Mask:
    begins = np.flatnonzero(np.append(True, np.diff(windows) != 0))
    totals = np.add.reduceat(values, begins)
    if values.dtype == np.float64:
        least = float(share) * totals
    else:  # exact for integers: as floats 7 % of 100 is more than 7
        least = np.array([ceil(Fraction(share) * total) for total in totals.tolist()])
    return values >= np.repeat(least, np.diff(np.append(begins, len(values))))


def _select_top(max_groups: str, values: npt.NDArray[Any], windows: Ids) -> Mask:
    ends = np.searchsorted(windows, windows, side="right")
    changes = np.append((np.diff(windows) != 0) | (np.diff(values) != 0), True)
    after_equals = (np.flatnonzero(changes) + 1)[np.append(0, np.cumsum(changes)[:-1])]
    return ends - after_equals < int(max_groups)
