"""The memory that all tables of a process share, and the growth of tables.

    new table         INITIAL_SLOTS, and at most 1/SHARE of the free memory
    a quarter full    GROWTH times the slots, up to the default number of slots, if the memory is free
    many evictions    twice the slots, if the memory is free

Growth moves the entries into a larger table. Most tables have few groups and stay small. This saves time, because the
system must clear each page of memory before its first use. A table whose groups do not fit evicts entries, each of
which the high level must merge again. So it takes a larger part of the memory, as long as memory is free. Results do
not depend on sizes.
"""

from __future__ import annotations

import threading
import weakref

from lowlevel.table.table import Table

TABLE_MEMORY = 1 << 30
"""Bytes of all tables of a process."""

NEW_TABLE_DIVISOR = 8
"""A new table receives at most 1/SHARE of the free memory."""

INITIAL_SLOTS = 1 << 15
"""Maximum number of slots of a new table. With this number, a first batch of 16,384 new groups evicts few entries."""

GROWTH_FACTOR = 4
"""If more than 1/GROWTH of a table is full, its number of slots is multiplied by GROWTH."""

MIN_SLOTS = 1 << 10
"""Minimum number of slots of a table, even if the memory is used up."""

MAX_SLOTS = 1 << 24
"""Maximum number of slots of a table that grows. Larger tables take longer to flush than their evictions cost."""

EVICTIONS_PER_ROW = 0.125
"""A table grows if more than this part of its rows has evicted an entry since its last check."""


class TableBudget:
    """Memory for tables. It counts the tables that exist. Thread-safe."""

    def __init__(self, limit: int = TABLE_MEMORY) -> None:
        """`limit`: the bytes of all tables together."""
        self.limit = limit
        self.used = 0
        """Bytes of the tables that exist."""
        self._lock = threading.RLock()  # a table may be freed while this thread has the lock

    def add(self, table: Table) -> None:
        """Count a table until it is freed."""
        with self._lock:
            self.used += table.bytes
        weakref.finalize(table, self._subtract, table.bytes).atexit = False

    def _subtract(self, byte_count: int) -> None:
        with self._lock:
            self.used -= byte_count

    def fits_new(self, table: Table) -> bool:
        """Return whether a table, which is not counted yet, is at most its part of the free memory."""
        return table.bytes * NEW_TABLE_DIVISOR <= self.limit - self.used

    def allows_growth(self, table: Table, factor: int) -> bool:
        """Return whether a larger table, with `factor` times the slots, and `table` fit into the memory together."""
        return factor * table.bytes <= self.limit - self.used


PROCESS_BUDGET = TableBudget()
"""The budget of all runs of this process, except nodes, which have the budget `memory` of their pipeline file."""
