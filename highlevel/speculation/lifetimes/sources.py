"""Convert rows of tables and queries to changes of rows with lifetimes.

    rows                    their changes
    with a start and end    an insert each
    with identifiers versions: a row without an end is open. A later version replaces it; a version without a start ends
    it (`FinalizeById`) changes columns `type`, `vs`, `ve`, `vnew`. The rows may be in any order (`FinalizeByValue`)

A lifetime is at least 1 ns long, because a flow of one packet has equal start and end. Each batch is followed by a
watermark (CTI): the newest start minus `remember`. Without `remember` the only CTI is at the end, so no row is late.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from capture.lazy_dataclasses import dataclass
from highlevel.speculation.lifetimes.finalize import Change, Count, FinalizeById, FinalizeByValue
from highlevel.speculation.lifetimes.kernels.endpoints import CTI, INSERT, RETRACTION
from highlevel.speculation.lifetimes.model import (
    CONTROL,
    TYPE,
    VE,
    VNEW,
    VS,
    LifetimeError,
    Words,
    change_schema,
    concat,
    make_changes,
    make_ctis,
)
from lowlevel.punctuation import BEGINNING, END

COUNT = 3
"""The type of a row that counts changes: exactly `vnew` changes have a sync time in [`vs`, `ve`). It is the ExternalCTI
of the paper."""

Report = Callable[[str], None]
"""A function that receives a message about rows that were dropped."""


@dataclass(frozen=True, slots=True)
class LifetimeColumns:
    """The columns with the start, end and identifier of a row, and the time for which rows are remembered, ns.

    `counts_from`: the start, in ns, of the first range whose changes are counted.
    """

    start: str
    end: str
    identifier: tuple[str, ...] = ()
    remember: int | None = None
    counts_from: int | None = None


class RowSource:
    """Converts batches of rows to changes.

    Raises LifetimeError for missing columns, or columns that must be times and are not.
    """

    def __init__(
        self, schema: pa.Schema, columns: LifetimeColumns, batches: Callable[[], Iterable[pa.RecordBatch]]
    ) -> None:
        """Read rows of `schema` from `batches`, which is called for each run."""
        self._columns = columns
        self._batches = batches
        self._are_changes = set(CONTROL) <= set(schema.names)
        names = CONTROL if self._are_changes else (columns.start, columns.end, *columns.identifier)
        for name in names:
            if name not in schema.names:
                raise LifetimeError(f"got no column {name!r}, expected it among {', '.join(schema.names)}")
        for name in (VS, VE, VNEW) if self._are_changes else (columns.start, columns.end):
            kind = schema.field(name).type
            if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
                raise LifetimeError(f"got the column {name!r} of type {kind}, expected times")
        kept = [field for field in schema if field.name not in (CONTROL if self._are_changes else names[:2])]
        self._payload = pa.schema(kept)
        self.schema = change_schema(self._payload)

    def changes(self, report: Report) -> Iterator[pa.RecordBatch]:
        """Yield batches of valid changes, the last with CTI(END)."""
        if self._are_changes:
            yield from self._by_value(report)
        elif self._columns.identifier:
            yield from self._by_identifier(report)
        else:
            yield from self._inserts(report)

    def _inserts(self, report: Report) -> Iterator[pa.RecordBatch]:
        remember = self._columns.remember
        cti, newest, late, invalid = BEGINNING, BEGINNING, 0, 0
        for batch in self._rows_of_run():
            rows, start, end, dropped = self._lifetimes(batch)
            invalid += dropped
            is_late = start < cti
            if is_late.any():
                late += int(is_late.sum())
                rows, start, end = pc.filter(rows, array_of(~is_late)), start[~is_late], end[~is_late]
            parts = [make_changes(np.full(len(start), INSERT), start, end, end, rows.select(self._payload.names))]
            newest = max(newest, int(start.max(initial=BEGINNING)))
            if remember is not None and newest != BEGINNING and newest - remember > cti:
                cti = newest - remember
                parts.append(make_ctis([cti], self._payload))
            yield concat(parts, self.schema)
        yield make_ctis([END], self._payload)
        _report(report, late, invalid)

    def _by_identifier(self, report: Report) -> Iterator[pa.RecordBatch]:
        finalize = FinalizeById(self._columns.remember)
        invalid = 0
        for batch in self._rows_of_run():
            rows, start, end, dropped = self._lifetimes(batch, starts_are_known=False)
            invalid += dropped
            identifiers = zip(*(rows.column(name).to_pylist() for name in self._columns.identifier), strict=True)
            out: list[Change] = []
            for identifier, vs, ve, row in zip(
                identifiers, start.tolist(), end.tolist(), self._rows(rows), strict=True
            ):
                out += finalize.retract(identifier, ve) if vs == END else finalize.insert(identifier, vs, ve, row)
            out += finalize.advance()
            yield self._batch(out)
        yield self._batch(finalize.advance(ended=True))
        _report(report, finalize.late, invalid)

    def _by_value(self, report: Report) -> Iterator[pa.RecordBatch]:
        finalize = FinalizeByValue(self._columns.remember, self._columns.counts_from)
        for batch in self._rows_of_run():
            out: list[Change] = []
            kinds = batch.column(TYPE).to_pylist()
            times = [_times(batch.column(name)).tolist() for name in (VS, VE, VNEW)]
            for kind, vs, ve, vnew, row in zip(kinds, *times, self._rows(batch), strict=True):
                if kind == INSERT:
                    out += finalize.insert(vs, ve, row)
                elif kind == RETRACTION:
                    out += finalize.retract(vs, ve, vnew, row)
                elif kind == COUNT:
                    finalize.ctis.count(Count(vs, ve, vnew))
                elif kind != CTI:
                    raise LifetimeError(
                        f"got a change of type {kind}, expected {INSERT}, {RETRACTION}, {CTI} or {COUNT}"
                    )
            out += finalize.advance()
            yield self._batch(out)
        yield self._batch(finalize.advance(ended=True))
        _report(report, finalize.late, 0)

    def _rows_of_run(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a run. If the reader stops, the inputs are closed."""
        batches = self._batches()
        with contextlib.ExitStack() as stack:
            if hasattr(batches, "close"):
                stack.callback(batches.close)
            yield from batches

    def _lifetimes(
        self, batch: pa.RecordBatch, *, starts_are_known: bool = True
    ) -> tuple[pa.RecordBatch, Words, Words, int]:
        """Return the rows with a valid lifetime, their starts and ends, and the number of other rows.

        If `starts_are_known` is False, a row with an end may lack a start (END).
        """
        columns = self._columns
        start, end = _times(batch.column(columns.start)), _times(batch.column(columns.end))
        is_valid = (start < END) & (end >= start)
        if not starts_are_known:
            is_valid |= (start == END) & (end < END)
        end = np.where(end == start, start + 1, end)
        if is_valid.all():
            return batch, start, end, 0
        return pc.filter(batch, array_of(is_valid)), start[is_valid], end[is_valid], int((~is_valid).sum())

    def _rows(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        """Yield the values of each row; times are integers."""
        if not self._payload.names:
            return iter([()] * batch.num_rows)
        columns = (batch.column(name) for name in self._payload.names)
        return zip(*((column.cast(_stored(column.type))).to_pylist() for column in columns), strict=True)

    def _batch(self, changes: Iterable[Change]) -> pa.RecordBatch:
        """Return changes as a batch."""
        listed = list(changes)
        times = [np.array([change[word] for change in listed], np.int64) for word in range(4)]
        columns = [
            pa.array(
                [None if change[4] is None else change[4][position] for change in listed], _stored(field.type)
            ).cast(field.type)
            for position, field in enumerate(self._payload)
        ]
        kind, start, stop, new_stop = times
        return make_changes(kind, start, stop, new_stop, pa.RecordBatch.from_arrays(columns, schema=self._payload))


def _stored(arrow_type: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(arrow_type) else arrow_type


def _times(column: pa.Array) -> Words:
    """Return times as ns since the epoch; NULL is END."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ns", column.type.tz))
    return pc.fill_null(column.cast(pa.int64()), END).to_numpy(zero_copy_only=False)


def _report(report: Report, late: int, invalid: int) -> None:
    if invalid:
        report(f"rows without a start, or with an end before it: {invalid} dropped")
    if late:
        report(f"rows that are older than `remember` allows: {late} dropped")


def read_in_turn(sources: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the batches of several streams of changes with their port.

    The stream with the earliest CTI is read next.
    """
    reached = dict.fromkeys(range(len(sources)), BEGINNING)
    while reached:
        port = min(reached, key=lambda each: (reached[each], each))
        batch = next(sources[port], None)
        if batch is None:
            del reached[port]
            continue
        yield port, batch
        if batch.num_rows:
            reached[port] = max(reached[port], int(_times(batch.column(VS)).max()))
