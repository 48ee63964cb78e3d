"""LastRows: the last row of each key of a source, for events of Debezium that do not contain the row before a change.

    event   key before   row after     rows, as `CHANGES BY op` reads them
    r                    1 a           r 1 a
    u                    1 b           d 1 a,  c 1 b          the last row of the key is withdrawn
    u       1            2 b           d 1 b,  c 2 b          the key has changed
    r                    2 b           d 2 b,  r 2 b          a snapshot that is sent again
    d       2                          d 2 b
    u                    3 c           c 3 c                  no earlier event of this key

In the events of PostgreSQL and others, the field `before` contains only the primary key, and is NULL if the key does
not change. A row that no earlier event inserted is in no result, so nothing is withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from capture.lazy_dataclasses import dataclass

MAX_KEYS = 1 << 20
"""Maximum number of keys. The last row of each key stays in memory, so the number of keys is limited."""

MAX_PARTS = 64
"""Number of tables of stored rows that are joined to one: taking rows from many tables is slow."""

Key = tuple[object, ...]
ColumnConverter = Callable[[str, pa.Array], pa.Array]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Withdrawn and inserted rows. `events`: the number of the event of each row.

    `withdrawn`: True for withdrawn rows.
    """

    rows: pa.Table
    events: Numbers
    withdrawn: npt.NDArray[np.bool_]


class LastRows:
    """The last row of each key."""

    def __init__(self, keys: Sequence[str], convert: ColumnConverter, max_keys: int = MAX_KEYS) -> None:
        """Store no rows yet. `keys`: the columns of the key. The case of names is ignored.

        `convert` returns the values of a column in its type in queries, because different texts may be the same time or
        address.
        """
        self._keys, self._convert, self._max_keys = tuple(keys), convert, max_keys
        self._row_number_by_key: dict[Key, int] = {}
        self._parts: list[pa.Table] = []
        self.stored_rows = 0
        """Number of stored rows, including rows that are no longer the last of their key."""

    def apply(self, before: pa.StructArray, after: pa.StructArray) -> RowChanges:
        """Return the changes of events.

        `before`: the old key of each event, or NULL if the key is unchanged. `after`: the new row, or NULL if the row
        was deleted.

        Raises ValueError for a row without a key, and for more than the maximum number of keys.
        """
        new_keys = self._keys_of(after)
        changes: list[tuple[int, int, bool]] = []
        next_row = self.stored_rows
        for event, (old, new) in enumerate(zip(self._keys_of(before), new_keys, strict=True)):
            for key in dict.fromkeys(key for key in (old, new) if key is not None):
                last = self._row_number_by_key.pop(key, None)
                if last is not None:
                    changes.append((event, last, True))
            if new is not None:
                self._row_number_by_key[new] = next_row
                changes.append((event, next_row, False))
                next_row += 1
        if len(self._row_number_by_key) > self._max_keys:
            raise ValueError(
                f"got more than {self._max_keys:,} keys of rows that can be updated, expected fewer; use fewer keys, "
                "or let the source send the whole old row in 'before' and remove (key) from the schema"
            )
        self._store(after.filter(after.is_valid()))
        events, numbers, withdrawn = np.array(changes, np.int64).reshape(-1, 3).T
        rows = pa.concat_tables(self._parts).take(array_of(numbers))
        self._compact()
        return RowChanges(rows, events, withdrawn.astype(bool))

    def _keys_of(self, rows: pa.StructArray) -> list[Key | None]:
        """Return the key of each row, None for NULL."""
        position_of = {field.name.lower(): number for number, field in enumerate(rows.type)}
        missing = next((name for name in self._keys if name.lower() not in position_of), None)
        if missing is not None:
            raise ValueError(f"got rows without the column {missing} of the key, expected all columns of the key")
        present = rows.filter(rows.is_valid())
        columns = [present.field(position_of[name.lower()]) for name in self._keys]
        if any(column.null_count for column in columns):
            raise ValueError(f"got a row without a value of the key ({', '.join(self._keys)})")
        converted = [self._convert(name, column) for name, column in zip(self._keys, columns, strict=True)]
        keys = zip(*(column.to_pylist() for column in converted), strict=True)
        return [next(keys) if is_valid else None for is_valid in rows.is_valid().to_pylist()]

    def _store(self, rows: pa.StructArray) -> None:
        """Add rows. Their numbers follow the numbers of the stored rows."""
        part = pa.Table.from_arrays(rows.flatten(), names=[field.name for field in rows.type])
        if self._parts and self._parts[0].schema != part.schema:  # another file, with other types of the same columns
            self._parts = [_with_schema(pa.concat_tables(self._parts), part.schema)]
        self._parts.append(part)
        self.stored_rows += len(rows)

    def _compact(self) -> None:
        """Remove rows that are not the last of their key, if these are most of the stored rows."""
        if self.stored_rows <= 2 * len(self._row_number_by_key) + MAX_KEYS // 16 and len(self._parts) <= MAX_PARTS:
            return
        numbers = np.fromiter(self._row_number_by_key.values(), np.int64, len(self._row_number_by_key))
        last = pc.take(pa.concat_tables(self._parts), array_of(numbers)).combine_chunks()
        self._parts, self.stored_rows = [last], len(numbers)
        self._row_number_by_key = dict(zip(self._row_number_by_key, range(len(numbers)), strict=True))


def _with_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert rows to `schema`. The case of column names is ignored. Columns that rows do not have are NULL."""
    column_of = dict(zip(map(str.lower, rows.schema.names), rows.columns, strict=True))
    columns = [
        pa.nulls(rows.num_rows, field.type) if column is None else column.cast(field.type)
        for field in schema
        for column in [column_of.get(field.name.lower())]
    ]
    return pa.Table.from_arrays(columns, schema=schema)
