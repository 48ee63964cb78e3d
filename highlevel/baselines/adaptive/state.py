"""The state of AdaptWID as Arrow tables: its groups, the buffer of tuples, and the partials of each window.

Tuples and partials refer to their group by its row in the table of groups. Sub-aggregates are words, as in the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from highlevel.baselines.adaptive.layout import (
    ACCUMULATORS,
    EAGER,
    END,
    FIRST,
    GROUP,
    GROUP_WORDS,
    HEAD,
    LAST,
    NONE,
    VALUES,
    VOLUME,
    WID,
)
from highlevel.baselines.adaptive.store import Store
from highlevel.groups.key_words import Words

WINDOW = "window-"


def snapshot_store(store: Store, names: Sequence[str]) -> dict[str, pa.Table]:
    """Copy the state of a store. `names` are its group columns."""
    group_row = store.groups[: store.group_count]
    groups = store.keys.columns()
    names = [*names, ".volume", ".eager"]  # no names of SQL
    tables = {
        "groups": pa.table([*groups, pa.array(group_row[:, VOLUME]), pa.array(group_row[:, HEAD] == EAGER)], names),
        "tuples": _words_to_table(store.copy_tuples(), ["group", "first", "end"], [GROUP, FIRST, END], VALUES),
    }
    partials = store.partials.used_rows
    partials = partials[np.argsort(partials[:, WID], kind="stable")]
    wids, positions = np.unique(partials[:, WID], return_index=True)
    for wid, rows in zip(wids.tolist(), np.split(partials, positions[1:]), strict=False):
        tables[f"{WINDOW}{wid}"] = _words_to_table(rows, ["group", "last"], [GROUP, LAST], ACCUMULATORS)
    return tables


def _words_to_table(rows: Words, names: list[str], indexes: list[int], values_begin: int) -> pa.Table:
    """Return the words at `indexes` as columns `names`. The words from `values_begin` on are sub-aggregates."""
    indexes = [*indexes, *range(values_begin, rows.shape[1])]
    names = [*names, *(f"value{number}" for number in range(rows.shape[1] - values_begin))]
    return pa.table([pa.array(np.ascontiguousarray(rows[:, position])) for position in indexes], names)


def _table_to_words(table: pa.Table, width: int, indexes: list[int], values_begin: int) -> Words:
    """Return the rows of words of a table. This is the inverse of `_words_to_table`."""
    rows = np.zeros((table.num_rows, width), np.int64)
    for position, column in zip([*indexes, *range(values_begin, width)], table.columns, strict=True):
        rows[:, position] = column.to_numpy()
    return rows


def restore_store(tables: dict[str, pa.Table], store: Store) -> None:
    """Restore the tables of `snapshot_store` into an empty store."""
    *columns, volume, eager = [column.combine_chunks() for column in tables["groups"].columns]
    groups = np.empty((len(volume), GROUP_WORDS), np.int64)
    groups[:, VOLUME] = volume.to_numpy()
    groups[:, HEAD] = np.where(eager.to_numpy(zero_copy_only=False), EAGER, NONE)
    tuples = _table_to_words(tables["tuples"], store.tuples.shape[1], [GROUP, FIRST, END], VALUES)
    partials = [np.empty((0, store.partials.rows.shape[1]), np.int64)]
    for name, table in tables.items():
        if name.startswith(WINDOW):
            rows = _table_to_words(table, store.partials.rows.shape[1], [GROUP, LAST], ACCUMULATORS)
            rows[:, WID] = int(name.removeprefix(WINDOW))
            partials.append(rows)
    store.load(columns, groups, tuples, np.concatenate(partials))
