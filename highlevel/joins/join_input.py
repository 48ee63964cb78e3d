"""Batches of one side of a join: the rows that may have a match, and their keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from capture.lazy_dataclasses import dataclass
from highlevel.groups.key_words import Words
from highlevel.joins.spec import JoinSpec, Port
from highlevel.operators.batch_columns import BatchColumns
from lowlevel.expressions.arrow import arrow_column
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.tree import Column, Expression, columns_of
from lowlevel.expressions.types import Type, key_type
from lowlevel.plan import ARROW_TYPES


@dataclass(frozen=True)
class JoinRows:
    """Rows of a batch that may have a match, their times in ns, and one column of values for each key."""

    batch: pa.RecordBatch
    times: Words
    keys: list[pa.Array]

    def select(self, rows: Words) -> JoinRows:
        """Return the rows at the indexes `rows`, without a copy if these are all rows."""
        if len(rows) == len(self.times):
            return self
        indices = array_of(rows)
        return JoinRows(pc.take(self.batch, indices), self.times[rows], [pc.take(key, indices) for key in self.keys])


class JoinInput:
    """Prepares the batches of one side of a join."""

    def __init__(self, spec: JoinSpec, port: Port) -> None:
        """Read the batches of `port`."""
        self.side = spec.side(port)
        self.expressions = [pair[port] for pair in spec.keys]
        key_types = [key_type(left.type, right.type) for left, right in spec.keys]
        self.types = [each for each in key_types if each is not None]  # JoinSpec raises an error for other types
        self.macs = [
            {column.name for column in columns_of(expression) if column.type is Type.MAC}
            for expression in self.expressions
        ]

    @property
    def kinds(self) -> list[pa.DataType]:
        """The Arrow types of the keys."""
        return [ARROW_TYPES[own_type] for own_type in self.types]

    def key_index(self, name: str) -> int | None:
        """Return the index of the key that is exactly this column with the same values, or None."""
        arrow_type = self.side.schema.field(name).type
        if arrow_type == pa.float64():  # keys replace NaN and -0.0
            return None
        for index, (expression, kind) in enumerate(zip(self.expressions, self.kinds, strict=True)):
            if isinstance(expression, Column) and expression.name == name and kind == arrow_type:
                return index
        return None

    def read(self, batch: pa.RecordBatch) -> tuple[JoinRows, pa.RecordBatch]:
        """Return the rows that may have a match, and the rows that have none because a key is NULL or NaN."""
        keys = [
            _key(batch, expression, kind, macs)
            for expression, kind, macs in zip(self.expressions, self.types, self.macs, strict=True)
        ]
        time = batch.column(self.side.time)
        null = np.zeros(batch.num_rows, np.bool_)
        for column in (time, *keys):
            if column.null_count:
                null |= np.asarray(pc.is_null(column))
        if not null.any():
            return JoinRows(batch, time.to_numpy(), keys), batch.slice(0, 0)
        complete = array_of(~null)
        keys = [pc.filter(key, complete) for key in keys]
        rows = JoinRows(pc.filter(batch, complete), pc.filter(time, complete).to_numpy(), keys)
        return rows, pc.filter(batch, array_of(null))


def _key(batch: pa.RecordBatch, expression: Expression, key_type: Type, macs: set[str]) -> pa.Array:
    """Return the values of a key. NaN, which equals no value, becomes NULL, and -0.0 becomes 0.0."""
    if isinstance(expression, Column):
        column = batch.column(expression.name)
    else:
        column = arrow_column(evaluate(expression, BatchColumns(batch, macs)), batch.num_rows, expression.type)
    if column.type != ARROW_TYPES[key_type]:
        column = pc.cast(column, ARROW_TYPES[key_type], safe=False)
    if key_type is Type.FLOAT:
        column = pc.if_else(pc.is_nan(column), None, pc.add(column, 0.0))
    return column
