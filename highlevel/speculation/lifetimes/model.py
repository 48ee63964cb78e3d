"""Changes of rows with lifetimes: inserts, retractions and CTIs (Goldstein and Hong, §2; CEDR, §2).

A CTI (current time increment) means that no earlier change follows.

A row is true in its lifetime [vs, ve), a range of ns since the epoch. `vs` is the valid start, `ve` the valid end, and
`vnew` the new valid end in a retraction. END as `ve` means that no end is known. Changes are an Arrow batch with the
columns `type`, `vs`, `ve`, `vnew`, and then the columns of the row:

    type  vs  ve   vnew  srcIP       effect                                             sync time
    0     10  END        192.0.2.1   INSERT: the row is true in [10, END)               vs
    1     10  END  30    192.0.2.1   RETRACTION: the row [10, END) is true until 30     vnew
    1     10  30   10    192.0.2.1   RETRACTION with vnew = vs: the row never was true  vnew
    2     40                         CTI: no later change has a sync time below 40      vs

A retraction can only shorten a lifetime. It contains all values of the row and its current lifetime, so rows need no
identifier. Changes are in the order of their arrival. Equal rows are allowed; a retraction shortens one of them.

**CTI and watermark** are two forms of the same statement. CTI(t) and `Punctuation(link, t)` both mean that no later
item has a time below t; the time of a change is its sync time. Within a batch of changes a CTI is a row, because its
position among the changes has a meaning. Between the operators of a plan it is a Punctuation. CTI(END) is the end of
the stream.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from capture.errors import WiretideError
from highlevel.plan.operators.group_numbers import number_groups
from highlevel.speculation.consistency import WEIGHT
from highlevel.speculation.lifetimes.kernels.endpoints import CTI, INSERT, RETRACTION
from lowlevel.punctuation import BEGINNING, END

TYPE, VS, VE, VNEW = "type", "vs", "ve", "vnew"
CONTROL = (TYPE, VS, VE, VNEW)
"""The columns of a change that precede the columns of its row."""

AT = "at"
"""The time column of changes as differences (`instants`)."""

CONTROL_SCHEMA = pa.schema(
    [pa.field(TYPE, pa.uint8()), pa.field(VS, pa.int64()), pa.field(VE, pa.int64()), pa.field(VNEW, pa.int64())]
)

Words = npt.NDArray[np.int64]


class LifetimeError(WiretideError, ValueError):
    """Wrong rows with lifetimes, or wrong arguments of an operator over such rows."""


def change_schema(payload: pa.Schema) -> pa.Schema:
    """Return the schema of changes of rows. Raises LifetimeError if a row column is `type`, `vs`, `ve` or `vnew`."""
    for name in payload.names:
        if name in CONTROL:
            raise LifetimeError(f"got a column {name!r} of the rows, expected other names than {', '.join(CONTROL)}")
    return pa.schema([*CONTROL_SCHEMA, *(field.with_nullable(True) for field in payload)])


def payload_schema(changes: pa.Schema) -> pa.Schema:
    """Return the schema of the rows of changes."""
    return pa.schema([field for field in changes if field.name not in CONTROL])


def payload_of(changes: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of changes; a CTI has a row of NULLs."""
    return changes.select(payload_schema(changes.schema).names)


def storable(field: pa.Field) -> pa.DataType:
    """Return the type in which values of a column are stored. Raises LifetimeError if its values cannot be stored."""
    kind = field.type
    if pa.types.is_timestamp(kind) or pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_boolean(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind):
        return kind
    raise LifetimeError(f"got the column {field.name} of type {kind}, expected numbers, times, bool, text or bytes")


def times_of(changes: pa.RecordBatch) -> tuple[Words, Words, Words, Words]:
    """Return the types, starts, ends and new ends of changes. A missing time is 0."""
    kind = changes.column(TYPE).to_numpy(zero_copy_only=False).astype(np.int64)
    start, stop, new_stop = (_integers(changes.column(name)) for name in (VS, VE, VNEW))
    return kind, start, stop, new_stop


def _integers(column: pa.Array) -> Words:
    values = column if column.null_count == 0 else pc.fill_null(column, 0)
    return values.to_numpy(zero_copy_only=False)


def make_changes(
    change_types: Words, start: Words, stop: Words, new_stop: Words, payload: pa.RecordBatch
) -> pa.RecordBatch:
    """Return changes as a batch. Times that a type of change does not have are NULL."""
    times = [
        pa.array(change_types.astype(np.uint8)),
        array_of(start),
        pa.array(stop, mask=change_types == CTI),
        pa.array(new_stop, mask=change_types != RETRACTION),
    ]
    return pa.RecordBatch.from_arrays([*times, *payload.columns], schema=change_schema(payload.schema))


def make_ctis(times: Sequence[int], payload: pa.Schema) -> pa.RecordBatch:
    """Return CTIs as changes of rows with the columns `payload`."""
    zeros = np.zeros(len(times), np.int64)
    rows = pa.RecordBatch.from_arrays([pa.nulls(len(times), field.type) for field in payload], schema=payload)
    return make_changes(zeros + CTI, np.array(times, np.int64), zeros, zeros, rows)


def concat(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return batches of changes as one batch."""
    rows = pa.Table.from_batches(list(batches), schema).combine_chunks().to_batches()
    return rows[0] if rows else pa.RecordBatch.from_pylist([], schema)


def sync_times(changes: pa.RecordBatch) -> Words:
    """Return the sync time of each change: `vnew` of a retraction, otherwise `vs`."""
    kind, start, _, new_stop = times_of(changes)
    return np.where(kind == RETRACTION, new_stop, start)


def weighted(changes: pa.RecordBatch) -> pa.RecordBatch:
    """Return the changes as rows with a weight (Z-set): columns `vs`, `ve`, those of the row, and `weight`.

    An insert is a row with weight 1. A retraction is the old row with weight -1 and the shorter row with weight 1.
    If the row never was true (vnew = vs), there is no second row. CTIs are omitted. The order remains.
    """
    kind, start, stop, new_stop = times_of(changes)
    has_remainder = (kind == RETRACTION) & (new_stop > start)
    copies = np.where(kind == CTI, 0, 1 + has_remainder)
    source = np.repeat(np.arange(len(kind)), copies)
    is_second = np.append(False, source[1:] == source[:-1]) if len(source) else np.zeros(0, bool)
    ends = np.where(is_second, new_stop[source], stop[source])
    weights = np.where((kind[source] == INSERT) | is_second, 1, -1).astype(np.int64)
    rows = pc.take(payload_of(changes), array_of(source))
    columns = [array_of(start[source]), array_of(ends), *rows.columns, array_of(weights)]
    return pa.RecordBatch.from_arrays(columns, [VS, VE, *rows.schema.names, WEIGHT])


def from_weighted(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with weights as changes: an insert for each +1, a full retraction (vnew = vs) for each -1."""
    weights = rows.column(WEIGHT).to_numpy()
    source = np.repeat(np.arange(rows.num_rows), np.abs(weights))
    start, stop = (rows.column(name).to_numpy()[source] for name in (VS, VE))
    payload = pc.take(rows.drop_columns([VS, VE, WEIGHT]), array_of(source))
    kind = np.where(weights[source] > 0, INSERT, RETRACTION)
    return make_changes(kind, start, stop, start, payload)


def net_lifetimes(lifetimes: Words) -> Words:
    """Return the distinct rows of a matrix with the sums of their last words, in order, without sums of 0.

    >>> net_lifetimes(np.array([[2, 7, 1], [1, 9, 1], [2, 7, 1], [1, 9, -1]])).tolist()
    [[2, 7, 2]]
    """
    if not len(lifetimes):
        return lifetimes
    ordered = lifetimes[np.lexsort(lifetimes[:, -2::-1].T)]
    firsts = np.flatnonzero(np.append(True, (ordered[1:, :-1] != ordered[:-1, :-1]).any(axis=1)))
    net = ordered[firsts]
    net[:, -1] = np.add.reduceat(ordered[:, -1], firsts)
    return net[net[:, -1] != 0]


def canonical_history(changes: pa.RecordBatch) -> pa.Table:
    """Return the rows after all changes: `vs`, `ve` and the columns of the row, ordered by `vs` and `ve`.

    If n equal rows are true, the row is returned n times. Raises LifetimeError for invalid changes.
    """
    check_changes(changes)
    rows = pa.Table.from_batches([weighted(changes)])
    weights = rows.column(WEIGHT).to_numpy()
    rows = rows.drop_columns([WEIGHT])
    numbers = number_groups(rows, tuple(rows.schema.names))
    sums = np.zeros(numbers.max(initial=-1) + 1, np.int64)
    np.add.at(sums, numbers, weights)
    firsts = np.unique(numbers, return_index=True)[1]
    result = pc.take(rows, array_of(np.repeat(firsts, sums[numbers[firsts]])))
    return result.sort_by([(VS, "ascending"), (VE, "ascending")])


def check_changes(changes: pa.RecordBatch) -> None:
    """Raise LifetimeError for invalid changes.

    Invalid are an empty lifetime, a retraction that does not shorten its row, a retraction of a row that is not true,
    and a change below an earlier CTI.
    """
    kind, start, stop, new_stop = times_of(changes)
    is_wrong = np.where(kind == RETRACTION, (new_stop < start) | (new_stop >= stop), (kind == INSERT) & (start >= stop))
    _raise_at_first(changes, is_wrong, "a lifetime [vs, ve) with vs < ve, and vs <= vnew < ve")
    ctis = np.maximum.accumulate(np.where(kind == CTI, start, BEGINNING), dtype=np.int64)
    is_late = (kind != CTI) & (sync_times(changes) < ctis)
    _raise_at_first(changes, is_late, "a sync time that is not below an earlier CTI")
    rows = pa.Table.from_batches([weighted(changes)])
    weights = rows.column(WEIGHT).to_numpy()
    rows = rows.drop_columns([WEIGHT])
    numbers = number_groups(rows, tuple(rows.schema.names))
    order = np.argsort(numbers, kind="stable")
    totals = np.cumsum(weights[order])
    first_of_group = np.append(True, np.diff(numbers[order]) != 0)[: len(order)]
    bases = np.maximum.accumulate(np.where(first_of_group, np.arange(len(order)), 0))
    is_below_zero = totals - np.append(0, totals)[bases] < 0
    if is_below_zero.any():
        row = rows.slice(int(order[is_below_zero].min()), 1).to_pylist()[0]
        raise LifetimeError(f"got a retraction of {row}, expected a row that exists with this lifetime")


def _raise_at_first(changes: pa.RecordBatch, is_wrong: npt.NDArray[np.bool_], expected: str) -> None:
    if is_wrong.any():
        place = int(is_wrong.argmax())
        raise LifetimeError(f"got {changes.slice(place, 1).to_pylist()[0]} as change {place}, expected {expected}")


def are_equivalent(one: pa.RecordBatch, other: pa.RecordBatch) -> bool:
    """Return True if changes are logically equivalent: their canonical histories have the same rows."""
    return _have_equal_rows(_net_weights(one, by_instant=False), _net_weights(other, by_instant=False))


def have_equal_snapshots(one: pa.RecordBatch, other: pa.RecordBatch) -> bool:
    """Return True if the same rows are true at every instant. Their lifetimes may be divided differently."""
    return _have_equal_rows(_net_weights(one, by_instant=True), _net_weights(other, by_instant=True))


def _have_equal_rows(one: pa.Table, other: pa.Table) -> bool:
    names = tuple(one.schema.names)
    rows = pa.concat_tables([one, other.select(names)])
    numbers = number_groups(rows, names)
    return bool(np.array_equal(np.sort(numbers[: one.num_rows]), np.sort(numbers[one.num_rows :])))


def _net_weights(changes: pa.RecordBatch, *, by_instant: bool) -> pa.Table:
    """Return each distinct row once, with the sum of its weights, without rows whose sum is 0.

    `by_instant`: compare the instants at which rows change, not their lifetimes.
    """
    rows = pa.Table.from_batches([instants(changes) if by_instant else weighted(changes)])
    weights = rows.column(WEIGHT).to_numpy()
    rows = rows.drop_columns([WEIGHT])
    numbers = number_groups(rows, tuple(rows.schema.names))
    sums = np.zeros(numbers.max(initial=-1) + 1, np.int64)
    np.add.at(sums, numbers, weights)
    firsts = np.unique(numbers, return_index=True)[1]
    firsts = firsts[sums[numbers[firsts]] != 0]
    return pc.take(rows, array_of(firsts)).append_column(WEIGHT, pa.chunked_array([array_of(sums[numbers[firsts]])]))


def instants(changes: pa.RecordBatch) -> pa.RecordBatch:
    """Return the changes as differences: the columns `at`, those of the row, and `weight`.

    A row is true from an instant with weight 1 until an instant with weight -1. Differential dataflow and Materialize's
    SUBSCRIBE use this form. A row without a known end (`ve` is END) has only the instant at which it becomes true.
    """
    rows = weighted(changes)
    count = rows.num_rows
    source = np.repeat(np.arange(count), 2)
    is_end = np.tile([False, True], count)
    times = np.where(is_end, rows.column(VE).to_numpy()[source], rows.column(VS).to_numpy()[source])
    weights = np.where(is_end, -1, 1) * rows.column(WEIGHT).to_numpy()[source]
    is_kept = times != END
    payload = pc.take(rows.drop_columns([VS, VE, WEIGHT]), array_of(source[is_kept]))
    columns = [array_of(times[is_kept]), *payload.columns, array_of(weights[is_kept])]
    return pa.RecordBatch.from_arrays(columns, [AT, *payload.schema.names, WEIGHT])
