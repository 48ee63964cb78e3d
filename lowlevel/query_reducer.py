"""What the low level has for each plan on a link: tables that reduce its rows, or, where all are needed, the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import pyarrow as pa

from lowlevel.conditions import Condition
from lowlevel.flushing import Flushing
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import END
from lowlevel.query_rows import QueryRows
from lowlevel.query_tables import QueryTables
from lowlevel.readers import Rows
from lowlevel.spread import Spreader
from lowlevel.tally import Tally


class QueryReducer(Protocol):
    """Takes the rows of one plan on one link, and lets partials leave. Not thread safe.

    `low` is the promise that holds behind what has left; `accepted` and `filtered` count the rows that WHERE kept and
    dropped.
    """

    plan: LowLevelPlan
    where: Condition | None
    spreader: Spreader | None
    low: int
    accepted: int
    filtered: int

    @property
    def bytes(self) -> int:
        """Memory held."""
        ...

    @property
    def tally(self) -> Tally:
        """How partials have left."""
        ...

    def add(self, rows: Rows, newest: int = END) -> Iterable[pa.RecordBatch]:
        """Take in some rows, of a link whose newest believed time is `newest`."""
        ...

    def complete(self, low: int, idle: bool = False) -> Iterator[pa.RecordBatch]:
        """Take in the promise that no later row is below `low`."""
        ...

    def empty(self) -> Iterator[pa.RecordBatch]:
        """Let everything leave, without a promise."""
        ...


def make_reducer(link: str, plan: LowLevelPlan, slots: int, capacity: int, flushing: Flushing) -> QueryReducer:
    """Make what a plan needs: tables of `slots` slots for batches of up to `capacity` rows, or nothing of the kind."""
    return QueryTables(link, plan, slots, capacity, flushing) if plan.reduced else QueryRows(link, plan)
