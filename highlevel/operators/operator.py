"""What every operator is: a state machine over Arrow that knows no engine, does no I/O and is given its clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from lowlevel.punctuation import Item, Punctuation


class Operator(Protocol):
    """The contract that each operator keeps and is tested for.

    No row leaves after a punctuation that covers it. Punctuation is monotone, emitted only when it grows (operators
    without state may repeat it), and never swallowed, even with nothing to say. Every arrival order that respects the
    punctuation gives the same multiset of results. State is purged as soon as punctuation allows.
    `restore(snapshot())` changes nothing. Not thread safe.
    """

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Take the rows that arrived on input `port`."""
        ...

    def punctuate(self, port: int, mark: Punctuation) -> Iterator[Item]:
        """Take a promise about input `port`; results may leave, progress must."""
        ...

    def snapshot(self) -> dict[str, pa.Table]:
        """State as Arrow tables by name, one per open window where there are windows."""
        ...

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Take over the state of a snapshot; called before the first row."""
        ...
