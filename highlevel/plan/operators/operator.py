"""The contract of node operators, and watermarks of one or two time columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from lowlevel.punctuation import BEGINNING, END, JointPunctuation, Punctuation
from lowlevel.punctuation import GraphItem as GraphItem

AnyPunctuation = Punctuation | JointPunctuation
"""The message with a watermark of one time column, or with a joint watermark of two."""

Times = npt.NDArray[np.int64]

Bounds = tuple[int, ...]
"""A watermark as a tuple with one bound for each time column: no later row is below all bounds. A node without time
columns has one bound, which is BEGINNING until the last row, and then END."""


class NodeOperator(Protocol):
    """The contract of `highlevel.operators.operator`, extended by joint watermarks, whose bounds never decrease."""

    @property
    def bytes(self) -> int:
        """Bytes of the state."""
        ...

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Process rows of input `port`. Return the rows and watermarks that can be returned at once."""
        ...

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Process a watermark of input `port`. Return the rows that become final, and then the new watermark."""
        ...

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the state as Arrow tables by name."""
        ...

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot. The caller does this before the first row."""
        ...


@runtime_checkable
class LinkWatermarkReader(Protocol):
    """An operator that can also use the watermarks of single links (`highlevel.plan.link_watermarks`)."""

    @property
    def uses_links(self) -> bool:
        """True if the watermarks of single links change the state."""
        ...

    def punctuate_link(self, link: str, watermark: int) -> Iterator[GraphItem]:
        """Process the watermark of a link: no later row of this link has a smaller time.

        Yield the same items as `punctuate`.
        """
        ...


def bounds_of(punctuation: AnyPunctuation, count: int) -> Bounds:
    """Return a watermark as `count` bounds, one for each time column. At the end of a stream all are END."""
    if isinstance(punctuation, JointPunctuation):
        assert count == 2 or set(punctuation.bounds) == {END}, f"{punctuation} where {count} bounds are expected"
        return punctuation.bounds if count == 2 else (END,)
    if punctuation.watermark == END:
        return (END,) * count
    assert count == 1, f"{punctuation} where {count} bounds are expected"
    return (punctuation.watermark,)


def make_punctuation(link: str, bounds: Bounds) -> AnyPunctuation:
    """Return the message with a watermark of one or two bounds."""
    return Punctuation(link, bounds[0]) if len(bounds) == 1 else JointPunctuation(link, (bounds[0], bounds[1]))


def single_bound(bounds: Bounds, position: int) -> int:
    """Return the watermark of the time column at `position`. It is BEGINNING (unknown) unless all other bounds are END.

    >>> single_bound((5,), 0), single_bound((5, END), 0) , single_bound((5, 7), 0) == BEGINNING
    (5, 5, True)
    """
    others = (*bounds[:position], *bounds[position + 1 :])
    return bounds[position] if all(bound == END for bound in others) else BEGINNING


def times_of(column: pa.Array) -> Times:
    """Return the values of a time column. NULL becomes END, which is below no bound."""
    without_nulls = pc.fill_null(column, END) if column.null_count else column
    times: Times = without_nulls.to_numpy()
    return times


def mask_covered(times: Sequence[Times | None], bounds: Bounds) -> npt.NDArray[np.bool_] | bool:
    """Return a mask of the rows below all bounds of a watermark, or one bool for all rows.

    `times` contains the values of each time column, or None for unknown values. The bound of an unknown column covers a
    row only if the bound is END.
    """
    if BEGINNING in bounds:
        return False
    rows: npt.NDArray[np.bool_] | bool = True
    for column, bound in zip(times, bounds, strict=True):
        if bound != END:
            rows = rows & (column < bound) if column is not None else False
    return rows
