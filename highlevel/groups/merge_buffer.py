"""Stores the partials of one window or pane: merged by group if there are many, and as a few pieces.

    partials since the last snapshot ──► one piece ──┐
    pieces of earlier snapshots ─────────────────────┴──► pieces: base, changes, newer changes, …

A snapshot of an open window must not cost as much as the window. The order of merges has no effect, so a snapshot only
merges new partials. They become one more piece. A group occurs at most once in a piece, but may occur in several
pieces. Old pieces are returned as the same objects, so the engine does not write them again. Pieces are merged as in a
log-structured merge tree (`count_merged_pieces`), so a row is written O(log n) times.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from highlevel.groups.merging import MergeRule
from highlevel.groups.table import GroupTable, join_small, merge_batches

MERGE_ROWS = 16_384
"""Number of waiting partials that causes a merge. A merge of fewer partials would cost more for calls than for rows."""

FEW_ROWS = 4096
"""Maximum number of rows of a window that is always one piece. Further files would cost more than these rows."""

SIMILAR_PIECES = 16
"""Number of pieces of similar size that are merged to one piece. Sizes are similar if their ratio is below this number.
"""


def count_merged_pieces(row_counts: Sequence[int]) -> int:
    """Return the number of last pieces that must be merged to one piece. 1: no merge is needed.

    All pieces are merged if the pieces after the first (the base) have at least as many rows as the base.

    >>> count_merged_pieces([100_000] + [1000] * 15), count_merged_pieces([100_000] + [1000] * 16)
    (1, 16)
    >>> count_merged_pieces([100_000, 60_000, 40_000])
    3
    """
    if sum(row_counts) <= FEW_ROWS or sum(row_counts[1:]) >= row_counts[0]:
        return len(row_counts)
    similar = 0
    for rows in reversed(row_counts):
        if rows >= SIMILAR_PIECES * row_counts[-1]:
            break
        similar += 1
    return similar if similar >= SIMILAR_PIECES else 1


class MergeBuffer:
    """Partials of one range of windows.

    A few partials are stored as received, many partials in a table of groups. `merged_batches` and `merged_pieces`
    replace the stored partials by merged batches. Until the next `add`, they return the same batches.
    """

    def __init__(
        self, groups: Sequence[str], merge_rules: Sequence[MergeRule], pieces: Sequence[pa.RecordBatch] = ()
    ) -> None:
        """Merge by `groups`, beginning with the pieces of a snapshot."""
        self.groups = groups
        self.merge_rules = merge_rules
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_rows = 0
        self.pieces = list(pieces)
        self.table: GroupTable | None = None

    @property
    def rows(self) -> int:
        """Number of rows that a merge processes."""
        table_rows = 0 if self.table is None else self.table.count
        return self.waiting_rows + int(table_rows) + sum(int(piece.num_rows) for piece in self.pieces)

    @property
    def bytes(self) -> int:
        """Bytes of the buffer."""
        table = 0 if self.table is None else self.table.bytes
        return table + sum(int(batch.nbytes) for batch in (*self.waiting, *self.pieces))

    def add(self, batch: pa.RecordBatch) -> None:
        """Add partials, with the columns `groups` and the columns of the sub-aggregates."""
        self.waiting.append(batch)
        self.waiting_rows += batch.num_rows
        if self.waiting_rows > MERGE_ROWS:
            self._merge()

    def _merge(self) -> GroupTable:
        """Merge the waiting partials into the table."""
        if self.table is None:
            self.table = GroupTable(self.waiting[0].schema, self.groups, self.merge_rules)
        for batch in join_small(self.waiting):
            self.table.merge(batch)
        self.waiting, self.waiting_rows = [], 0
        return self.table

    def _merge_to_piece(self) -> None:
        """Make a new piece of the partials that are not yet in a piece."""
        if self.waiting or self.table is not None:
            self.pieces.append(self._merge().to_arrow())
            self.table = None

    def merged_batches(self) -> list[pa.RecordBatch]:
        """Merge all rows by group, store only the result, and return it."""
        self._merge_to_piece()
        self._merge_last(len(self.pieces))
        return self.pieces

    def merged_pieces(self) -> list[pa.RecordBatch]:
        """Merge the partials since the last call to one piece, and return all pieces, for a snapshot."""
        self._merge_to_piece()
        while (count := count_merged_pieces([piece.num_rows for piece in self.pieces])) > 1:
            self._merge_last(count)
        return self.pieces

    def _merge_last(self, count: int) -> None:
        """Merge the last `count` pieces."""
        if count > 1:
            self.pieces[-count:] = [merge_batches(self.pieces[-count:], self.groups, self.merge_rules)]

    def batches(self) -> list[pa.RecordBatch]:
        """Return the rows: merged if they are many, otherwise as received. A group may occur in several batches."""
        return self.merged_batches() if self.table is not None else [*self.pieces, *self.waiting]
