"""SPREAD: cut a row that lasts from start_ts to ts into pieces, one per pane, and divide its counters among them.

    pane            |          p          |        p + 1        |        p + 2        |
    row                        [start ··················· end)
    offset from its start       0         x                   d

The pieces are `[0, x)` and `[x, d)`. If the row has V bytes, the share of a piece `[low, high)` is
`V * high // d - V * low // d`. It differs from the exact fraction by less than 1. Terms of neighbouring pieces cancel,
so the shares of a row add up to V exactly. A row without duration, or with a start after its end, is one piece.

Only sums of counters are divided. Other aggregates count a row once: in its last piece and with whole values (`AtEnd`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from capture.lazy_dataclasses import dataclass
from capture.native import helper, kernel
from lowlevel.expressions.columns import AnyVector, CachedColumns, Columns, Mask, Vector, take_rows
from lowlevel.expressions.tree import ENDS_COLUMN, SHARE_PREFIX

MAX_PIECES = 10_000
"""Maximum number of pieces of one row. A longer row becomes one piece, at its end, and is counted in `too_long`. In
such a row the start comes from a wrong clock, or the window is far too short.
"""

COUNTERS = r"(raw_)?(packets|bytes)|\w+(Delta|Total)Count|(reverse)?(initiator|responder)(Octets|Packets)"
"""Pattern of the names of columns that are counters over the lifetime of a row."""

PIECE_WORDS = 5
"""Number of words of a piece."""

ROW, PANE, TOO_LONG = range(3)
"""Words of the state: the next row, its next pane (counted from its first pane), and the number of rows that were not
cut because they were too long.
"""


def is_counter(column: str) -> bool:
    """Return whether a column is a counter over the lifetime of a row. Only such columns can be divided."""
    return re.fullmatch(COUNTERS, column, re.IGNORECASE) is not None


@helper
def multiply_divide(value, part, whole):  # type: ignore[no-untyped-def]
    """Return `value * part // whole` for uint64 with part <= whole. The product may have 128 bits."""
    bits = np.uint64(32)
    lower = np.uint64(0xFFFFFFFF)
    one = np.uint64(1)
    value_low, value_high = value & lower, value >> bits
    part_low, part_high = part & lower, part >> bits
    cross, other = value_low * part_high, value_high * part_low
    middle = (value_low * part_low >> bits) + (cross & lower) + (other & lower)
    low = value_low * part_low & lower | middle << bits
    high = value_high * part_high + (cross >> bits) + (other >> bits) + (middle >> bits)
    if high == 0:
        return low // whole
    # Long division, bit by bit. The quotient is at most `value`, so `high` stays below `whole`, which is below 2**63.
    for _ in range(64):
        high = high << one | low >> np.uint64(63)
        low = low << one
        if high >= whole:
            high -= whole
            low |= one
    return low


@kernel("i64(i64*, i64*, u8*, i64, i64, i64, i64, i64, i64*, i64*, i64*, i64*, i64*, i64*, i64)")
def cut_rows(  # type: ignore[no-untyped-def]
    starts,
    ends,
    chosen,
    uses_chosen,
    rows,
    pane_length,
    origin,
    limit,
    state,
    row_of,
    pane_of,
    low,
    high,
    length,
    capacity,
):
    """Cut rows into pieces, until there are `capacity` pieces or no more rows. Return the number of pieces.

    * `starts`, `ends`: times of the rows in ns. If `uses_chosen`, only rows with `chosen` = 1 are cut.
    * `limit`: a row that is as long as this number of panes, or longer, is one piece.
    * `row_of`, `pane_of`: row and pane of each piece. `low`, `high`: the piece in ns from the start of the row.
      `length`: the duration of the row; the last piece of a row has high = length. Each array has `capacity` words.
    * `state`: three words, from which the next call continues.
    """
    pieces = 0
    row = state[ROW]
    while row < rows and pieces < capacity:
        if uses_chosen and not chosen[row]:
            row += 1
            continue
        end = ends[row]
        duration = np.int64(0)
        if starts[row] < end:
            # As uint64, the difference of any two times does not overflow.
            elapsed = np.uint64(end) - np.uint64(starts[row])
            if elapsed // np.uint64(pane_length) < np.uint64(limit):
                duration = np.int64(elapsed)
            else:
                state[TOO_LONG] += 1
        start = end - duration
        first = (start - origin) // pane_length
        panes = (end - (1 if duration else 0) - origin) // pane_length - first + 1
        while state[PANE] < panes and pieces < capacity:
            pane = first + state[PANE]
            begin = origin + pane * pane_length
            row_of[pieces] = row
            pane_of[pieces] = pane
            low[pieces] = max(0, begin - start)
            high[pieces] = min(duration, begin + pane_length - start)
            length[pieces] = duration
            pieces += 1
            state[PANE] += 1
        if state[PANE] == panes:
            state[PANE] = 0
            row += 1
    state[ROW] = row
    return pieces


@kernel("i64(i64*, i64*, i64*, i64*, i64*, i64, i64*)")
def share_values(values, row_of, low, high, length, pieces, out):  # type: ignore[no-untyped-def]
    """Write the share of each piece in the value of its row to `out` (`pieces` words); return `pieces`."""
    for piece in range(pieces):
        value = values[row_of[piece]]
        if length[piece] == 0:
            out[piece] = value
            continue
        size = np.uint64(-value) if value < 0 else np.uint64(value)
        whole = np.uint64(length[piece])
        upper = multiply_divide(size, np.uint64(high[piece]), whole)
        lower = multiply_divide(size, np.uint64(low[piece]), whole)
        share = np.int64(upper - lower)
        out[piece] = -share if value < 0 else share
    return pieces


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of rows. `times`: the starts of their panes in ns. `earliest`: the smallest of these times."""

    count: int
    earliest: int
    times: npt.NDArray[np.int64]
    columns: Columns


class PieceColumns(CachedColumns):
    """Columns of pieces. The key `name` returns undivided values, the key SHARE_PREFIX + `name` divided values.

    The column ENDS_COLUMN is true for the last piece of each row.
    """

    def __init__(self, rows: Columns, row_of: npt.NDArray[np.int64], spans: list[npt.NDArray[np.int64]]) -> None:
        """`rows`: columns of the rows. `spans`: low, high and length of each piece."""
        super().__init__()
        self._rows = rows
        self._row_of = row_of
        self._spans = spans

    def _make(self, name: str) -> AnyVector:
        if name == ENDS_COLUMN:
            return Vector(self._spans[1] == self._spans[2])
        if not name.startswith(SHARE_PREFIX):
            return take_rows(self._rows[name], self._row_of)
        whole = self._rows[name.removeprefix(SHARE_PREFIX)]
        assert isinstance(whole, Vector)
        shares = np.empty(len(self._row_of), np.int64)
        values = np.ascontiguousarray(whole.data)
        share_values(values, self._row_of, *self._spans, len(shares), shares)
        return Vector(shares, None if whole.valid is None else whole.valid[self._row_of])

    def __iter__(self) -> Iterator[str]:
        """Iterate over the columns of the rows."""
        return iter(self._rows)

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self._rows)


class Spreader:
    """Cutter of the rows of one query into pieces. `too_long` counts rows with too many pieces. Not thread safe."""

    def __init__(self, pane: int, origin: int, capacity: int) -> None:
        """Panes are `pane` ns long and counted from `origin`. `cut` yields groups of up to `capacity` pieces."""
        self.pane = pane
        self.origin = origin
        self.too_long = 0
        self.buffers = np.empty((PIECE_WORDS, capacity), np.int64)

    def cut(self, columns: Columns, rows: int, chosen: Mask | None) -> Iterator[Pieces]:
        """Yield the pieces of the chosen rows, in groups. A group is valid until the next group is requested."""
        start, end = columns["start_ts"], columns["ts"]
        assert isinstance(start, Vector)
        assert isinstance(end, Vector)
        ends = np.ascontiguousarray(end.data)
        starts = start.data if start.valid is None else np.where(start.valid, start.data, ends)
        starts = np.ascontiguousarray(np.broadcast_to(starts, rows))
        mask = np.ones(1, np.uint8) if chosen is None else chosen.view(np.uint8)
        state = np.zeros(3, np.int64)
        while state[ROW] < rows:
            count = cut_rows(
                starts, ends, mask, chosen is not None, rows, self.pane, self.origin, MAX_PIECES, state,
                *self.buffers, self.buffers.shape[1],
            )  # fmt: skip
            if count == 0:
                break
            row_of, pane_of, *spans = (np.ascontiguousarray(buffer[:count]) for buffer in self.buffers)
            times = self.origin + pane_of * self.pane
            yield Pieces(count, int(times.min()), times, PieceColumns(columns, row_of, spans))
        self.too_long += int(state[TOO_LONG])
