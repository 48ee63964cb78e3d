"""The contract of all operators.

An operator is a state machine over Arrow data; it has no I/O, and watermarks are its clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from lowlevel.punctuation import Item, Punctuation


class Operator(Protocol):
    """The contract of every operator; a test checks it.

    No row is emitted after a punctuation that covers it. Watermarks never decrease, and are emitted only if they grow
    (operators without state may repeat a watermark). A new watermark is passed on even if there is no result. Every
    arrival order that respects the watermarks produces the same multiset of results. State is removed as soon as the
    watermark allows it. `restore(snapshot())` changes nothing. Operators are not thread-safe.
    """

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Process rows of input `port`."""
        ...

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Process a watermark of input `port`. Results may be emitted, and the watermark must be passed on."""
        ...

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the state as Arrow tables by name, one per open window if there are windows."""
        ...

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Restore the state of a snapshot. The caller does this before the first row."""
        ...


class StatelessOperator:
    """The state methods of an operator without state."""

    bytes = 0

    def snapshot(self) -> dict[str, pa.Table]:
        """Return no tables."""
        return {}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Do nothing, because there is no state."""
