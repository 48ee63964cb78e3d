"""Lifetimes: the Python API of rows with lifetimes (docs/guide/lifetimes.md).

    rows of a query ──► changes ──► windows, aggregates, joins, sets ──► changes, weights, or the final rows

A stream describes a computation. It runs when its changes are read, each time from the start.
"""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from highlevel.speculation.lifetimes.aggregates import parse_aggregate
from highlevel.speculation.lifetimes.align import Align, Release
from highlevel.speculation.lifetimes.alter_lifetime import AlterLifetime, NewLifetime, Window
from highlevel.speculation.lifetimes.equi_join import LifetimeJoin
from highlevel.speculation.lifetimes.forms import debezium, flink
from highlevel.speculation.lifetimes.kernels.endpoints import CTI
from highlevel.speculation.lifetimes.model import (
    AT,
    CONTROL,
    TYPE,
    VE,
    VNEW,
    VS,
    LifetimeError,
    are_equivalent,
    canonical_history,
    concat,
    have_equal_snapshots,
    instants,
    payload_schema,
    times_of,
    weighted,
)
from highlevel.speculation.lifetimes.set_operations import RowCounts, SetOperation, UnionAll
from highlevel.speculation.lifetimes.snapshot import SnapshotOperator, Variant
from highlevel.speculation.lifetimes.sources import LifetimeColumns, RowSource, read_in_turn
from lowlevel.durations import parse_duration
from lowlevel.punctuation import END

Report = Callable[[str], None]
Read = Callable[[Report], Iterator[pa.RecordBatch]]
Step = Callable[[], Callable[[pa.RecordBatch], pa.RecordBatch]]
"""Creates the function that processes the batches of one run."""

FORMS: dict[str, Callable[[pa.RecordBatch], pa.RecordBatch]] = {
    "changes": lambda changes: changes,
    "weights": weighted,
    "instants": instants,
    "debezium": debezium,
    "flink": flink,
}
"""Forms of changes. All except `changes` and `instants` omit CTIs."""

VARIANTS = {variant.name.lower(): variant for variant in Variant}
RELEASES = {release.value: release for release in Release}
CLOCKS: dict[str, Callable[[], int] | None] = {"rows": None, "clock": time.monotonic_ns}
"""Clocks that measure how long changes wait, by name. None: the times of the rows are the clock."""

TIME = pa.timestamp("ns", "UTC")

START, REPLY = "start of the row", "start of the reply"
"""Columns of `not_followed_by`."""


class Lifetimes:
    """A stream of changes of rows with lifetimes. Methods return new streams; LifetimeError names wrong arguments."""

    def __init__(self, schema: pa.Schema, read: Read) -> None:
        """Create a stream of changes of `schema`.

        `read` yields the changes of a run; its last batch contains CTI(END).
        """
        self._schema = schema
        self._read = read

    @property
    def columns(self) -> list[str]:
        """The names of the columns of the rows."""
        return payload_schema(self._schema).names

    def where(self, condition: Any) -> Lifetimes:
        """Keep the rows for which a `pyarrow.compute` expression is true, such as `pc.field("bytes") > 1000`."""

        def select(changes: pa.RecordBatch) -> pa.RecordBatch:
            import pyarrow.compute as compute

            kept = pa.Table.from_batches([changes]).filter(condition | (compute.field(TYPE) == CTI))
            return concat(kept.to_batches(), changes.schema)

        return self._then(self._schema, lambda: select)

    def select(self, *names: str, **renamed: str) -> Lifetimes:
        """Keep the columns `names`, and columns under new names: `select("srcIP", octets="bytes")`."""
        wanted = {**{name: name for name in names}, **renamed}
        for name in wanted.values():
            self._check(name)
        fields = [self._schema.field(old).with_name(new) for new, old in wanted.items()]
        schema = pa.schema([*(self._schema.field(name) for name in CONTROL), *fields])
        old_names = [*CONTROL, *wanted.values()]
        return self._then(
            schema,
            lambda: lambda changes: pa.RecordBatch.from_arrays([changes.column(n) for n in old_names], schema=schema),
        )

    def last(self, length: str | int) -> Lifetimes:
        """Let each row be true for `length` from its start: a sliding window."""
        return self._with(NewLifetime(Window.LAST, _duration_ns(length)))

    def tumbling(self, length: str | int) -> Lifetimes:
        """Let each row be true in the whole window of `length` that contains its start."""
        return self._with(NewLifetime(Window.TUMBLING, _duration_ns(length), _duration_ns(length)))

    def hopping(self, length: str | int, hop: str | int) -> Lifetimes:
        """Let each row be true for `length` from the next multiple of `hop`."""
        return self._with(NewLifetime(Window.HOPPING, _duration_ns(length), _duration_ns(hop)))

    def widened(self, unit: str | int) -> Lifetimes:
        """Widen lifetimes to multiples of `unit`: a row is true in each unit that it touches."""
        return self._with(NewLifetime(Window.WIDENED, unit=_duration_ns(unit)))

    def began(self) -> Lifetimes:
        """Let each row be true from its start on, without an end."""
        return self._with(NewLifetime(Window.INSERTS))

    def ended(self) -> Lifetimes:
        """Let each row be true from its end on, without an end."""
        return self._with(NewLifetime(Window.DELETES))

    def wait(self, length: str | int | None = None, release: str = "sync", by: str = "rows") -> Lifetimes:
        """Delay changes by `length`, by default until a CTI, and merge the changes of one row (`Align`).

        `release`: `sync` gives ordered changes, `perfect` only rows that cannot change, `ends` the fewest changes.
        `by`: `rows` measures the length by the times of rows, `clock` from the arrival of a change by the system clock.
        """
        chosen = _choose(RELEASES, release, "release")
        clock = _choose(CLOCKS, by, "by")
        if clock is not None and length is None:
            raise LifetimeError("got by='clock' without a length, expected one, such as wait('2s', by='clock')")
        waited = None if length is None else _duration_ns(length)
        return self._then(self._schema, lambda: Align(self._schema, waited, chosen, clock).process)

    def aggregate(
        self, by: Sequence[str] = (), *, variant: str = "perfect", exact: bool = True, **aggregates: str
    ) -> Lifetimes:
        """Aggregate the rows that are true at each instant, by the columns `by`.

        The result has a row for each snapshot: `aggregate(["protocol"], flows="count(*)", octets="sum(bytes)")`.
        `variant` and `exact`: see `SnapshotOperator`.
        """
        parsed = [parse_aggregate(name, text) for name, text in aggregates.items()]
        chosen = _choose(VARIANTS, variant, "variant")

        def make() -> SnapshotOperator:
            return SnapshotOperator(self._schema, parsed, by, chosen, exact=exact)

        return self._then(make().schema, lambda: make().process)

    def join(self, other: Lifetimes, on: Sequence[str | tuple[str, str]]) -> Lifetimes:
        """Pair rows with equal columns `on`, while both are true. For further conditions use `where` on the pairs."""
        columns = [(each, each) if isinstance(each, str) else each for each in on]

        def make() -> LifetimeJoin:
            return LifetimeJoin(self._schema, other._schema, columns)

        return self._with_other(other, make().schema, lambda: make().process)

    def followed_by(self, other: Lifetimes, on: Sequence[str | tuple[str, str]], within: str | int) -> Lifetimes:
        """Pair rows with rows of `other` that begin later, by at most `within`.

        Rows are compared by their columns `on`, as in `join`. A pair is true for 1 ns, when the later row begins.
        """
        earlier = self._with(NewLifetime(Window.LAST, _duration_ns(within), delay=1))
        return earlier.join(other._with(NewLifetime(Window.LAST, 1)), on)

    def not_followed_by(
        self, other: Lifetimes, on: Sequence[str | tuple[str, str]], within: str | int, shown: str | int = "1m"
    ) -> Lifetimes:
        """Return the rows for which no row of `other` begins in the time `within` after their start.

        A result begins at the start of its row + `within`. It ends after the time `shown`, or earlier if a row of
        `other` begins. Both streams are read twice.
        """
        columns = [(each, each) if isinstance(each, str) else each for each in on]
        overdue = self._with_start(START)._with(
            NewLifetime(Window.LAST, _duration_ns(shown), delay=_duration_ns(within))
        )
        replies = other.select(**{theirs: theirs for _, theirs in columns})._with_start(REPLY)
        pairs = overdue.join(
            replies._with(NewLifetime(Window.LAST, _duration_ns(within) + _duration_ns(shown))), columns
        )
        import pyarrow.compute as compute

        answered = pairs.where(compute.field(REPLY) >= compute.field(START)).select(*overdue.columns)
        return overdue.minus(answered).select(*self.columns)

    def union(self, other: Lifetimes) -> Lifetimes:
        """Return the rows of both streams, which must have equal columns."""

        def make() -> UnionAll:
            return UnionAll(self._schema, other._schema)

        return self._with_other(other, make().schema, lambda: make().process)

    def minus(self, other: Lifetimes) -> Lifetimes:
        """Return each row at the times at which it is not in `other` (EXCEPT ALL)."""
        return self._set_operation(other, SetOperation.EXCEPT_ALL)

    def intersect(self, other: Lifetimes) -> Lifetimes:
        """Return each row at the times at which it is also in `other` (INTERSECT ALL)."""
        return self._set_operation(other, SetOperation.INTERSECT_ALL)

    def distinct(self) -> Lifetimes:
        """Return each row once while it is true."""

        def make() -> Callable[[pa.RecordBatch], pa.RecordBatch]:
            counts = RowCounts(self._schema, SetOperation.DISTINCT)
            return lambda changes: counts.process(0, changes)

        return self._then(self._schema, make)

    def equals(self, other: Lifetimes, *, at_every_instant: bool = False) -> bool:
        """Return True if both streams have the same rows with the same lifetimes after all changes.

        With `at_every_instant`, equal rows may be divided into lifetimes in different ways.
        """
        compare = have_equal_snapshots if at_every_instant else are_equivalent
        return compare(*(concat(list(each._run()), each._schema) for each in (self, other)))

    def changes(self, form: str = "changes") -> Generator[pa.RecordBatch, None, None]:
        """Yield batches of changes in one of FORMS. Times are timestamps; a missing end is NULL."""
        convert = _choose(FORMS, form, "form")

        def read() -> Generator[pa.RecordBatch, None, None]:
            with contextlib.closing(self._run()) as batches:
                for batch in batches:
                    converted = _with_timestamps(convert(batch))
                    if converted.num_rows:
                        yield converted

        return read()

    def table(self, form: str | None = None) -> pa.Table:
        """Return the rows after all changes with their lifetimes, ordered by start.

        With a `form`, return all changes instead.
        """
        if form is not None:
            convert = _choose(FORMS, form, "form")
            empty = _with_timestamps(convert(concat([], self._schema)))
            return pa.Table.from_batches([empty, *self.changes(form)])
        history = canonical_history(concat(list(self._run()), self._schema))
        return pa.Table.from_batches([_with_timestamps(concat(history.to_batches(), history.schema))])

    def _run(self) -> Generator[pa.RecordBatch, None, None]:
        """Run the stream. At the end emit a RuntimeWarning if rows were dropped."""
        reports: list[str] = []
        yield from self._read(reports.append)
        for text in reports:
            frame, level = sys._getframe(), 1
            while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
                frame, level = frame.f_back, level + 1
            warnings.warn(text, RuntimeWarning, stacklevel=level)

    def _then(self, schema: pa.Schema, step: Step) -> Lifetimes:
        def read(report: Report) -> Iterator[pa.RecordBatch]:
            process = step()
            return map(process, self._read(report))

        return Lifetimes(schema, read)

    def _with_start(self, name: str) -> Lifetimes:
        """Return the rows with their starts, in ns, as a further column."""
        schema = self._schema.append(pa.field(name, pa.int64()))

        def add(changes: pa.RecordBatch) -> pa.RecordBatch:
            kind, start, _, _ = times_of(changes)
            return pa.RecordBatch.from_arrays([*changes.columns, pa.array(start, mask=kind == CTI)], schema=schema)

        return self._then(schema, lambda: add)

    def _with(self, new: NewLifetime) -> Lifetimes:
        return self._then(self._schema, lambda: AlterLifetime(new).process)

    def _with_other(
        self, other: Lifetimes, schema: pa.Schema, step: Callable[[], Callable[[int, pa.RecordBatch], pa.RecordBatch]]
    ) -> Lifetimes:
        def read(report: Report) -> Iterator[pa.RecordBatch]:
            process = step()
            for port, batch in read_in_turn([self._read(report), other._read(report)]):
                yield process(port, batch)

        return Lifetimes(schema, read)

    def _set_operation(self, other: Lifetimes, operation: SetOperation) -> Lifetimes:
        def make() -> Callable[[int, pa.RecordBatch], pa.RecordBatch]:
            # Both inputs get the smaller of their CTIs, because rows of one side must not be final before the other
            # side is.
            united = UnionAll(self._schema, other._schema)
            counts = RowCounts(self._schema, operation)
            return lambda port, changes: counts.process(port, united.process(port, changes))

        make()
        return self._with_other(other, self._schema, make)

    def _check(self, name: str) -> None:
        if name not in self.columns:
            raise LifetimeError(f"got the column {name!r}, expected one of {', '.join(self.columns)}")


def lifetimes_of(
    schema: pa.Schema, batches: Callable[[], Iterable[pa.RecordBatch]], columns: LifetimeColumns
) -> Lifetimes:
    """Return a stream of rows of `schema`. `batches` returns the rows of a run."""
    source = RowSource(schema, columns, batches)
    return Lifetimes(source.schema, source.changes)


def _duration_ns(length: str | int) -> int:
    """Return a duration in ns."""
    if isinstance(length, int):
        return length
    try:
        return parse_duration(length)
    except ValueError as error:
        raise LifetimeError(f"got the duration {length!r}, {error}") from error


def _choose(choices: dict[str, Any], name: str, argument: str) -> Any:
    if name not in choices:
        raise LifetimeError(f"got the {argument} {name!r}, expected one of {', '.join(choices)}")
    return choices[name]


def _with_timestamps(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with the times of the model as timestamps; END is NULL."""
    columns = [
        _timestamps(column) if name in (VS, VE, VNEW, AT) else _struct_with_timestamps(column)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _timestamps(column: pa.Array) -> pa.Array:
    words = pc.fill_null(column, END).to_numpy(zero_copy_only=False)
    return pa.array(np.where(words == END, 0, words), mask=words == END).cast(TIME)


def _struct_with_timestamps(column: pa.Array) -> pa.Array:
    """Return the row of an envelope with timestamps; other columns remain as they are."""
    if not pa.types.is_struct(column.type) or column.type.get_field_index(VS) < 0:
        return column
    names = [field.name for field in column.type]
    parts = [
        _timestamps(part) if name in (VS, VE) else part for name, part in zip(names, column.flatten(), strict=True)
    ]
    return pa.StructArray.from_arrays(parts, names, mask=column.is_null())
