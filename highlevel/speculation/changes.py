"""Changes of a result: rows with a weight, +1 for a new row and -1 for a row that is withdrawn (Z-set).

    window  n  weight  final
    1       5  +1      false      the first, provisional result
    1       5  -1      false      a late row corrects it
    1       6  +1      false
    2       4  +1      true       this result is final

The sum of the weights of equal rows (without the column `final`) is the number of times that the row is in the result.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.plan.operators.group_numbers import number_groups
from highlevel.speculation.consistency import FINAL, WEIGHT

Weights = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def final_changes(rows: pa.Table) -> pa.Table:
    """Return all rows of a result as final changes: each distinct row once; its weight is the number of its copies.

    >>> final_changes(pa.table({"n": [1, 2, 2]})).to_pydict()
    {'n': [1, 2], 'weight': [1, 2], 'final': [True, True]}
    """
    changed, weights = net_changes(rows.slice(0, 0), rows)
    finals = pa.repeat(pa.scalar(True), changed.num_rows)
    return changed.append_column(WEIGHT, pa.array(weights)).append_column(FINAL, finals)


def net_changes(old: pa.Table, new: pa.Table) -> tuple[pa.Table, Weights]:
    """Return the distinct rows whose number of copies in `new` and `old` differs, and the differences as weights.

    Withdrawn rows are first. Both tables have the same columns.

    >>> old, new = pa.table({"n": [1, 2, 2]}), pa.table({"n": [2, 3]})
    >>> rows, weights = net_changes(old, new)
    >>> rows["n"].to_pylist(), weights.tolist()
    ([1, 2, 3], [-1, -1, 1])
    """
    rows = pa.concat_tables([old, new])
    numbers = number_groups(rows, tuple(rows.schema.names))
    signs = np.append(np.full(old.num_rows, -1), np.full(new.num_rows, 1))
    weights = np.zeros(numbers.max(initial=-1) + 1, np.int64)
    np.add.at(weights, numbers, signs)
    firsts = np.unique(numbers, return_index=True)[1]
    changed = np.sort(firsts[weights[numbers[firsts]] != 0])
    of_rows = weights[numbers[changed]]
    order = np.argsort(of_rows > 0, kind="stable")
    return pc.take(rows, pa.array(changed[order])), of_rows[order]


def make_changes(rows: pa.Table, weights: Weights, final: Mask | bool) -> Iterator[pa.RecordBatch]:
    """Yield rows as one batch of changes, or no batch if there are no rows. `final`: for each row, or for all rows."""
    if rows.num_rows:
        (batch,) = rows.combine_chunks().to_batches()
        finals = array_of(np.broadcast_to(final, rows.num_rows))
        names = [*batch.schema.names, WEIGHT, FINAL]
        yield pa.RecordBatch.from_arrays([*batch.columns, array_of(weights), finals], names)


def add_up(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield one change for each set of equal rows, with the sum of their weights; withdrawn rows are first.

    Rows whose weights add up to 0 are dropped. A provisional row that is withdrawn and inserted again as final becomes
    final. If only some of several equal rows are final, their sum is not final.

    >>> rows = {"n": [5, 5, 5, 6, 6], "weight": [1, -1, 1, 1, 1], "final": [False, False, True, False, True]}
    >>> (batch,) = add_up(pa.RecordBatch.from_pydict(rows))
    >>> batch.to_pydict()
    {'n': [5, 6], 'weight': [1, 2], 'final': [True, False]}
    """
    rows, weights, final = split_changes(batch)
    numbers = number_groups(rows, tuple(rows.schema.names))
    groups = int(numbers.max(initial=-1)) + 1
    totals, provisional = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
    np.add.at(totals, numbers, weights)
    np.add.at(provisional, numbers[~final], weights[~final])
    firsts = np.sort(np.unique(numbers, return_index=True)[1])
    firsts = firsts[totals[numbers[firsts]] != 0]
    firsts = firsts[np.argsort(totals[numbers[firsts]] > 0, kind="stable")]
    changed = numbers[firsts]
    yield from make_changes(pc.take(rows, array_of(firsts)), totals[changed], provisional[changed] == 0)


def count_withdrawn(batch: pa.RecordBatch) -> int:
    """Return the number of rows that a batch of changes withdraws.

    >>> count_withdrawn(pa.RecordBatch.from_pydict({"n": [5, 6], "weight": [-2, 1], "final": [False, False]}))
    2
    """
    weights = batch.column(batch.num_columns - 2).to_numpy()
    return -int(weights[weights < 0].sum())


def split_changes(batch: pa.RecordBatch) -> tuple[pa.Table, Weights, Mask]:
    """Return the rows of a batch of changes, their weights, and a mask of the final rows."""
    weights = batch.column(WEIGHT).to_numpy()
    final = batch.column(FINAL).to_numpy(zero_copy_only=False)
    return pa.Table.from_batches([batch.drop_columns([WEIGHT, FINAL])]), weights, final
