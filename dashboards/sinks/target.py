"""The contract of a sink, and its errors.

Exactly once: a sink stores the ID of a micro-batch together with its rows, in one transaction of the other system. A
micro-batch that is repeated after a crash is not stored again. The ID is stored for each run, because the micro-batches
of another run folder also begin with 0. The ID is also stored for each ID of a query, because a query with a new text
computes the micro-batch again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from capture.errors import WiretideError
from capture.lazy_dataclasses import dataclass
from lowlevel.expressions.tree import Column


class SinkError(WiretideError):
    """Results cannot be stored in another system. The user must correct the settings of the sink, or the system."""


class UnreachableError(SinkError):
    """The other system does not answer. The attempt may be repeated."""


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A query whose results are stored. `columns`: the columns of its result files, in their order.

    `key`: the columns that identify a row; None if rows may be equal. `has_changes`: the rows are changes, with the
    columns `weight` and `final`. `id`: the ID of the query in its run. A query with another text has another ID.
    """

    name: str
    columns: tuple[Column, ...]
    schema: pa.Schema
    key: tuple[str, ...] | None = None
    has_changes: bool = False
    id: int = 0


class Target(Protocol):
    """The other system. Errors are SinkError. After an UnreachableError the attempt is repeated."""

    def prepare(self, query: StoredQuery) -> None:
        """Create missing tables or topics for the results of a query, and check existing ones."""

    def last_batch(self, run: str, query: StoredQuery) -> int:
        """Return the last micro-batch of a run that is stored; -1 if there is none."""

    def store(self, run: str, query: StoredQuery, batch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Store the rows of a micro-batch and its ID, both or none. `rows` have the schema of the query."""

    def close(self) -> None:
        """Close all connections. A second call has no effect."""
