"""The operators of InstantRanks and ChangingInstantRanks, which rank the rows that are true at each instant.

    rows with lifetimes, or open-ended snapshots ──► ranking ──► results that have ended, or their changes

The ranks at an instant are final when no later row can begin before it. So after a watermark t, all results that end
before t are final. Without EMIT CHANGES, they are returned then. With EMIT CHANGES a result is returned when a row has
begun at least WAIT after its end, and later rows correct it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.change_nodes import is_changing
from highlevel.plan.lifetime_nodes import ChangingInstantRanks, InstantRanks
from highlevel.plan.nodes import bound_count
from highlevel.plan.operators.lifetime_rows import lifetimes_of
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, bounds_of, times_of
from highlevel.speculation.changes import add_up, make_changes
from highlevel.speculation.consistency import FINAL, WEIGHT
from highlevel.speculation.lifetimes.instant_ranks import InstantRanking
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END, Punctuation

WAITING, TIMES = "waiting", "times"
"""Names of tables in a snapshot: changes of rows that are not ranked yet; the newest start and the watermark."""


class InstantRanksOperator:
    """Stores rows until the watermark, and returns the results that are final."""

    def __init__(self, node: InstantRanks) -> None:
        """Create an operator without rows."""
        lifetime, source = node.lifetime, node.input
        self._lifetime = lifetime
        self._width = bound_count(source)
        self._late_by = 0 if lifetime is None else None if lifetime.waits_for_end(source) else lifetime.late_by
        self._are_changes = is_changing(source)
        no_values = {WINDOW_START, WINDOW_END, WEIGHT, FINAL, *node.columns_of_lifetime}
        self._values = [column.name for column in source.columns if column.name not in no_values]
        kinds = {column.name: ARROW_TYPES[column.type] for column in source.columns}
        bounds = [pa.field(WINDOW_START, pa.int64()), pa.field(WINDOW_END, pa.int64())]
        self._schema = pa.schema([*bounds, *(pa.field(name, kinds[name]) for name in self._values)])
        self._ranking = InstantRanking(self._schema, node.ranks)
        self._visible = [column.name for column in node.columns if column.name not in (WEIGHT, FINAL)]
        self._waiting: list[pa.Table] = []
        self.newest_start = BEGINNING
        """The newest start of all rows."""
        self.watermark = BEGINNING
        """No later row begins before this time."""
        self.late = 0
        self.outside = 0
        """Number of rows without a lifetime."""
        self.received = 0
        self.results = 0

    @property
    def rows_held(self) -> int:
        """Number of rows that wait, and of rows and results that can still change."""
        return self._ranking.num_rows + sum(rows.num_rows for rows in self._waiting)

    @property
    def bytes(self) -> int:
        """Bytes of the rows and results."""
        return self._ranking.bytes + sum(rows.nbytes for rows in self._waiting)

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Store rows."""
        self.received += batch.num_rows
        self._store(batch)
        yield from ()

    def _store(self, batch: pa.RecordBatch) -> None:
        """Store the rows of a batch that have a lifetime and are not late."""
        if self._lifetime is None:
            start, end = (times_of(batch.column(name)) for name in (WINDOW_START, WINDOW_END))
            kept = np.ones(len(start), np.bool_)
        else:
            start, end = lifetimes_of(batch, self._lifetime)
            is_valid = (start < END) & (start < end)
            is_late = is_valid & (start < self.watermark)
            self.outside += int(np.count_nonzero(~is_valid))
            self.late += int(np.count_nonzero(is_late))
            kept = is_valid & ~is_late
        weights = batch.column(WEIGHT) if self._are_changes else array_of(np.ones(len(start), np.int64))
        columns = [array_of(start), array_of(end), *(batch.column(name) for name in self._values), weights]
        rows = pa.table(columns, names=[*self._schema.names, WEIGHT])
        if kept.any():
            self.newest_start = max(self.newest_start, int(start[kept].max()))
            self._waiting.append(rows if kept.all() else pc.filter(rows, array_of(kept)))

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Process a watermark. Return the results that become final, and the watermark."""
        bounds = bounds_of(punctuation, self._width)
        if set(bounds) == {END}:
            watermark = END
        elif self._late_by is None or bounds[0] == BEGINNING:
            return
        else:
            watermark = bounds[0] - self._late_by
        if watermark <= self.watermark:
            return
        self.watermark = watermark
        yield from self._rank()
        self._ranking.remove_before(watermark)
        yield Punctuation(punctuation.link, watermark)

    @property
    def _due_before(self) -> int:
        """Results that end before this time are returned."""
        return self.watermark

    def _rank(self) -> Iterator[GraphItem]:
        """Rank the waiting rows. Return the results that are due."""
        waiting, self._waiting = self._waiting, []
        rows = pa.concat_tables([*waiting, self._schema.append(pa.field(WEIGHT, pa.int64())).empty_table()])
        weights = rows.column(WEIGHT).to_numpy()
        changed, net = self._ranking.update(rows.drop_columns([WEIGHT]), weights, self._due_before)
        if changed.num_rows:
            yield from self._to_items(changed.select(self._visible), net)

    def _to_items(self, rows: pa.Table, weights: np.ndarray) -> Iterator[GraphItem]:
        """Return results. They are final, so no result is withdrawn."""
        copies = rows if (weights == 1).all() else pc.take(rows, array_of(np.repeat(np.arange(len(weights)), weights)))
        self.results += copies.num_rows
        yield from copies.combine_chunks().to_batches()

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the rows that wait, the times, and the state of the ranking."""
        schema = self._schema.append(pa.field(WEIGHT, pa.int64()))
        waiting = pa.concat_tables([schema.empty_table(), *self._waiting]).combine_chunks()
        times = pa.table({TIMES: pa.array([self.newest_start, self.watermark], pa.int64())})
        return {WAITING: waiting, TIMES: times, **self._ranking.snapshot()}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        self._waiting = [tables[WAITING]] if tables[WAITING].num_rows else []
        self.newest_start, self.watermark = tables[TIMES][TIMES].to_pylist()
        self._ranking.restore(tables)


class ChangingInstantRanksOperator(InstantRanksOperator):
    """Ranks rows when they arrive, and corrects the results that a later row changes."""

    def __init__(self, node: ChangingInstantRanks) -> None:
        """Create an operator without rows."""
        super().__init__(node)
        self._wait = node.consistency.wait
        self._open_ended = node.open_ended

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Store rows. Return the changes of the results that have ended."""
        yield from super().process_rows(port, batch)
        if self._wait is not None and self._waiting:
            yield from self._rank()

    @property
    def _due_before(self) -> int:
        if self._open_ended:
            return END
        has_ended = (
            BEGINNING if self._wait is None or self.newest_start == BEGINNING else self.newest_start - self._wait + 1
        )
        return max(self.watermark, has_ended)

    def _to_items(self, rows: pa.Table, weights: np.ndarray) -> Iterator[GraphItem]:
        is_final = times_of(rows.column(WINDOW_END).combine_chunks()) < self.watermark
        for batch in make_changes(rows, weights, is_final if self.watermark != END else True):
            for changes in add_up(batch):
                self.results += changes.num_rows
                yield changes
