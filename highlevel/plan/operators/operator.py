"""The contract of node operators, and watermarks of one or two time columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lowlevel.punctuation import BEGINNING, END, JointPunctuation, Punctuation
from lowlevel.punctuation import GraphItem as GraphItem

Mark = Punctuation | JointPunctuation
"""Punctuation with a watermark of one time column, or with a joint watermark of two."""

Times = npt.NDArray[np.int64]

Lows = tuple[int, ...]
"""A watermark as one bound for each time column: no later row is below all of them. A node without time columns has one
bound too. It is BEGINNING until it is END."""


class NodeOperator(Protocol):
    """The contract of `highlevel.operators.operator`, with joint punctuation.

    A joint watermark covers all earlier ones: neither bound ever falls.
    """

    @property
    def bytes(self) -> int:
        """Bytes of the state."""
        ...

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Process rows of input `port`. Return the items that follow."""
        ...

    def punctuate(self, port: int, mark: Mark) -> Iterator[GraphItem]:
        """Process a watermark of input `port`. Return results that are final, and the new watermark."""
        ...

    def snapshot(self) -> dict[str, pa.Table]:
        """State as Arrow tables by name."""
        ...

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot. The caller does this before the first row."""
        ...


class Stateless:
    """Empty state of an operator without state."""

    bytes = 0

    def snapshot(self) -> dict[str, pa.Table]:
        """Return no tables."""
        return {}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Do nothing, because there is no state."""


def lows_of(mark: Mark, width: int) -> Lows:
    """Return a watermark as `width` bounds. At the end of a stream all bounds are END."""
    if isinstance(mark, JointPunctuation):
        assert width == 2 or set(mark.lows) == {END}, f"{mark} where {width} bounds are expected"
        return mark.lows if width == 2 else (END,)
    if mark.low == END:
        return (END,) * width
    assert width == 1, f"{mark} where {width} bounds are expected"
    return (mark.low,)


def mark_of(link: str, lows: Lows) -> Mark:
    """Return punctuation with these bounds."""
    return Punctuation(link, lows[0]) if len(lows) == 1 else JointPunctuation(link, (lows[0], lows[1]))


def low_of_one(lows: Lows, position: int) -> int:
    """Return the watermark of the time column at `position` only: BEGINNING unless all others have ended.

    >>> low_of_one((5,), 0), low_of_one((5, END), 0) , low_of_one((5, 7), 0) == BEGINNING
    (5, 5, True)
    """
    others = (*lows[:position], *lows[position + 1 :])
    return lows[position] if all(low == END for low in others) else BEGINNING


def times_of(column: pa.Array) -> Times:
    """Return the values of a time column, with END for NULL, which is below no bound."""
    filled = column.fill_null(END) if column.null_count else column
    times: Times = filled.to_numpy()
    return times


def covered(times: Sequence[Times | None], lows: Lows) -> npt.NDArray[np.bool_] | bool:
    """Return a mask of the rows that a watermark covers, or one bool for all.

    `times`: per time column, None if not known.
    """
    if BEGINNING in lows:
        return False
    rows: npt.NDArray[np.bool_] | bool = True
    for column, low in zip(times, lows, strict=True):
        if low != END:
            rows = rows & (column < low) if column is not None else False
    return rows
