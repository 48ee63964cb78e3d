"""The operator of FirstCopies, FlowMerge and NetRows, with and without changes.

    rows ──► waiting ──► stored, by key ──► results of the changed keys, before and after ──► changes
                                      └───► results that cannot change

Rows wait until the newest row is `wait` ns later; if `wait` is None, until a watermark has passed them. Then they are
added to the stored rows, and the results of their keys are computed again. A watermark settles the keys that have rows
below the watermark. Without EMIT CHANGES the complete results of these keys are returned then. Rows that can affect no
later result are removed.

The number of stored rows is limited, if the input has watermarks before its end. Beyond the limit the older half of the
rows is settled as if a watermark had passed them, so later rows before this time are late. The settled rows are also
removed, although a later row can be their copy, or a record of their flow. They are counted in `forgotten`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from capture.arrow_compute import array_of
from highlevel.groups.keys import Keys
from highlevel.operators.meld import UNION
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, bounds_of, times_of
from highlevel.plan.revision_nodes import (
    ChangingFirstCopies,
    ChangingFlowMerge,
    ChangingNetRows,
    FirstCopies,
    FlowMerge,
    NetRows,
)
from highlevel.speculation.changes import make_changes, net_changes
from highlevel.speculation.keyed_rows import KeyedRows, Mask, Numbers, Rule, sort_rows
from highlevel.speculation.waiting_rows import WaitingRows
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END, Punctuation

MAX_ROWS = 1 << 20
"""Maximum number of stored rows."""

STORED, WAITING, READY, STATE = "stored", "waiting", "ready", "state"
"""Tables of a snapshot: stored rows, waiting rows, final results that wait for earlier results, and times."""

COVERED_SHARE = 4
"""The table of keys is made again when 1/COVERED_SHARE of its keys have no rows."""

FREED_SHARE = 4
"""Beyond the limit, 1/FREED_SHARE of the rows are removed together, because each removal sorts all stored rows."""

RevisionNode = FirstCopies | FlowMerge | NetRows
"""The nodes whose results depend on the rows of one key."""


class RevisionOperator:
    """Stores the rows that can affect later results."""

    def __init__(self, node: RevisionNode, rule: Rule, max_rows: int = MAX_ROWS) -> None:
        """Compute the results of `node` by `rule`."""
        self._rule = rule
        self._max_rows = max_rows
        self._time = node.time_columns[0]
        self._has_changes = isinstance(node, ChangingFirstCopies | ChangingFlowMerge | ChangingNetRows)
        self._wait = None
        if isinstance(node, ChangingFirstCopies | ChangingFlowMerge | ChangingNetRows):
            self._wait = node.consistency.wait
        kinds = {column.name: ARROW_TYPES[column.type] for column in node.input.columns}
        self._key_names = list(node.keys)
        self._key_types = [kinds[name] for name in node.keys]
        self._keys = Keys(self._key_types)
        stored = rule.prepare(pa.RecordBatch.from_pylist([], pa.schema(list(kinds.items()))))
        self._stored = self._add_keys(stored, np.empty(0, np.int64))
        self._waiting = WaitingRows(stored.schema, self._time)
        self._ready = rule.results(self._stored)
        self._newest_time = self._input_watermark = self._removed_before = self._watermark = BEGINNING
        self.received = 0
        self.results = 0
        """Rows or changes returned."""
        self.late = 0
        self.absorbed = 0
        """Rows that cannot change any more and are no results: copies, merged records, or unmatched withdrawals."""
        self.forgotten = 0
        """Rows and open flows that were removed too early, because more than `max_rows` rows were stored."""
        self.overflowed_sums = 0
        """Sums in final results that are NULL, because they exceed 64 bits."""

    @property
    def rows_held(self) -> int:
        """Number of stored rows."""
        return len(self._stored.times) + self._waiting.num_rows

    @property
    def bytes(self) -> int:
        """Bytes of the stored rows, keys and results."""
        numbers = self._stored.keys.nbytes + self._stored.times.nbytes + self._keys.bytes
        return self._stored.rows.nbytes + self._waiting.nbytes + self._ready.nbytes + numbers

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Add rows. Return the changes of the results of rows that have waited long enough."""
        self.received += batch.num_rows
        times = times_of(batch.column(self._time))
        in_time = (times >= self._input_watermark) & (times < END)
        late = int(np.count_nonzero(~in_time))
        if late:
            self.late += late
            batch = batch.filter(array_of(in_time))
        if not batch.num_rows:
            return
        self._newest_time = max(self._newest_time, int(times[in_time].max()))
        self._waiting.add(self._rule.prepare(batch))
        if self._wait is not None:
            yield from self._make_changes(*self._change(self._newest_time - self._wait + 1), BEGINNING)
        if self.rows_held > self._max_rows and self._input_watermark != BEGINNING:
            yield from self._settle_older_half()

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Return the results, or changes, that follow from a watermark, and then the watermark of the results."""
        (low,) = bounds_of(punctuation, 1)
        if low > self._input_watermark:
            yield from self._advance(punctuation.link, low)

    def _settle_older_half(self) -> Iterator[GraphItem]:
        """Settle the rows before the median time; also those at the median time if otherwise too few are removed."""
        times = np.append(self._stored.times, self._waiting.times)
        median = int(np.partition(times, len(times) // 2)[len(times) // 2])
        for cut in (median, median + 1):
            if self.rows_held > self._max_rows - self._max_rows // FREED_SHARE:
                self._removed_before = max(self._removed_before, cut)
                yield from self._advance(UNION, max(self._input_watermark, self._removed_before))

    def _advance(self, link: str, low: int) -> Iterator[GraphItem]:
        """Process a watermark."""
        old_watermark, self._input_watermark = self._input_watermark, low
        old, new = self._change(low)
        results = self._settle(old_watermark)
        bound = self._rule.bound(self._stored.times, low)
        if self._wait is not None:
            yield from self._make_changes(old, new, bound)
        elif self._has_changes:
            self._ready = pa.concat_tables([self._ready, results]).combine_chunks()
            is_final = self._times_in(self._ready) < bound
            final, self._ready = self._ready.filter(array_of(is_final)), self._ready.filter(array_of(~is_final))
            yield from self._make_changes(final.slice(0, 0), final, bound)
        elif results.num_rows:
            self.results += results.num_rows
            yield from results.combine_chunks().to_batches()
        if bound > self._watermark:
            self._watermark = bound
            yield Punctuation(link, bound)

    def _change(self, end: int) -> tuple[pa.Table, pa.Table]:
        """Store the waiting rows before `end`. Return the old and new results of the keys whose results change."""
        due = self._waiting.take_before(end).combine_chunks()
        none = self._ready.slice(0, 0)
        if not due.num_rows:
            return none, none
        added = self._add_keys(due, self._times_in(due))
        before = self._stored
        self._stored = _unite_rows(before, added)
        if self._wait is None:
            return none, none
        changed = np.zeros(self._keys.count, np.bool_)
        changed[added.keys] = True
        return self._results(before, changed), self._results(self._stored, changed)

    def _results(self, stored: KeyedRows, keys: Mask) -> pa.Table:
        """Return the results of the keys in a mask."""
        chosen = stored.take(np.flatnonzero(keys[stored.keys]))
        return self._rule.results(sort_rows(chosen.rows, chosen.keys, chosen.times))

    def _settle(self, old_watermark: int) -> pa.Table:
        """Return the results that are complete, and remove the rows that can affect no later result."""
        stored, low = self._stored, self._input_watermark
        deadline = END if low == END else max(low - self._rule.within, self._removed_before)
        is_new = (stored.times >= old_watermark) & (stored.times < low)
        keys = np.zeros(self._keys.count, np.bool_)
        keys[stored.keys[is_new | (stored.times < deadline)]] = True
        is_settled = keys[stored.keys]
        chosen = stored.take(np.flatnonzero(is_settled))
        settled = self._rule.settle(sort_rows(chosen.rows, chosen.keys, chosen.times), old_watermark, low, deadline)
        self.absorbed += settled.absorbed
        self.forgotten += settled.forgotten
        self.overflowed_sums += settled.overflowed_sums
        self._stored = _unite_rows(stored.take(np.flatnonzero(~is_settled)), settled.remaining)
        self._remove_unused_keys()
        return settled.results

    def _remove_unused_keys(self) -> None:
        """Make the table of keys again if many keys have no rows."""
        stored = self._stored
        if len(stored.keys) > self._keys.count - self._keys.count // COVERED_SHARE:
            return
        known, numbers = np.unique(stored.keys, return_inverse=True)
        if len(known) < self._keys.count - self._keys.count // COVERED_SHARE:
            self._keys = self._keys.copy_of(known)
            self._stored = KeyedRows(stored.rows, numbers.astype(np.int64), stored.times)

    def _make_changes(self, old: pa.Table, new: pa.Table, bound: int) -> Iterator[pa.RecordBatch]:
        """Return the changes between results. `bound`: the watermark that follows, or BEGINNING."""
        if not old.num_rows and not new.num_rows:
            return
        rows, weights = net_changes(old, new)
        self.results += rows.num_rows
        yield from make_changes(rows, weights, self._times_in(rows) < bound)

    def _add_keys(self, rows: pa.Table, times: Numbers) -> KeyedRows:
        columns = [rows.column(name).combine_chunks() for name in self._key_names]
        return KeyedRows(rows, self._keys.find_or_insert(columns, rows.num_rows).astype(np.int64), times)

    def _times_in(self, rows: pa.Table) -> Numbers:
        return times_of(rows.column(self._time).combine_chunks())

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the stored and waiting rows, final results that wait, and the times."""
        times = {
            "clock": self._newest_time,
            "low": self._input_watermark,
            "cut": self._removed_before,
            "watermark": self._watermark,
        }
        state = pa.table({name: [time] for name, time in times.items()})
        return {STATE: state, STORED: self._stored.rows, WAITING: self._waiting.snapshot(), READY: self._ready}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        (state,) = tables[STATE].to_pylist()
        self._newest_time, self._input_watermark = state["clock"], state["low"]
        self._removed_before, self._watermark = state["cut"], state["watermark"]
        stored = tables[STORED].combine_chunks()
        self._stored = self._add_keys(stored, self._times_in(stored))
        self._waiting.restore(tables[WAITING])
        self._ready = tables[READY]


def _unite_rows(first: KeyedRows, second: KeyedRows) -> KeyedRows:
    rows = pa.concat_tables([first.rows, second.rows]).combine_chunks()
    return KeyedRows(rows, np.append(first.keys, second.keys), np.append(first.times, second.times))
