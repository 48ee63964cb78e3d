"""The Python API with times as integers in ns, for tests that compute with them."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

import wiretide
from highlevel.results.user_types import TIMESTAMP


def query(*arguments: Any, **options: Any) -> pa.Table:
    """`wiretide.query` with times in ns."""
    return as_integers(wiretide.query(*arguments, **options))


def watch(*arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
    """`wiretide.watch` with times in ns. Closing the iterator closes that of the API."""
    batches = wiretide.watch(*arguments, **options)

    def converted() -> Iterator[pa.RecordBatch]:
        try:
            yield from map(as_integers, batches)
        finally:
            batches.close()

    return converted()


def packets(*arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
    """`wiretide.packets` with times in ns."""
    return map(as_integers, wiretide.packets(*arguments, **options))


def as_integers(rows: Any) -> Any:
    """Return a table or a batch with times as integers."""
    fields = [pa.field(each.name, pa.int64()) if each.type == TIMESTAMP else each for each in rows.schema]
    return rows.cast(pa.schema(fields))
