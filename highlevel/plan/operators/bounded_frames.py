"""BoundedFrames: the rows of OVER whose values a change can affect, if all frames are bounded.

    rows by time    ──┬────────────────────────┬───────────┬───────────────────────┬──►
                      │ r rows, or a ns before │  changed  │ r rows, or a ns after │
                      │                        ├────────── computed again ─────────┤
                      ├─────────────────────────────── read ──────────────────────┤

With ROWS n PRECEDING and lag, a change affects a row if it is at most n rows before the row. With RANGE a PRECEDING, a
change affects a row if it is at most a ns before the row. So the rows from the first change to the last affected row
are computed again, from these rows and the rows that their frames contain.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from capture.lazy_dataclasses import dataclass
from highlevel.plan.answer_nodes import Over, RowFunction, RowFunctionKind
from highlevel.plan.nodes import Node
from lowlevel.punctuation import BEGINNING, END

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Span:
    """The rows with times from `first` to `last`, inclusive, are computed again from all rows since `read_from`."""

    read_from: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class BoundedFrames:
    """The maximum distance over all functions, in `rows` and in `time` (unit of the time column)."""

    rows: int
    time: int

    def find_span(self, times: Times, first: int, last: int) -> Span:
        """Return the span for changes with times from `first` to `last`.

        `times`: the times of all rows after the changes.
        """
        if not self.rows:
            return Span(max(BEGINNING, first - self.time), first, min(END, last + self.time))
        before, after = times[times < first], times[times > last]
        read_from, affected = BEGINNING, END
        if len(before) >= self.rows:
            read_from = int(np.partition(before, -self.rows)[-self.rows])
        if len(after) >= self.rows:
            affected = int(np.partition(after, self.rows - 1)[self.rows - 1])
        return Span(min(read_from, max(BEGINNING, first - self.time)), first, max(affected, min(END, last + self.time)))


def bounded_frames(body: Node) -> BoundedFrames | None:
    """Return the distances of an OVER node. Return None for other nodes, and if a frame is not bounded.

    A frame in ROWS, or LAG, is unbounded in time with PARTITION BY: any number of rows of other partitions may lie
    between.
    """
    if not isinstance(body, Over) or body.final_time_column is None:
        return None
    rows, time = 0, 0
    for function in body.functions:
        if body.final_time_column in function.partition:
            continue
        distance = -_frame_start(function)
        if function.kind is not RowFunctionKind.LAG and function.frame.by_values:
            time = max(time, distance)
        elif function.partition:
            return None
        else:
            rows = max(rows, distance)
    return BoundedFrames(rows, time)


def _frame_start(function: RowFunction) -> int:
    """Return the start of the frame, relative to the row.

    `Over.final_time_column` has checked that the frame is bounded.
    """
    if function.kind is RowFunctionKind.LAG:
        return -function.distance
    assert function.frame.first is not None
    return int(function.frame.first)
