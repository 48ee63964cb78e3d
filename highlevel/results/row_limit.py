"""The rows of a large result that gauges, pages and the console need: the largest ones, and the sums of the others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from capture.lazy_dataclasses import dataclass
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START

MAX_ROWS = 16_384
"""Maximum number of rows of a query that a task sends to the driver in a micro-batch, if the driver needs no more."""

LEAST_ROWS = 100
"""Number of rows of a window that are sent in any case: more than a query has series."""

REST_ROWS = "rest_rows"
"""The column with the number of rows that were not sent."""


@dataclass(frozen=True, slots=True)
class RowLimit:
    """The rows of a query that the driver needs: of each window those with the largest values in `rank`.

    `folds`: the aggregates (sum, min, max) of the columns whose other values are added up by window. `rank` None: the
    first rows. `ignored`: a column that is true for rows which are only in files.
    """

    rank: str | None = None
    folds: Mapping[str, str] | None = None
    ignored: str | None = None
    rows: int = MAX_ROWS


def select_rows(table: pa.Table, limit: RowLimit) -> tuple[pa.Table, pa.Table | None]:
    """Return the rows that the driver needs, and the other rows added up by window; None without windows.

    The second table has the columns `window_start`, `window_end`, REST_ROWS, and those of `folds`. Of rows without
    windows the last ones are needed. A table of at most `limit.rows` is returned whole.
    """
    if table.num_rows <= limit.rows:
        return table, None
    if limit.ignored is not None:
        table = table.filter(pc.invert(table[limit.ignored]))
    if WINDOW_END not in table.column_names or WINDOW_START not in table.column_names:
        return table.slice(max(0, table.num_rows - limit.rows)), None
    order = [(WINDOW_END, "ascending"), *([(limit.rank, "descending")] if limit.rank is not None else [])]
    table = table.take(pc.sort_indices(table, sort_keys=order)).combine_chunks()
    ends = table[WINDOW_END].combine_chunks().fill_null(np.iinfo(np.int64).max).to_numpy()
    starts = np.flatnonzero(np.diff(ends, prepend=ends[0] - 1 if len(ends) else 0))
    sizes = np.diff(np.append(starts, len(ends)))
    positions = np.arange(len(ends)) - np.repeat(starts, sizes)
    is_sent = positions < max(LEAST_ROWS, limit.rows // max(1, len(starts)))
    rest = table.filter(array_of(~is_sent))
    folds = [(name, fold) for name, fold in (limit.folds or {}).items()]
    added = rest.group_by([WINDOW_START, WINDOW_END], use_threads=False).aggregate([([], "count_all"), *folds])
    names = [WINDOW_START, WINDOW_END, REST_ROWS, *(name for name, _ in folds)]
    by_name = {**{f"{name}_{fold}": name for name, fold in folds}, "count_all": REST_ROWS}
    added = added.rename_columns([by_name.get(name, name) for name in added.column_names]).select(names)
    return table.filter(array_of(is_sent)), added
