"""Result batches of the inline engine as rows."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

import pyarrow as pa


def rows_of(batch: pa.RecordBatch) -> Iterator[tuple]:
    """Rows with addresses as those of `ipaddress`."""
    for row in batch.to_pylist():
        yield tuple(ip_address(each) if isinstance(each, bytes) else each for each in row.values())
