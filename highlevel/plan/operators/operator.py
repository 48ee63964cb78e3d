"""What the operator of a node is: an operator whose promises may be about two progressing columns at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lowlevel.punctuation import BEGINNING, END, JointPunctuation, Punctuation
from lowlevel.punctuation import GraphItem as GraphItem

Mark = Punctuation | JointPunctuation
"""A promise about one progressing column, or a box over two."""

Times = npt.NDArray[np.int64]

Lows = tuple[int, ...]
"""A promise as a bound for each progressing column: no later row is below in all of them. Of a node without such a
column there is one bound all the same, which is BEGINNING until it is END."""


class GraphOperator(Protocol):
    """Keeps the contract of `highlevel.operators.operator`, over promises of either kind.

    A box is covered by those behind it: neither bound ever falls.
    """

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Take the rows that arrived on input `port`."""
        ...

    def punctuate(self, port: int, mark: Mark) -> Iterator[GraphItem]:
        """Take a promise about input `port`; results may leave, progress must."""
        ...

    def snapshot(self) -> dict[str, pa.Table]:
        """State as Arrow tables by name."""
        ...

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Take over the state of a snapshot; called before the first row."""
        ...


@runtime_checkable
class HoldingOperator(Protocol):
    """What operators that hold rows, or groups of them, say as well."""

    @property
    def received(self) -> int:
        """Rows that came."""
        ...

    @property
    def results(self) -> int:
        """Rows that left."""
        ...

    @property
    def late(self) -> int:
        """Rows that were dropped since a promise had covered them."""
        ...

    @property
    def rows_held(self) -> int:
        """Rows, or groups, that are kept for those to come."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes of the state held."""
        ...


@runtime_checkable
class StoringOperator(Protocol):
    """What those say as well that keep some of their rows alone."""

    @property
    def stored(self) -> int:
        """Rows that were kept for a while."""
        ...

    @property
    def pairs(self) -> int:
        """Pairs of rows that were found in each other's windows, with equal keys."""
        ...


def lows_of(mark: Mark, width: int) -> Lows:
    """Return a promise as `width` bounds; all are END at the end of a stream, whatever is promised before it."""
    if isinstance(mark, JointPunctuation):
        assert width == 2 or set(mark.lows) == {END}, f"{mark} where {width} bounds are promised"
        return mark.lows if width == 2 else (END,)
    if mark.low == END:
        return (END,) * width
    assert width == 1, f"{mark} where {width} bounds are promised"
    return (mark.low,)


def mark_of(link: str, lows: Lows) -> Mark:
    """Return the promise that has these bounds."""
    return Punctuation(link, lows[0]) if len(lows) == 1 else JointPunctuation(link, (lows[0], lows[1]))


def low_of_one(lows: Lows, place: int) -> int:
    """Return what is promised of the progressing column at `place` alone: nothing, unless all others are at their end.

    >>> low_of_one((5,), 0), low_of_one((5, END), 0) , low_of_one((5, 7), 0) == BEGINNING
    (5, 5, True)
    """
    others = (*lows[:place], *lows[place + 1 :])
    return lows[place] if all(low == END for low in others) else BEGINNING


def times_of(column: pa.Array) -> Times:
    """Return the values of a progressing column; a NULL, which is below nothing, is END."""
    filled = column.fill_null(END) if column.null_count else column
    found: Times = filled.to_numpy()
    return found


def covered(times: Sequence[Times | None], lows: Lows) -> npt.NDArray[np.bool_] | bool:
    """Return which rows a promise covers, or whether it does all; `times` are theirs, None where they are not known."""
    if BEGINNING in lows:
        return False
    found: npt.NDArray[np.bool_] | bool = True
    for each, low in zip(times, lows, strict=True):
        if low != END:
            found = found & (each < low) if each is not None else False
    return found
