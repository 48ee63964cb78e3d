"""Arrow batches as the columns that expressions name, and evaluated vectors as Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from lowlevel.addresses import from_arrow
from lowlevel.evaluate import AddressVector, Vector


class BatchColumns(Mapping[str, "Vector | AddressVector"]):
    """The columns of one batch. Text becomes an object column, NULL stays NULL."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        """Wrap a batch."""
        self._batch = batch

    def __getitem__(self, name: str) -> Vector | AddressVector:
        """Convert one column."""
        column = self._batch.column(name)
        if pa.types.is_binary(column.type):
            return from_arrow(column)
        if pa.types.is_string(column.type):
            return Vector(np.array(column.to_pylist(), object))
        if column.null_count == 0:
            return Vector(column.to_numpy(zero_copy_only=False))
        zero = pa.scalar(False if pa.types.is_boolean(column.type) else 0, column.type)
        return Vector(column.fill_null(zero).to_numpy(zero_copy_only=False), np.asarray(column.is_valid()))

    def __iter__(self) -> Iterator[str]:
        """Iterate over the batch's column names."""
        return iter(self._batch.schema.names)

    def __len__(self) -> int:
        """Count the batch's columns."""
        return self._batch.num_columns


def to_arrow(vector: Vector, rows: int, kind: pa.DataType) -> pa.Array:
    """Make an Arrow column of `rows` values of a vector, constants repeated."""
    data = np.broadcast_to(vector.data, rows)
    absent = None if vector.valid is None else ~np.broadcast_to(vector.valid, rows)
    return pa.array(data, mask=absent).cast(kind)
