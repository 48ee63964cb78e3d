"""Unions and set operations of changes of rows (digest of CEDR, §3.7; derived, not in the papers).

A union returns all changes of its inputs. Its CTI is the smaller CTI of the inputs. The other operations are snapshot
operators that group by all columns. At each instant they count the copies of a row in each input, and compute from
these numbers how often the row is in the result. At every instant the result is equal to the result of SQL. A row whose
number does not change may be divided into several lifetimes.
"""

from __future__ import annotations

from enum import Enum

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.speculation.lifetimes.aggregates import Aggregate
from highlevel.speculation.lifetimes.kernels.endpoints import CTI
from highlevel.speculation.lifetimes.model import (
    CONTROL,
    LifetimeError,
    concat,
    make_changes,
    make_ctis,
    payload_of,
    payload_schema,
    times_of,
)
from highlevel.speculation.lifetimes.snapshot import SnapshotOperator, Variant
from lowlevel.punctuation import BEGINNING


class UnionAll:
    """Returns the changes of two inputs with the same columns."""

    def __init__(self, schema: pa.Schema, other: pa.Schema) -> None:
        """Return the changes of inputs with these schemas. Raises LifetimeError unless the columns are equal."""
        if [(field.name, field.type) for field in schema] != [(field.name, field.type) for field in other]:
            one, two = (
                ", ".join(f"{field.name} {field.type}" for field in payload_schema(each)) for each in (schema, other)
            )
            raise LifetimeError(f"got the columns {one} and {two}, expected equal columns (select)")
        self.schema = schema
        self._ctis = [BEGINNING, BEGINNING]
        self._returned = BEGINNING

    def process(self, port: int, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Return the changes of one input. Its CTIs are replaced by the CTIs of the union."""
        kind, start, _, _ = times_of(changes)
        parts, begin = [], 0
        for end in [*np.flatnonzero(kind == CTI).tolist(), len(kind)]:
            parts.append(changes.slice(begin, end - begin))
            begin = end + 1
            if end < len(kind):
                self._ctis[port] = int(start[end])
                if min(self._ctis) > self._returned:
                    self._returned = min(self._ctis)
                    parts.append(make_ctis([self._returned], payload_schema(self.schema)))
        return concat(parts, self.schema)


class SetOperation(Enum):
    """Set operations.

    An operation computes the number of copies of a row in the result from the numbers of its copies in both inputs.
    """

    EXCEPT_ALL = "except"
    INTERSECT_ALL = "intersect"
    DISTINCT = "distinct"


ROWS, RIGHT, SIDE = "rows of both", "rows of the right", "side"
"""Columns of the snapshot operator below a set operation."""


class RowCounts:
    """Counts equal rows of two inputs at each instant, and returns the result of a set operation."""

    def __init__(self, schema: pa.Schema, operation: SetOperation) -> None:
        """Compute `operation` of inputs with the columns of `schema`."""
        self.schema = schema
        self._operation = operation
        payload = payload_schema(schema)
        if SIDE in payload.names or ROWS in payload.names or RIGHT in payload.names:
            raise LifetimeError(f"got a column {SIDE!r}, expected another name")
        self._tagged = schema.append(pa.field(SIDE, pa.int64()))
        aggregates = [Aggregate(ROWS, "count"), Aggregate(RIGHT, "sum", SIDE)]
        self._counts = SnapshotOperator(self._tagged, aggregates, payload.names, Variant.PERFECT, exact=False)

    def process(self, port: int, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Process changes of the left input (port 0) or the right input (port 1).

        The CTI of the result is the smaller CTI of the inputs.
        """
        side = array_of(np.full(changes.num_rows, port, np.int64))
        counted = self._counts.process(pa.RecordBatch.from_arrays([*changes.columns, side], schema=self._tagged))
        kind, start, stop, new_stop = times_of(counted)
        both, right = (pc.fill_null(counted.column(name), 0).to_numpy() for name in (ROWS, RIGHT))
        left = both - right
        if self._operation is SetOperation.EXCEPT_ALL:
            copies = np.maximum(left - right, 0)
        elif self._operation is SetOperation.INTERSECT_ALL:
            copies = np.minimum(left, right)
        else:
            copies = np.minimum(left, 1)
        source = np.repeat(np.arange(len(kind)), np.where(kind == CTI, 1, copies))
        rows = pc.take(payload_of(counted.select([*CONTROL, *payload_schema(self.schema).names])), array_of(source))
        return make_changes(kind[source], start[source], stop[source], new_stop[source], rows)
