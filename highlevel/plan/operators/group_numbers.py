"""Numbers for the groups of rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc


def number_groups(rows: pa.Table, keys: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """Return a number for each row. Rows with equal keys have the same number. NULL is equal to NULL."""
    numbers = np.zeros(rows.num_rows, np.int64)
    for name in keys:
        column = rows.column(name).combine_chunks()
        if pa.types.is_floating(column.type):
            # -0.0 is equal to 0.0, and all NaN are equal.
            column = pc.if_else(pc.is_nan(column), np.nan, pc.add(column, 0.0))
        codes = column.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
        numbers = np.unique(numbers * (codes.max(initial=0) + 1) + codes, return_inverse=True)[1].astype(np.int64)
    return numbers
