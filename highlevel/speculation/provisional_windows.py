"""Sliding windows that are published before they are final, and corrected when more rows arrive.

    partials ──► pending, per window ──┬─► published, per window ──► old and new groups of the changed windows
                                       └── when WAIT or EARLY has passed, or the watermark is past the window

This is the snapshot operator of CEDR for windows: all rows of a window have the lifetime of the window, so a window is
one snapshot (Goldstein and Hong, §3.2). Without EARLY, rows in order cause no corrections (the variant that preserves
perfect input). WAIT and EARLY are measured by a clock: the newest time of all links. So a slow link does not delay
provisional results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from capture.lazy_dataclasses import dataclass
from highlevel.groups.merge_buffer import MergeBuffer
from highlevel.groups.merging import list_merge_rules
from highlevel.groups.table import join_batches, merge_batches
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.operators.group_numbers import number_groups
from highlevel.sliding.aggregate import END_WID, FIRST_WID, Bucket, merge_late_partials
from highlevel.sliding.open_partials import WID
from highlevel.speculation.consistency import Consistency
from highlevel.windows.kind import SlidingWindow
from lowlevel.integer_ranges import Ranges, append_ids, unite
from lowlevel.plan import NEWEST_COLUMN
from lowlevel.punctuation import BEGINNING, END, Punctuation
from lowlevel.subaggregates import INT_MAX, SubAggregate, count_of_rows

NEWEST_TIME = b"wiretide.newest"
"""Metadata of a batch of partials: the newest time of any row of the links so far, ns."""

NO_PARTIALS = pa.RecordBatch.from_pylist([], pa.schema([]))
"""A batch without rows, whose metadata may contain a newest time."""


def with_newest_time(partials: pa.RecordBatch, newest: int) -> pa.RecordBatch:
    """Return partials with a newest time in the metadata. This time may be later than all partials."""
    return partials.replace_schema_metadata({**(partials.schema.metadata or {}), NEWEST_TIME: str(newest).encode()})


def newest_time_of(partials: pa.RecordBatch) -> int:
    """Return the newest time in the metadata (ns); without it, the newest time of the partials."""
    stated = (partials.schema.metadata or {}).get(NEWEST_TIME)
    return pc.max(partials.column(NEWEST_COLUMN)).as_py() if stated is None else int(stated)


PUBLISHED, PENDING, WINDOWS, STATE = "published", "pending", "windows", "state"
"""Names of the tables of a snapshot. The ID of a window follows the first two names."""


@dataclass(slots=True)
class OpenWindow:
    """A window that is not final: its groups when it was published, the clock at that time, and partials since then."""

    pending: MergeBuffer
    published: pa.RecordBatch | None = None
    published_at: int | None = None


@dataclass(frozen=True, slots=True)
class Revision:
    """The groups of changed windows, before and after the change. Columns as for `WindowOperator`."""

    old: tuple[pa.RecordBatch, ...]
    new: tuple[pa.RecordBatch, ...]
    is_final: bool


class ProvisionalWindows:
    """Merges partials in open windows, and returns revisions of results. It is the state of an operator.

    Not thread safe.
    """

    def __init__(
        self,
        window: SlidingWindow,
        pane: int,
        group_by: Sequence[str],
        merge_columns: Sequence[str],
        subaggregates: Sequence[SubAggregate],
        consistency: Consistency,
        *,
        compares_groups: bool = False,
    ) -> None:
        """Merge partials of panes of `pane` ns by the columns `merge_columns`, which include the columns `group_by`.

        One of the sub-aggregates must be NEWEST. `compares_groups`: a result depends on all groups of its window.
        """
        self.window = window
        self.consistency = consistency
        self.clock = BEGINNING
        """The newest time of a row, ns."""
        self.received = 0
        self.late = 0
        self.late_rows = 0
        self._bucket = Bucket(window, pane)
        self._group_by = tuple(group_by)
        self._merge_columns = list(merge_columns)
        self._subaggregates = tuple(subaggregates)
        self._rules = list_merge_rules(subaggregates)
        self._counts = count_of_rows(subaggregates)
        self._compares_groups = compares_groups
        self._open: dict[int, OpenWindow] = {}
        self._closed_before = 0  # windows with smaller IDs are final
        self._closed: Ranges = []

    @property
    def outside(self) -> int:
        """Number of partials before the origin, or between windows."""
        return self._bucket.outside

    @property
    def bytes(self) -> int:
        """Bytes of the stored partials."""
        windows = self._open.values()
        published = sum(window.published.nbytes for window in windows if window.published is not None)
        return published + sum(window.pending.bytes for window in windows)

    def open_windows(self) -> Ranges:
        """Return the IDs of the windows that contain partials and are not final."""
        return unite((wid, wid + 1) for wid in self._open)

    def take_closed_windows(self) -> Ranges:
        """Return the IDs of the windows that became final since the last call."""
        closed, self._closed = self._closed, []
        return closed

    def process_rows(self, batch: pa.RecordBatch) -> Iterator[Revision]:
        """Add partials to their windows. Return a revision if windows are published."""
        self.received += batch.num_rows
        self.clock = max(self.clock, newest_time_of(batch))
        for tagged in self._bucket.process_rows(0, batch) if batch.num_rows else ():
            assert isinstance(tagged, pa.RecordBatch)
            self._count_late(tagged)
            for of_windows in merge_late_partials(tagged, INT_MAX, self._merge_columns, self._subaggregates):
                self._add(of_windows)
        yield from self._publish(self._due_windows, is_final=False)

    def punctuate(self, punctuation: Punctuation) -> Iterator[Revision | Punctuation]:
        """Return a final revision of each window that ends by the watermark, each followed by its end as watermark.

        The clock is later than the watermark by REMEMBER, so other windows may be published too.
        """
        ended = punctuation.watermark == END
        if self.consistency.remember is not None and BEGINNING < punctuation.watermark < END:
            self.clock = max(self.clock, punctuation.watermark + self.consistency.remember)
        closed_before = END if ended else self.window.first_open_window(punctuation.watermark)
        if closed_before > self._closed_before:
            yield from self._close(closed_before)
        yield from self._publish(self._due_windows, is_final=False)
        if closed_before > self._closed_before:
            self._closed_before = closed_before
            yield punctuation if ended else Punctuation(punctuation.link, self.window.end(closed_before - 1))

    def _close(self, closed_before: int) -> Iterator[Revision]:
        """Publish and remove the windows with IDs below `closed_before`."""
        closing = sorted(wid for wid in self._open if wid < closed_before)
        if closing:
            append_ids(self._closed, np.array(closing, np.int64))
        yield from self._publish(closing, is_final=True)
        for wid in closing:
            del self._open[wid]

    @property
    def _due_windows(self) -> list[int]:
        return [wid for wid, window in self._open.items() if self._is_due(wid, window)]

    def _add(self, partials: pa.RecordBatch) -> None:
        """Add partials with the column WID to their windows, unless these are final."""
        wids = partials.column(WID).to_numpy()
        for wid in np.unique(wids[wids >= self._closed_before]).tolist():
            if wid not in self._open:
                self._open[wid] = OpenWindow(self._buffer())
            self._open[wid].pending.add(pc.filter(partials, array_of(wids == wid)).drop_columns([WID]))

    def _buffer(self, pieces: Sequence[pa.RecordBatch] = ()) -> MergeBuffer:
        return MergeBuffer(self._merge_columns, self._rules, pieces)

    def _count_late(self, tagged: pa.RecordBatch) -> None:
        """Count late partials, once for each final window that they missed, and their rows."""
        first, end = (tagged.column(name).to_numpy() for name in (FIRST_WID, END_WID))
        missed = np.clip(np.minimum(end, self._closed_before) - first, 0, None)
        self.late += int(missed.sum())
        if self._counts is not None:
            self.late_rows += int(tagged.column(self._counts).to_numpy()[missed > 0].sum())

    def _is_due(self, wid: int, window: OpenWindow) -> bool:
        """Return True if a window has partials that must be published now."""
        wait, early, end = self.consistency.wait, self.consistency.early, self.window.end(wid)
        if not window.pending.rows or wait is None:
            return False
        if self.clock >= end + wait:
            return True
        last = end - self.window.range if window.published_at is None else window.published_at
        return early is not None and self.clock >= last + early

    def _publish(self, wids: Sequence[int], *, is_final: bool) -> Iterator[Revision]:
        """Merge the pending partials of windows. If groups change, yield their old and new rows."""
        old: list[pa.RecordBatch] = []
        new: list[pa.RecordBatch] = []
        for wid in sorted(wids):
            window = self._open[wid]
            if not window.pending.rows:
                continue
            (changed,) = window.pending.merged_batches()
            published = changed
            if window.published is not None:
                unchanged, affected = self._divide(window.published, changed)
                old.append(self._with_bounds(wid, affected))
                changed = merge_batches([affected, changed], self._merge_columns, self._rules)
                published = join_batches([unchanged, changed])
            new.append(self._with_bounds(wid, changed))
            self._open[wid] = OpenWindow(self._buffer(), published, self.clock)
        if new:
            yield Revision(tuple(old), tuple(new), is_final)

    def _divide(self, published: pa.RecordBatch, pending: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Divide published rows into rows whose results cannot change, and rows whose results may change."""
        if self._compares_groups or not self._group_by:
            return published.slice(0, 0), published
        both = [pa.Table.from_batches([each.select(self._group_by)]) for each in (published, pending)]
        numbers = number_groups(pa.concat_tables(both), self._group_by)
        affected = np.isin(numbers[: published.num_rows], numbers[published.num_rows :])
        return pc.filter(published, array_of(~affected)), pc.filter(published, array_of(affected))

    def _with_bounds(self, wid: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of a window with its bounds."""
        end = np.full(rows.num_rows, self.window.end(wid), np.int64)
        columns = [array_of(end - self.window.range), array_of(end), *rows.columns]
        return pa.RecordBatch.from_arrays(columns, [WINDOW_START, WINDOW_END, *rows.schema.names])

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the state. Each open window has its own tables, so unchanged windows need not be written again."""
        windows = {wid: window.published_at for wid, window in self._open.items()}
        tables = {
            STATE: pa.table({"clock": [self.clock], "closed_before": [self._closed_before]}),
            WINDOWS: pa.table({WID: pa.array(windows, pa.int64()), "at": pa.array(windows.values(), pa.int64())}),
        }
        for wid, window in self._open.items():
            if window.published is not None:
                tables[f"{PUBLISHED} {wid}"] = pa.Table.from_batches([window.published])
            if window.pending.rows:
                tables[f"{PENDING} {wid}"] = pa.Table.from_batches(window.pending.merged_pieces())
        return tables

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        (state,) = tables[STATE].to_pylist()
        self.clock, self._closed_before = state["clock"], state["closed_before"]
        for row in tables[WINDOWS].to_pylist():
            published, pending = (tables.get(f"{name} {row[WID]}") for name in (PUBLISHED, PENDING))
            buffer = self._buffer(() if pending is None else pending.to_batches())
            batch = None if published is None else join_batches(published.to_batches())
            self._open[row[WID]] = OpenWindow(buffer, batch, row["at"])
