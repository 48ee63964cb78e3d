"""The formats in which `wiretide query --changes` writes the changes of a query for other systems.

    weights    the row, `weight` and `final`
    debezium   an envelope for each change: `op` (c, u, d), the row `before` and `after`, `source`, `ts_ms`, `final`
    flink      `op` (+I, -U, +U, -D), the row, `final`
    diff       `mz_timestamp`, `mz_progressed`, `mz_diff`, the row (SUBSCRIBE of Materialize)

If a batch withdraws a row and adds a new row with the same key (`highlevel.plan.keys`), both are written as one update.
Debezium needs the key, because a table that reads the envelopes replaces rows with the same key. In the format of
Flink, a change without a key is a deletion and an insertion. In the format of Debezium, the rows of a query without
changes are a snapshot: `op` is r. In the envelope, `ts_ms` is the time of writing, and `source` contains the time of
the row, both in ms since 1970.

In the format `diff`, all changes of a batch have one timestamp, the number of the batch. After each batch follows a row
with `mz_progressed`: no later change has an earlier timestamp. The time column of this row is the watermark (CTI): rows
up to this time are final. The other columns of this row are NULL.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from capture.errors import InputError
from dashboards.output.formats import ChangeForm
from highlevel.inline.debezium_envelopes import AFTER, BEFORE, EVENT_TIME, OPERATION
from highlevel.plan.keys import Key, key_of
from highlevel.plan.operators.group_numbers import number_groups
from highlevel.plan.operators.operator import times_of
from highlevel.plan.plan import Plan
from highlevel.speculation.changes import Weights, split_changes
from highlevel.speculation.consistency import FINAL, WEIGHT
from lowlevel.punctuation import BEGINNING, END

SOURCE = "source"
TIMESTAMP, PROGRESSED, DIFF = "mz_timestamp", "mz_progressed", "mz_diff"

Positions = npt.NDArray[np.int64]

NO_ROW = -1

MILLISECOND = 1_000_000
"""In ns."""

CONNECTOR = "wiretide"
SOURCE_FIELDS = pa.struct(
    [
        *((name, pa.string()) for name in ("version", "connector", "name")),
        (EVENT_TIME, pa.int64()),
        *((name, pa.string()) for name in ("snapshot", "db", "table")),
    ]
)
"""The fields of `source` that all connectors of Debezium write. The field `table` contains the name of the query."""

ADDED_COLUMNS = {
    ChangeForm.WEIGHTS: (),
    ChangeForm.DEBEZIUM: (),
    ChangeForm.FLINK: (OPERATION,),
    ChangeForm.DIFF: (TIMESTAMP, PROGRESSED, DIFF),
}
"""Columns that each format adds to the columns of the row. The columns of the row must have other names."""


class ChangeWriter:
    """Converts the changes of one query to a format."""

    def __init__(self, plan: Plan, form: ChangeForm, clock: Callable[[], int] = time.time_ns) -> None:
        """Raise InputError if the query has no changes, or if its results cannot be written in the format.

        `clock` returns the time in ns since 1970.
        """
        if not plan.has_changes and form is not ChangeForm.DEBEZIUM:
            raise InputError(f"--changes {form}: got a query without changes, expected EMIT CHANGES at its end")
        self.form = form
        self._plan = plan
        self._clock = clock
        self._columns = pa.schema(list(plan.schema)[: -2 if plan.has_changes else None])
        for name in ADDED_COLUMNS[form]:
            if name in self._columns.names:
                raise InputError(
                    f"--changes {form}: got a column {name!r}, expected another name, because the form adds a column "
                    "with this name"
                )
        self._key = key_of(plan.root)
        self._version = ""
        if form is ChangeForm.DEBEZIUM:
            self._check_key()
            self._version = version(CONNECTOR)

    @property
    def columns(self) -> pa.Schema:
        """The columns of the rows, without weight and final."""
        return self._columns

    def _check_key(self) -> None:
        expected = "expected --changes flink or --changes diff, which need no key"
        if self._key is None:
            columns = ", ".join(self._columns.names)
            raise InputError(f"--changes debezium: got rows without a key ({columns}), {expected}")
        if self._key.missing:
            key, missing = ", ".join((*self._key.columns, *self._key.missing)), ", ".join(self._key.missing)
            raise InputError(
                f"--changes debezium: the key of the query is {key}, but the rows have only "
                f"{', '.join(self._key.columns) or 'none of these columns'}; expected {missing} in the select list, "
                "or --changes flink"
            )

    @property
    def key(self) -> tuple[str, ...] | None:
        """The columns that identify a row; None if there are none, or if the results lack one of them."""
        return self._key.columns if isinstance(self._key, Key) and not self._key.missing else None

    def schema(self, rows: pa.Schema) -> pa.Schema:
        """Return the schema of the converted batches. `rows`: the schema of the rows, without weight and final."""
        final, operation = pa.field(FINAL, pa.bool_()), pa.field(OPERATION, pa.string())
        match self.form:
            case ChangeForm.WEIGHTS:
                return pa.schema([*rows, pa.field(WEIGHT, pa.int64()), final])
            case ChangeForm.DEBEZIUM:
                row = pa.struct(list(rows))
                rows_of_event = (pa.field(BEFORE, row), pa.field(AFTER, row))
                origin = (pa.field(SOURCE, SOURCE_FIELDS), pa.field(EVENT_TIME, pa.int64()))
                return pa.schema([operation, *rows_of_event, *origin, final])
            case ChangeForm.FLINK:
                return pa.schema([operation, *rows, final])
        added = [pa.field(TIMESTAMP, pa.int64()), pa.field(PROGRESSED, pa.bool_()), pa.field(DIFF, pa.int64())]
        return pa.schema([*added, *rows])

    def convert(
        self, batches: Iterable[pa.RecordBatch], prepare: Callable[[pa.Table], pa.Table] = lambda rows: rows
    ) -> Iterator[pa.RecordBatch]:
        """Yield the converted changes. `prepare` converts the columns of the rows for the format of the output."""
        schema = self.schema(prepare(self._columns.empty_table()).schema)
        number, newest, watermark = 0, BEGINNING, BEGINNING
        for number, batch in enumerate(batches, 1):
            rows, weights, final = self._split(batch)
            match self.form:
                case ChangeForm.WEIGHTS:
                    columns = [*prepare(rows).columns, array_of(weights), array_of(final)]
                case ChangeForm.DEBEZIUM:
                    columns = self._to_debezium(prepare(rows), rows, weights, final)
                case ChangeForm.FLINK:
                    columns = self._to_flink(prepare(rows), rows, weights, final)
                case _:
                    count = rows.num_rows
                    added = [np.full(count, number - 1), np.zeros(count, np.bool_), weights]
                    columns = [*map(array_of, added), *prepare(rows).columns]
            yield _batch(columns, schema)
            if self.form is ChangeForm.DIFF and self._plan.time_column is not None:
                times = times_of(rows.column(self._plan.time_column).combine_chunks())
                newest = max(newest, int(times[times < END].max(initial=BEGINNING)))
                watermark = max(watermark, int(times[final & (times < END)].max(initial=BEGINNING)))
            if self.form is ChangeForm.DIFF:
                yield self._make_progress_row(number, watermark, prepare, schema)
        if self.form is ChangeForm.DIFF and newest > watermark:  # after the last batch all rows are final
            yield self._make_progress_row(number + 1, newest, prepare, schema)

    def _split(self, batch: pa.RecordBatch) -> tuple[pa.Table, Weights, npt.NDArray[np.bool_]]:
        """Return the rows of a batch, their weights, and a mask of final rows.

        All rows of a query without changes are final.
        """
        if self._plan.has_changes:
            return split_changes(batch)
        count = batch.num_rows
        return pa.Table.from_batches([batch]), np.ones(count, np.int64), np.ones(count, np.bool_)

    def _make_progress_row(
        self, number: int, watermark: int, prepare: Callable[[pa.Table], pa.Table], schema: pa.Schema
    ) -> pa.RecordBatch:
        """Return the row which states that all later changes have a timestamp of at least `number`."""
        time = self._plan.time_column
        values = {time: [watermark]} if time is not None and watermark != BEGINNING else {}
        arrays = [pa.array(values.get(field.name, [None]), field.type) for field in self._columns]
        row = prepare(pa.Table.from_arrays(arrays, schema=self._columns))
        added = [pa.array([number], pa.int64()), pa.array([True]), pa.array([None], pa.int64())]
        return _batch([*added, *row.columns], schema)

    def _to_debezium(
        self, shown: pa.Table, rows: pa.Table, weights: Weights, final: npt.NDArray[np.bool_]
    ) -> list[pa.Array]:
        old, new = pair_changes(rows, weights, self.key)
        created = "c" if self._plan.has_changes else "r"
        names = np.where(old == NO_ROW, created, np.where(new == NO_ROW, "d", "u"))
        structs = [_to_structs(shown, positions) for positions in (old, new)]
        newest = np.where(new == NO_ROW, old, new)
        written = np.full(len(newest), self._clock() // MILLISECOND)
        return [
            pa.array(names, pa.string()),
            *structs,
            self._make_sources(rows, newest),
            array_of(written),
            array_of(final[newest]),
        ]

    def _make_sources(self, rows: pa.Table, positions: Positions) -> pa.Array:
        """Return the field `source` for the rows at `positions`.

        A row without a time, or without an end, has no time.
        """
        count = len(positions)
        texts = {
            "version": self._version,
            "connector": CONNECTOR,
            "name": CONNECTOR,
            "snapshot": "false" if self._plan.has_changes else "true",
            "db": "",
            "table": self._plan.name,
        }
        times = np.full(count, END)
        if self._plan.time_column is not None:
            times = times_of(rows.column(self._plan.time_column).combine_chunks())[positions]
        columns = [
            pa.array(times // MILLISECOND, mask=times == END)
            if field.name == EVENT_TIME
            else pa.repeat(texts[field.name], count)
            for field in SOURCE_FIELDS
        ]
        return pa.StructArray.from_arrays(columns, fields=list(SOURCE_FIELDS))

    def _to_flink(
        self, shown: pa.Table, rows: pa.Table, weights: Weights, final: npt.NDArray[np.bool_]
    ) -> list[pa.Array]:
        old, new = pair_changes(rows, weights, self.key)
        updated = (old != NO_ROW) & (new != NO_ROW)
        names = np.stack([np.where(updated, "-U", "-D"), np.where(updated, "+U", "+I")], axis=1)
        positions = np.stack([old, new], axis=1)
        chosen = positions.ravel() != NO_ROW
        positions = positions.ravel()[chosen]
        columns = shown.take(pa.array(positions)).columns
        return [pa.array(names.ravel()[chosen], pa.string()), *columns, array_of(final[positions])]


def pair_changes(rows: pa.Table, weights: Weights, key: tuple[str, ...] | None) -> tuple[Positions, Positions]:
    """Return the events of a batch: the position of the withdrawn row and of the new row, each NO_ROW if there is none.

    A withdrawn row and a new row with the same key are one event. Several equal rows are several events. Events that
    withdraw a row are first.

    >>> rows = pa.table({"k": [1, 2, 2, 3], "n": [5, 6, 7, 8]})
    >>> old, new = pair_changes(rows, np.array([-1, -1, 1, 1]), ("k",))
    >>> old.tolist(), new.tolist()
    ([0, 1, -1], [-1, 2, 3])
    """
    withdrawn, added = np.flatnonzero(weights < 0), np.flatnonzero(weights > 0)
    withdrawn, added = (np.repeat(each, np.abs(weights[each])) for each in (withdrawn, added))
    partner = np.full(len(withdrawn), NO_ROW)
    if key is not None:
        numbers = number_groups(rows, key)
        of_withdrawn, of_added = (_count_occurrences(numbers[each]) for each in (withdrawn, added))
        _, first, second = np.intersect1d(of_withdrawn, of_added, return_indices=True)
        partner[first] = added[second]
        added = np.delete(added, second)
    return np.append(withdrawn, np.full(len(added), NO_ROW)), np.append(partner, added)


def _count_occurrences(numbers: Positions) -> Positions:
    """Return `number << 32 | n` for the n-th occurrence (from 0) of each number."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else order
    ranks = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.append(starts, len(ordered))))
    values = np.empty(len(numbers), np.int64)
    values[order] = ordered << 32 | ranks
    return values


def _to_structs(rows: pa.Table, positions: Positions) -> pa.Array:
    """Return the rows at positions as structs; NULL for NO_ROW."""
    if not rows.num_rows:
        return pa.nulls(len(positions), pa.struct(list(rows.schema)))
    (batch,) = pc.take(rows, array_of(np.maximum(positions, 0))).combine_chunks().to_batches() or [None]
    mask = pa.array(positions == NO_ROW)
    return pa.StructArray.from_arrays(batch.columns, fields=list(rows.schema), mask=mask)


def _batch(columns: Iterable[pa.Array | pa.ChunkedArray], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [each.combine_chunks() if isinstance(each, pa.ChunkedArray) else each for each in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
