"""The rows of a large result for gauges, pages and the console: the largest rows, and the sums of the other rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from capture.lazy_dataclasses import dataclass
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START

MAX_ROWS = 4_096
"""Maximum number of rows of a query that a task sends to the driver in a micro-batch, if the driver needs no more."""

WINDOW_ROWS = 100
"""Number of rows of a window that are sent even if a micro-batch closes many windows."""

MANY_WINDOWS = 8
"""If a task closes many windows, it sends at most MANY_WINDOWS times `RowLimit.rows` rows, of the newest windows only.
"""

REST_ROWS = "rest_rows"
"""The column with the number of rows that were not sent."""


@dataclass(frozen=True, slots=True)
class RowLimit:
    """The rows of a query that the driver needs: those with the largest values in each column of `ranks`, per window.

    `folds`: columns and the aggregates (sum, min, max) that combine their other values by window. Without `ranks` the
    driver needs the first rows. `ignored`: the name of a column that is true for rows which only files need.
    `window_rows`: the number of rows that are sent for each window and each column of `ranks` if there are many
    windows.
    """

    ranks: tuple[str, ...] = ()
    folds: Mapping[str, str] | None = None
    ignored: str | None = None
    rows: int = MAX_ROWS
    window_rows: int = WINDOW_ROWS


def select_rows(table: pa.Table, limit: RowLimit) -> tuple[pa.Table, pa.Table | None]:
    """Return the rows that the driver needs, and the other rows added up by window; None if all rows are needed.

    The second table has the columns `window_end`, REST_ROWS, and those of `folds`. Both tables have at most about
    MANY_WINDOWS times `limit.rows` rows, of the newest windows. The rows of earlier windows are added up in one row of
    the second table, with `window_end` NULL. For rows without windows, the driver needs the last rows, and the second
    table has only the column REST_ROWS. A table of at most `limit.rows` rows is returned whole.
    """
    if table.num_rows <= limit.rows:
        return table, None
    if limit.ignored is not None:
        table = table.filter(pc.invert(table[limit.ignored]))
    if WINDOW_END not in table.column_names or WINDOW_START not in table.column_names:
        others = max(0, table.num_rows - limit.rows)
        return table.slice(others), pa.table({REST_ROWS: pa.array([others], pa.int64())})
    table = table.take(pc.sort_indices(table, sort_keys=[(WINDOW_END, "ascending")])).combine_chunks()
    ends = table[WINDOW_END].combine_chunks().fill_null(np.iinfo(np.int64).max).to_numpy()
    starts = np.flatnonzero(np.diff(ends, prepend=ends[0] - 1 if len(ends) else 0))
    sizes = np.diff(np.append(starts, len(ends)))
    position_in_window = np.arange(len(ends)) - np.repeat(starts, sizes)
    quota = max(limit.window_rows, limit.rows // max(1, len(starts) * len(limit.ranks)))
    is_sent = position_in_window < (0 if limit.ranks else quota)
    for rank in limit.ranks:
        order = pc.sort_indices(table, sort_keys=[(WINDOW_END, "ascending"), (rank, "descending")]).to_numpy()
        is_sent[order[position_in_window < quota]] = True
    counts = np.add.reduceat(is_sent, starts, dtype=np.int64) if len(starts) else sizes
    newer = np.cumsum(counts[::-1])[::-1] - counts  # rows of later windows
    is_old = np.repeat(newer + counts > MANY_WINDOWS * max(limit.rows, quota * max(1, len(limit.ranks))), sizes)
    is_sent &= ~is_old
    rest = table.filter(array_of(~is_sent))
    end = pc.if_else(array_of(is_old[~is_sent]), pa.scalar(None, pa.int64()), rest[WINDOW_END].cast(pa.int64()))
    rest = rest.set_column(rest.schema.get_field_index(WINDOW_END), WINDOW_END, end)
    folds = [(name, fold) for name, fold in (limit.folds or {}).items()]
    added = rest.group_by([WINDOW_END], use_threads=False).aggregate([([], "count_all"), *folds])
    names = [WINDOW_END, REST_ROWS, *(name for name, _ in folds)]
    by_name = {**{f"{name}_{fold}": name for name, fold in folds}, "count_all": REST_ROWS}
    added = added.rename_columns([by_name.get(name, name) for name in added.column_names]).select(names)
    return table.filter(array_of(is_sent)), added
