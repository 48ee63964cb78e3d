"""Operator: the interface of all operators.

An operator is a state machine over Arrow data. It has no I/O. Watermarks are its only clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from lowlevel.punctuation import Item, Punctuation


class Operator(Protocol):
    """The interface and the rules of every operator; a test checks them.

    After an operator has emitted a watermark T, it emits no row with a time below T. Watermarks never decrease, and are
    emitted only if they grow (operators without state may repeat a watermark). A new watermark is emitted even if there
    is no result. Every arrival order without late rows gives the same multiset of results. State is removed as soon as
    the watermark allows it. `restore(snapshot())` restores the same state. Operators are not thread-safe.
    """

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Process rows of input `port`."""
        ...

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Process a watermark of input `port`.

        Return results that became final, and then the watermark of the results.
        """
        ...

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the state as Arrow tables by name. A window operator has one table per open window."""
        ...

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Restore the state of a snapshot. It must be called before the first row."""
        ...


class StatelessOperator:
    """The state methods of an operator without state."""

    bytes = 0

    def snapshot(self) -> dict[str, pa.Table]:
        """Return no tables."""
        return {}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Do nothing, because there is no state."""
