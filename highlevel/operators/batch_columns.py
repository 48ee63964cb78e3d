"""BatchColumns: gives expressions access to the columns of an Arrow batch by name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import pyarrow as pa

from lowlevel.expressions.arrow import from_arrow, macs_from_arrow
from lowlevel.expressions.columns import AnyVector, TextVector, Vector


class BatchColumns(Mapping[str, AnyVector]):
    """The columns of one batch; NULL stays NULL."""

    def __init__(self, batch: pa.RecordBatch, macs: Collection[str] = ()) -> None:
        """Wrap a batch. `macs` are the names of the columns of MAC addresses."""
        self._batch = batch
        self._macs = macs

    def __getitem__(self, name: str) -> AnyVector:
        """Convert one column."""
        column = self._batch.column(name)
        if pa.types.is_binary(column.type):
            return macs_from_arrow(column) if name in self._macs else from_arrow(column)
        if pa.types.is_string(column.type):
            encoded = column.dictionary_encode()
            ids = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            valid = None if column.null_count == 0 else np.asarray(column.is_valid())
            return TextVector(ids, encoded.dictionary.to_pylist(), valid)
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
