"""The tables of one query on one link: rows update them, and their entries become partials."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture.arrow_compute import array_of
from lowlevel.expressions.columns import COPY_DIVISOR, AddressVector, BufferColumns, ChosenRows, Columns, Mask, Vector
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.predicate import Condition
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import BEGINNING, END
from lowlevel.rows.readers import Rows
from lowlevel.subaggregates import INT_MAX, INT_MIN
from lowlevel.table.bucket_table import TaggedTable
from lowlevel.table.budget import EVICTIONS_PER_ROW, GROWTH_FACTOR, INITIAL_SLOTS, MAX_SLOTS, MIN_SLOTS, TableBudget
from lowlevel.table.feeding import Projection
from lowlevel.table.flushing import AT_ONCE, Flushing, Policy
from lowlevel.table.flushing_table import FlushingTable, make_table
from lowlevel.table.inputs import RowWriter, reads_only_columns
from lowlevel.table.keys import KeyLayout, codes_of, whole_words
from lowlevel.table.spread import Spreader
from lowlevel.table.table import Table, Tally, add_tallies

MAX_COUNTED_CODE = 8**5
"""Maximum code up to which distinct codes are found by counting. A code contains the IP versions of address columns,
three bits each, so the codes of five columns are smaller.
"""

VERSIONS = (0, 4, 6)
"""IP versions of an address; 0 is NULL."""

Versions = tuple[int, ...]
"""IP versions of the address keys of a plan, in order."""


class QueryTables:
    """The tables of one query on one link: a table for each tuple of IP versions of the address keys.

    A table is allocated when the first row with its versions arrives. Not thread safe.
    """

    def __init__(
        self,
        link: str,
        plan: LowLevelPlan,
        slots: int,
        capacity: int,
        flushing: Flushing = AT_ONCE,
        budget: TableBudget | None = None,
    ) -> None:
        """Create no table yet. Each table will have `slots` slots. Batches have up to `capacity` rows.

        With a `budget` tables begin with fewer slots, and grow (`lowlevel.table.budget`). Raises ValueError for a
        budget with gradual flushes, whose tables have a fixed size.
        """
        if budget is not None and flushing.policy is not Policy.AT_ONCE:
            raise ValueError(f"got a budget with the flush policy {flushing.policy}, expected {Policy.AT_ONCE}")
        self.budget = budget
        self._size_checks: dict[Versions, tuple[int, int]] = {}  # rows since a table's check, evictions before it
        self.link = link
        self.plan = plan
        self.slots = slots
        self.capacity = capacity
        self.flushing = flushing
        self._link_names_column = pa.array([], pa.string())
        self.tables: dict[Versions, tuple[KeyLayout, Table]] = {}
        self.row_writers: dict[Versions, RowWriter] = {}
        self.where = None if plan.where is None else Condition(plan.where)
        self.spreader = Spreader(plan.pane, plan.origin, capacity) if plan.spread else None
        self.addresses = [key.expression for key in plan.keys if key.expression.type is Type.ADDRESS]
        self.address_keys_are_columns = all(isinstance(expression, Column) for expression in self.addresses)
        self.reads_plain_columns = reads_only_columns(plan)
        self.calls_user_functions = plan.calls_user_functions
        self.oldest_pane = INT_MAX  # lower bound of the panes of all entries, with AT_ONCE
        self.max_open_pane = INT_MAX  # the latest pane that a row can open
        self.last_flushed_panes = INT_MIN, INT_MIN  # current pane and smallest remaining pane at the last gradual flush
        self.watermark = BEGINNING  # watermark of the partials
        self.receives_entries = False  # entries of another query's tables update these tables, instead of rows
        self.receiving_tables: list[QueryTables] = []  # the tables that the entries of these tables update
        self.projections: dict[Versions, Projection] = {}  # by the IP versions of the entries that arrive
        self.entry_panes = np.empty(0, np.int64)  # panes of the entries that arrive
        self.waiting_partials: list[pa.RecordBatch] = []  # partials that the next call returns
        self.accepted = 0
        self.filtered = 0

    @property
    def bytes(self) -> int:
        """Memory in bytes of the tables so far, and of the buffers for rows and entries."""
        spread = 0 if self.spreader is None or self.receives_entries else self.spreader.buffers.nbytes
        return spread + self.entry_panes.nbytes + sum(table.bytes for _, table in self.tables.values())

    @property
    def tally(self) -> Tally:
        """The sums of the counters of the tables so far."""
        return add_tallies(table.tally for _, table in self.tables.values())

    def forward_entries_to(self, other: QueryTables) -> None:
        """Update the tables of `other` with the entries that leave these tables.

        From then on `other.add` only counts the accepted and the filtered rows.

        The caller must call each method first on these tables and then on `other`, so that the watermark of `other` is
        valid for the entries that it receives. Raises ValueError for tables with gradual flushes.
        """
        if self.flushing.policy is not Policy.AT_ONCE or other.flushing.policy is not Policy.AT_ONCE:
            raise ValueError(
                f"got the flush policies {self.flushing.policy} and {other.flushing.policy}, expected {Policy.AT_ONCE} "
                "for both: with gradual flushes, entries would stay twice as long"
            )
        other.receives_entries = True
        other.spreader = self.spreader
        self.receiving_tables.append(other)

    def add(self, rows: Rows, newest: int = END) -> Iterable[pa.RecordBatch]:
        """Add rows. Return partials: the evicted entries that do not fit into the buffer.

        `newest` is the newest accepted time of the link in ns. With gradual flushes, rows after `newest` open no pane.
        """
        count = rows.count
        if count > self.capacity:
            raise ValueError(
                f"got {count} rows at once, expected at most {self.capacity}: tables have no room for more"
            )
        self.max_open_pane = INT_MAX if newest == END else max(INT_MIN, (newest - self.plan.origin) // self.plan.pane)
        if self.where is not None and self.where.excludes_all(rows.columns, count):
            self.filtered += count
            return self._take_waiting()
        chosen = None if self.where is None or count == 0 else self.where.true_rows(rows.columns, count)
        accepted = count if chosen is None else int(np.count_nonzero(chosen))
        self.accepted += accepted
        self.filtered += count - accepted
        if accepted == 0 or self.receives_entries:
            return self._take_waiting()
        if self.spreader is not None:
            return self._add_pieces(self.spreader, rows, chosen)
        columns = rows.columns
        if (
            chosen is not None
            and (accepted * COPY_DIVISOR <= count or (self.calls_user_functions and accepted < count))
            and not (self.reads_plain_columns and isinstance(columns, BufferColumns))
        ):
            columns, chosen = ChosenRows(columns, np.flatnonzero(chosen)), None
        times = columns["ts"]
        assert isinstance(times, Vector)
        self._add_rows(columns, times.data, rows.earliest, chosen)
        return self._take_waiting()

    def _add_pieces(self, spreader: Spreader, rows: Rows, chosen: Mask | None) -> Iterator[pa.RecordBatch]:
        """Add the chosen rows, divided among the panes of their lifetimes (SPREAD). Yield partials after each batch."""
        for pieces in spreader.cut(rows.columns, rows.count, chosen):
            self._add_rows(pieces.columns, pieces.times, pieces.earliest, None)
            yield from self._take_waiting()

    def _add_rows(self, columns: Columns, times: npt.NDArray[np.int64], earliest: int, chosen: Mask | None) -> None:
        """Add rows to the tables, in the panes of their `times`. `earliest` is at most the smallest time."""
        self.oldest_pane = min(self.oldest_pane, (earliest - self.plan.origin) // self.plan.pane)
        for versions, rows_of_versions in self._split_by_versions(columns, chosen):
            layout, table = self._table_for(versions)
            if table.evictions_due:
                self.waiting_partials += self._to_partials(layout, table, table.take_evicted())
            self.row_writers[versions].write(columns, len(times))
            flags = None if rows_of_versions is None else rows_of_versions.view(np.uint8)
            table.update(times, flags, self.plan.pane, self.plan.origin, self.max_open_pane)
            if self.budget is not None:
                self._check_size(versions, len(times) if flags is None else int(np.count_nonzero(flags)))

    def _split_by_versions(self, columns: Columns, chosen: Mask | None) -> Iterator[tuple[Versions, Mask | None]]:
        """Yield each occurring tuple of IP versions of the address keys, and the chosen rows with these versions."""
        if self.address_keys_are_columns and isinstance(columns, BufferColumns) and columns.has_only_ipv4:
            yield (4,) * len(self.addresses), chosen
            return
        version_columns = []
        for expression in self.addresses:
            vector = evaluate(expression, columns)
            assert isinstance(vector, AddressVector)
            version_columns.append(vector.version)
        # The addresses of a header share a column of versions, and most batches have only one version.
        distinct = list({id(column): column for column in version_columns}.values())
        common = {id(column): _common_version(column) for column in distinct}
        if None not in common.values():
            yield tuple(common[id(column)] or 0 for column in version_columns), chosen
            return
        if len(distinct) == 1:
            for version in VERSIONS:
                matching = distinct[0] == version if chosen is None else chosen & (distinct[0] == version)
                if matching.any():
                    yield (version,) * len(version_columns), matching
            return
        codes = distinct[0]
        for column in distinct[1:]:
            codes = codes * 8 + column
        for code in _distinct_codes(codes if chosen is None else codes[chosen]):
            matching = codes == code
            digits = {}
            for column in reversed(distinct):
                code, digits[id(column)] = divmod(code, 8)
            versions = tuple(digits[id(column)] for column in version_columns)
            yield versions, matching if chosen is None else chosen & matching

    def _table_for(self, versions: Versions) -> tuple[KeyLayout, Table]:
        """Return the table for IP versions, and the layout of its keys. Create the table if it is new."""
        if versions not in self.tables:
            layout = KeyLayout(self.plan.keys, versions)
            # A table that receives entries has its full size at once, because `add_entries` does not let it grow.
            slots = self.slots if self.budget is None or self.receives_entries else min(self.slots, INITIAL_SLOTS)
            table = self._make_table(layout, slots)
            while self.budget is not None and slots > MIN_SLOTS and not self.budget.fits_new(table):
                slots //= 2
                table = self._make_table(layout, slots)
            self._use_table(versions, layout, table)
        return self.tables[versions]

    def _make_table(self, layout: KeyLayout, slots: int) -> Table:
        table = make_table(layout.words, self.plan.subaggregates, slots, self.capacity, self.flushing)
        if self.receives_entries:
            table.accept_entries()
        return table

    def _use_table(self, versions: Versions, layout: KeyLayout, table: Table) -> None:
        if self.budget is not None:
            self.budget.add(table)
        self.tables[versions] = layout, table
        self.row_writers[versions] = RowWriter(self.plan, layout, table)

    def _check_size(self, versions: Versions, row_count: int) -> None:
        """Replace a table by a larger one if it is rather full or evicts many entries, and the budget has the memory.

        Evictions are counted until a table has received as many rows as it has slots.
        """
        layout, table = self.tables[versions]
        assert isinstance(table, TaggedTable), "tables with a budget are not flushed gradually"
        slots = len(table.slots)
        if GROWTH_FACTOR * table.entry_count > slots and slots < self.slots:
            self._grow(versions, layout, table, min(GROWTH_FACTOR, self.slots // slots))
            return
        rows, evicted_before = self._size_checks.get(versions, (0, 0))
        rows += row_count
        if rows < slots:
            self._size_checks[versions] = rows, evicted_before
            return
        evicted = table.evicted_count
        self._size_checks[versions] = 0, evicted
        if (evicted - evicted_before) > rows * EVICTIONS_PER_ROW and 2 * slots <= MAX_SLOTS:
            self._grow(versions, layout, table, 2)

    def _grow(self, versions: Versions, layout: KeyLayout, table: TaggedTable, factor: int) -> None:
        """Move the entries of a table into one with `factor` times the slots, if the budget has the memory."""
        assert self.budget is not None, "only tables with a budget grow"
        if not self.budget.allows_growth(table, factor):
            return
        self.waiting_partials += self._to_partials(layout, table, table.take_evicted())
        larger = self._make_table(layout, factor * len(table.slots))
        assert isinstance(larger, TaggedTable)
        larger.replace(table)
        self.projections.clear()  # they refer to the old table
        self._use_table(versions, layout, larger)

    def add_entries(self, source_plan: LowLevelPlan, layout: KeyLayout, entries: npt.NDArray[np.int64]) -> None:
        """Add entries of a table with `source_plan`, whose groups are finer.

        The partials of evicted entries wait until the next `add` or `advance_watermark`.
        """
        versions = tuple(layout.versions)
        if versions not in self.projections:
            version_of = {key.expression: version for key, version in zip(layout.keys, versions, strict=True)}
            own_layout, table = self._table_for(tuple(version_of[expression] for expression in self.addresses))
            if len(self.entry_panes) == 0:
                self.entry_panes = np.empty(self.capacity, np.int64)
            self.projections[versions] = Projection(source_plan, layout, self.plan, own_layout, table)
        projection = self.projections[versions]
        own_layout, table = projection.rows, projection.table
        for begin in range(0, len(entries), table.capacity):
            if table.evictions_due:
                self.waiting_partials += self._to_partials(own_layout, table, table.take_evicted())
            batch = entries[begin : begin + table.capacity]
            self.oldest_pane = min(self.oldest_pane, projection.fill(batch, self.entry_panes))
            table.update(self.entry_panes[: len(batch)], None, 1, 0)  # the panes, as times in panes of length 1

    def _take_waiting(self) -> Sequence[pa.RecordBatch]:
        """Return the waiting partials, and remove them."""
        if not self.waiting_partials:
            return ()
        partials, self.waiting_partials = self.waiting_partials, []
        return partials

    def advance_watermark(self, watermark: int, is_idle: bool = False) -> Iterator[pa.RecordBatch]:
        """Accept a watermark, and yield the partials of closed panes. END flushes all entries.

        Afterwards `self.watermark` is the watermark of the partials. With gradual flushes, it is below the accepted
        watermark if entries of closed panes stay. If the link is `is_idle`, all entries of closed panes are flushed,
        because no packet waits.
        """
        yield from self._take_waiting()
        if watermark == END:
            yield from self.flush_all()
        else:
            pane = (watermark - self.plan.origin) // self.plan.pane
            if self.flushing.policy is Policy.AT_ONCE:
                yield from self._flush(pane)
            else:
                yield from self._flush_gradually(pane, is_idle)
                watermark = min(watermark, self.plan.origin + min(pane, self._smallest_pane) * self.plan.pane)
        self.watermark = max(self.watermark, watermark)

    def flush_all(self) -> Iterator[pa.RecordBatch]:
        """Flush all entries, without a watermark."""
        yield from self._take_waiting()
        self.oldest_pane = INT_MAX
        for layout, table in self.tables.values():
            yield from self._to_partials(layout, table, table.take_evicted())
            for entries in table.flush(INT_MAX):
                yield from self._to_partials(layout, table, entries)

    def _flush(self, pane: int) -> Iterator[pa.RecordBatch]:
        """Flush all entries of panes below `pane`."""
        if pane <= self.oldest_pane:
            return
        oldest = INT_MAX
        for layout, table in self.tables.values():
            yield from self._to_partials(layout, table, table.take_evicted())
            for entries in table.flush(pane):
                yield from self._to_partials(layout, table, entries)
            assert isinstance(table, TaggedTable)
            oldest = min(oldest, table.oldest_pane)
        self.oldest_pane = oldest

    def _flush_gradually(self, pane: int, is_idle: bool) -> Iterator[pa.RecordBatch]:
        """Advance tables with gradual flushes to `pane`. Yield their partials if panes have been closed."""
        current = pane if self.max_open_pane == INT_MAX else max(pane, self.max_open_pane)
        for layout, table in self._flushing_tables():
            if table.evictions_due:
                yield from self._to_partials(layout, table, table.take_evicted())
            table.advance(current, pane if is_idle else INT_MIN)
        state = current, min(pane, self._smallest_pane)
        if state == self.last_flushed_panes and not is_idle:
            return
        self.last_flushed_panes = state
        for layout, table in self._flushing_tables():
            yield from self._to_partials(layout, table, table.take_evicted())

    def _flushing_tables(self) -> Iterator[tuple[KeyLayout, FlushingTable]]:
        for layout, table in self.tables.values():
            assert isinstance(table, FlushingTable)
            yield layout, table

    @property
    def _smallest_pane(self) -> int:
        """Return the smallest pane of an entry in tables with gradual flushes; INT_MAX if they are empty."""
        return min((table.smallest_pane for _, table in self._flushing_tables()), default=INT_MAX)

    def _to_partials(self, layout: KeyLayout, table: Table, entries: npt.NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        """Convert entries of a table into one batch of partials. Update the receiving tables with the entries."""
        if len(entries) == 0:
            return
        for other in self.receiving_tables:
            other.add_entries(self.plan, layout, entries)
        first = 1 + table.key_words
        end = first + len(self.plan.subaggregates)
        pane, *values = codes_of(entries, [*whole_words(0, 1), *whole_words(first, end)])
        columns = [self._link_names(len(entries)), array_of(pane), *layout.unpack(entries, 1)]
        for sub, words in zip(self.plan.subaggregates, values, strict=True):
            columns.append(array_of(words.view(np.float64) if sub.type is Type.FLOAT else words))
        yield pa.RecordBatch.from_arrays(columns, schema=self.plan.schema)

    def _link_names(self, count: int) -> pa.Array:
        """Return a column with the name of the link: a slice of the longest such column so far."""
        if len(self._link_names_column) < count:
            self._link_names_column = pa.repeat(pa.scalar(self.link), count)
        return self._link_names_column.slice(0, count)


def _common_version(versions: npt.NDArray[np.int64]) -> int | None:
    """Return the common version; None if versions differ."""
    if versions.ndim == 0:
        return int(versions)
    first = int(versions[0])
    return first if (versions == first).all() else None


def _distinct_codes(codes: npt.NDArray[np.int64]) -> list[int]:
    """Return the distinct codes. Counting is ten times faster than sorting if codes are small."""
    is_small = int(codes.max(initial=0)) <= MAX_COUNTED_CODE
    distinct = np.flatnonzero(np.bincount(codes)) if is_small else np.unique(codes)
    return distinct.tolist()
